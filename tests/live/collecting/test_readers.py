"""Readers are kept while they behave: one that hung, died, grew or read for a stranger never answers again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing_cluster.live.collecting import readers
from probing_cluster.live.table import Scan

OURS, FOREIGN = Scan(table="cluster.ranks"), Scan(table="bad.table")
Make = Callable[[readers.Answer], readers.TableReaders]


def own_pid(scan: Scan, _: float) -> bytes:
    """An answer that tells who gave it."""
    return f"{scan.table} {os.getpid()}".encode()


@pytest.fixture
def make() -> Iterator[Make]:
    """Readers that are gone after the test."""
    made: list[readers.TableReaders] = []

    def make_one(answer: readers.Answer) -> readers.TableReaders:
        made.append(readers.TableReaders(answer))
        return made[-1]

    yield make_one
    for pool in made:
        for one in list(pool._open):
            pool.end(one)


def ask(pool: readers.TableReaders, *scans: Scan, wait_s: float = 30.0) -> list[bytes]:
    """The answers of one question, in the order of its scans; empty for what did not come."""
    deadline = time.monotonic() + wait_s
    reading = [pool.start(scan, deadline) for scan in scans]
    pool.collect(reading, deadline, lambda _: None)
    frames = [one.frame for one in reading]
    for one in reading:
        pool.release(one)
    return frames


def test_a_reader_that_answered_answers_the_next_question_too(make: Make) -> None:
    """For one of our own tables; two tables at once have one each."""
    pool = make(own_pid)
    first = ask(pool, OURS)
    assert ask(pool, OURS) == first
    both = ask(pool, OURS, Scan(table="torch.steps"))
    assert len({b.split()[1] for b in both}) == 2
    assert [b.split()[0] for b in both] == [b"cluster.ranks", b"torch.steps"]
    many = ask(pool, *[OURS] * (readers.MAX_KEPT + 2))
    assert len(set(many)) == readers.MAX_KEPT + 2
    assert len(pool._open) == readers.MAX_KEPT


def test_no_reader_is_kept_that_a_strangers_table_was_in(make: Make) -> None:
    pool = make(own_pid)
    kept = ask(pool, OURS)[0].split()[1]
    stranger = ask(pool, FOREIGN)[0].split()[1]
    assert stranger != kept
    assert ask(pool, FOREIGN)[0].split()[1] not in (kept, stranger)
    assert ask(pool, OURS)[0].split()[1] == kept


def test_one_that_hangs_dies_or_grows_is_not_asked_again(make: Make) -> None:
    """And none of it stays behind as a process."""

    def behave(scan: Scan, _: float) -> bytes:
        if scan.limit == 1:
            time.sleep(600)
        if scan.limit == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if scan.limit == 3:
            return bytes(readers.MAX_KEPT_FRAME_BYTES)
        return own_pid(scan, 0)

    pool = make(behave)
    for limit, length in ((1, 0), (2, 0), (3, readers.MAX_KEPT_FRAME_BYTES)):
        ask(pool, OURS)
        (reader,) = pool._open
        (frame,) = ask(pool, Scan(table="cluster.ranks", limit=limit), wait_s=1.0 if limit == 1 else 30.0)
        assert len(frame) == length
        assert pool._open == []
        with contextlib.suppress(ChildProcessError):  # it has been collected
            os.waitpid(reader.pid, 0)
        assert not Path(f"/proc/{reader.pid}").exists()


def test_one_that_was_killed_while_it_waited_is_replaced(make: Make) -> None:
    pool = make(own_pid)
    before = int(ask(pool, OURS)[0].split()[1])
    os.kill(before, signal.SIGKILL)
    os.waitid(os.P_PID, before, os.WEXITED | os.WNOWAIT)
    after = int(ask(pool, OURS)[0].split()[1])
    assert after != before


def test_readers_end_with_their_collector(tmp_path: Path) -> None:
    """However it ends: they wait for questions that nobody can ask any more."""
    text = (
        "import time\n"
        "from probing_cluster.live.collecting import readers\n"
        "from probing_cluster.live.table import Scan\n"
        "import os\n"
        "pool = readers.TableReaders(lambda scan, _: str(os.getpid()).encode())\n"
        "deadline = time.monotonic() + 30\n"
        "reading = [pool.start(Scan(table=t), deadline) for t in ('cluster.ranks', 'torch.steps', 'cpu.samples')]\n"
        "pool.collect(reading, deadline, lambda _: None)\n"
        "print(*(r.frame.decode() for r in reading), flush=True)\n"
        "[pool.release(r) for r in reading]\n"
        "time.sleep(600)\n"
    )
    collector = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert collector.stdout is not None
    pids = [int(pid) for pid in collector.stdout.readline().split()]
    assert len(pids) == 3
    collector.kill()
    collector.wait()
    collector.stdout.close()
    deadline = time.monotonic() + 60
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
