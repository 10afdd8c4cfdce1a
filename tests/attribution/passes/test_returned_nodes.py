"""A node that Slurm gave up, and whose agent reports again: what is known of its death stays."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from probing_cluster.attribution.passes import assign_rows, attribute, watch_columns
from probing_cluster.core import clock, records
from probing_cluster.db import delivery, tables
from tests.set_clock import SetClock

INFO: dict[str, Any] = {"source": "agent", "severity": records.Severity.INFO}


@pytest.mark.parametrize("gap_s", [50, 180])
@pytest.mark.parametrize("slurm_too", [True, False])
def test_a_crashed_node_is_still_the_cause_once_it_is_back(store, make, postgres_url, gap_s, slurm_too):
    """Slurm gave n2 up 40 s after its last heartbeat; a new agent reports from 10 s, or minutes, after the end on."""
    end = clock.SYSTEM.now() - timedelta(minutes=10)
    lost = make.attempt(
        nodes=("n2",),
        state="NODE_FAIL",
        failed_node="n2",
        exit_code=0,
        gpus=None,
        start_at=end - timedelta(hours=1),
        end_at=end,
    )
    store.upsert_attempts([lost])
    door = delivery.Delivery(postgres_url, "c", "n2")

    def beat(after_s: float, started_at: datetime, *events: records.HealthEvent) -> None:
        at = end + timedelta(seconds=after_s)
        heartbeat = records.AgentHeartbeat(cluster="c", node="n2", at=at, started_at=started_at, beat_s=5.0)
        door.deliver(events=list(events), heartbeat=heartbeat)
        with store.engine.begin() as connection:  # as if it had been received then
            connection.execute(sa.update(tables.agent_heartbeat).values(received_at=at))

    def judged(after_s: float) -> records.Verdict:
        attribute.attribute(store, at=SetClock(end + timedelta(seconds=after_s)))
        (verdict,) = store.verdicts(job_ids=[lost.job_id])
        with store.engine.begin() as connection:
            connection.execute(
                sa.update(tables.job_attempt).values(judged_at=end + timedelta(seconds=after_s))
            )
        return verdict

    silent = make.event(at=end - timedelta(seconds=40), kind="agent_silent", **INFO)
    down = make.event(at=end - timedelta(seconds=40), kind="node_down", **INFO)
    beat(-40, end - timedelta(days=1), *([silent, down] if slurm_too else [silent]))
    first = judged(5)
    assert (first.domain, first.confidence) == (records.Domain.HARDWARE, records.Confidence.CERTAIN)
    again = end + timedelta(seconds=gap_s - 40)
    for after_s in range(gap_s - 35, gap_s + 120, 20):
        beat(after_s, again)
    later = judged(gap_s + 120)
    assert (later.summary, later.confidence) == (first.summary, first.confidence)
    assert later.evidence == first.evidence


@pytest.mark.parametrize(
    ("state", "gap_s", "counts"), [("FAILED", 60, False), ("FAILED", 61, True), ("NODE_FAIL", 20, True)]
)
def test_an_agent_that_is_soon_back_watched_throughout(make, state, gap_s, counts):
    """It reads on where it left off; a node that Slurm gave up went away in the gap, however short."""
    since, last = make.end - timedelta(seconds=5), make.end + timedelta(hours=1)
    watch = assign_rows.AgentWatch(last, ((None, make.start), (since, since + timedelta(seconds=gap_s))))
    found = assign_rows.watched(make.attempt(nodes=("n2",), state=state), {"n2": watch}, {})
    assert found == {"n2": since if counts else last}
    gone = assign_rows.away(make.attempt(nodes=("n2",), state=state), {"n2": watch})
    assert gone == (frozenset() if counts else {"n2"})  # nobody looked at the end itself
    before = make.attempt(nodes=("n2",), state=state, end_at=since - timedelta(seconds=1))
    assert assign_rows.away(before, {"n2": watch}) == frozenset()


def test_what_nobody_looked_at_is_neither_ruled_out_nor_certain(make):
    """The agent was killed before the end and back half a minute after it; its last report alone proves nothing of then."""
    error = make.finding("python_exception", message="KeyError: 'lr'", detail={"first_cause": True, "exception": "KeyError"})  # fmt: skip
    there, away = make.judge(error), make.judge(error, away=frozenset({"n2"}))
    assert any("kept answering" in s for s in there.ruled_out)
    assert not [s for s in away.ruled_out if "kept answering" in s or "no fault on" in s]
    assert (there.confidence, away.confidence) == (records.Confidence.CERTAIN, records.Confidence.LIKELY)
    # Where no agent ever was, the text is all there is, and such an error proves itself.
    assert make.judge(error, watched={}).confidence is records.Confidence.CERTAIN
    silent = {"n1": make.end + timedelta(seconds=30), "n2": make.end - timedelta(minutes=3)}
    assert make.judge(error, watched=silent).confidence is records.Confidence.LIKELY


def test_by_column_an_attempt_that_ended_in_a_short_gap_is_judged_by_itself(make):
    """A verdict by column would rule out what nobody looked at; an end outside of the gap stays with the others."""
    since = make.end - timedelta(seconds=5)
    gap = (since, since + timedelta(seconds=40))
    watch = {"n2": assign_rows.AgentWatch(make.end + timedelta(hours=1), ((None, make.start), gap))}
    ends = [clock.to_us(at) for at in (since - timedelta(seconds=1), make.end, gap[1])]
    found = watch_columns.unwatched(["n2"], watch, np.zeros(3, np.int64), np.array(ends, np.int64))
    assert found.tolist() == [False, True, False]
