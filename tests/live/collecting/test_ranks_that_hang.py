"""A rank that holds the GIL in C, one that is stopped and one in the kernel's D state are read like any other, and delay nobody."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent.stacks import pyspy_program

RANK = """
import ctypes, os, sys, time
os.environ["PROBING"] = "live"
from _probing_probe import page, responder
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=4, backend="gloo")
page.step_done()
responder.start()
def holds_the_gil():
    print("ready", flush=True)
    ctypes.PyDLL(None).sleep(600)
def waits_for_a_file_server():
    print("ready", flush=True)
    os.stat(os.path.join(HUNG, "checkpoint"))
def trains():
    print("ready", flush=True)  # not before: a rank stopped at once would stand in <module>
    while True:
        time.sleep(0.05)
if rank == 1:
    holds_the_gil()
if rank == 3 and HUNG:
    waits_for_a_file_server()
trains()
"""
MNT_DETACH = 2


@pytest.fixture
def hung_mount(tmp_path: Path) -> Iterator[Path | None]:
    """A file system whose server answers nothing; None where this machine has no such."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        yield None
        return
    where = tmp_path / "hung"
    where.mkdir()
    argv = [sys.executable, "-m", "probing_cluster.sandbox.machine.hanging_mount", str(where)]
    with _served(where).open("wb") as out:
        server = subprocess.Popen(argv, stdout=out)
    deadline = time.monotonic() + 60
    while not _is_mounted(where) and server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    yield where if _is_mounted(where) else None
    server.terminate()
    server.wait(timeout=60)
    ctypes.CDLL(None).umount2(str(where).encode(), MNT_DETACH)


def _served(mount: Path) -> Path:
    """Where its server writes whose request it has taken."""
    return mount.with_suffix(".out")


def _wait_for_the_file_server(mount: Path, pid: int) -> None:
    """Until the server has taken the process's request: from then on nothing ends it."""
    deadline = time.monotonic() + 60
    while f"taken {pid}\n" not in _served(mount).read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_mounted(where: Path) -> bool:
    return f" {where} " in Path("/proc/self/mounts").read_text()


def test_everybody_is_read_whatever_they_hang_in(
    empty_job: Any, open_session: Callable[..., Any], hung_mount: Path | None
) -> None:
    """Pages, /proc and stacks of all four; of an expression only those that can run it answer, the others are named."""
    empty_job.start(4, code=RANK.replace("HUNG", repr(str(hung_mount or ""))))
    os.kill(empty_job.ranks[2].pid, signal.SIGSTOP)
    if hung_mount:
        _wait_for_the_file_server(hung_mount, empty_job.ranks[3].pid)
        os.kill(empty_job.ranks[3].pid, signal.SIGKILL)  # now nothing ends it: uninterruptible
    asking = open_session(empty_job)

    def states() -> list[str]:
        return [r["state"] for r in asking.sql("SELECT state FROM ranks ORDER BY rank").rows.to_pylist()]

    wanted = ["S", "S", "T", "D" if hung_mount else "S"]
    deadline = time.monotonic() + 60
    while states() != wanted:
        assert time.monotonic() < deadline, states()
        time.sleep(0.05)
    for table in ("torch.steps", "process.memory", "process.envs", "process.threads", "process.io"):
        found = asking.sql(f"SELECT DISTINCT rank FROM {table} ORDER BY rank")
        assert found.rows["rank"].to_pylist() == [0, 1, 2, 3], table
        assert found.missing == (), table
    if pyspy_program.program() is not None:
        sql = "SELECT rank, function FROM python.backtrace WHERE main AND kind = 'python' AND depth = 0 ORDER BY rank"
        for _ in range(20):  # a look at a process has seconds: on a busy machine one may come too late
            found = asking.sql(sql)
            functions = {r["rank"]: r["function"] for r in found.rows.to_pylist()}
            if functions.keys() == {0, 1, 2, 3}:
                break
        assert functions[0] == functions[2] == "trains"
        assert functions[1] == "holds_the_gil"
        assert functions[3] == ("waits_for_a_file_server" if hung_mount else "trains")
    for timeout_s in (4.0, 8.0, 16.0, 32.0):
        asking.timeout_s = timeout_s
        found = asking.sql("SELECT rank, value FROM python.`6 * 7`")
        answered = {r["rank"]: r["value"] for r in found.rows.to_pylist()}
        by_rank = {m.rank: m.reason for m in found.missing}
        if 0 in answered and "GIL" in by_rank.get(1, ""):
            break
    assert answered == ({0: 42} if hung_mount else {0: 42, 3: 42})
    assert {m.rank for m in found.missing} == ({1, 2, 3} if hung_mount else {1, 2})
    assert "GIL" in by_rank[1]
    assert "stopped" in by_rank[2] or "T" in by_rank[2]
