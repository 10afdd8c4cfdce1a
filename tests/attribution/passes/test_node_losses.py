"""Nodes that Slurm gave up at once are one incident in any batch, even without an event on them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from probing_cluster.attribution.passes import attribute, node_losses
from probing_cluster.attribution.places import layout
from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import records
from tests.set_clock import SetClock


def lost(
    make, *nodes: str, apart_s: float = 1.0, first: int = 1, after_s: float = 0.0
) -> list[records.JobAttempt]:
    """A job of its own on each node, ended because Slurm gave that up."""
    return [
        make.attempt(
            job_id=first + i,
            nodes=(node,),
            state="NODE_FAIL",
            exit_code=0,
            gpus=None,
            n_gpus=8,
            submit_at=make.start - timedelta(minutes=5),
            end_at=make.end + timedelta(seconds=after_s + i * apart_s),
        )
        for i, node in enumerate(nodes)
    ]


def judged(store, make, attempts: list[records.JobAttempt]) -> dict[int, records.Verdict]:
    store.upsert_attempts(attempts)
    attribute.attribute(store, at=SetClock(make.end + timedelta(hours=1)))
    return {v.job_id: v for v in store.verdicts()}


TEN = [f"m{i:02}" for i in range(10)]


@pytest.mark.parametrize("many", [1, 1_000_000], ids=["columns first", "one by one"])
def test_ten_nodes_given_up_at_once_are_one_incident(store, make, monkeypatch, many):
    """Each verdict says so and what to look for; the fleet counts one failure."""
    monkeypatch.setattr(attribute, "MANY", many)
    found = judged(store, make, lost(make, *TEN, apart_s=0.1))
    assert len({v.incident_id for v in found.values()}) == 1
    assert all(v.incident_id is not None and v.incident_id not in v.evidence for v in found.values())
    assert found[3].summary.endswith("; the job is one of 10 jobs on 10 nodes that Slurm gave up within 1 s.")
    assert found[3].next_step.startswith("Look for what the 10 nodes share: a switch, power, ")
    rates = fleet.failure_rates(store, make.start - timedelta(days=1), make.end + timedelta(days=1))
    assert [(c.n_failures, c.n_attempts, c.n_nodes) for c in rates.components] == [(1, 10, 10)]


def test_two_nodes_or_three_one_after_the_other_are_none(store, make):
    """Coincidence is no incident; nor are three jobs of one node."""
    found = judged(
        store, make, [*lost(make, "a1", "a2"), *lost(make, "b1", "b1", "b1", first=10, after_s=4000)]
    )
    found |= judged(store, make, lost(make, "c1", "c2", "c3", first=20, after_s=8000, apart_s=150))
    assert {v.incident_id for v in found.values()} == {None}
    assert not any("gave up" in v.summary for v in found.values())


def test_who_was_judged_before_the_others_were_known_is_judged_again_once(store, make):
    """Two, then two more before them, then the rest: at last the verdicts of one pass over all; a person's stays."""
    first, second, third = lost(make, *TEN)[2:4], lost(make, *TEN)[:2], lost(make, *TEN)[4:]
    assert {v.incident_id for v in judged(store, make, first).values()} == {None}
    (by_hand,) = [v for v in store.verdicts() if v.job_id == 4]
    store.save_verdicts([dataclasses.replace(by_hand, author="ann", cause="ib_link")])
    assert "one of 4 jobs on 4 nodes" in judged(store, make, second)[3].summary
    found = judged(store, make, third)
    assert found.pop(4).author == "ann"
    assert len({v.incident_id for v in found.values()}) == 1
    assert all(
        "one of 10 jobs on 10 nodes that Slurm gave up within 9 s" in v.summary for v in found.values()
    )
    at = SetClock(make.end + timedelta(hours=2))
    assert attribute.attribute(store, at=at).n_attempts == 0
    again = attribute.attribute(store, job_ids=range(20), at=at, dry_run=True)
    assert again.changed == ()


def test_a_dry_run_says_whom_else_it_concerns_and_ends(store, make):
    """Nothing is stored, so that the others would say otherwise for ever."""
    judged(store, make, lost(make, "m00", "m01"))
    store.upsert_attempts(lost(make, "m00", "m01", "m02")[2:])
    done = attribute.attribute(store, at=SetClock(make.end + timedelta(hours=1)), dry_run=True)
    assert {v.job_id for v in done.verdicts} == {1, 2, 3}
    assert {v.incident_id for v in store.verdicts()} == {None}


def test_words_of_many_are_made_once(make, store):
    """A thousand nodes of one power feed."""
    attempts = lost(make, *(f"k{i:04}" for i in range(1000)), apart_s=0.001)
    store.upsert_attempts(attempts)
    losses = node_losses.NodeLosses(store, "c", attempts, layout.Places)
    assert len({losses.of((a.cluster, a.job_id, a.submit_at)).words for a in attempts}) == 1
