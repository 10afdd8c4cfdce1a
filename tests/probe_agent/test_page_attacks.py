"""Users against the agent: whatever one writes into its page directory, the agent lives and nobody sees what is not theirs.

Every attack is made by a real process of another uid, against the agent's own readers running as root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import jobs, page_directories, processes
from probing_cluster.probe_agent.ranks import deaths, page_child, rank_deaths, rank_watch, ranks, stall
from probing_cluster.probe_agent.stacks import pyspy_program

MALLORY, VICTIM = 61001, 61002
"""Numeric uids without accounts, as containers have them."""
PYTHON = "/usr/bin/python3"
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become other users"),
    pytest.mark.skipif(not Path(PYTHON).exists(), reason="needs a Python that any user may run"),
]


def page_bytes(pid: int, start_ticks: int, rank: int, word: str = "victim") -> bytes:
    """A valid page that claims to be of some process."""
    words = [0] * layout.WORDS
    words[layout.H_MAGIC], words[layout.H_VERSION] = layout.MAGIC, layout.VERSION
    words[layout.H_PID], words[layout.H_START_TICKS] = pid, start_ticks
    identity_words = [layout.NONE] * layout.IDENTITY_WORDS
    identity_words[layout.I_RANK], identity_words[layout.I_WORLD] = rank, 2
    identity_words[layout.I_HOST : layout.I_HOST + layout.I_HOST_WORDS] = layout.words_of(
        word, layout.I_HOST_WORDS
    )
    identity_words[layout.I_CHECK] = layout.check_of(
        [*identity_words[: layout.I_CHECK], *identity_words[layout.I_CHECK + 1 :]]
    )
    words[layout.IDENTITY_AT[0] : layout.IDENTITY_AT[0] + layout.IDENTITY_WORDS] = identity_words
    done = [layout.TRAINING, 1, 0, 0, 0]
    words[layout.PROGRESS_AT[0] : layout.PROGRESS_AT[0] + 6] = [*done, layout.check_of(done)]
    return b"".join(w.to_bytes(8, "little") for w in words)


class Rig:
    """One agent that watches a job of mallory's and one of the victim's."""

    def __init__(self, base: Path, node_identity: identity.Identity) -> None:
        self.taken: list[Sighting] = []
        self.book = jobs.JobBook(node_identity.boot_id())
        self.directories = page_directories.PageDirectories(base)
        for job_id, uid in ((7, MALLORY), (8, VICTIM)):
            self.book.start(jobs.NodeJob(job_id=job_id, started_at=datetime.now(UTC), uid=uid, gid=uid))
            self.directories.make(job_id, uid, uid)
        self.mallorys, self.victims = self.directories.path(7), self.directories.path(8)
        self.watch = rank_watch.RankWatch(
            identity=node_identity,
            children=children.Children(),
            book=self.book,
            directories=self.directories,
            take=self.taken.extend,
            watch=self_watch.SelfWatch(),
            limits=stall.StallLimits(least_s=1e9, startup_s=1e9),
        )
        self.started: list[subprocess.Popen[bytes]] = []

    def sleeper(self, uid: int) -> tuple[int, int]:
        """(pid, start ticks) of a process of this uid."""
        process = subprocess.Popen(["/bin/sleep", "600"], user=uid, group=uid, extra_groups=[])
        self.started.append(process)
        found = processes.facts(process.pid)
        assert found is not None
        return process.pid, found.start_ticks

    def write(
        self, job_id: int, uid: int, pid: int, start_ticks: int, rank: int, word: str = "victim"
    ) -> Path:
        """A page as that user would write it."""
        path = self.directories.path(job_id) / f"p{pid}.page"
        path.write_bytes(page_bytes(pid, start_ticks, rank, word))
        os.chown(path, uid, uid)
        path.chmod(0o600)
        return path

    def look(self, times: int = 1, *, snapshot: bool = False) -> dict[str, object]:
        """What the agent knows of both jobs after some beats."""

        async def live() -> dict[str, object]:
            for _ in range(times):
                await self.watch.beat()
            if snapshot:
                await self.watch.snapshot(7)
            rows = self.watch.rows()
            await self.watch.close()
            return rows

        return asyncio.run(live())


@pytest.fixture
def rig(node_identity: identity.Identity) -> Iterator[Rig]:
    """Two users' directories where other uids can reach them, and no process left behind."""
    base = Path(tempfile.mkdtemp(prefix="probing-pages-"))
    base.chmod(0o711)
    made = Rig(base, node_identity)
    try:
        yield made
    finally:
        for process in made.started:
            process.kill()
            process.communicate()
        shutil.rmtree(base, ignore_errors=True)


def as_user(uid: int, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs some Python as a uid with no groups and no account."""
    return subprocess.run(
        [PYTHON, "-I", "-S", "-c", textwrap.dedent(code), *words],
        check=False, capture_output=True, text=True, user=uid, group=uid, extra_groups=[], timeout=60, cwd="/",
    )  # fmt: skip


def test_a_user_can_neither_read_nor_change_what_is_anothers(rig: Rig) -> None:
    """Another's directory, the base, other jobs' names: every attempt of a real process is refused by the kernel."""
    pid, ticks = rig.sleeper(VICTIM)
    page = rig.write(8, VICTIM, pid, ticks, 0)
    before = page.read_bytes()
    done = as_user(
        MALLORY,
        """
        import json, os, sys
        base, mine, theirs, page = sys.argv[1:]
        tries = {
            "list": lambda: os.listdir(theirs),
            "read": lambda: open(page, "rb").read(),
            "write": lambda: open(page, "r+b").write(b"x"),
            "plant": lambda: open(theirs + "/p1.page", "wb"),
            "remove": lambda: os.unlink(page),
            "hard link": lambda: os.link(page, mine + "/p5.page"),
            "take the place": lambda: os.rename(mine, base + "/9"),
            "a name of the future": lambda: os.mkdir(base + "/9"),
            "a link of the future": lambda: os.symlink("/etc", base + "/10"),
            "list the base": lambda: os.listdir(base),
        }
        won = []
        for name, attempt in tries.items():
            try:
                attempt()
                won.append(name)
            except OSError:
                pass
        print(json.dumps(won))
        """,
        str(rig.mallorys.parent), str(rig.mallorys), str(rig.victims), str(page),
    )  # fmt: skip
    assert json.loads(done.stdout) == [], done.stderr
    assert page.read_bytes() == before


def test_links_and_odd_files_show_nothing_of_anybody(rig: Rig, tmp_path: Path) -> None:
    """Symlinks to another's page and to root's files, a FIFO, a socket, a device's name, huge and short files, subdirectories."""
    pid, ticks = rig.sleeper(VICTIM)
    page = rig.write(8, VICTIM, pid, ticks, 0, word="SECRET")
    roots = tmp_path / "roots"
    roots.write_bytes(page_bytes(pid, ticks, 3, "SECRET"))
    done = as_user(
        MALLORY,
        """
        import os, socket, sys
        mine, page, roots = sys.argv[1:]
        os.chdir(mine)
        os.symlink(page, "p1.page")
        os.symlink(roots, "p2.page")
        os.symlink("/etc/shadow", "p3.page")
        os.symlink("/dev/zero", "p4.page")
        os.symlink("/proc/self/mem", "p5.page")
        os.symlink("p6.page", "p6.page")
        os.mkfifo("p7.page")
        s = socket.socket(socket.AF_UNIX); s.bind("p8.page")
        os.mkdir("p9.page")
        with open("p10.page", "wb") as f: f.truncate(1 << 40)
        open("p11.page", "wb").write(b"x" * 100)
        open("p12.page", "wb").write(os.urandom(16384))
        open("p13.page", "wb").write(b"")
        open("p\\u0664.page", "wb").write(b"")
        open("p-1.page", "wb").write(b"")
        open("p" + "9" * 200 + ".page", "wb").write(os.urandom(16384))
        """,
        str(rig.mallorys), str(page), str(roots),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(rig.look(2)) == {"8:0"}
    os.link(roots, rig.mallorys / "p14.page")  # where the kernel does not protect hard links
    os.link(page, rig.mallorys / "p15.page")
    answer = _as_reader(rig.mallorys, MALLORY)
    assert b"SECRET".hex() not in json.dumps(answer)
    assert not {"p1.page", "p2.page", "p3.page", "p14.page", "p15.page"} & set(answer["pages"])
    assert len(answer["refused"]) >= 11


def _as_reader(directory: Path, uid: int) -> dict[str, dict[str, str]]:
    """What the agent's reader of that user's pages brings back."""
    request = json.dumps({"directory": str(directory), "uid": uid, "gid": uid}).encode() + b"\n"
    argv = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.ranks.page_child"]
    done = subprocess.run(argv, input=request, capture_output=True, check=True, timeout=60)
    answer: dict[str, dict[str, str]] = json.loads(done.stdout)
    return answer


def test_the_reader_cannot_be_turned_against_root(rig: Rig, tmp_path: Path) -> None:
    """Asked for a directory that only root may open, the reader is that user already, and fails."""
    secret = tmp_path / "root-only"
    secret.mkdir(mode=0o700)
    (secret / "p5.page").write_bytes(page_bytes(5, 5, 5, "SECRET"))
    assert "pages" not in _as_reader(secret, MALLORY)
    assert "pages" not in _as_reader(rig.victims, MALLORY)
    assert "refused" in _as_reader(rig.victims, 0)


def test_a_page_that_claims_anothers_process_gets_nothing_of_it(rig: Rig) -> None:
    """mallory names the victim's process, its start exact: no rank lives by it, no stack of it is taken, no death told."""
    pid, ticks = rig.sleeper(VICTIM)
    rig.write(7, MALLORY, pid, ticks, 0)
    first = rig.look(2, snapshot=True)
    assert first["7:0"]["alive"] is False  # type: ignore[index]
    snapshot = next(s for s in rig.taken if s.kind == "rank_snapshot")
    (entry,) = snapshot.detail["ranks"]
    assert "stack" not in entry
    assert "stack_error" not in entry
    assert not {"native", "native_error"} & set(entry)
    assert "wchan" not in entry
    rig.started[0].send_signal(signal.SIGKILL)
    rig.started[0].wait()
    rig.look(2)
    assert [s for s in rig.taken if s.kind == "rank_dead"] == []


@pytest.mark.skipif(pyspy_program.program() is None, reason="py-spy is not installed")
def test_of_ones_own_process_the_stack_is_taken(rig: Rig) -> None:
    """The twin of the case before: what is refused there is given here."""
    pid, ticks = rig.sleeper(MALLORY)
    rig.write(7, MALLORY, pid, ticks, 0)
    rig.look(1, snapshot=True)
    (entry,) = next(s for s in rig.taken if s.kind == "rank_snapshot").detail["ranks"]
    assert "stack_error" in entry  # /bin/sleep is no Python: asked, and said so
    assert "native" in entry or "native_error" in entry


def test_a_flood_of_pages_costs_the_others_nothing(rig: Rig) -> None:
    """20,000 pages of mallory's: bounded reading, bounded rows, and the victim's rank is seen as ever."""
    pid, ticks = rig.sleeper(VICTIM)
    rig.write(8, VICTIM, pid, ticks, 0)
    template = rig.mallorys.parent / "template"
    template.write_bytes(page_bytes(99, 1, 1))
    template.chmod(0o644)
    done = as_user(
        MALLORY,
        """
        import os, sys
        os.chdir(sys.argv[1])
        page = open(sys.argv[2], "rb").read()
        for i in range(20000):
            with open("p%d.page" % (100000 + i), "wb") as f:
                if i < 2000:
                    f.write(page[:24] + (100000 + i).to_bytes(8, "little") + page[32:])
        """,
        str(rig.mallorys), str(template),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = rig.look(2)
    assert rows["8:0"]["alive"] is True  # type: ignore[index]
    assert len(rows) <= ranks.MAX_RANKS + 1
    answer = _as_reader(rig.mallorys, MALLORY)
    assert len(answer["pages"]) + len(answer["refused"]) <= page_child.MAX_PAGES
    assert len(json.dumps(rows)) < 100_000


def test_ever_new_pages_fill_no_memory(rig: Rig) -> None:
    """At each look other forged pages: what is gone from the directory is gone from the agent."""

    async def live() -> int:
        most = 0
        for turn in range(10):
            for old in rig.mallorys.iterdir():
                old.unlink()
            for i in range(100):
                rig.write(7, MALLORY, 100_000 + turn * 100 + i, 1, i)
            await rig.watch.beat()
            most = max(most, len(rig.watch._pages.jobs[7].ranks))
        await rig.watch.close()
        return most

    assert asyncio.run(live()) <= 100


def test_a_page_that_names_anothers_rank_ends_no_watch_over_it(rig: Rig) -> None:
    """Written, then deleted, or its job over: the victim's rank keeps its pidfd, and its death is noticed at once."""
    pid, ticks = rig.sleeper(VICTIM)
    rig.write(8, VICTIM, pid, ticks, 0)

    async def live() -> bool:
        await rig.watch.beat()
        path = rig.write(7, MALLORY, pid, ticks, 0)
        await rig.watch.beat()
        path.unlink()
        await rig.watch.beat()
        rig.write(7, MALLORY, pid, ticks, 0)
        await rig.watch.beat()
        await rig.watch._pages.drop(7)
        rig.started[0].kill()
        rig.started[0].wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(rig.watch._deaths.somebody.wait(), 10)
        await rig.watch.close()
        return rig.watch._deaths.somebody.is_set()

    assert asyncio.run(live())


def test_deaths_are_told_so_often_and_no_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who starts and kills processes for ever floods no spool."""
    monkeypatch.setattr(rank_deaths, "MAX_DEATH_EVENTS", 3)
    monkeypatch.setattr(deaths, "SETTLE_S", 0.0)
    # Whoever spaces them out makes each death look like the first.
    monkeypatch.setattr(deaths, "fate", lambda *_: deaths.EndMeaning.NEWS)
    for rank in range(6):
        rig.write(7, MALLORY, *rig.sleeper(MALLORY), rank)

    async def live() -> None:
        await rig.watch.beat()
        for process in rig.started[:5]:
            process.kill()
            process.wait()
            await rig.watch.beat()
            await asyncio.sleep(0.01)
            await rig.watch.beat()
        await rig.watch.close()

    asyncio.run(live())
    assert len([s for s in rig.taken if s.kind == "rank_dead"]) == 3


def test_a_page_that_changes_its_size_while_it_is_read(rig: Rig) -> None:
    """Truncated and regrown as fast as a process can: no signal, no exception, no half page taken for a whole one."""
    pid, ticks = rig.sleeper(MALLORY)
    path = rig.write(7, MALLORY, pid, ticks, 0)
    code = """
    import os, sys
    fd = os.open(sys.argv[1], os.O_RDWR)
    page = os.pread(fd, 16384, 0)
    print("go", flush=True)
    while True:
        os.ftruncate(fd, 0); os.ftruncate(fd, 1 << 33); os.ftruncate(fd, 0); os.pwrite(fd, page, 0)
    """
    shrinker = subprocess.Popen(
        [PYTHON, "-I", "-S", "-c", textwrap.dedent(code), str(path)],
        user=MALLORY, group=MALLORY, extra_groups=[], stdout=subprocess.PIPE,
    )  # fmt: skip
    rig.started.append(shrinker)
    assert shrinker.stdout is not None
    assert shrinker.stdout.readline() == b"go\n"
    rows = rig.look(30)
    assert set(rows) <= {"7:0"}
    assert {s.kind for s in rig.taken} <= {"rank_dead"}


def test_what_the_agent_removes_is_only_the_directory(rig: Rig, tmp_path: Path) -> None:
    """Links out of it, closed and deep trees inside it: all gone, and nothing else."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("precious")
    done = as_user(
        MALLORY,
        """
        import os, sys
        os.chdir(sys.argv[1])
        os.symlink(sys.argv[2], "p1.page")
        os.symlink("/etc", "etc")
        os.mkdir("closed"); open("closed/x", "w"); os.chmod("closed", 0)
        for i in range(200):
            os.mkdir("d"); os.chdir("d")
        """,
        str(rig.mallorys), str(kept),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rig.directories.remove(7)
    assert not rig.mallorys.exists()
    assert (kept / "file").read_text() == "precious"
    assert Path("/etc/passwd").exists()
    assert rig.victims.is_dir()


@pytest.mark.parametrize(
    "names", [("fr_rank_0", "fr_rank_1", "fr_rank_2", "fr_rank_3", "fr_rank_4", "fr_rank_5")]
)
def test_dumps_are_no_way_in(rig: Rig, tmp_path: Path, names: Sequence[str]) -> None:
    """Flight-recorder dumps that are links, pipes, huge, or pickles that would run code: read as data or refused."""
    ran = tmp_path / "ran"
    tmp_path.chmod(0o777)
    code = """
    import os, pickle, sys
    os.chdir(sys.argv[1])
    class Run:
        def __reduce__(self): return os.system, ("touch " + sys.argv[2],)
    os.symlink("/etc/shadow", "fr_rank_0")
    os.mkfifo("fr_rank_1")
    with open("fr_rank_2", "wb") as f: f.truncate(1 << 40)
    with open("fr_rank_3", "wb") as f: pickle.dump({"version": "2.10", "entries": [Run()]}, f)
    with open("fr_rank_4", "wb") as f: f.write(os.urandom(4096))
    with open("fr_rank_5", "wb") as f: f.write(b"Vtext\\n.")
    """
    done = as_user(MALLORY, code, str(rig.mallorys), str(ran))
    assert done.returncode == 0, done.stderr
    request = json.dumps(
        {"op": "dumps", "directory": str(rig.mallorys), "uid": MALLORY, "gid": MALLORY}
    ).encode()
    argv = [sys.executable, "-I", "-m", "probing_cluster.probe_agent.jobs.collect_child"]
    read = subprocess.run(argv, input=request, capture_output=True, check=False, timeout=120)
    assert read.returncode == 0, read.stderr
    answer = json.loads(read.stdout)
    assert not ran.exists()
    assert {"fr_rank_0", "fr_rank_1", "fr_rank_2"} <= set(answer["refused"])
    assert set(names) >= set(answer["refused"])
    assert b"root:" not in read.stdout
