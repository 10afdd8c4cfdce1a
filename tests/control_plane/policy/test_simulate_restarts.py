"""What would have come back, and how many wrongly."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes

from probing_cluster.control_plane.policy import simulate_restarts
from probing_cluster.core import records, settings

POLICY = settings.PolicySettings()
PROGRAM = {"domain": records.Domain.USER_PROGRAM, "cause": "user_error", "node": None}


def one(job_id: int, start: int = 0, source: str = "kernel", state: str = "FAILED", **changes: Any) -> Any:
    """An attempt, its verdict and its event."""
    at = fakes.NOW + timedelta(hours=start)
    attempt = records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=at, start_at=at, end_at=at + timedelta(minutes=5), state=state,
        nodes=("n1",), user="alice", run_key=str(job_id),
    )  # fmt: skip
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=at, observed_at=at, kind="xid", severity=records.Severity.HIGH,
        source=source, message="",
    )  # fmt: skip
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "submit_at": at, "cause": "gpu_lost", "node": "n1", "summary": "",
        "domain": records.Domain.HARDWARE, "confidence": records.Confidence.LIKELY, "evidence": (event.event_id,),
        "rules_version": "1", "made_at": at,
    }  # fmt: skip
    return attempt, records.Verdict(**(values | changes)), event


def replay(*cases: Any, now: dict[int, records.Verdict] | None = None) -> simulate_restarts.Restarts:
    attempts, verdicts, events = ([c[i] for c in cases if c[i] is not None] for i in range(3))
    current = [(now or {}).get(v.job_id, v) for v in verdicts]
    later = list((now or {}).values())
    return simulate_restarts.replay(
        attempts,
        current,
        {e.event_id: e for e in events},
        simulate_restarts.by_job([*verdicts, *later]),
        POLICY,
    )


def test_deaths_of_every_sort() -> None:
    """Hardware comes back, a bug does not, and what only the job saw is held back."""
    found = replay(
        one(1), one(2, **PROGRAM), one(3, source="joblog"), one(4, state="CANCELLED"), one(5, node=None)
    )
    assert (found.n_ended, [v.job_id for v in found.back]) == (5, [1])
    assert found.refused == {"no node saw it": 1, "cancelled": 1, "no node named": 1}
    assert simulate_restarts.sentences(found)[0].startswith(
        "of 5 attempts that ended badly 1 would have come back"
    )


def test_a_person_who_says_otherwise_makes_it_wrong() -> None:
    """The restart would have rested on the first verdict; what is known now judges it."""
    case = one(1)
    person = dataclasses.replace(
        case[1],
        author="bob",
        made_at=fakes.NOW + timedelta(hours=9),
        confidence=records.Confidence.CERTAIN,
        **PROGRAM,
    )
    found = replay(case, now={1: person})
    assert (len(found.back), found.n_wrong) == (1, 1)


def test_what_became_of_the_next_start() -> None:
    """It went on, or died of the program; a run comes back so often within the window."""
    found = replay(one(1), one(1, 1, **PROGRAM), one(2), one(2, 1, state="COMPLETED"))
    assert (found.n_went_on, found.n_died_alike) == (1, 1)
    assert len(replay(*(one(1, n) for n in range(5))).back) == POLICY.restarts_per_run


def test_six_hundred_bugs() -> None:
    """Not one of them comes back."""
    found = replay(*(one(n, **PROGRAM) for n in range(600)))
    assert (found.n_ended, found.back, found.refused) == (600, (), {})
