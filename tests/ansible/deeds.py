"""What root's agent does that takes a right of root's, one by one; run by test_capabilities with fewer of them.

python deeds.py NAME DIRECTORY      exit status 0 when it was done
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import collect_child, page_directories, processes
from probing_cluster.probe_agent.stacks import native, pyspy

NOBODY = 65534
STRANGER = "import os, sys; os.setresgid(*[65534] * 3); os.setresuid(*[65534] * 3); print(flush=True); sys.stdin.read()"


def page_directory(where: Path) -> None:
    """Made for a job's owner (chown, and chmod of what is then another's)."""
    made = page_directories.PageDirectories(where / "jobs").make(1, NOBODY, NOBODY)
    assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (NOBODY, 0o700)


def removal(where: Path) -> None:
    """Removed with whatever the owner closed to everybody in it."""
    page_directories.PageDirectories(where / "jobs").remove(2)
    assert not (where / "jobs/2").exists()


def owner(where: Path) -> None:
    """A child becomes the job's owner for good."""
    collect_child.become(NOBODY, NOBODY)
    assert (where / "secret").read_text() == "of nobody's"


def end_a_child(_: Path) -> None:
    """A child that has become somebody else, and hangs, is ended."""
    child = subprocess.Popen(
        [sys.executable, "-c", STRANGER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    child.stdout.read(1)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL


def kernel_log(_: Path) -> None:
    """The kernel's ring buffer."""
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))


def look_into(where: Path) -> None:
    """What another user's process is doing, and what it has moved."""
    pid = int((where / "pid").read_text())
    stacks = asyncio.run(pyspy.stacks(children.Children(), pid, 0))
    assert [frame["function"] for frame in stacks["stack"]] == ["waiting_for_godot", "<module>"], stacks
    facts = processes.facts(pid)
    assert facts is not None
    assert facts.moved_bytes is not None


def c_functions(where: Path) -> None:
    """What C function another user's process is in, with that user's rights over files."""
    pid = int((where / "pid").read_text())
    walk = asyncio.run(native.look(children.Children(), {pid: None}, (NOBODY, NOBODY)))[pid]
    assert "libc" in walk["native"][0]["file"], walk


def mounts(_: Path) -> None:
    """The node's mount table, not the one our unit sees."""
    assert " / " in Path("/proc/1/mounts").read_text()


DEEDS = {
    deed.__name__: deed
    for deed in (page_directory, removal, owner, end_a_child, kernel_log, look_into, c_functions, mounts)
}

if __name__ == "__main__":
    DEEDS[sys.argv[1]](Path(sys.argv[2]))
