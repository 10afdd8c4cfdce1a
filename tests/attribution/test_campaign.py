"""The campaign's replayed cases in small: every kind once, through lines and logs as text."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta

import pytest

from benchmarks.campaign import fleet, replay, score, story
from probing_cluster.core import records
from tests.every_case import every


@every("name", sorted(story.KINDS))
def test_each_kind_is_told_right_where_nothing_else_goes_on(name):
    """As the agents deliver it: GPUs known, no noise, three job shapes."""
    for seed in range(3):
        replayed = replay.make(name, random.Random(f"test:{name}:{seed}"), seed, noisy=False)
        judged = replay.judged(replayed, "live")
        assert judged.right, judged.note
        assert judged.node_right is not False, judged.note


def test_noise_makes_no_program_bug_a_fault_of_the_cluster():
    """Sixty bugs, each with noise of every sort that chance brings."""
    names = sorted(k for k, v in story.KINDS.items() if v.group == "bug")
    for number in range(60):
        replayed = replay.make(
            names[number % len(names)], random.Random(f"noise:{number}"), number, noisy=True
        )
        judged = replay.judged(replayed, "live")
        assert not judged.blames_infrastructure, judged.note


def test_the_same_seed_gives_the_same_cases():
    """A figure can be looked up again."""
    one, two = ([replay.judged(t, "live") for t in replay.stories(range(12), 3)] for _ in range(2))
    assert one == two


def test_bounds_are_clopper_pearsons():
    """All of 300 right: at least 0.05^(1/300); none of 600 wrong: at most 1 - 0.05^(1/600); one of four by hand."""
    assert score.Share(k=300, n=300).low == pytest.approx(0.05 ** (1 / 300))
    assert score.Share(k=0, n=600).high == pytest.approx(1 - 0.05 ** (1 / 600))
    low = score.Share(k=1, n=4).low
    assert 1 - (1 - low) ** 4 == pytest.approx(0.05)
    assert (score.Share(k=0, n=9).low, score.Share(k=9, n=9).high, score.Share(k=0, n=0).value) == (
        0.0,
        1.0,
        None,
    )


def test_unknown_is_wrong_of_all_and_left_out_of_those_answered():
    """An honest unknown costs recall, not precision; against a silent case it is right."""

    def case(cause: str, group: str = "fault") -> score.Judged:
        truth = "unknown" if group == "silent" else "gpu_lost"
        return score.Judged(
            kind="k",
            group=group,
            shape="",
            noisy=False,
            path="live",
            causes=(truth,),
            domain=records.Domain.HARDWARE,
            verdict_cause=cause,
            verdict_domain=records.Domain.UNKNOWN,
            confidence=records.Confidence.LIKELY,
        )

    found = score.figures([case("gpu_lost"), case("unknown"), case("unknown", "silent")])
    assert (found["cause, of all"][0].k, found["cause, of all"][0].n) == (1, 2)
    assert (found["cause, of those answered"][0].k, found["cause, of those answered"][0].n) == (1, 1)
    assert found["silent cases left unknown"][0].k == 1


def test_on_one_fleet_no_two_stories_have_a_node_at_once_and_every_label_stays_true():
    """Nodes are handed on only when what a story tells of them is over; faults that strike nobody lie on idle nodes."""
    stories = fleet.placed(30, 60, 5)
    few = [t.number for t in fleet.placed(6, 60, 5)]
    assert few == [t.number for t in fleet.placed(6, 60, 5)]
    busy: dict[str, list] = {}
    for one in stories:
        for node in one.nodes:
            busy.setdefault(node, []).append(one)
    assert max(len(jobs) for jobs in busy.values()) > 3
    for node, jobs in busy.items():
        for before, after in itertools.pairwise(jobs):
            assert before.end_at + fleet.GAP <= after.end_at - timedelta(seconds=after.ran_s)
            events = [e for e in fleet.events_of(after) if e.node == node]
            assert all(e.at > before.end_at for e in events)
    for one in stories:
        others = {e.node for e in fleet.events_of(one)} - set(one.nodes)
        assert all(node.startswith("idle") for node in others)


def test_the_fleets_stories_are_judged_by_the_services_own_pass():
    """A few on a small fleet, through Postgres: each once, as its label says."""
    stories = fleet.placed(30, 60, 11)
    found = fleet.run(stories, 60, 500, 11)
    assert {int(c.note.split()[0][1:]) for c in found} == {t.number for t in stories}
    assert sum(c.right for c in found if score.knowable(c)) >= 0.9 * len(found)
    assert f"{sum(c.right for c in found if score.knowable(c)):5d}" in score.text(found)
