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
    ("boots", "same"),
    [
        ({"old": -86_400}, True),
        ({"old": -86_400, "new": 5}, False),
        ({"old": -86_400, "new": None}, False),
        ({}, False),
    ],
    ids=["same boot", "it rebooted", "its boot is not reported yet", "no boot is known"],
)
def test_a_node_that_answers_again_in_the_same_boot_did_not_break(store, make, postgres_url, boots, same):
    """Slurm gave n2 up; minutes later a new agent reports there. The verdict follows by itself, and stays after a later reboot."""
    end = clock.SYSTEM.now() - timedelta(minutes=10)
    lost = make.attempt(
        nodes=("n2",), state="NODE_FAIL", failed_node="n2", exit_code=0, gpus=None, start_at=end - timedelta(hours=1), end_at=end
    )  # fmt: skip
    store.upsert_attempts([lost])
    door = delivery.Delivery(postgres_url, "c", "n2")

    def boot(name: str, after_s: float) -> records.HealthEvent:
        at = end + timedelta(seconds=after_s)
        return make.event(at=at, kind="node_boot", detail={"boot_id": name}, **INFO)

    def beat(after_s: float, started_s: float, boot_id: str, *events: records.HealthEvent) -> None:
        at, started_at = end + timedelta(seconds=after_s), end + timedelta(seconds=started_s)
        heartbeat = records.AgentHeartbeat(cluster="c", node="n2", at=at, started_at=started_at, beat_s=5.0, boot_id=boot_id)  # fmt: skip
        door.deliver(events=list(events), heartbeat=heartbeat)
        with store.engine.begin() as connection:  # as if it had been received then
            connection.execute(sa.update(tables.agent_heartbeat).values(received_at=at))

    def judged(after_s: float) -> records.Verdict:
        attribute.attribute(store, at=SetClock(end + timedelta(seconds=after_s)))
        (verdict,) = store.verdicts(job_ids=[lost.job_id])
        return verdict

    silent = make.event(at=end - timedelta(seconds=40), kind="agent_silent", **INFO)
    down = make.event(at=end - timedelta(seconds=40), kind="node_down", **INFO)
    reported = {name: at_s for name, at_s in boots.items() if at_s is not None}
    beat(-40, -86_300, "old", silent, down, *(boot(n, s) for n, s in reported.items() if s < 0))
    first = judged(70)
    assert (first.domain, first.confidence) == (records.Domain.HARDWARE, records.Confidence.CERTAIN)
    now = "new" if "new" in boots else "old"
    for after_s in (125, 130):
        beat(after_s, 120, now, *(boot(n, s) for n, s in reported.items() if s > 0 and after_s == 125))
    later = judged(140)
    if not same:
        assert (later.confidence, later.domain) == (first.confidence, first.domain)
        assert "answers again" not in later.summary
        return
    assert (later.cause, later.domain, later.confidence) == ("node_lost", records.Domain.UNKNOWN, records.Confidence.LIKELY)  # fmt: skip
    back_at = end + timedelta(seconds=120)
    assert f"its agent answers again since {back_at:%H:%M:%S}Z, in the same boot" in later.summary
    assert "console and the BMC" not in later.next_step
    beat(240, 230, "third", boot("third", 200))
    assert judged(250).summary == later.summary


@pytest.mark.parametrize("state", ["NODE_FAIL", "REQUEUED", "FAILED"])
def test_of_a_machine_that_did_not_stop_nothing_is_surely_broken(make, state):
    """Whatever Slurm calls the end, and whatever the BMC had reported before."""
    hot = make.event(60, kind="thermal", code="critical", device="cpu0")
    silent = make.event(50, kind="agent_silent", **INFO)
    down = make.event(50, kind="node_down", **INFO)
    attempt = make.attempt(
        nodes=("n1", "n2"), state=state, failed_node="n2" if state == "NODE_FAIL" else None
    )
    watched = {"n1": make.end + timedelta(minutes=3), "n2": make.end - timedelta(seconds=50)}
    given = {"attempt": attempt, "watched": watched}
    back = make.end + timedelta(seconds=65)
    found = make.judge(silent, down, returned={"n2": back}, **given)
    assert (found.cause, found.node, found.domain) == ("node_lost", "n2", records.Domain.UNKNOWN)
    assert found.confidence in (records.Confidence.LIKELY, records.Confidence.POSSIBLE)
    assert f"answers again since {back:%H:%M:%S}Z, in the same boot" in found.summary
    gone = make.judge(silent, down, **given)
    assert "answers again" not in gone.summary
    if state == "NODE_FAIL":
        assert "went away" in make.judge(hot, silent, down, **given).summary
        found = make.judge(hot, silent, down, returned={"n2": back}, **given)
        assert "went away" not in found.summary
        assert found.confidence is not records.Confidence.CERTAIN
        lockup = make.event(70, kind="soft_lockup", code="cpu", node="n2", severity=records.Severity.HIGH)
        found = make.judge(lockup, silent, down, returned={"n2": back}, **given)
        assert "before that it showed soft lockup cpu; its agent answers again" in found.summary
        assert "did not stop" not in found.summary


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
