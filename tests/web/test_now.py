"""What the page of now makes of many jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.control_plane.door import web_keys
from probing_cluster.web.live import now

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def _job(job_id: int, **changes: Any) -> now.NowJob:
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "attempt": 1, "user": "ada", "account": "lab", "name": "sweep", "state": "FAILED",
        "cause": "user_error", "domain": "user_program", "kind": "died", "at": NOON - timedelta(seconds=job_id),
    }  # fmt: skip
    return now.NowJob(**values | changes)


def _picture(jobs: list[now.NowJob], **viewer: Any) -> now.Now:
    whole = now.Now(
        at=NOON, fresh=True, why_stale="", accounting_at=NOON, everything=True, jobs=jobs, nodes=[], incidents=[], budget=None
    )  # fmt: skip
    return now.of(web_keys.Viewer(**{"user": "root", "accounts": (), "operator": True} | viewer), whole)


def test_the_tasks_of_an_array_that_died_of_the_same_are_one_card() -> None:
    """The first stands for all; another cause, another node, another owner or no cause yet stands by itself."""
    jobs = [_job(n) for n in range(40)]
    jobs += [
        _job(50, cause="gpu_lost", node="n2"),
        _job(51, cause="gpu_lost", node="n3"),
        _job(52, user="bob"),
    ]
    jobs += [_job(60, cause=None), _job(61, cause=None), _job(62, kind="stalled"), _job(63, kind="stalled")]
    picture = _picture(jobs)
    assert [(j.job_id, j.n_alike) for j in picture.jobs] == [
        (0, 39), (50, 0), (51, 0), (52, 0), (60, 0), (61, 0), (62, 0), (63, 0),
    ]  # fmt: skip
    assert picture.n_more_jobs == 0


def test_every_job_is_counted_once() -> None:
    """Shown, alike or more: together they are all the viewer's jobs."""
    jobs = [_job(n, name=f"run{n % 35}") for n in range(350)] + [_job(900, user="bob", account="other")]
    for viewer, n in (
        ({}, 351),
        ({"operator": False, "user": "ada"}, 350),
        ({"operator": False, "user": "bob"}, 1),
    ):
        picture = _picture(jobs, **viewer)
        assert len(picture.jobs) <= now.SHOWN
        assert sum(1 + j.n_alike for j in picture.jobs) + picture.n_more_jobs == n
