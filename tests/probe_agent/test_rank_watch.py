"""The agent watches real processes through their pages: dead ones, stopped ones, and whose they are."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.attribution.gang import slow
from probing_cluster.probe_agent import (
    children,
    deaths,
    identity,
    inject,
    jobs,
    page_child,
    page_directories,
    pages,
    processes,
    pyspy,
    rank_watch,
    self_watch,
    stall,
    step_windows,
)
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.sighting import Sighting

TRAIN = """
import sys, time
from _probing_probe import page, layout
page.open_page()
page.write_identity(rank=int(sys.argv[1]), world=2, backend="gloo")
def train(steps):
    for _ in range(steps):
        time.sleep(0.005)
        page.step_done()
def dataloader():
    while True: time.sleep(0.05)
train(int(sys.argv[2]))
print("stopped", flush=True)
dataloader()
"""


class Rig:
    """One agent's watcher over one job of this user."""

    def __init__(self, tmp_path: Path, who: identity.Identity) -> None:
        self.taken: list[Sighting] = []
        self.book = jobs.JobBook(who.boot_id())
        uid, gid = os.getuid(), os.getgid()
        self.book.start(jobs.Job(job_id=7, started_at=datetime.now(UTC), uid=uid, gid=gid))
        self.directories = page_directories.PageDirectories(tmp_path / "pages")
        self.directory = self.directories.make(7, uid, gid)
        self.watch = rank_watch.RankWatch(
            who=who,
            started=children.Children(),
            book=self.book,
            directories=self.directories,
            take=self.taken.extend,
            watch=self_watch.SelfWatch(),
            limits=stall.Limits(least_s=0.4, startup_s=600),
        )
        self.started: list[subprocess.Popen[bytes]] = []

    def rank(self, number: int, steps: int = 20) -> subprocess.Popen[bytes]:
        """A training process that has stopped after `steps` steps."""
        env = {"PROBING_PAGE_DIR": str(self.directory), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
        argv = [sys.executable, "-S", "-c", TRAIN, str(number), str(steps)]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"stopped\n"
        return process

    def beats(self, seconds: float) -> list[str]:
        """Watches for a while; the kinds that were told."""

        async def live() -> None:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                await self.watch.beat()
                await asyncio.sleep(0.1)
            await self.watch.close()

        asyncio.run(live())
        return [s.kind for s in self.taken]


@pytest.fixture
def rig(tmp_path: Path, who: identity.Identity) -> Iterator[Rig]:
    """A watcher, and no process left behind."""
    made = Rig(tmp_path, who)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def test_a_stopped_rank_is_told_once_with_everybodys_stacks(rig: Rig) -> None:
    """The stall, then one snapshot of all ranks: who, where, how far."""
    rig.rank(0)
    rig.rank(1, steps=21)
    kinds = rig.beats(2.5)
    assert kinds.count("rank_stall") == 2
    assert kinds.count("rank_snapshot") == 1
    snapshot = next(s for s in rig.taken if s.kind == "rank_snapshot")
    assert (snapshot.source, snapshot.job_id, snapshot.detail["world_size"]) == ("probe", 7, 2)
    first, second = snapshot.detail["ranks"]
    assert (first["rank"], second["rank"], second["steps"], first["alive"]) == (0, 1, 21, True)
    if pyspy.program() is None:
        assert "not installed" in first["stack_error"]
    else:
        assert [f["function"] for f in first["stack"]][:1] == ["dataloader"]


def test_a_killed_rank_is_told_once(rig: Rig) -> None:
    """SIGKILL leaves a page behind, and nobody else says so."""
    victim = rig.rank(3)
    rig.rank(4)

    async def kill_in_between() -> None:
        await rig.watch.beat()
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        await rig.watch.wait(30)
        await rig.watch.beat()
        await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(kill_in_between())
    dead = [s for s in rig.taken if s.kind == "rank_dead"]
    assert [(s.pid, s.detail["rank"], s.detail["steps"]) for s in dead] == [(victim.pid, 3, 20)]


def test_the_last_words_of_an_attempt_that_failed(rig: Rig) -> None:
    """A rank was killed, then Slurm ended the rest: who died first, how far they were, and where everybody was."""
    victim, other = rig.rank(0), rig.rank(1, steps=21)

    async def fail() -> list[Sighting]:
        await rig.watch.beat()
        job = rig.book.get(7)
        assert job is not None
        assert await rig.watch.last_words(job) == []
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        await asyncio.sleep(deaths.AT_ONCE_S + 0.2)
        other.send_signal(signal.SIGTERM)
        other.wait()
        said = await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()
        return said

    said = {s.kind: s for s in asyncio.run(fail())}
    assert set(said) == {"rank_dead", "rank_snapshot", "last_progress"}
    assert [s.kind for s in rig.taken] == ["first_step"]
    assert said["rank_dead"].detail["rank"] == 0
    assert said["last_progress"].detail["steps"] == 21
    seen = said["rank_snapshot"].detail
    assert seen["last"] is True
    assert [(r["rank"], r["alive"]) for r in seen["ranks"]] == [(0, False), (1, True)]


def test_an_attempt_that_ended_in_order_leaves_no_snapshot(rig: Rig) -> None:
    """Its ranks have left Python by themselves."""
    process = rig.rank(0)
    path = rig.directory / f"p{process.pid}.page"
    process.kill()
    process.wait()
    page = bytearray(path.read_bytes())
    at = layout.PROGRESS_AT[page[layout.H_PROGRESS * 8] & 1]
    words = [int.from_bytes(page[(at + i) * 8 : (at + i) * 8 + 8], "little") for i in range(5)]
    words[layout.P_PHASE] = layout.ENDED
    for i, word in enumerate([*words, layout.check_of(words)]):
        page[(at + i) * 8 : (at + i) * 8 + 8] = word.to_bytes(8, "little")
    path.write_bytes(page)

    async def end() -> list[Sighting]:
        job = rig.book.get(7)
        assert job is not None
        said = await rig.watch.last_words(rig.book.end(job, datetime.now(UTC)))
        await rig.watch.close()
        return said

    assert [s.kind for s in asyncio.run(end())] == ["first_step", "last_progress"]


def test_a_page_that_names_another_process_is_not_believed(rig: Rig) -> None:
    """A forged page with init's pid makes no rank alive and no rank dead."""
    process = rig.rank(0)
    raw = bytearray((rig.directory / f"p{process.pid}.page").read_bytes())
    raw[layout.H_PID * 8 : layout.H_PID * 8 + 8] = (1).to_bytes(8, "little")
    (rig.directory / "p1.page").write_bytes(raw)
    asyncio.run(rig.watch.look(7))
    assert [s for s in rig.taken if s.pid == 1] == []
    assert rig.watch.rows()["7:0"]["pid"] in {1, process.pid}
    asyncio.run(rig.watch.close())


def test_garbage_in_the_directory_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    """Links, pipes, huge and short files, a flood: the one real rank is still seen."""
    process = rig.rank(0)
    (tmp_path / "secret").write_bytes(b"x" * layout.SIZE_BYTES)
    (rig.directory / "p100001.page").symlink_to(tmp_path / "secret")
    os.mkfifo(rig.directory / "p100002.page")
    (rig.directory / "p100003.page").write_bytes(b"\0" * 10)
    (rig.directory / "p100004.page").write_bytes(os.urandom(layout.SIZE_BYTES))
    os.link(tmp_path / "secret", rig.directory / "p100005.page")
    (rig.directory / "p100006.page").mkdir()
    with (rig.directory / "p100007.page").open("wb") as handle:
        handle.truncate(1 << 40)
    for number in range(200_000, 200_600):
        (rig.directory / f"p{number}.page").write_bytes(b"")

    async def look() -> dict[str, object]:
        await rig.watch.look(7)
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    rows = asyncio.run(look())
    assert set(rows) <= {"7:0"}
    direct = page_child.read_pages(str(rig.directory), os.getuid())
    assert "not a regular file" in str(direct) or direct["more"] > 0
    assert f"p{process.pid}.page" in direct["pages"] or direct["more"] > 0
    assert "p100001.page" not in direct["pages"]
    assert "p100005.page" not in direct["pages"]


@pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_pages_are_read_as_their_owner(tmp_path: Path) -> None:
    """The reader has become the job's user: what that user cannot read, it cannot read."""
    tmp_path.chmod(0o755)
    secret = tmp_path / "root-only"
    secret.mkdir(mode=0o700)
    (secret / "p5.page").write_bytes(b"\0" * layout.SIZE_BYTES)
    request = b'{"directory": "%s", "uid": 65534, "gid": 65534}\n' % str(secret).encode()
    argv = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.page_child"]
    done = subprocess.run(argv, input=request, capture_output=True, check=True)
    assert b"PermissionError" in done.stdout
    assert b'"pages"' not in done.stdout


def test_the_job_of_a_process_is_never_its_own_word(tmp_path: Path) -> None:
    """Cgroup or slurmstepd ancestry count; the environment does not."""
    proc = tmp_path / "proc"

    def process(pid: int, parent: int, cmdline: bytes, cgroup: bytes = b"0::/\n") -> None:
        home = proc / str(pid)
        home.mkdir(parents=True)
        fields = [b"S", str(parent).encode(), *([b"0"] * 17), b"5", *([b"0"] * 10)]
        (home / "stat").write_bytes(b"%d (x) y) " % pid + b" ".join(fields))
        (home / "cmdline").write_bytes(cmdline)
        (home / "cgroup").write_bytes(cgroup)
        (home / "environ").write_bytes(b"SLURM_JOB_ID=666\0")

    process(10, 1, b"slurmd\0")
    process(20, 10, b"slurmstepd: [4242.0]\0")
    process(30, 20, b"python\0train.py\0")
    process(40, 1, b"python\0", b"0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n")
    process(50, 1, b"python\0")
    if os.getuid() == 0:
        assert processes.job_of(30, proc) == 4242
    assert processes.job_of(40, proc) == 77
    assert processes.job_of(50, proc) is None
    assert processes.facts(30, proc) is not None
    assert processes.facts(31, proc) is None


def test_rows_for_the_heartbeat_tell_phase_steps_and_pace(rig: Rig) -> None:
    """One bounded row per rank: how far, doing what, and the medians of its last window of steps."""
    rig.rank(0, steps=40)
    rig.rank(1, steps=3)

    async def look() -> dict[str, dict[str, object]]:
        await rig.watch.beat()
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    rows = asyncio.run(look())
    assert set(rows) == {"7:0", "7:1"}
    first = rows["7:0"]
    assert (first["alive"], first["phase"], first["steps"], first["world_size"]) == (True, "training", 40, 2)
    window = slow.Window.from_row(first["window"])
    assert window is not None
    assert (window.index, window.steps) == (1, 16)
    assert window.total_s >= window.compute_s >= 0.005
    assert "window" not in rows["7:1"]
    assert len(str(first)) < 600


def test_windows_are_of_the_same_steps_on_every_rank() -> None:
    """Ranks that are read at different moments tell of the same steps; the first window does without its first step."""
    steps = [
        pages.Step(
            step=n,
            end_ns=n * 10**6,
            input_ns=10_000,
            collective_ns=200_000,
            backward_ns=300_000,
            checkpoint_ns=0,
        )
        for n in range(1, 60)
    ]
    early, late = step_windows.latest(steps[:50]), step_windows.latest(steps[:59])
    assert early == late
    assert early is not None
    assert (early["index"], early["steps"]) == (2, 16)
    assert early["compute_s"] == pytest.approx(790e-6)
    assert early["host_s"] == pytest.approx(490e-6)
    assert step_windows.latest(steps[:15]) is None
    assert step_windows.latest([]) is None
    first = step_windows.latest(steps[:16])
    assert first is not None
    assert (first["index"], first["steps"]) == (0, 15)
    torn = [s for s in steps if s.step not in {36, 37, 38}]
    assert step_windows.latest(torn[:45]) is None
