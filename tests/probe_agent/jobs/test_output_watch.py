"""Looks at the sizes of what running jobs write, by a real child, until the collection judges them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import records, vocabulary
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.jobs import collect, jobs, output_growth, output_watch, page_directories
from probing_cluster.probe_agent.spool import codec, intake, spool
from tests.set_clock import SetClock

START = datetime(2026, 3, 2, 14, 0, tzinfo=UTC)
SLURM = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-02T14:07:00 DUE TO TIME LIMIT ***\n"


def written(path: Path, text: str, after_s: float) -> None:
    with path.open("a") as stream:
        stream.write(text)
    os.utime(path, times=((START + timedelta(seconds=after_s)).timestamp(),) * 2)


def test_a_job_that_stopped_writing_is_found_at_its_end(tmp_path: Path) -> None:
    """Six steps without times in the first minute, then nothing; Slurm's last message is no output of the job's."""
    now = SetClock(START)
    book = jobs.JobBook("b")
    own = identity.Identity(cluster="c", node="n1", root=tmp_path)
    queue = spool.Spool(tmp_path / "spool", max_bytes=1 << 20)
    collector = collect.Collector(
        identity=own, children=children.Children(), book=book, watch=self_watch.SelfWatch(), clock=now,
        intake=intake.Intake(identity=own, spool=queue, faults=faults.Faults("b")),
        pages=page_directories.PageDirectories(tmp_path / "pages"),
    )  # fmt: skip
    watch = output_watch.OutputWatch(book, collector, now)
    out = tmp_path / "slurm-7.out"
    written(out, "".join(f"step {n} loss 1.9\n" for n in range(6)), 40)
    job = jobs.NodeJob(
        job_id=7, started_at=START, uid=os.getuid(), gid=os.getgid(), stdout=str(out), work_dir=str(tmp_path), nodelist="n1"
    )  # fmt: skip
    book.start(job)
    operations: list[str] = []
    ask = collector.ask

    async def counted(job: jobs.NodeJob, request: dict[str, Any], *child: tuple[str, ...]) -> dict[str, Any]:
        operations.append(request["op"])
        return await ask(job, request, *child)

    collector.ask = counted  # type: ignore[method-assign]

    async def live() -> None:
        for at_s in (60, 90, 150, 390):
            now.at = START + timedelta(seconds=at_s)
            await watch.look()
        written(out, SLURM, 420)
        ended = book.end(dataclasses.replace(job), START + timedelta(seconds=420))
        await watch.look()
        await collector.collect(ended)

    asyncio.run(live())
    assert operations.count("sizes") == 3  # not again half a minute later
    events = [codec.decode(i.body, records.HealthEvent) for i in queue.batch(100) if i.lane == "event"]
    (stall,) = [e for e in events if e.kind == vocabulary.OUTPUT_STALL]
    assert (stall.source, stall.measured) == ("joblog", 380.0)
    assert stall.message == "nothing was written after: step 5 loss 1.9"


def test_what_a_user_makes_the_child_answer_ends_no_look(tmp_path: Path) -> None:
    """One file's row is forged, the other's is kept."""
    book = jobs.JobBook("b")
    for name in ("a", "b"):
        written(tmp_path / name, "x\n", 1)
    book.start(
        jobs.NodeJob(job_id=7, started_at=START, uid=os.getuid(), gid=os.getgid(), work_dir=str(tmp_path))
    )
    job = book.get(7)
    assert job is not None

    class Forged:
        sizes = output_growth.OutputSizes()

        def outputs(self, _job: jobs.NodeJob) -> list[str]:
            return ["/a", "/b"]

        async def ask(self, _job: jobs.NodeJob, _request: dict[str, Any]) -> dict[str, Any]:
            return {"sizes": {"/a": [float("nan"), 1, 1.0], "/b": [5, 10, 1.5], "/c": [5, 10, 1.5]}}

    asyncio.run(output_watch.OutputWatch(book, Forged(), SetClock(START)).look())  # type: ignore[arg-type]
    assert [bool(Forged.sizes.question(job, path)) for path in ("/a", "/b", "/c")] == [False, True, False]


@pytest.mark.parametrize("silent", [False, True])
def test_many_jobs_of_one_user_hide_no_output_of_another(
    monkeypatch: pytest.MonkeyPatch, *, silent: bool
) -> None:
    """Neither by their number nor because nobody answers about them: those that have been due longest come first."""
    monkeypatch.setattr(output_watch, "MAX_JOBS", 2)
    book, now = jobs.JobBook("b"), SetClock(START)
    for job_id in range(1, 7):
        book.start(jobs.NodeJob(job_id=job_id, started_at=START, uid=1000 if job_id < 6 else 1001))
    looked_at: list[int] = []

    class Collector:
        sizes = output_growth.OutputSizes()

        def outputs(self, _job: jobs.NodeJob) -> list[str]:
            return ["/out"]

        async def ask(self, job: jobs.NodeJob, _request: dict[str, Any]) -> dict[str, Any]:
            looked_at.append(job.job_id)
            return {"refused": collect.NO_ANSWER} if silent and job.uid == 1000 else {}

    watch = output_watch.OutputWatch(book, Collector(), now)  # type: ignore[arg-type]
    asyncio.run(watch.look())
    assert len(looked_at) == 2
    for _ in range(2):
        asyncio.run(watch.look())
    assert looked_at.count(6) == 1
    assert len(set(looked_at)) == (4 if silent else 6)
    now.at += timedelta(seconds=90)
    for _ in range(3):
        asyncio.run(watch.look())
    assert looked_at.count(6) == 2


def test_a_job_that_began_by_a_clock_ahead_is_due_at_once() -> None:
    """The node's clock was set back since: by it, the job begins in an hour."""
    book, now = jobs.JobBook("b"), SetClock(START)
    book.start(jobs.NodeJob(job_id=1, started_at=START + timedelta(hours=1), uid=1000))
    looked_at: list[int] = []

    class Collector:
        sizes = output_growth.OutputSizes()

        def outputs(self, _job: jobs.NodeJob) -> list[str]:
            return ["/out"]

        async def ask(self, job: jobs.NodeJob, _request: dict[str, Any]) -> dict[str, Any]:
            looked_at.append(job.job_id)
            return {}

    asyncio.run(output_watch.OutputWatch(book, Collector(), now).look())  # type: ignore[arg-type]
    assert looked_at == [1]
