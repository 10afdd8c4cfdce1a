"""The agent's unit leaves root eight capabilities: with them everything it does works, without any one something fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.probe_agent.stacks import pyspy_program
from probing_cluster.sandbox.machine import scratch
from tests.ansible import deeds
from tests.ansible.test_units import AGENT_CAPABILITIES

SLEEPER = """
import ctypes, os, time
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: as after an exec
def waiting_for_godot():
    print(flush=True)
    time.sleep(600)
waiting_for_godot()
"""
RESTRICTED = Path("/proc/sys/kernel/dmesg_restrict")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="capabilities are taken from root"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv (util-linux)"),
]


@pytest.fixture
def where() -> Iterator[Path]:
    """A place as a node has it: a job's directory with a trap in it, a file and a process of another user's."""
    with scratch.directory("probing-caps-") as directory:
        (directory / "jobs/2/closed").mkdir(parents=True)
        (directory / "jobs/2/closed/page").touch()
        (directory / "secret").write_text("of nobody's")
        for path in (
            directory / "jobs/2/closed/page",
            directory / "jobs/2/closed",
            directory / "jobs/2",
            directory / "secret",
        ):
            os.chown(path, deeds.NOBODY, deeds.NOBODY)
            path.chmod(0o600 if path.name == "secret" else 0o000)
        with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE) as sleeper:
            assert sleeper.stdout is not None
            sleeper.stdout.read(1)
            (directory / "pid").write_text(str(sleeper.pid))
            yield directory
            sleeper.kill()


def _skip_what_cannot_be(deed: str) -> None:
    if deed == "look_into" and pyspy_program.program() is None:
        pytest.skip("py-spy is not installed")
    if deed == "c_functions" and os.uname().machine != "x86_64":
        pytest.skip("stacks of C functions are followed on x86-64 only")


def done(deed: str, where: Path, capabilities: set[str]) -> subprocess.CompletedProcess[str]:
    """One deed, by root with these capabilities and no others, as systemd would start it."""
    names = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in sorted(capabilities))])
    allowed = ("setpriv", f"--bounding-set={names}", "--inh-caps=-all", "--no-new-privs")
    return subprocess.run(
        [*allowed, sys.executable, deeds.__file__, deed, str(where)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("deed", deeds.DEEDS)
def test_the_units_capabilities_are_enough(deed: str, where: Path) -> None:
    """Each thing the agent does with a right of root's can be done with what its unit leaves."""
    _skip_what_cannot_be(deed)
    found = done(deed, where, AGENT_CAPABILITIES)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("capability", "deed"),
    [
        ("CAP_CHOWN", "page_directory"),
        ("CAP_FOWNER", "page_directory"),
        ("CAP_DAC_OVERRIDE", "removal"),
        ("CAP_SETUID", "owner"),
        ("CAP_SETGID", "owner"),
        ("CAP_KILL", "end_a_child"),
        ("CAP_SYSLOG", "kernel_log"),
        ("CAP_SYS_PTRACE", "look_into"),
        ("CAP_SYS_PTRACE", "c_functions"),
    ],
)
def test_none_of_them_is_there_for_nothing(capability: str, deed: str, where: Path) -> None:
    """Without it, what it is for fails: a right that nothing needs would be one too many."""
    if capability == "CAP_SYSLOG" and RESTRICTED.read_text().strip() == "0":
        pytest.skip("this machine lets everybody read the kernel log (kernel.dmesg_restrict=0)")
    _skip_what_cannot_be(deed)
    assert done(deed, where, AGENT_CAPABILITIES - {capability}).returncode != 0
