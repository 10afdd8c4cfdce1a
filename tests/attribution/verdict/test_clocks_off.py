"""What a verdict states where a node's clock was off."""

from __future__ import annotations

from probing_cluster.attribution.verdict import next_steps, phrases, rank_claims
from probing_cluster.core import records

C = records.Confidence


def test_a_proven_cause_is_at_most_likely(make):
    """Two sources prove a lost GPU; where its node's clock was off, the order of fault and end rests on a measured offset."""
    evidence = [
        make.xid(79),
        make.event(5.0, kind="gpu_lost", source="nvml", device="gpu3", gpu_uuid=make.uuid("n2", 3)),
        make.event(3.0, kind="gpu_count", source="check", device="gpu3", gpu_uuid=make.uuid("n2", 3)),
    ]
    assert make.judge(*evidence).confidence is C.CERTAIN
    off = make.judge(*evidence, clock_offsets_s={"n2": 400.0})
    assert (off.cause, off.confidence) == ("gpu_lost", C.LIKELY)
    assert off.summary.endswith(
        "The clock of n2 was 400 s ahead: the times of its events are corrected by that."
    )
    assert off.next_step.endswith(
        "Set the clock of n2: `chronyc tracking` there shows why it is off, `chronyc makestep` sets it."
    )


def test_a_clock_that_is_right_is_not_mentioned():
    """Nothing changes."""
    assert phrases.with_clocks("It ended.", {}) == "It ended."
    assert next_steps.with_clocks("Resubmit.", {}) == "Resubmit."
    assert [rank_claims.with_clocks(word, {}) for word in C] == list(C)


def test_a_weaker_confidence_stays():
    """The limit raises nothing."""
    assert rank_claims.with_clocks(C.POSSIBLE, {"n2": 400.0}) is C.POSSIBLE


def test_the_worst_clocks_come_first():
    """At most two sentences, of nodes with the same offset together."""
    found = phrases.with_clocks("It ended.", {"n1": 7.0, "n2": -400.0, "n3": -400.0, "n4": 1e9})
    assert found == (
        "It ended. The clock of n4 was more than a day off: nothing there can be dated."
        " The clock of n[2-3] was 400 s behind: the times of its events are corrected by that."
    )
