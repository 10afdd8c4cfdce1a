"""The spool: durable before acknowledged, bounded, ordered, and alive on a full disk."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.probe_agent.spool import own_directory, spool

WRITER = """
import sys
from pathlib import Path
from probing_cluster.probe_agent.spool import own_directory, spool
made = spool.Spool(Path(sys.argv[1]), max_bytes=100_000_000)
n = made.state("cursor") or 0
while True:
    n += 1
    item = spool.SpoolItem(id=n.to_bytes(16, "big"), lane="event", rank=n % 3, body=b"x" * 200)
    if made.commit(spool.SpoolWrite(items=[item], states={"cursor": n})):
        print(n, flush=True)
"""


def item(n: int, *, rank: int = 0, size: int = 100, **more: object) -> spool.SpoolItem:
    return spool.SpoolItem(id=n.to_bytes(16, "big"), lane="event", rank=rank, body=b"x" * size, **more)  # type: ignore[arg-type]


def numbers(items: list[spool.SpoolItem]) -> list[int]:
    return [int.from_bytes(i.id, "big") for i in items]


def test_batch_gives_high_severity_first_and_keeps_arrival_order(queue: spool.Spool) -> None:
    """Noise that came earlier does not delay what is grave, and nothing else is reordered."""
    for n in range(1, 10):
        queue.commit(spool.SpoolWrite(items=[item(n, rank=2 if n in (5, 8) else n % 2)]))
    assert numbers(queue.batch(100)) == [5, 8, 1, 3, 7, 9, 2, 4, 6]


def test_batch_of_one_lane_and_rank(tmp_path: Path) -> None:
    """The limit counts what is asked for, on the disk and in the memory of a spool whose disk refuses writes."""
    made = spool.Spool(tmp_path, max_bytes=1_000_000)
    others = [dataclasses.replace(item(n, rank=2), lane="allocation") for n in range(1, 6)]
    made.commit(spool.SpoolWrite(items=[*others, item(6, rank=1), item(7, rank=2)]))
    made._retry_at_s = math.inf
    made.commit(
        spool.SpoolWrite(items=[dataclasses.replace(others[0], id=b"x" * 16), item(8), item(9, rank=2)])
    )
    assert numbers(made.batch(3, lane="event", least_rank=2)) == [7, 9]
    assert numbers(made.batch(3, lane="event")) == [7, 9, 6]
    assert len(made.batch(3)) == 3
    made.close()


def test_items_and_state_survive_reopening_together(tmp_path: Path) -> None:
    """What was committed is there after a restart, with the cursor of the same transaction."""
    first = spool.Spool(tmp_path, max_bytes=1_000_000)
    first.commit(spool.SpoolWrite(items=[item(1), item(2)], states={"cursor": {"seq": 7}}))
    first.close()
    again = spool.Spool(tmp_path, max_bytes=1_000_000)
    assert numbers(again.batch(10)) == [1, 2]
    assert again.state("cursor") == {"seq": 7}
    assert again.depth == 2
    again.close()


def test_states_of_one_prefix_are_read_together_and_one_can_be_removed(tmp_path: Path) -> None:
    """Also while the disk refuses writes, where no name is held in memory that the disk does not have."""
    first = spool.Spool(tmp_path, max_bytes=1_000_000)
    first.commit(spool.SpoolWrite(states={"job:1": 1, "job:2": 2, "other": 3}))
    first._retry_at_s = first._monotonic_s() + 60
    first.commit(spool.SpoolWrite(states={"job:3": 3, "job:1": None}))
    first.commit(spool.SpoolWrite(states={"job:3": None, "job:4": 4}))
    assert set(first._held_states) == {"job:1", "job:4"}
    assert (first.states("job:"), first.state("job:1")) == ({"job:2": 2, "job:4": 4}, None)
    first.close()
    assert spool.Spool(tmp_path, max_bytes=1_000_000).states("job:") == {"job:2": 2, "job:4": 4}


def test_acknowledged_items_are_gone_and_others_stay(queue: spool.Spool) -> None:
    """Only what Postgres has is forgotten."""
    queue.commit(spool.SpoolWrite(items=[item(n) for n in range(1, 5)]))
    queue.ack(queue.batch(2))
    assert numbers(queue.batch(10)) == [3, 4]
    assert queue.depth == 2


def test_same_identity_twice_is_one_item(queue: spool.Spool) -> None:
    """A replay after a crash adds nothing."""
    queue.commit(spool.SpoolWrite(items=[item(1)]))
    queue.commit(spool.SpoolWrite(items=[item(1)]))
    assert queue.depth == 1


def test_open_fold_waits_grows_in_place_and_is_closed_by_a_restart(tmp_path: Path) -> None:
    """A fold is not delivered while it grows; when the agent dies it counts what it had."""
    first = spool.Spool(tmp_path, max_bytes=1_000_000)
    first.commit(spool.SpoolWrite(items=[item(1, open=True, folded=3)]))
    first.commit(spool.SpoolWrite(items=[item(1, open=True, folded=9)]))
    assert first.batch(10) == []
    assert first.depth == 1
    first.close()
    again = spool.Spool(tmp_path, max_bytes=1_000_000)
    assert [i.folded for i in again.batch(10)] == [9]
    again.close()


def test_bound_drops_oldest_of_lowest_severity_and_counts_folded_ones(tmp_path: Path) -> None:
    """Over its bound the spool gives up information first, oldest first, and says how many sightings that was."""
    made = spool.Spool(tmp_path, max_bytes=20_000)
    made.commit(spool.SpoolWrite(items=[item(1, rank=2, size=1000), item(2, rank=1, size=1000)]))
    made.commit(spool.SpoolWrite(items=[item(n, size=1000, folded=5) for n in range(3, 40)]))
    left = numbers(made.batch(100))
    assert left[:2] == [1, 2]
    assert left[2:] == list(range(left[2], 40))
    assert made.totals.dropped == (left[2] - 3) * 5
    assert made.dropped_unreported == made.totals.dropped
    assert made.bytes <= 20_000
    made.close()


def test_acknowledging_nothing_writes_nothing(queue: spool.Spool) -> None:
    """A heartbeat without events costs the disk nothing."""
    before = queue._db.total_changes
    queue.ack([])
    assert queue._db.total_changes == before


def test_dropped_total_survives_a_restart(tmp_path: Path) -> None:
    """Counts are since installation, not since the last start."""
    made = spool.Spool(tmp_path, max_bytes=5_000)
    made.commit(spool.SpoolWrite(items=[item(n, size=1000) for n in range(1, 20)]))
    dropped = made.totals.dropped
    made.close()
    again = spool.Spool(tmp_path, max_bytes=5_000)
    assert dropped > 0
    assert again.totals.dropped == dropped
    again.close()


def test_full_disk_is_said_survived_and_made_up_for(tmp_path: Path) -> None:
    """With no page left the spool keeps going in memory, says so, and writes everything once there is room."""
    made = spool.Spool(tmp_path, max_bytes=10_000_000, max_pages=16)
    n = 0
    while made.error is None:
        n += 1
        made.commit(spool.SpoolWrite(items=[item(n, size=2000)], states={"cursor": n}))
        assert n < 1000
    assert "full" in made.error
    made.commit(spool.SpoolWrite(items=[item(n + 1, rank=2)], states={"cursor": n + 1}))
    assert numbers(made.batch(1)) == [n + 1]
    assert made.depth == n + 1
    assert made.state("cursor") == n + 1
    made._db.execute("PRAGMA max_page_count=100000")
    made._retry_at_s = 0.0
    assert made.commit(spool.SpoolWrite(items=[item(n + 2)]))
    assert made.error is None
    made.close()
    again = spool.Spool(tmp_path, max_bytes=10_000_000)
    assert sorted(numbers(again.batch(1000))) == list(range(1, n + 3))
    assert again.state("cursor") == n + 1
    again.close()


def test_delivery_goes_on_while_the_disk_refuses_to_forget(tmp_path: Path) -> None:
    """Items acknowledged on a disk that takes no write are not delivered again and again."""
    made = spool.Spool(tmp_path, max_bytes=10_000_000)
    made.commit(spool.SpoolWrite(items=[item(1), item(2)]))
    made._db.execute("PRAGMA query_only=ON")
    made.ack(made.batch(1))
    assert made.error is not None
    assert numbers(made.batch(10)) == [2]
    made._db.execute("PRAGMA query_only=OFF")
    made._retry_at_s = 0.0
    made.commit(spool.SpoolWrite(items=[item(3)]))
    assert numbers(made.batch(10)) == [2, 3]
    assert made.depth == 2
    made.close()


def test_memory_is_bounded_too_when_the_disk_refuses(tmp_path: Path) -> None:
    """A full disk for hours cannot fill the memory: the same policy drops, and counts."""
    made = spool.Spool(tmp_path, max_bytes=50_000)
    made._db.execute("PRAGMA query_only=ON")
    for n in range(1, 300):
        made.commit(spool.SpoolWrite(items=[item(n, rank=2 if n == 1 else 0, size=1000)]))
    assert made.bytes <= 60_000
    assert numbers(made.batch(1)) == [1]
    assert made.totals.dropped > 200
    made._db.execute("PRAGMA query_only=OFF")
    made.close()


def test_delivered_items_leave_memory_while_the_disk_refuses(tmp_path: Path) -> None:
    """They are not counted as dropped, push nothing out, and their ids are not kept."""
    made = spool.Spool(tmp_path, max_bytes=50_000)
    made.commit(spool.SpoolWrite(items=[item(1, rank=2)]))
    made._db.execute("PRAGMA query_only=ON")
    made.commit(spool.SpoolWrite(items=[item(2)], states={"cursor": 2}))
    for n in range(3, 300):
        made.commit(spool.SpoolWrite(items=[item(n, rank=2, size=1000)]))
        made.ack([i for i in made.batch(10) if i.rank == 2])
    assert made.totals.dropped == 0
    assert numbers(made.batch(10)) == [2]
    assert len(made._acked) == 1, "only the item that the disk has must still be forgotten"
    assert made.totals.disk_errors == 1, (
        "a disk that refused is left alone for a while, also by acknowledgements"
    )
    assert (made.state("cursor"), made.depth) == (2, 2)
    made._db.execute("PRAGMA query_only=OFF")
    made._retry_at_s = 0.0
    assert made.commit(spool.SpoolWrite(items=[item(300)]))
    assert numbers(made.batch(10)) == [2, 300]
    assert made.depth == 2
    made.close()


def test_corrupt_file_is_set_aside_and_said(tmp_path: Path) -> None:
    """Garbage where the spool was does not stop the agent, and is kept for whoever wants to look."""
    (tmp_path / "spool.db").write_bytes(b"this is no database" * 1000)
    made = spool.Spool(tmp_path, max_bytes=1_000_000)
    assert made.replaced_corrupt
    assert made.commit(spool.SpoolWrite(items=[item(1)]))
    (first,) = tmp_path.glob("spool.corrupt-*")
    made.close()
    (tmp_path / "spool.db").write_bytes(b"again no database" * 1000)
    spool.Spool(tmp_path, max_bytes=1_000_000).close()
    (second,) = tmp_path.glob("spool.corrupt-*")
    assert first != second, "only the last one is kept"


def test_directory_that_cannot_hold_a_file_leaves_a_working_spool(tmp_path: Path) -> None:
    """An agent whose spool cannot even be opened still sees and delivers."""
    (tmp_path / "spool.db").mkdir()
    made = spool.Spool(tmp_path, max_bytes=1_000_000)
    assert not made.commit(spool.SpoolWrite(items=[item(1)]))
    assert made.error
    assert numbers(made.batch(10)) == [1]
    made.ack(made.batch(10))
    assert made.batch(10) == []
    made.close()


def test_second_agent_does_not_get_the_lock(tmp_path: Path) -> None:
    """Two agents on one spool by mistake: the second is turned away."""
    held = own_directory.lock(tmp_path)
    with pytest.raises(BlockingIOError):
        own_directory.lock(tmp_path)
    os.close(held)
    os.close(own_directory.lock(tmp_path))


def test_sigkill_at_random_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Whatever was acknowledged before each kill is there, in order, exactly once."""
    acknowledged = 0
    rng = random.Random(7)
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        acknowledged = int(writer.stdout.readline())
        time.sleep(rng.uniform(0.0, 0.15))
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.wait()
        writer.stdout.close()
        acknowledged = int(rest[-1]) if rest else acknowledged
    made = spool.Spool(tmp_path, max_bytes=100_000_000)
    stored = sorted(numbers(made.batch(1_000_000)))
    assert stored == list(range(1, len(stored) + 1))
    assert len(stored) >= acknowledged
    assert made.state("cursor") == len(stored)
    made.close()


def test_the_oldest_is_the_one_that_waits_longest(queue: spool.Spool) -> None:
    """Whatever its rank; what is still being folded, delivered or gone does not count."""
    assert queue.oldest() is None
    queue.commit(spool.SpoolWrite(items=[item(1, open=True), item(2), item(3, rank=2)]))
    found = queue.oldest()
    assert found is not None
    assert numbers([found]) == [2]
    queue.ack([item(2), item(3)])
    assert queue.oldest() is None


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711, 0o700])
@pytest.mark.parametrize("used", [False, True])
def test_a_directory_that_others_can_read_is_closed(tmp_path: Path, mode: int, *, used: bool) -> None:
    """One that was made by hand, or by an older release, empty or with a spool in it."""
    home = tmp_path / "spool"
    home.mkdir()
    if used:
        spool.Spool(home, max_bytes=1_000_000).close()
    home.chmod(mode)
    os.close(own_directory.lock(home))
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """A spool that another user put there would speak for the node; the error says what to do."""
    home = tmp_path / "spool"
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(
        errors.SettingsError, match=rf"mode {mode:04o}: others can put files there.*chmod 0700"
    ):
        own_directory.lock(home)
    assert home.stat().st_mode & 0o7777 == mode


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it can open it again."""
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(errors.SettingsError, match=f"belongs to uid {mine}"):
        own_directory.lock(tmp_path)


def test_a_directory_of_others_files_is_not_closed(tmp_path: Path) -> None:
    """`spool_directory = "/var/lib"` by mistake: closed, it would stop the node."""
    (tmp_path / "slurm").mkdir()
    tmp_path.chmod(0o755)
    with pytest.raises(errors.SettingsError, match="holds other files"):
        own_directory.lock(tmp_path)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("wide", [False, True])
def test_nobody_else_reads_the_spools_files(tmp_path: Path, *, wide: bool) -> None:
    """Its log and its shared memory neither, whatever the umask was and whatever an older release left."""
    if wide:
        (tmp_path / "spool.db").touch(mode=0o644)
    before = os.umask(0)
    try:
        made = spool.Spool(tmp_path, max_bytes=1_000_000)
        made.commit(spool.SpoolWrite(states={"a": 1}))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.glob("spool.db*")}
    made.close()
    assert modes == dict.fromkeys(("spool.db", "spool.db-wal", "spool.db-shm"), 0o600)
