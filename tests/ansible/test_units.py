"""The systemd units: what systemd itself says of them, and that the capabilities they leave are enough.

No systemd runs on the test machine: `systemd-analyze verify` and `security --offline=true` judge the files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from tests.ansible import conftest

ROLES = conftest.ROOT / "ansible/roles"
UNITS = {
    "probing-agent.service": ROLES / "compute_node/templates/probing-agent.service.j2",
    "run-probing\\x2dcluster-jobs.mount": ROLES / "compute_node/templates/jobs.mount.j2",
    "probing-serve.service": ROLES / "control_plane/templates/probing-serve.service.j2",
    "probing-node-helper.service": ROLES / "control_plane/templates/probing-node-helper.service.j2",
}
AGENT_CAPABILITIES = {
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_SETUID",
    "CAP_SETGID",
    "CAP_KILL",
    "CAP_SYSLOG",
    "CAP_SYS_PTRACE",
}
MOST_EXPOSED = {
    "probing-agent.service": 5.0,
    "probing-serve.service": 2.0,
    "probing-node-helper.service": 2.0,
}
"""Of 10 (systemd-analyze security). The agent has root's name and eight of its rights; the others have neither."""


def rendered(name: str, **more: Any) -> str:
    """The unit as the roles write it with their defaults."""
    defaults = yaml.safe_load((ROLES / "common/defaults/main.yml").read_text())
    plain = {k: v for k, v in defaults.items() if not (isinstance(v, str) and "{{" in v)}
    values = {**plain, "probing_managed": "test", "probing_default_paths": True, **more}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(UNITS[name].read_text()).render(values)


def settings_of(text: str) -> dict[str, list[str]]:
    """Every key of a unit with its values in order; an empty one resets the list, as systemd does it."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        found[key] = [*found.get(key, []), value] if value else []
    return found


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed (sandbox/install_debian.sh does it)")
    if os.geteuid() != 0:
        pytest.skip("systemd-analyze needs root to set up its directories")
    return found


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """A root with our units, and the programs they start, in it."""
    directory = tmp_path / "etc/systemd/system"
    directory.mkdir(parents=True)
    for name in UNITS:
        (directory / name).write_text(rendered(name))
    for command in ("probing-agent", "probing-ctl", "probing-node-helper"):
        program = tmp_path / "opt/probing-cluster/bin" / command
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (tmp_path / "etc/passwd").write_text("root:x:0:0::/:\nprobing:x:990:990::/:\nslurm:x:64030:64030::/:\n")
    (tmp_path / "etc/group").write_text("root:x:0:\nprobing:x:990:\nslurm:x:64030:\n")
    shutil.copytree("/lib/systemd/system", tmp_path / "lib/systemd/system", symlinks=True)
    return tmp_path


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit(analyze: str, units: Path, name: str) -> None:
    """`systemd-analyze verify` finds nothing to say: no unknown key, no wrong value."""
    done = subprocess.run(
        [analyze, "verify", "--root", str(units), "--man=no", f"/etc/systemd/system/{name}"],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [
        line for line in done.stderr.splitlines() if "probing" in line and "Cannot add dependency" not in line
    ]
    assert (done.returncode, ours) == (0, [])


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_a_service_is_not_more_exposed_than_it_was(analyze: str, units: Path, name: str) -> None:
    """`systemd-analyze security --offline` stays under the figure that stands here."""
    done = subprocess.run(
        [
            analyze,
            "security",
            "--offline=true",
            "--json=short",
            f"--threshold={int(MOST_EXPOSED[name] * 10)}",
            "--root",
            str(units),
            f"/etc/systemd/system/{name}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    # A list of single findings; the sum is the exit status, by the threshold.
    exposed = sorted(
        (float(row["exposure"] or 0), row["name"]) for row in json.loads(done.stdout) if row["set"] is False
    )
    assert done.returncode == 0, f"{done.stderr}{exposed[-12:]}"


def test_the_agents_capabilities_are_named_one_by_one() -> None:
    """These and no others; SMART costs two more, and only where the site asks."""
    plain = settings_of(rendered("probing-agent.service"))
    assert set(" ".join(plain["CapabilityBoundingSet"]).split()) == AGENT_CAPABILITIES
    more = settings_of(rendered("probing-agent.service", probing_agent_reads_smart=True))
    assert set(" ".join(more["CapabilityBoundingSet"]).split()) - AGENT_CAPABILITIES == {
        "CAP_SYS_ADMIN",
        "CAP_SYS_RAWIO",
    }
    assert settings_of(rendered("probing-serve.service"))["CapabilityBoundingSet"] == []
    helper = settings_of(rendered("probing-node-helper.service"))
    assert (helper["CapabilityBoundingSet"], helper["AmbientCapabilities"]) == (["CAP_CHOWN"], ["CAP_CHOWN"])


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_every_service_is_bounded_and_comes_back(name: str) -> None:
    """Memory, processor and tasks have a ceiling; a service that ended is started again, however often."""
    unit = settings_of(rendered(name))
    for key in ("MemoryMax", "CPUQuota", "TasksMax", "TimeoutStopSec"):
        assert unit[key], key
    assert unit["Restart"] == ["always"]
    assert unit["StartLimitIntervalSec"] == ["0"]
    assert unit["NoNewPrivileges"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]


def test_systemd_waits_longer_than_the_programs_take() -> None:
    """SIGTERM drains the spool and ends passes: SIGKILL must not come before that."""
    from probing_cluster.control_plane.service import serve
    from probing_cluster.probe_agent import daemon

    patience_s = {n: int(settings_of(rendered(n))["TimeoutStopSec"][0]) for n in MOST_EXPOSED}
    assert patience_s["probing-agent.service"] > 2 * daemon.DRAIN_S
    assert patience_s["probing-serve.service"] > serve._GRACE_S + 5


@pytest.mark.parametrize("name", ["probing-agent.service", "probing-serve.service"])
def test_systemd_waits_for_many_reports(name: str) -> None:
    """A process that stands still is started again, one that is slow is not."""
    from probing_cluster.core.ending import watchdog

    assert int(settings_of(rendered(name))["WatchdogSec"][0]) >= 10 * watchdog.EVERY_S


def test_the_mount_unit_is_named_after_its_path(analyze: str) -> None:
    """systemd refuses a mount unit whose name is not its escaped path; the role computes it."""
    path = "/run/probing-cluster/jobs"
    escaped = subprocess.run(
        ["systemd-escape", "--path", "--suffix=mount", path], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert escaped in UNITS
    done = subprocess.run(
        [
            conftest.program("ansible"),
            "localhost",
            "-i",
            "localhost,",
            "-c",
            "local",
            "-m",
            "ansible.builtin.debug",
            "-e",
            f"@{ROLES}/compute_node/defaults/main.yml",
            "-e",
            "probing_run=/run/probing-cluster",
            "-a",
            "msg={{ probing_jobs_mount }}",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(done.partition("=>")[2])["msg"] == escaped
