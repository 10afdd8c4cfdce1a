"""A pass in a process of its own says what the pass says."""

from __future__ import annotations

import dataclasses
import sys
from datetime import timedelta

import fakes
import pytest

from probing_cluster.control_plane import child_process, context
from probing_cluster.control_plane.service.tasks.jobs import attribution
from probing_cluster.control_plane.service.tasks.nodes import lemon
from probing_cluster.core import errors, records, settings


def test_a_night_in_a_process_of_its_own(service: context.Context) -> None:
    """It scores what the database holds, leaves its libraries behind, and is done once."""
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=1, submit_at=fakes.NOW - timedelta(days=2), start_at=fakes.NOW - timedelta(days=2),
                end_at=fakes.NOW - timedelta(days=2), state="FAILED", nodes=("n1", "n2"),
            )
        ]
    )  # fmt: skip
    url = settings.DatabaseSettings(url=service.store.connection_uri())
    slurm = settings.SlurmSettings(bin_directory="/nonexistent")
    service.config = dataclasses.replace(service.config, database=url, slurm=slurm)
    service.in_children = True
    before = set(sys.modules)
    assert "2 nodes scored" in lemon.run(service)
    assert not {name for name in set(sys.modules) - before if name.startswith(("scipy", "datafusion"))}
    assert {s.node for s in service.store.lemon_scores()} == {"n1", "n2"}
    assert lemon.run(service) == ""


def test_a_backlog_is_judged_in_a_process_of_its_own(
    service: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass's share here, the rest beside: what thousands of attempts took does not stay with the service."""
    ends = [fakes.NOW - timedelta(days=2, minutes=i) for i in range(7)]
    service.store.upsert_attempts(
        [
            records.JobAttempt(
                cluster="c", job_id=i, submit_at=at - timedelta(hours=1), start_at=at - timedelta(hours=1), end_at=at, state="FAILED", exit_code=1,
                nodes=("n1",),
            )
            for i, at in enumerate(ends, 1)
        ]
    )  # fmt: skip
    url = settings.DatabaseSettings(url=service.store.connection_uri())
    service.config = dataclasses.replace(service.config, database=url)
    service.in_children = True
    monkeypatch.setattr(attribution, "_MOST_AT_ONCE", 2)
    begun, real = list[tuple[object, ...]](), child_process.run
    monkeypatch.setattr(child_process, "run", lambda *given: begun.append(given) or real(*given))
    assert attribution.run(service).startswith("7 attempts judged")
    assert len(begun) == 1
    assert {v.job_id for v in service.store.verdicts()} == set(range(1, 8))
    assert attribution.run(service) == ""


def test_what_it_raises_is_raised_here() -> None:
    """The product's own errors as themselves, so that the task waits for a database that is away."""
    away = settings.Settings(database=settings.DatabaseSettings(url="postgresql://x@/none?host=/nonexistent"))
    with pytest.raises(errors.DatabaseUnavailable):
        child_process.run(lemon.__name__, away, fakes.NOW)


def test_a_pass_that_takes_too_long_is_ended() -> None:
    with pytest.raises(errors.ProbingError, match=r"lemon pass was ended after 0.01 s"):
        child_process.run(lemon.__name__, settings.Settings(), fakes.NOW, timeout_s=0.01)


def test_a_process_that_breaks_is_an_error_of_its_pass() -> None:
    """Killed, or broken by an error of ours: the task fails and the service goes on."""
    with pytest.raises(errors.ProbingError, match="lemon pass ended with status 1"):
        child_process.run(lemon.__name__, settings.Settings(), "too", "many", "words")
