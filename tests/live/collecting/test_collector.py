"""The collector as a process: what hangs, raises, floods or is hostile costs its own table and nothing else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import digits, errors
from probing_cluster.live import plugins
from probing_cluster.live.collecting import answering
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import Scan
from probing_cluster.probe_agent.inject.site._probing_probe import layout

PLUGINS = """
import time
from probing_cluster.live.table import NODE_PLACE, Column, LazySchema, Table
def made(rows):
    return Table(schema="bad", name="x", meaning="m", source="s", rows=rows, columns=NODE_PLACE)
def hang(view, scan):
    while True:
        time.sleep(1)
def prints(view, scan):
    print("1 +AAAA")
    yield view.node_place()
def eats(view, scan):
    yield {"node": "x" * (8 << 30)}
def exits(view, scan):
    import os
    os._exit(3)
HANGS, RAISES, PRINTS = made(hang), made(lambda view, scan: 1 / 0), made(prints)
EATS, EXITS, NONE = made(eats), made(exits), "no table"
"""
POINTS = """[probing_cluster.tables]
bad.hangs = bad_tables:HANGS
bad.raises = bad_tables:RAISES
bad.prints = bad_tables:PRINTS
bad.eats = bad_tables:EATS
bad.exits = bad_tables:EXITS
bad.none = bad_tables:NONE
bad.absent = no_such_module:TABLE
"""


@pytest.fixture
def bad_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of tables that do everything wrong."""
    folder = tmp_path / "plugins"
    (folder / "bad_tables-1.dist-info").mkdir(parents=True)
    (folder / "bad_tables.py").write_text(PLUGINS)
    (folder / "bad_tables-1.dist-info/entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PROBING_TABLES", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path])  # the plugins' folder joins it


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("raises", "ZeroDivisionError"),
        ("eats", "MemoryError"),
        ("exits", "ended without an answer"),
        ("none", "not a Table"),
        ("absent", "no_such_module"),
    ],
)
def test_a_plugin_that_fails_is_a_row_of_missing(
    job: Any, open_session: Callable[..., Any], bad_plugins: None, table: str, reason: str
) -> None:
    """Beside it the product's own tables answer; where even its columns are not known, the statement says why."""
    asking = open_session(job)
    try:
        found = asking.sql(f"SELECT count(*) AS n FROM bad.{table}")
        reasons = [m.reason for m in found.missing]
    except errors.UsageError as exc:
        reasons = [str(exc)]
    assert reason in reasons[0]
    assert asking.sql("SELECT count(*) AS n FROM ranks").rows.to_pylist() == [{"n": 4}]


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff\xfe\x00",
        b"[probing_cluster.tables]\nno equals sign\n",
        b"[probing_cluster.tables\nsite.y = os:path\n",
        b"= y:z\n",
    ],
)
def test_a_package_whose_entry_points_are_damaged_takes_no_other_with_it(
    tmp_path: Path, bad_plugins: None, damaged: bytes
) -> None:
    """Of whatever package in the environment: a question asked without it, too, ended with a traceback."""
    (tmp_path / "plugins/broken-1.dist-info").mkdir()
    (tmp_path / "plugins/broken-1.dist-info/entry_points.txt").write_bytes(damaged)
    assert "bad.hangs" in plugins.names()
    assert plugins.find("bad.prints") is not None


def test_a_plugin_that_hangs_is_ended_and_the_other_tables_of_the_statement_answer(
    job: Any, open_session: Callable[..., Any], bad_plugins: None
) -> None:
    asking = open_session(job)
    asking.sql("SELECT rank FROM ranks")  # its collector has started
    for timeout_s in (2.0, 4.0, 8.0, 16.0, 32.0):  # a busy machine may need more than the first
        asking.timeout_s = timeout_s
        found = asking.sql("SELECT count(r.rank) AS n FROM ranks r LEFT JOIN bad.hangs h ON r.node = h.node")
        if found.rows.to_pylist() == [{"n": 4}]:
            break
    assert found.rows.to_pylist() == [{"n": 4}]
    assert [(m.node, m.table, m.reason) for m in found.missing] == [
        ("n1", "bad.hangs", "no answer before the deadline")
    ]


def test_what_a_plugin_prints_is_no_row(
    job: Any, open_session: Callable[..., Any], bad_plugins: None
) -> None:
    found = open_session(job).sql("SELECT node FROM bad.prints")
    assert (found.rows.to_pylist(), found.missing) == ([{"node": "n1"}], ())


def test_dead_stopped_and_absent_ranks(empty_job: Any, open_session: Callable[..., Any]) -> None:
    """Last words of the dead; a stopped process is read from outside; a rank that nobody has a page of is missing."""
    empty_job.start(3, world=4)
    asking = open_session(empty_job)
    empty_job.ranks[0].kill()
    empty_job.ranks[0].wait()
    os.kill(empty_job.ranks[1].pid, signal.SIGSTOP)
    empty_job.comes_to(1, "T")
    found = asking.sql(
        "SELECT rank, alive, state, step, inside, seconds_inside IS NULL AS over FROM ranks ORDER BY rank"
    )
    assert [tuple(r.values()) for r in found.rows.to_pylist()] == [
        (0, False, None, 70, "broadcast", True),
        (1, True, "T", 70, "broadcast", False),
        (2, True, "S", 70, "broadcast", False),
    ]
    assert [(m.rank, m.reason) for m in found.missing] == [(3, "no node that was asked has a page of it")]
    steps = asking.sql("SELECT count(*) AS n FROM torch.steps WHERE rank = 0")
    assert steps.rows.to_pylist() == [{"n": 64}]
    stacks = asking.sql("SELECT function FROM python.backtrace WHERE rank = 1 AND depth = 0")
    assert stacks.rows["function"].to_pylist() == ["waits_here"]


HELPED = """
import os, subprocess, sys, time
from _probing_probe import page
page.open_page()
helper = "import time; from _probing_probe import page; page.open_page(); page.set_phase(2); print('ready', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-S", "-c", helper])
if CASE == "idle":
    for _ in range(30_000_000): pass
else:
    page.step_done()
if CASE == "dies":
    while len(os.listdir(os.environ["PROBING_PAGE_DIR"])) < 2: time.sleep(0.05)
    os._exit(1)
time.sleep(600)
"""


@pytest.fixture
def job_with_helper(empty_job: Any) -> Iterator[Any]:
    """A job whose rank may start a process with its number."""
    yield empty_job
    for page in empty_job.directory.glob("p*.page"):
        if int(page.stem[1:]) != empty_job.ranks[0].pid:
            os.kill(int(page.stem[1:]), signal.SIGKILL)


@pytest.mark.parametrize("case", ["trains", "idle", "dies"])
def test_a_helper_does_not_hide_its_rank(job_with_helper: Any, case: str) -> None:
    """A compile worker is younger than its rank, and may outlive it. Before the first step only the work done tells them apart."""
    job_with_helper.start(1, code=HELPED.replace("CASE", repr(case)))
    if case == "dies":
        job_with_helper.ranks[0].wait()
    (rank,) = job_with_helper.view().ranks
    assert (rank.rank, rank.pid) == (0, job_with_helper.ranks[0].pid)
    assert rank.alive is (case != "dies")


def test_a_job_without_pages_says_so(empty_job: Any, open_session: Callable[..., Any]) -> None:
    empty_job.directory.chmod(0o700)
    asking = open_session(empty_job)
    assert asking.sql("SELECT rank FROM ranks").rows.num_rows == 0
    empty_job.directory.rmdir()
    found = asking.sql("SELECT rank FROM ranks")
    assert "no page directory" in found.missing[0].reason


def test_hostile_pages_and_rings_crash_nothing(empty_job: Any) -> None:
    """Damaged pages, rings of noise, links, fifos, floods: every table answers or says what is missing."""
    empty_job.start(2)
    (first,) = [p for p in empty_job.directory.glob("p*.page") if str(empty_job.ranks[0].pid) in p.name]
    whole = first.read_bytes()
    dice = random.Random(11)
    for n in range(60):
        damaged = bytearray(whole)
        for _ in range(dice.choice((1, 5, 200))):
            at = dice.randrange(0, layout.SIZE_BYTES, 8)
            damaged[at : at + 8] = dice.choice((b"\xff" * 8, bytes(8), dice.randbytes(8)))
        pid = dice.choice((empty_job.ranks[1].pid, os.getpid(), 1, 4_000_000 + n))
        (empty_job.directory / f"p{pid}-{n}.page").write_bytes(damaged)
        (empty_job.directory / f"t{n}-0.ring").write_bytes(dice.randbytes(dice.choice((0, 64, 70_000))))
    (empty_job.directory / "p5.page").symlink_to("/dev/zero")
    os.mkfifo(empty_job.directory / "p6.page")
    for table in (
        "cluster.ranks",
        "torch.steps",
        "torch.collectives",
        "torch.checkpoints",
        "python.tables",
        "process.memory",
    ):
        found = unpacking.unpack(answering.answer(empty_job.view(seconds=20), Scan(table=table)), "n1")
        assert found.node == "n1"
        if table == "cluster.ranks":
            assert {0, 1} <= set(found.rows["rank"].to_pylist())
            assert any("no pages" in why for _, why in found.missing)


def test_a_page_of_another_user_is_not_read(empty_job: Any) -> None:
    """Whoever can write into the directory, only its owner's own files are believed."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make another user's file")
    empty_job.start(1)
    page = next(empty_job.directory.glob("p*.page"))
    os.chown(page, 65534, 65534)
    found = unpacking.unpack(answering.answer(empty_job.view(), Scan(table="cluster.ranks")), "n1")
    assert found.rows.num_rows == 0
    assert found.missing


def test_the_collector_is_small_and_the_first_to_go(job: Any, open_session: Callable[..., Any]) -> None:
    """Of all processes the kernel takes it first; it opens no socket, loads neither Arrow nor asyncio, and ends with its input."""
    asking = open_session(job)
    asking.sql("SELECT rank FROM ranks")
    (pid,) = [
        int(p.name)
        for p in Path("/proc").iterdir()
        if digits.is_number(p.name)
        and b"collecting.collector" in _cmdline(p)
        and str(job.directory).encode() in _cmdline(p)
        and p.joinpath("stat").read_text().split(") ")[1].split()[1] == str(os.getpid())
    ][-1:]
    home = Path(f"/proc/{pid}")
    assert home.joinpath("oom_score_adj").read_text().strip() == "1000"
    maps = home.joinpath("maps").read_text()
    assert "arrow" not in maps
    assert "_asyncio" not in maps
    rss_kib = int(home.joinpath("statm").read_text().split()[1]) * 4
    assert rss_kib < 40_000
    asking._nodes.close()
    deadline = time.monotonic() + 60
    while home.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _cmdline(home: Path) -> bytes:
    try:
        return home.joinpath("cmdline").read_bytes()
    except OSError:
        return b""


IMPORTS_NOTHING = """
import sys, time
from pathlib import Path
from probing_cluster.live.collecting import answering, collector
from probing_cluster.live.table import Scan
from probing_cluster.live.tables import registry
collector._be_small()
registry.load()
loaded = set(sys.modules)
place = collector.Place(job_id=7, node="n1", directory=Path(sys.argv[1]), step="", may_evaluate=False)
for name in (*registry.NAMES, "python.train", "site.licences"):
    answering.answer(place.view(time.monotonic() + 20), Scan(table=name))
print(*(set(sys.modules) - loaded))
"""


def test_no_table_imports_anything_once_the_collector_is_its_owner(tmp_path: Path) -> None:
    """Our Python may lie where the job's owner may not read it, as below /root."""
    (tmp_path / "7").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_NOTHING, str(tmp_path / "7")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == []
