"""An agent that is killed in the middle of a collection: nothing is lost, nothing counts twice, no page directory stays."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import warm_children

from probing_cluster.core import records, settings
from probing_cluster.probe_agent import identity, inject, self_watch
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.jobs import collect, jobs, page_directories, removal
from probing_cluster.probe_agent.spool import codec, intake, spool

ME, MINE = os.getuid(), os.getgid()
NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nValueError: bad shape\n'
PROGRAM = """
import probing_tables
t = probing_tables.table("train", step=int)
for i in range(10):
    t.append(i)
"""
STEPS: dict[str, tuple[type, str, bool]] = {
    "while the log is read": (collect.Collector, "_logs", True),
    "before the dumps are read": (collect.Collector, "_dumps", False),
    "before anything is stored": (intake.Intake, "take", False),
    "once the evidence is stored": (intake.Intake, "take", True),
    "before the tables are kept": (collect.Collector, "_keep", False),
    "once the tables are kept": (collect.Collector, "_keep", True),
    "before it counts as collected": (jobs.JobBook, "mark_collected", False),
    "once it counts as collected": (intake.Intake, "store", True),
    "before the directory is set aside": (page_directories.PageDirectories, "set_aside", False),
    "once the directory is set aside": (page_directories.PageDirectories, "set_aside", True),
}
"""Where the agent is killed: before or after (True) a call of a method."""


class Agent:
    """What of an agent collects, made of what its spool has."""

    def __init__(self, home: Path, readers: Path) -> None:
        self.identity = identity.Identity(cluster="c", node="n1", root=home)
        self.spool = spool.Spool(home / "spool", max_bytes=10_000_000)
        self.intake = intake.Intake(identity=self.identity, spool=self.spool, faults=faults.Faults("b"))
        self.book = jobs.JobBook("b", jobs.stored_states(self.spool))
        self.pages = page_directories.PageDirectories(home / "pages")
        self.collector = collect.Collector(
            identity=self.identity,
            children=warm_children.WarmChildren.of(readers),
            intake=self.intake,
            book=self.book,
            pages=self.pages,
            watch=self_watch.SelfWatch(),
            kept=settings.KeptSettings(directory=str(home / "history")),
        )

    def ended(self, home: Path) -> None:
        """The job's Epilog, durable."""
        self.book.start(jobs.NodeJob(job_id=7, started_at=NOW, uid=ME, gid=MINE, stdout=str(home / "out")))
        self.book.end(self.book.get(7) or pytest.fail("no job"), NOW + timedelta(minutes=1))
        self.intake.store((), self.book.changed_states())

    def collect(self) -> None:
        """What a daemon that starts does."""

        async def collect_all() -> None:
            for job in self.book.uncollected():
                await self.collector.collect(job)

        asyncio.run(collect_all())
        self.collector.discard_left_behind()
        self.pages.tidy()

    def deliver(self) -> dict[bytes, Any]:
        """The items that wait, as delivered rows by identity; the spool forgets them."""
        items = self.spool.batch(1000)
        self.spool.ack(items)
        kinds = {"event": records.HealthEvent, "allocation": records.JobAllocation}
        return {i.id: codec.decode(i.body, kinds[i.lane]) for i in items}


@pytest.fixture(scope="module")
def page_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a job's probe and NCCL left: tables of its own, and a dump."""
    made = tmp_path_factory.mktemp("pages")
    env = {"PROBING_PAGE_DIR": str(made), "PYTHONPATH": str(inject.SITE_DIRECTORY), "SLURM_PROCID": "0"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=env, check=True)
    (made / "fr_rank_0").write_bytes(pickle.dumps({"version": "2.4", "entries": [], "pg_config": {}}))
    return made


def prepared(home: Path, page_directory: Path) -> Path:
    home.mkdir()
    (home / "out").write_text(TRACE)
    shutil.copytree(page_directory, home / "pages" / "7")
    return home


def killed(step: str, home: Path, readers: Path) -> None:
    """Collects in a process of its own, which SIGKILL ends at `step`."""
    owner, name, after = STEPS[step]
    pid = os.fork()
    if pid == 0:
        try:
            agent = Agent(home, readers)
            agent.ended(home)
            setattr(owner, name, dying(getattr(owner, name), after=after))
            agent.collect()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"the collection never came to {step}"


def dying(real: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """The method, whose caller is killed before it or after it."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def later(*given: Any, **named: Any) -> Any:
        if not after:
            die()
        await real(*given, **named)
        die()

    def at_once(*given: Any, **named: Any) -> Any:
        if not after:
            die()
        result = real(*given, **named)
        # `store` is also how `take` stores the evidence: what is meant is the commit of the mark.
        if real.__name__ != "store" or "job:ended:7" in (given[2] if len(given) > 2 else {}):
            die()
        return result

    return later if asyncio.iscoroutinefunction(real) else at_once


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, page_directory: Path, warm_socket: Path) -> list[str]:
    """The rows of a collection that nobody disturbs."""
    home = prepared(tmp_path_factory.mktemp("whole") / "home", page_directory)
    agent = Agent(home, warm_socket)
    agent.ended(home)
    agent.collect()
    rows = agent.deliver().values()
    assert {"python_exception", "dump"} <= {row.kind for row in rows if isinstance(row, records.HealthEvent)}
    return sorted(_words(row) for row in rows)


@pytest.mark.parametrize(
    ("step", "is_delivered"), [*((step, True) for step in STEPS), ("before the tables are kept", False)]
)
def test_a_kill_at_any_step_changes_nothing_in_the_end(
    tmp_path: Path,
    page_directory: Path,
    warm_socket: Path,
    expected: list[str],
    step: str,
    *,
    is_delivered: bool,
) -> None:
    """The next agent leaves the same rows, tables and directories as one that nobody killed."""
    home = prepared(tmp_path / "home", page_directory)
    killed(step, home, warm_socket)
    agent = Agent(home, warm_socket)
    rows = agent.deliver() if is_delivered else {}
    agent.collect()
    rows |= agent.deliver()
    n_logs = [len(r.detail["logs"]) for r in rows.values() if "logs" in r.detail]
    assert n_logs == [1], "the end of its log reaches the report, once"
    assert sorted(_words(r) for r in rows.values()) == expected
    assert [p.relative_to(home / "history") for p in (home / "history").rglob("*") if p.is_file()] == [
        Path("c-7-0/n1.kept")
    ]
    left = [p for p in (home / "pages").rglob("*") if p.name != removal.FLAT]
    assert left == []
    assert agent.book.uncollected() == []


def _words(row: Any) -> str:
    if isinstance(row, records.HealthEvent):
        return f"{row.kind} {row.message}"
    return " ".join(line for log in row.detail.get("logs", ()) for line in log["tail"])


def test_a_directory_of_a_job_that_runs_again_stays(
    tmp_path: Path, page_directory: Path, warm_socket: Path
) -> None:
    """A requeued job's second start has the directory's name, and may have begun before the first one is collected."""
    home = prepared(tmp_path / "home", page_directory)
    agent = Agent(home, warm_socket)
    agent.ended(home)
    (first,) = agent.book.uncollected()
    agent.book.start(
        jobs.NodeJob(job_id=7, started_at=NOW + timedelta(hours=1), uid=ME, gid=MINE, restart_count=1)
    )
    asyncio.run(agent.collector.collect(first))
    agent.collector.discard_left_behind()
    assert agent.pages.path(7).is_dir()
    assert agent.book.uncollected() == []


def test_directories_of_jobs_that_the_agent_does_not_know_stay(
    tmp_path: Path, page_directory: Path, warm_socket: Path
) -> None:
    """An agent with a new spool knows nothing of the jobs that run."""
    home = prepared(tmp_path / "home", page_directory)
    agent = Agent(home, warm_socket)
    agent.collect()
    assert agent.pages.path(7).is_dir()


def test_of_many_ended_jobs_those_not_yet_collected_are_remembered() -> None:
    """A hundred jobs end while one's file server hangs: a crash then must not cost its evidence."""
    book = jobs.JobBook("b")
    for n in range(2 * jobs.MAX_ENDED):
        ended = book.end(jobs.NodeJob(job_id=n + 1, started_at=NOW, uid=ME), NOW)
        if n != 0:
            book.mark_collected(ended)
    assert [j.job_id for j in jobs.JobBook("b", book.changed_states()).uncollected()] == [1]
