"""Our units under a systemd that runs: booted in namespaces of its own on a throw-away copy of this machine's root.

What no file can show is shown here: the programs start and work inside their sandbox, see the node as it is through
it, can do no more than they should, log to the journal with priorities, and leave on SIGTERM with nothing lost.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from probing_cluster.db.server import embedded
from probing_cluster.sandbox.machine import scratch
from tests.ansible import conftest
from tests.ansible.test_units import AGENT_CAPABILITIES, UNITS, rendered

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root"),
    pytest.mark.skipif(
        not Path("/lib/systemd/systemd").exists(), reason="no systemd (sandbox/install_debian.sh)"
    ),
]
PATIENCE_S = 120.0
COMMANDS = {
    "probing-agent": "probing_cluster.probe_agent.cli",
    "probing-ctl": "probing_cluster.control_plane.cli.main",
    "probing-node-helper": "probing_cluster.slurm_plugins.acts.node_helper",
}
PACKAGES = Path(psycopg.__file__).parents[1]
CODE = (conftest.ROOT, PACKAGES)
DATABASE = "/var/lib/probing-cluster/postgres"
SETTINGS = f"""[cluster]
name = "c"
[database]
directory = "{DATABASE}"
[agent]
node = "n1"
database_url = "{embedded.url(DATABASE)}"
spool_directory = "/var/lib/probing-cluster/agent/spool"
poll_s = 2.0
beat_s = 2.0
[checks]
state_file = "/var/lib/probing-cluster/agent/checks.json"
[service]
socket = "/run/probing-cluster-serve/report.sock"
[slurm]
bin_directory = "/nonexistent"
"""
ASK = """
import json, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect("/run/probing-cluster/agent.sock")
peer.sendall(json.dumps({"v": 1, **json.loads(sys.argv[1])}).encode() + b"\\n")
reply = b""
while not reply.endswith(b"\\n"):
    reply += peer.recv(65536)
print(reply.decode())
"""


class Machine:
    """A booted systemd; commands run beside it, inside."""

    def __init__(self, directory: Path) -> None:
        self._log = (directory / "console").open("wb")
        namespaces = ("--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup", "--kill-child")
        script = Path(__file__).with_name("boot.sh")
        self._outer = subprocess.Popen(
            ["unshare", *namespaces, "bash", str(script), str(directory), "ours.target", *map(str, CODE)],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        self._console = directory / "console"

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        init = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()[0]
        done = subprocess.run(
            ["nsenter", "--target", init, "-m", "-p", "-u", "-i", "-C", *argv],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def output(self, *argv: str) -> str:
        return self.run(*argv).stdout.strip()

    def systemctl(self, *argv: str) -> str:
        return self.output("systemctl", "--no-pager", *argv)

    def pid(self, unit: str) -> str:
        return self.systemctl("show", "--property=MainPID", "--value", unit)

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(
            self.output("python3", "-c", ASK, json.dumps({"op": op, **fields}))
        )
        return reply

    def wait(self, until: Callable[[], Any]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                if found := until():
                    return found
            except (AssertionError, LookupError, ValueError):
                pass  # not yet up
            time.sleep(0.2)
        units = self.run("systemctl", "--no-pager", "status", "probing-*", check=False).stdout
        journal = (
            units + self.run("journalctl", "--no-pager", "_TRANSPORT=stdout", "-n", "30", check=False).stdout
        )
        raise AssertionError(
            f"it did not happen in time\n{journal}\n{self._console.read_text('utf-8', 'replace')[-3000:]}"
        )

    def stop(self) -> None:
        self._outer.kill()
        self._outer.wait()
        self._log.close()


def _put(up: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = up / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _interpreter() -> str:
    """A Python of this release that every account can start; ours may lie in root's home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = shutil.which(version, path="/usr/bin:/usr/local/bin")
    if (
        found is None
        or subprocess.run(["runuser", "-u", "nobody", "--", found, "-c", ""], check=False).returncode
    ):
        pytest.skip(f"the accounts of the units cannot start {version}")
    closed = [path for path in CODE if path.stat().st_mode & 0o005 != 0o005]
    if closed:
        pytest.skip(f"the accounts of the units cannot read {closed[0]} (its mode)")
    return found


def _environment(up: Path, interpreter: str) -> None:
    """A virtual environment where the roles make one, whose packages are those of this test's own."""
    prefix = "opt/probing-cluster"
    _put(
        up,
        f"{prefix}/pyvenv.cfg",
        f"home = {Path(interpreter).parent}\ninclude-system-site-packages = false\n",
    )
    packages = f"{prefix}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    _put(up, f"{packages}/ours.pth", "/opt/packages\n/opt/checkout/.src\n")
    for name, module in COMMANDS.items():
        text = f'#!/bin/sh\nexec /{prefix}/bin/python -I -m {module} "$@"\n'
        _put(up, f"{prefix}/bin/{name}", text, 0o755)
    (up / prefix / "bin/python").symlink_to(interpreter)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """systemd with our units, as the roles write them."""
    interpreter = _interpreter()
    with scratch.directory("probing-boot-") as directory:
        for name in ("up", "work", "root"):
            (directory / name).mkdir()
        up = directory / "up"
        for name in UNITS:
            _put(up, f"etc/systemd/system/{name}", rendered(name))
        wants = (
            "systemd-journald.service probing-agent.service probing-serve.service probing-node-helper.service"
        )
        _put(up, "etc/systemd/system/ours.target", f"[Unit]\nDefaultDependencies=no\nWants={wants}\n")
        _environment(up, interpreter)
        for name in ("agent.toml", "probing.toml", "helper.toml"):
            _put(up, f"etc/probing-cluster/{name}", SETTINGS)
        accounts = Path("/etc/passwd").read_text() + "probing:x:49001:49001::/nonexistent:/usr/sbin/nologin\n"
        if "\nslurm:" not in accounts:
            accounts += "slurm:x:49002:49002::/nonexistent:/usr/sbin/nologin\n"
        _put(up, "etc/passwd", accounts)
        _put(up, "etc/group", Path("/etc/group").read_text() + "probing:x:49001:\n")
        _put(up, "etc/machine-id", "0123456789abcdef0123456789abcdef\n")
        booted = Machine(directory)
        try:
            try:
                booted.wait(lambda: booted.ask("status")["sources"]["mounts"])
            except AssertionError as exc:
                console = (directory / "console").read_text("utf-8", "replace")
                if "systemd" not in console and "mount:" in console:
                    pytest.skip(f"this machine lets no systemd be booted: {console[-300:]}")
                raise AssertionError(console[-2000:]) from exc
            yield booted
        finally:
            booted.stop()


def test_the_agent_sees_the_node_through_its_sandbox(machine: Machine) -> None:
    """Kernel log, mounts, services and pages are read as they are: nothing looks broken because of the unit."""
    machine.wait(lambda: machine.ask("status")["sources"].get("checks", {}).get("reads_total"))
    status = machine.ask("status")
    states = {
        name: status["sources"][name]["state"] for name in ("kernel_log", "mounts", "pages", "disk", "spool")
    }
    assert states == dict.fromkeys(states, "ok")
    assert status["sources"]["pages"]["bound_bytes"] == 256 << 20
    devices = {fault["code"] for fault in status["faults"].values()}
    assert not devices & {"mount_writable", "mount_present", "read_only", "missing"}


def test_the_agent_can_do_what_it_must_and_no_more(machine: Machine) -> None:
    """Its rights as the kernel shows them; a job's directory comes and goes; the system is read-only to it."""
    pid = machine.pid("probing-agent.service")
    status = dict(
        line.split(":\t")
        for line in machine.output("cat", f"/proc/{pid}/status").splitlines()
        if ":\t" in line
    )
    held = machine.output("capsh", f"--decode={status['CapBnd']}").partition("=")[2]
    assert {name.upper() for name in held.split(",")} == AGENT_CAPABILITIES
    assert (status["CapEff"], status["NoNewPrivs"], status["Seccomp"]) == (status["CapBnd"], "1", "2")
    job = {"job_id": 42, "uid": 65534, "gid": 65534, "restart_count": 0}
    directory = machine.ask("prolog", **job)["page_directory"]
    assert machine.output("stat", "-c", "%u %a", directory) == "65534 700"
    machine.ask("epilog", **job)
    machine.wait(lambda: machine.run("test", "-e", directory, check=False).returncode == 1)
    for path, wanted in (("/etc/x", 1), ("/usr/x", 1), ("/tmp/x", 0)):
        assert machine.run("nsenter", "-t", pid, "-m", "touch", path, check=False).returncode == wanted, path


def test_the_service_and_its_helper_need_no_root(machine: Machine) -> None:
    """Each under its own account, without capabilities or with the one; sockets open to whom they should be."""
    machine.wait(
        lambda: (
            machine.run("test", "-S", "/run/probing-cluster-serve/report.sock", check=False).returncode == 0
        )
    )
    machine.wait(
        lambda: (
            machine.run("test", "-S", "/run/probing-cluster-helper/helper.sock", check=False).returncode == 0
        )
    )
    serve, helper = (machine.pid(f"probing-{name}.service") for name in ("serve", "node-helper"))
    assert machine.output("stat", "-c", "%U", f"/proc/{serve}") == "probing"
    assert machine.output("grep", "CapBnd", f"/proc/{serve}/status").split()[1].strip("0") == ""
    assert machine.output("grep", "CapBnd", f"/proc/{helper}/status").split()[1].lstrip("0") == "1"
    assert machine.output("stat", "-c", "%U %a", "/run/probing-cluster-helper/helper.sock") == "probing 600"
    assert machine.output("stat", "-c", "%U %a", "/run/probing-cluster-serve/report.sock") == "probing 666"


def test_a_stopped_agent_leaves_nothing_behind(machine: Machine) -> None:
    """SIGTERM: the spool is emptied into the database, the exit is clean, jobs' pages stay for the next one."""
    machine.wait(lambda: machine.ask("status")["delivered_total"] > 0)
    machine.ask("prolog", job_id=7, uid=65534, gid=65534, restart_count=0)
    machine.systemctl("stop", "probing-agent.service")
    assert machine.systemctl("show", "--property=Result", "--value", "probing-agent.service") == "success"
    last = machine.output("journalctl", "-u", "probing-agent", "-o", "cat", "--no-pager")
    assert "items still in the spool" not in last
    assert machine.output("stat", "-c", "%u", "/run/probing-cluster/jobs/7") == "65534"
    machine.systemctl("start", "probing-agent.service")
    status = machine.wait(lambda: machine.ask("status"))
    assert status["jobs"] == [7]


def test_the_journal_holds_structured_lines_with_priorities(machine: Machine) -> None:
    """`journalctl -p warning` finds a warning, and what it finds is one JSON object a line."""
    machine.wait(
        lambda: "serving" in machine.output("journalctl", "-u", "probing-serve", "-o", "cat", "--no-pager")
    )
    for line in machine.output(
        "journalctl", "-u", "probing-serve", "-t", "probing-serve", "-o", "json", "--no-pager"
    ).splitlines():
        entry = json.loads(line)
        record = json.loads(entry["MESSAGE"])
        assert (record["level"], entry["PRIORITY"]) in {("info", "6"), ("warning", "4"), ("error", "3")}
    warnings = machine.output(
        "journalctl", "-u", "probing-serve", "-p", "warning", "-t", "probing-serve", "-o", "cat", "--no-pager"
    )
    # Slurm is not there: its tasks say once that they wait.
    assert "task waits" in warnings
    assert '"level": "info"' not in warnings


def test_a_service_that_dies_comes_back(machine: Machine) -> None:
    """SIGKILL is no end: another process serves after RestartSec."""
    before = machine.pid("probing-node-helper.service")
    machine.systemctl("kill", "--kill-who=main", "--signal=KILL", "probing-node-helper.service")
    assert machine.wait(lambda: machine.pid("probing-node-helper.service") not in {before, "0"})
