"""A user's share of a node's rows: their jobs take nobody else's."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from probing_cluster.core import records
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults, sighting
from probing_cluster.probe_agent.jobs import collect, jobs, page_directories, row_share
from probing_cluster.probe_agent.spool import intake, spool
from tests.set_clock import SetClock

NOW = datetime(2026, 1, 31, 14, 0, tzinfo=UTC)


def finding(n: int, *, first: bool = False, source: str = "joblog") -> sighting.Sighting:
    detail = {"first_cause": True} if first else {}
    return sighting.Sighting(
        source=source, position=f"{n}", at=NOW, kind="program_error", severity=records.Severity.INFO,
        message=str(n), detail=detail,
    )  # fmt: skip


def test_first_causes_are_kept_before_dumps_and_these_before_other_lines() -> None:
    made = [finding(n, first=n == 7, source="dump" if n == 5 else "joblog") for n in range(9)]
    assert [s.message for s in row_share.most(made, 3)] == ["0", "5", "7"]
    assert row_share.most(made[:3], 3) == made[:3]


def test_many_short_jobs_of_one_user_leave_the_nodes_rows_to_others() -> None:
    """A job every tenth of a second that prints errors without end, for an hour."""
    ticks = SetClock(NOW)
    shares = row_share.RowShares(ticks)
    many = [finding(n, first=n == 999) for n in range(2000)]
    rows = no_rows = 0
    for _ in range(36_000):
        kept = shares.take(1000, many)
        no_rows += kept is None
        rows += row_share.OWN_ROWS - (kept is None) + len(kept or ())
        ticks.at += timedelta(seconds=0.1)
    assert rows < 100_000, "they use up the hour's rows of the node"
    assert rows - 36_000 * (row_share.OWN_ROWS - 1) < 2 * row_share.USER_ROWS
    assert no_rows, "this is beyond any share"
    assert len(shares.take(2000, many) or ()) == row_share.MAX_SIGHTINGS


def test_a_long_detail_counts_as_the_rows_that_the_database_counts() -> None:
    """One and another for each 4 KiB: a user's snapshots use up no more than a share."""
    shares = row_share.RowShares(SetClock(NOW))
    long = dataclasses.replace(finding(1), detail={"ranks": "x" * 60_000})
    before = shares._left_of(1000)
    for _ in range(100):
        assert shares.take_running(1000, [long]) == [long]
    assert before - shares._left_of(1000) == 100 * 15


def test_a_share_grows_back_within_an_hour() -> None:
    ticks = SetClock(NOW)
    shares = row_share.RowShares(ticks)
    many = [finding(n) for n in range(2000)]
    assert len(shares.take(1000, many) or ()) == row_share.MAX_SIGHTINGS
    for _ in range(99):
        shares.take(1000, many)
    assert len(shares.take(1000, many) or ()) < 5
    ticks.at += timedelta(hours=1)
    assert len(shares.take(1000, many) or ()) == row_share.MAX_SIGHTINGS


def test_rows_of_running_and_of_ended_jobs_are_of_one_share() -> None:
    ticks = SetClock(NOW)
    shares = row_share.RowShares(ticks)
    many = [finding(n) for n in range(2000)]
    for _ in range(200):
        shares.take_running(1000, many)
    assert len(shares.take_running(1000, many)) == 0
    assert len(shares.take(1000, many) or ()) == 0
    assert len(shares.take_running(1001, many)) == row_share.MAX_SIGHTINGS


@pytest.mark.parametrize("used_up", [False, True])
def test_a_job_beyond_its_users_share_stores_no_findings_and_is_collected(
    node_identity: identity.Identity, queue: spool.Spool, tmp_path: Path, *, used_up: bool
) -> None:
    """The agent names it, and so does the job's row: no mail waits for its output. Another user's job is none the worse."""
    watch = self_watch.SelfWatch()
    book = jobs.JobBook("b")
    collector = collect.Collector(
        identity=node_identity,
        children=children.Children(),
        intake=intake.Intake(identity=node_identity, spool=queue, faults=faults.Faults("b")),
        book=book,
        pages=page_directories.PageDirectories(tmp_path / "pages"),
        watch=watch,
        clock=SetClock(NOW),
    )
    (tmp_path / "out").write_text("Traceback (most recent call last):\nValueError: no\n")
    if used_up:
        for _ in range(20_000):
            collector._shares.take(os.getuid(), ())
    ended = jobs.NodeJob(
        job_id=7,
        started_at=NOW,
        released_at=NOW,
        uid=os.getuid(),
        gid=os.getgid(),
        stdout=str(tmp_path / "out"),
    )
    asyncio.run(collector.collect(ended))
    (item,) = queue.batch(10, lane="allocation")
    (log,) = json.loads(item.body)["detail"]["logs"]
    assert ("used up their share" in log.get("why", ""), "tail" in log) == (used_up, not used_up)
    assert (queue.depth == 1) is used_up
    assert ("used up their share" in str(vars(watch))) is used_up
