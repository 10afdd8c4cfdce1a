"""A node that a person set DOWN: the verdict quotes author and reason, and speaks of a lost node only when it was lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.core import records

C = records.Confidence
D = records.Domain
INFO = {"severity": records.Severity.INFO}


def _order(make, before_end_s=0.0, **over):
    detail = {"by": "root", "reason": "PSU swap, ticket 4711"}
    message = "root set n2 DOWN: PSU swap, ticket 4711"
    given = {"kind": "node_set_down", "source": "slurm", "message": message, "detail": detail, **INFO}
    return make.event(before_end_s, **{**given, **over})


def _lost(make, **over):
    return make.attempt(state="NODE_FAIL", exit_code=0, failed_node="n2", **over)


def _last_signs(make, after_end_s):
    return {"n1": make.end + timedelta(seconds=30), "n2": make.end + timedelta(seconds=after_end_s)}


@pytest.mark.parametrize("answers_s", [1, 300])
def test_an_operators_order_is_quoted_with_its_author(make, answers_s):
    """At once, before the agent's next beats; the node is not lost and no part of it is to blame."""
    order = _order(make)
    v = make.judge(order, attempt=_lost(make), watched=_last_signs(make, answers_s))
    assert (v.cause, v.domain, v.node, v.confidence) == ("node_set_down", D.UNKNOWN, "n2", C.CERTAIN)
    assert v.summary == "n2 was set DOWN by root: PSU swap, ticket 4711."
    assert v.evidence == (order.event_id,)
    assert "console" not in v.next_step
    assert "n2 was taken out on purpose" in v.next_step


def test_an_order_for_a_node_that_was_silent_already_ended_nothing(make):
    """An operator marks a dead node: the node was lost."""
    silent = make.event(60, kind="agent_silent", source="agent", **INFO)
    v = make.judge(_order(make), silent, attempt=_lost(make), watched=_last_signs(make, -60))
    assert v.cause == "node_lost"


@pytest.mark.parametrize("kind", ["agent_silent", "node_down"])
def test_a_crash_of_the_node_before_the_job_started_does_not_hide_the_order(make, kind):
    """The node had been repaired and took the job: it was not gone when it was set DOWN."""
    silent = make.event(200, kind=kind, source="agent", **INFO)
    short = _lost(make, start_at=make.end - timedelta(seconds=60))
    v = make.judge(_order(make), silent, attempt=short, watched=_last_signs(make, 1))
    assert v.cause == "node_set_down"


@pytest.mark.parametrize(
    "over", [{"before_end_s": 300.0}, {"before_end_s": -200.0}, {"node": "n1"}, {"source": "agent"}]
)
def test_an_order_of_another_time_or_node_or_by_an_agents_word_ended_nothing(make, over):
    """Slurm ends the jobs of a node at the second in which it is set DOWN."""
    v = make.judge(_order(make, **over), attempt=_lost(make), watched=_last_signs(make, -300))
    assert v.cause == "node_lost"


def test_a_job_that_failed_by_itself_is_not_the_orders(make):
    """Slurm says NODE_FAIL of a job that such an order ended."""
    assert make.judge(_order(make)).cause == "user_error"


def test_no_silence_is_claimed_before_the_agents_beats_decide(make):
    """Its agent beat until the end: neither silence nor life is known in the first minute."""
    v = make.judge(attempt=_lost(make), watched=_last_signs(make, -2))
    assert (v.cause, v.domain) == ("node_lost", D.UNKNOWN)
    assert "stopped answering" not in v.summary
    assert "not known yet" in v.summary
    silent = make.event(2, kind="agent_silent", source="agent", **INFO)
    later = make.judge(silent, attempt=_lost(make), watched=_last_signs(make, -2))
    assert "n2 stopped answering Slurm" in later.summary
    alive = make.judge(attempt=_lost(make), watched=_last_signs(make, 90))
    assert "kept reporting" in alive.summary
    long_silent = make.judge(attempt=_lost(make), watched=_last_signs(make, -120))
    assert "n2 stopped answering Slurm" in long_silent.summary


def test_where_nobody_watched_slurm_alone_says_neither_silence_nor_order(make):
    """An export of accounting has NODE_FAIL for both; whoever set a node DOWN is in slurmdbd's events of nodes."""
    attempt = _lost(make)
    alone = make.judge(attempt=attempt, watched={})
    assert (alone.cause, alone.node, alone.confidence) == ("node_lost", "n2", C.LIKELY)
    assert (
        alone.summary
        == "n2 was lost to Slurm (NODE_FAIL), and nobody watched it: it stopped answering, or somebody set it DOWN."
    )
    assert "`sacctmgr show event nodes=n2`" in alone.next_step
    with_log = make.judge(attempt=attempt, watched=_last_signs(make, -300), by_log=frozenset(attempt.nodes))
    assert with_log.summary.startswith("n2 stopped answering Slurm")
    booted = make.event(2, kind="node_boot", source="kernel", **INFO)
    again = make.judge(booted, attempt=attempt, watched={})
    assert "set it DOWN" not in again.summary
