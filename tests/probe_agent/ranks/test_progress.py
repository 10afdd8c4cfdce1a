"""From the bytes of a page to a run account that is measured: once each, bounded, and never outside the job's life."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.attribution.reliability import accounts, run_account
from probing_cluster.core import clock as clocks
from probing_cluster.core import records
from probing_cluster.probe_agent import identity, inject
from probing_cluster.probe_agent.faults import gpus, sighting
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import pages, progress

TRAIN = """
import sys, threading, time
from _probing_probe import page
page.open_page()
page.write_identity(rank=int(sys.argv[1]), world=4)
early = page.checkpoint_begin(); page.checkpoint_end(early, True)  # a file saved before training
def steps(n):
    for _ in range(n):
        time.sleep(0.01)
        page.step_done()
def save(written=True, nested=False):
    begun = page.checkpoint_begin()
    time.sleep(0.05)
    if nested:
        page.checkpoint_end(page.checkpoint_begin(), True)
    page.checkpoint_end(begun, written)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
NS = 1_000_000_000


class Rank:
    """A training process that does what it is told."""

    def __init__(self, directory: Path, rank: int) -> None:
        env = {"PROBING_PAGE_DIR": str(directory), "PYTHONPATH": str(inject.SITE_DIRECTORY)}
        argv = [sys.executable, "-S", "-c", TRAIN, str(rank)]
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.path = directory / f"p{self.process.pid}.page"

    def do(self, line: str) -> pages.ProbePage:
        """Its page after one line of its program."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"done\n"
        return pages.parse(self.path.read_bytes())

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def rank(tmp_path: Path) -> Any:
    """Starts ranks; all are gone afterwards."""
    started: list[Rank] = []

    def start(number: int = 0) -> Rank:
        started.append(Rank(tmp_path, number))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def job() -> jobs.NodeJob:
    return jobs.NodeJob(
        job_id=7, started_at=datetime.now(UTC) - timedelta(seconds=60), restart_count=1, uid=os.getuid()
    )


def moment() -> progress.ProgressMoment:
    """Now, on both clocks."""
    return progress.ProgressMoment(now=datetime.now(UTC), monotonic_s=clocks.SYSTEM.monotonic_s())


def later(seconds: float) -> progress.ProgressMoment:
    """Some time from now."""
    now = moment()
    return progress.ProgressMoment(
        now=now.now + timedelta(seconds=seconds), monotonic_s=now.monotonic_s + seconds
    )


def test_pages_become_a_measured_account(
    rank: Callable[..., Rank], job: jobs.NodeJob, node_identity: identity.Identity
) -> None:
    """First step, two checkpoints and the last step of a failed attempt: nothing of its account is assumed."""
    reported, sightings = progress.ReportedProgress(), []
    trainer, follower = rank(0), rank(1)
    sightings += progress.news(job, [trainer.do("steps(3)"), follower.do("steps(3)")], reported, moment())
    assert [s.kind for s in sightings] == ["first_step"]
    sightings += progress.news(job, [trainer.do("save()"), follower.do("save()")], reported, moment())
    sightings += progress.news(
        job, [trainer.do("steps(2); save()"), follower.do("steps(2)")], reported, later(60)
    )
    page = trainer.do("steps(4)")
    ended = jobs.NodeJob(**{**vars(job), "released_at": datetime.now(UTC)})
    sightings += progress.news(ended, [page, follower.do("steps(3)")], reported, moment(), last=True)
    assert [s.kind for s in sightings] == ["first_step", "checkpoint", "checkpoint", "last_progress"]
    assert [s.detail["rank"] for s in sightings if s.kind == "checkpoint"] == [0, 0]
    events = [
        sighting.to_event(
            s, identity=node_identity, inventory=gpus.Inventory(), observed_at=datetime.now(UTC)
        )
        for s in sightings
    ]
    assert {e.source for e in events} == {"probe"}
    end_at = datetime.now(UTC)
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=job.started_at, start_at=job.started_at, end_at=end_at,
        state="FAILED", nodes=("n1",), user="alice", run_key="7",
    )  # fmt: skip
    made = run_account.account([attempt], now=end_at, progress=accounts.progress([attempt], events))
    assert made is not None
    assert made.measured is True
    assert page.first_step_ns is not None
    first_at = progress.ProgressMoment(now=moment().now, monotonic_s=clocks.SYSTEM.monotonic_s()).at(
        page.first_step_ns, job
    )
    assert made.restart_s == pytest.approx((first_at - job.started_at).total_seconds(), abs=0.05)
    assert made.checkpoint_s == pytest.approx(page.checkpoint_total_ns / NS, abs=0.01)
    assert page.checkpoint_end_ns is not None
    lost_s = (clocks.SYSTEM.monotonic_s() - page.checkpoint_end_ns / NS) - (
        datetime.now(UTC) - end_at
    ).total_seconds()
    assert made.lost_to_replay_s == pytest.approx(lost_s, abs=0.05)


def test_what_is_said_has_the_same_identity_for_whoever_says_it_again(
    rank: Callable[..., Rank], job: jobs.NodeJob
) -> None:
    """An agent that restarts tells of the same step and checkpoint; both are the row that is there."""
    page = rank().do("steps(1); save()")
    again = [
        [s.position for s in progress.news(job, [page], progress.ReportedProgress(), later(n))]
        for n in (0, 100)
    ]
    assert again[0] == again[1]
    assert len(again[0]) == 2
    reported = progress.ReportedProgress()
    assert progress.news(job, [page], reported, moment())
    assert progress.news(job, [page], reported, later(100)) == []


def test_frequent_checkpoints_are_few_events_and_no_time_is_lost(
    rank: Callable[..., Rank], job: jobs.NodeJob, node_identity: identity.Identity
) -> None:
    """Between two told ones the total tells of those that were not."""
    trainer, reported, sightings = rank(), progress.ReportedProgress(), []
    for second in range(10):
        sightings += progress.news(job, [trainer.do("steps(1); save()")], reported, later(second))
    assert [s.detail["number"] for s in sightings if s.kind == "checkpoint"] == [2]
    page = trainer.do("steps(1)")
    sightings += progress.news(job, [page], reported, later(11), last=True)
    events = [
        sighting.to_event(
            s, identity=node_identity, inventory=gpus.Inventory(), observed_at=datetime.now(UTC)
        )
        for s in sightings
    ]
    attempt = records.JobAttempt(
        cluster="c", job_id=7, submit_at=job.started_at, start_at=job.started_at,
        end_at=datetime.now(UTC) + timedelta(seconds=60), state="FAILED",
    )  # fmt: skip
    (found,) = accounts.progress([attempt], events).values()
    assert [c.duration_s for c in found.checkpoints] == pytest.approx(
        [s.detail["total_s"] if i == 0 else page.checkpoint_total_ns / NS - sightings[1].detail["total_s"]
         for i, s in enumerate(s for s in sightings if s.kind == "checkpoint")], abs=1e-5,
    )  # fmt: skip


def test_nested_failed_and_asynchronous_writes(rank: Callable[..., Rank]) -> None:
    """One inside another is one; one that raised blocked but saved nothing; one aside saved but blocked nothing."""
    trainer = rank()
    before = trainer.do("steps(1)")
    nested = trainer.do("save(nested=True)")
    assert nested.checkpoints == before.checkpoints + 1
    failed = trainer.do("save(written=False)")
    assert failed.checkpoints == nested.checkpoints
    assert failed.checkpoint_total_ns > nested.checkpoint_total_ns
    aside = trainer.do("t = threading.Thread(target=save); t.start(); t.join()")
    assert aside.checkpoints == failed.checkpoints + 1
    assert aside.checkpoint_total_ns == failed.checkpoint_total_ns
    assert aside.phase == "training"


def test_nothing_is_said_of_a_job_that_never_trained(rank: Callable[..., Rank], job: jobs.NodeJob) -> None:
    """A file saved while loading is no checkpoint of a training."""
    assert progress.news(job, [rank().do("pass")], progress.ReportedProgress(), moment(), last=True) == []


def test_a_page_cannot_put_its_times_outside_the_jobs_life(job: jobs.NodeJob) -> None:
    """Before its Prolog or in the future: the nearest moment at which it ran."""
    now = moment()
    assert now.at(1, job) == job.started_at
    assert now.at(int((now.monotonic_s + 1000) * NS), job) == now.now
