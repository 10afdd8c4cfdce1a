"""Which jobs hold GPUs and do nothing with them, as one node sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent.jobs import held, jobs, processes
from tests.set_clock import SetClock

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def reading(*gpus: dict[str, Any]) -> dict[str, Any]:
    base = {"lost": None, "utilization_frac": 0.0, "processes": []}
    return {"snapshot": {"gpus": [{**base, "uuid": f"GPU-{n}", **gpu} for n, gpu in enumerate(gpus)]}}


@pytest.fixture
def watch() -> held.HeldJobs:
    """A node with job 7 of an owner unknown, on two GPUs."""
    book = jobs.JobBook("b")
    book.start(jobs.NodeJob(job_id=7, started_at=NOW, gpu_uuids=("GPU-0", "GPU-1")))
    return held.HeldJobs(book, clock=SetClock(NOW))


def test_idle_since_the_first_look_and_over_with_load(watch: held.HeldJobs) -> None:
    """The word may change while it lasts, the beginning does not; one GPU's load ends it."""
    watch.look(reading({}, {}))
    watch._clock.at = NOW + timedelta(minutes=1)  # type: ignore[attr-defined]
    watch.look(reading({"processes": [{"pid": 1}]}, {}))
    assert watch.rows() == {"7": {"since": "2026-11-22T12:00:00Z", "why": "no_load"}}
    watch.look(reading({"utilization_frac": 0.4}, {}))
    assert watch.rows() == {}
    watch.look(reading({}, {}))
    assert watch.rows() == {"7": {"since": "2026-11-22T12:01:00Z", "why": "no_process"}}


@pytest.mark.parametrize(
    "unknown",
    [None, {}, {"snapshot": {"unavailable": {}}}, reading({}), reading({}, {"lost": "fell off"}), reading({}, {"utilization_frac": None})],
)  # fmt: skip
def test_what_is_not_known_is_no_idleness(watch: held.HeldJobs, unknown: dict[str, Any] | None) -> None:
    """No reading, a GPU that is gone, a load that is not told."""
    watch.look(unknown)
    assert watch.rows() == {}


def test_a_new_start_begins_anew_and_an_ended_job_is_gone(watch: held.HeldJobs) -> None:
    """A requeued job's idleness is its own."""
    watch.look(reading({}, {}))
    later = NOW + timedelta(hours=1)
    watch._clock.at = later  # type: ignore[attr-defined]
    watch._book.start(jobs.NodeJob(job_id=7, started_at=later, restart_count=1, gpu_uuids=("GPU-0", "GPU-1")))
    watch.look(reading({}, {}))
    assert watch.rows()["7"]["since"] == "2026-11-22T13:00:00Z"
    watch._book.end(jobs.NodeJob(job_id=7, started_at=later, restart_count=1), later)
    assert watch.rows() == {}


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


def test_a_job_without_a_process_is_told_apart(
    watch: held.HeldJobs, sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its owner has a process here that Slurm counts to the job."""
    mine = {"pid": sleeper}
    monkeypatch.setattr(processes, "job_of", lambda pid, *_: 8 if pid == mine["pid"] else None)
    watch._book.start(
        jobs.NodeJob(job_id=8, started_at=NOW, uid=os.getuid(), gpu_uuids=("GPU-0",)),
    )
    watch.look(reading({}, {}))
    assert watch.rows()["8"]["why"] == "no_process"
    mine["pid"] = -1
    watch.look(reading({}, {}))
    assert watch.rows()["8"]["why"] == "no_program"


def test_slurmstepds_own_sleep_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step `extern` holds a `sleep 100000000` open for as long as the allocation lives."""
    for pid, parent, name, real in ((10, 1, "slurmstepd", 0), (11, 10, "sleep", 7), (12, 1, "sleep", 7)):
        home = tmp_path / str(pid)
        home.mkdir()
        (home / "comm").write_text(f"{name}\n")
        (home / "stat").write_text(f"{pid} ({name}) S {parent} " + "0 " * 30)
        (home / "status").write_text(f"PPid:\t{parent}\nUid:\t{real}\t{real}\t{real}\t{real}\n")
    (tmp_path / "10/cmdline").write_bytes(b"slurmstepd: [9.extern]\x00")
    monkeypatch.setattr(processes, "job_of", lambda pid, *_: None if pid == 10 else 9)
    book = jobs.JobBook("b")
    book.start(jobs.NodeJob(job_id=9, started_at=NOW, uid=os.getuid(), gpu_uuids=("GPU-0",)))
    watch = held.HeldJobs(book, clock=SetClock(NOW), proc=tmp_path)
    watch.look(reading({}))
    assert watch.rows()["9"]["why"] == "no_process"
    shutil.rmtree(tmp_path / "12")
    watch.look(reading({}))
    assert watch.rows()["9"]["why"] == "no_program"
