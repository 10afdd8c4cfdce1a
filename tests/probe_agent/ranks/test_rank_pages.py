"""Pages of real processes beside forged ones: who is believed to be whom."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import container_runtimes
import pytest
import rank_rig

from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import guarded_reads, processes
from probing_cluster.probe_agent.ranks import deaths, page_child, rank_pages


def test_a_page_that_names_another_process_is_not_believed(rig: rank_rig.Rig) -> None:
    """A forged page with init's pid makes no rank alive and no rank dead."""
    process = rig.rank(0)
    raw = bytearray((rig.directory / f"p{process.pid}.page").read_bytes())
    raw[layout.H_PID * 8 : layout.H_PID * 8 + 8] = (1).to_bytes(8, "little")
    (rig.directory / "p1.page").write_bytes(raw)
    asyncio.run(rig.watch.look(7))
    assert [s for s in rig.taken if s.pid == 1] == []
    assert rig.watch.rows()["7:0"]["pid"] in {1, process.pid}
    asyncio.run(rig.watch.close())


def test_garbage_in_the_directory_changes_nothing(rig: rank_rig.Rig, tmp_path: Path) -> None:
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


@pytest.fixture
def container(request: pytest.FixtureRequest, rig: rank_rig.Rig, tmp_path: Path) -> tuple[str, ...]:
    """A command that gives what it starts a PID namespace of its own."""
    return container_runtimes.command(getattr(request, "param", "unshare"), rig.directory, tmp_path)


@pytest.mark.parametrize("container", container_runtimes.RUNTIMES, indirect=True)
def test_ranks_in_containers_are_found_by_their_namespace(
    rig: rank_rig.Rig, container: tuple[str, ...]
) -> None:
    """Two ranks that both know themselves as process 1: each has a page, a state, a stack and a death of its own."""
    here = [processes.children_of(rig.rank(number, within=container).pid)[0] for number in (0, 1)]
    namespaces = [processes.namespace_of(pid) for pid in here]
    names = {p.name for p in rig.directory.glob("*.page")}
    assert names == {"p1.page", f"p1-{namespaces[1]}.page"}

    async def live() -> None:
        await rig.watch.beat()
        rows = rig.watch.rows()
        assert [(rows[r]["pid"], rows[r]["alive"]) for r in ("7:0", "7:1")] == [(p, True) for p in here]
        assert await rig.watch.snapshot(7)
        os.kill(here[1], signal.SIGKILL)
        while not any(s.kind == "rank_dead" for s in rig.taken):
            await rig.watch.wait(0.2)
            await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(live())
    (snapshot,) = (s for s in rig.taken if s.kind == "rank_snapshot")
    for entry, pid in zip(snapshot.detail["ranks"], here, strict=True):
        assert entry["pid"] == pid
        assert "dataloader" in [f["function"] for f in entry["stack"]], entry
    assert [(s.pid, s.detail["rank"]) for s in rig.taken if s.kind == "rank_dead"] == [(here[1], 1)]


def test_a_page_from_another_namespace_is_not_believed_without_its_process(
    rig: rank_rig.Rig, container: tuple[str, ...]
) -> None:
    """Nobody in the namespace that it names: no rank is alive, and it is not looked for ever again."""
    process = rig.rank(0, within=container)
    raw = bytearray((rig.directory / "p1.page").read_bytes())
    at = layout.H_PID_NAMESPACE * 8
    raw[at : at + 8] = (1).to_bytes(8, "little")
    (rig.directory / "p1.page").write_bytes(raw)

    async def live() -> dict[str, Any]:
        for _ in range(2 * rank_pages.SEEK_TIMES):
            await rig.watch.look(7)
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    assert asyncio.run(live())["7:0"]["alive"] is False
    assert process.poll() is None


def test_a_rank_in_a_container_is_found_once_its_user_may_be_waited_for_again(
    rig: rank_rig.Rig, container: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks in which its process could not be asked do not count. Its job and its ancestors are known then, too."""
    here = processes.children_of(rig.rank(0, within=container).pid)[0]
    read = guarded_reads.READS.read

    def refuse(pid: int, uid: int, work: object) -> object:
        raise guarded_reads.ProcessHangs(f"process {pid} is not asked")

    async def live() -> None:
        monkeypatch.setattr(guarded_reads.READS, "read", refuse)
        for _ in range(2 * rank_pages.SEEK_TIMES):
            await rig.watch.look(7)
        assert rig.watch.rows()["7:0"]["alive"] is False
        monkeypatch.setattr(guarded_reads.READS, "read", read)
        await rig.watch.look(7)
        row = rig.watch.rows()["7:0"]
        assert (row["pid"], row["alive"]) == (here, True)
        (rank,) = rig.watch._pages.jobs[7].ranks.values()
        assert processes.parent_of(here) in rank.ancestors
        await rig.watch.close()

    asyncio.run(live())


def test_a_later_process_of_the_same_number_takes_the_page(rig: rank_rig.Rig) -> None:
    """The page left by a process that is gone, of this namespace, is replaced; one of another is left alone."""
    code = "import os, sys\nos.getpid = lambda: 4000000\nfrom _probing_probe import page\npage.open_page()\n"
    for _ in range(2):
        rig.run(code)
    assert [p.name for p in rig.directory.glob("*.page")] == ["p4000000.page"]
    raw = bytearray((rig.directory / "p4000000.page").read_bytes())
    at = layout.H_PID_NAMESPACE * 8
    ours = int.from_bytes(raw[at : at + 8], "little")
    raw[at : at + 8] = (1).to_bytes(8, "little")
    (rig.directory / "p4000000.page").write_bytes(raw)
    for _ in range(2):
        rig.run(code)
    assert {p.name for p in rig.directory.glob("*.page")} == {"p4000000.page", f"p4000000-{ours}.page"}


LAUNCH = """
import os, subprocess, sys
from _probing_probe import page
page.open_page()
workers = [
    subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1], str(rank), "20"], env={**os.environ, "RANK": str(rank)})
    for rank in (2, 3)
]
for worker in workers: worker.wait()
"""


def test_a_launcher_is_no_rank(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun has a page as well, with Slurm's number of its task, which is the rank of somebody on another node."""
    monkeypatch.setenv("SLURM_PROCID", "1")
    launcher = rig.start(LAUNCH, rank_rig.TRAIN)
    for _ in range(2):
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"stopped\n"
    workers = set(processes.children_of(launcher.pid))

    async def live() -> dict[str, Any]:
        await rig.watch.beat()
        rows = rig.watch.rows()
        assert await rig.watch.snapshot(7)
        await rig.watch.close()
        return rows

    try:
        rows = asyncio.run(live())
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
    assert set(rows) == {"7:2", "7:3"}
    assert {rows["7:2"]["pid"], rows["7:3"]["pid"]} == workers
    (snapshot,) = (s for s in rig.taken if s.kind == "rank_snapshot")
    assert [e["rank"] for e in snapshot.detail["ranks"]] == [2, 3]
    assert snapshot.detail["more"] == 0


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_a_launcher_waits_for_its_ranks_and_does_not_stall(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays in the phase in which it started them for as long as the job runs."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    launcher = rig.start(LAUNCH.replace('"20"', '"400"'), rank_rig.TRAIN)

    async def live() -> list[dict[str, Any]]:
        rows = []
        for _ in range(15):
            await rig.watch.beat()
            rows.append(rig.watch.rows())
            await asyncio.sleep(0.1)
        await rig.watch.close()
        return rows

    rows = asyncio.run(live())
    workers = set(processes.children_of(launcher.pid))
    assert set(rows[-1]) == {"7:2", "7:3"}
    assert {row["pid"] for row in rows[-1].values()} == workers
    assert [s for s in rig.taken if s.kind == "rank_stall" and s.pid == launcher.pid] == []


LOADER = """
import os, subprocess, sys, time
from _probing_probe import page
page.open_page()
page.write_identity(rank=1, world=2, backend="gloo")
if len(sys.argv) < 2: subprocess.Popen([sys.executable, "-S", "-c", os.environ["SLURM_CODE"], "worker"])
time.sleep(60)
"""


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_a_rank_with_workers_is_no_launcher(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loader's workers import torch, too, and have its number: it is still looked at."""
    monkeypatch.setenv("SLURM_CODE", LOADER)
    rank = rig.start(LOADER)

    async def live() -> None:
        for _ in range(60):
            await rig.watch.beat()
            if any(s.kind == "rank_stall" and s.pid == rank.pid for s in rig.taken):
                break
            await asyncio.sleep(0.1)
        await rig.watch.close()

    asyncio.run(live())
    assert [s.pid for s in rig.taken if s.kind == "rank_stall" and s.pid == rank.pid] == [rank.pid]


HELPED = """
import os, subprocess, sys, time
from _probing_probe import page
page.open_page()
if "group" in sys.argv: page.write_identity(rank=1, world=2, backend="gloo")
if "steps" in sys.argv: page.step_done()
helper = "import os, time; from _probing_probe import page; page.open_page(); page.set_phase(int(os.environ.get('SLURM_PHASE', 2))); print('stopped', flush=True); time.sleep(120)"
child = subprocess.Popen([sys.executable, "-S", "-c", helper], env={**os.environ, **dict(w.split("=") for w in sys.argv[1:] if "=" in w)})
child.wait()
if "stay" in sys.argv: time.sleep(120)
"""


def _begin(rig: rank_rig.Rig, *words: str) -> tuple[int, int]:
    """A process and its child, both with pages, once both wait."""
    parent = rig.start(HELPED, *words)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"stopped\n"
    return parent.pid, processes.children_of(parent.pid)[0]


def _watch(
    rig: rank_rig.Rig, kill: int | None = None, beats: int = 12, every_s: float = 0.3
) -> dict[str, Any]:
    """The last row of each rank."""

    async def live() -> dict[str, Any]:
        for beat in range(beats):
            await rig.watch.beat()
            if beat == 1 and kill is not None:
                os.kill(kill, signal.SIGKILL)
            await asyncio.sleep(every_s)
        await rig.watch.snapshot(7)
        rows = rig.watch.rows()
        await rig.watch.close()
        return rows

    return asyncio.run(live())


@pytest.mark.parametrize("rig", [0.3], indirect=True)
@pytest.mark.parametrize("words", [("steps",), ("group",), ("group", "steps")])
def test_a_helper_of_a_rank_is_no_rank(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """A compile worker or a spawned loader worker has its rank's number, or Slurm's: it is no row, no stall, no death and in no snapshot."""
    monkeypatch.setenv("SLURM_PROCID", "0" if "group" in words else "1")
    rank, helper = _begin(rig, "stay", *words)
    rows = _watch(rig, kill=helper)
    assert {name: row["pid"] for name, row in rows.items()} == {"7:1": rank}
    assert [s for s in rig.taken if s.pid == helper] == []
    (snapshot,) = (s for s in rig.taken if s.kind == "rank_snapshot")
    assert [e["pid"] for e in snapshot.detail["ranks"]] == [rank]
    assert snapshot.detail["more"] == 0


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_a_rank_that_its_launcher_waits_for_is_watched(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`accelerate launch` with one process imports torch and has its rank's very number: the rank's death before its first step is news."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    _, rank = _begin(rig, "stay")
    monkeypatch.setattr(deaths, "BECAUSE_S", 60.0)
    _watch(rig, kill=rank, beats=8)
    assert [s for s in rig.taken if s.kind == "rank_dead"] == []  # nobody can say yet
    (launcher,) = rig.started
    launcher.kill()
    launcher.wait()
    assert "rank_dead" in rig.beats_until("rank_dead")


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_who_joins_a_process_group_is_no_helper(rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its death is news at once, whatever number the process above it has."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_PHASE", str(layout.INIT))
    _, rank = _begin(rig, "stay")
    _watch(rig, kill=rank, beats=8)
    assert [s.pid for s in rig.taken if s.kind == "rank_dead"] == [rank]


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_a_program_that_outlives_a_child_with_its_number_has_lost_no_rank(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool's workers are ended by SIGTERM when it is closed, also before the first step of the training."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    _, helper = _begin(rig, "stay")
    monkeypatch.setattr(deaths, "BECAUSE_S", 1.0)
    _watch(rig, kill=helper)
    assert [s for s in rig.taken if s.kind == "rank_dead"] == []


@pytest.mark.parametrize("rig", [0.3], indirect=True)
def test_who_waits_for_a_process_with_its_number_does_not_stall(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that loads, computes or only infers is no step further, and works all the same: its idle worker has not stopped."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    program, _ = _begin(rig)
    facts = processes.facts

    def of_busy(pid: int, *more: Any) -> processes.ProcessFacts | None:
        found = facts(pid, *more)
        return replace(found, cpu_s=10 * time.monotonic()) if found is not None and pid == program else found

    monkeypatch.setattr(processes, "facts", of_busy)
    rows = _watch(rig)
    assert [s for s in rig.taken if s.kind == "rank_stall"] == []
    assert {name: row["pid"] for name, row in rows.items()} == {"7:0": program}  # it has used more CPU time


def test_a_child_with_a_number_of_its_own_is_a_rank(
    rig: rank_rig.Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 of a node may start the others, as Lightning does."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    rank, other = _begin(rig, "steps", "SLURM_PROCID=1")
    assert {name: row["pid"] for name, row in _watch(rig, beats=2).items()} == {"7:0": rank, "7:1": other}


@pytest.mark.parametrize("where", ["/dev/shm", None], ids=["tmpfs", "a disk"])
def test_a_job_without_a_page_costs_no_reader(node_identity: identity.Identity, where: str | None) -> None:
    """Every job gets a page directory; many jobs that never run Python would cost the agent its memory.

    A directory's size differs between file systems.
    """
    if where and not os.access(where, os.W_OK):
        pytest.skip("needs a tmpfs")
    with tempfile.TemporaryDirectory(dir=where) as directory:
        rig = rank_rig.Rig(Path(directory), node_identity)
        assert asyncio.run(rig.watch._pages.read(7)) is None
        assert rig.watch._pages.jobs == {}
        (rig.directory / "p1.page").write_bytes(b"")

        async def read() -> bool:
            watched = await rig.watch._pages.read(7)
            await rig.watch.close()
            return watched is not None

        assert asyncio.run(read())
