"""Episodes, parts and crowds, small enough to check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from probing_cluster.lemon import episodes


def failures(*rows: tuple[int, float, float, int, int]) -> episodes.Failures:
    """From (node, age in days, weight, part, cause)."""
    node, age, weight, part, cause = zip(*rows, strict=True)
    return episodes.Failures(
        node=np.array(node),
        age_days=np.array(age, float),
        weight=np.array(weight, float),
        part=np.array(part),
        cause=np.array(cause),
    )


def test_what_repeats_within_two_days_is_one_episode() -> None:
    """Three failures in two days, a fourth a week later: two episodes; another node's are its own."""
    got = episodes.merged(
        failures(
            (1, 10.0, 0.6, 5, 0),
            (1, 9.5, 0.9, 6, 1),
            (1, 8.0, 0.6, 7, 1),
            (1, 2.0, 0.99, 5, 0),
            (2, 9.7, 0.6, 5, 0),
        )
    )
    assert got.node.tolist() == [1, 1, 2]
    assert got.age_days.tolist() == [10.0, 2.0, 9.7]


def test_an_episode_is_what_its_surest_verdict_says() -> None:
    """The weight, the part and the cause come from the same verdict."""
    got = episodes.merged(failures((1, 10.0, 0.6, 5, 0), (1, 9.5, 0.9, 6, 1)))
    assert (got.weight[0], got.part[0], got.cause[0]) == (0.9, 6, 1)


def test_a_chain_of_failures_does_not_stay_one_episode_for_ever() -> None:
    """One a day for six days: an episode lasts two days from its first failure, then the next begins."""
    got = episodes.merged(failures(*((1, float(age), 0.9, 5, 0) for age in range(6, 0, -1))))
    assert got.age_days.tolist() == [6.0, 3.0]


def test_the_order_of_failures_means_nothing() -> None:
    """Rows come from a database."""
    rows = [(n, float(a), w, 3, 0) for n in (1, 2) for a, w in ((9, 0.6), (8, 0.99), (1, 0.9))]
    one, other = episodes.merged(failures(*rows)), episodes.merged(failures(*rows[::-1]))
    for name in ("node", "age_days", "weight", "part"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_levels_follow_the_verdicts_confidence() -> None:
    """Certain is right 99 times of 100, likely 90, possible 60."""
    assert episodes.level(np.array([0.99, 0.9, 0.6])).tolist() == [0, 1, 2]


def test_an_episode_lasts_from_its_first_failure_to_its_last() -> None:
    """Three failures within two days, and one alone."""
    merged = episodes.merged(
        failures((3, 9.0, 0.9, -1, -1), (3, 8.0, 0.9, -1, -1), (3, 7.5, 0.9, -1, -1), (3, 2.0, 0.9, -1, -1))
    )
    assert merged.lasted_days is not None
    assert merged.lasted_days.tolist() == [1.5, 0.0]


def test_rightly_named_failures_are_weighted_by_how_often_they_are_right() -> None:
    """A thousand "possible" verdicts at 0.6 are 600 right ones; 400 "certain" ones are 396."""
    rows = failures(
        *((i, 1.0, 0.6, -1, -1) for i in range(1000)), *((i, 1.0, 0.99, -1, -1) for i in range(400))
    )
    assert episodes.hardware_mix(rows) == pytest.approx([0.3977, 0.0004, 0.6020], abs=1e-4)


def test_a_lemon_does_not_make_its_own_part_look_usual() -> None:
    """Nine nodes failed of part 0, node 9 five times of part 7: to node 9 the part is as rare as any unseen one."""
    rows = failures(
        *((i, 1.0 + i, 0.9, 0, 0) for i in range(9)), *((9, 3.0 * i, 0.9, 7, 0) for i in range(5))
    )
    share = episodes.part_share(rows)
    assert share[0] > 0.3
    assert share[-1] == episodes.PART_FLOOR


def test_a_part_that_is_unknown_tells_nothing() -> None:
    """Its share is 1: nothing more usual than that."""
    assert episodes.part_share(failures((1, 1.0, 0.9, -1, -1))).tolist() == [1.0]


def test_a_crowd_of_the_same_cause_is_seen() -> None:
    """Ten nodes fail of one cause on one day, where two in 28 days are usual; another cause that day is alone."""
    rows = failures(*((i, 5.0, 0.9, 0, 0) for i in range(10)), (20, 5.0, 0.9, 0, 1))
    surplus, beside = episodes.crowding(rows, 28.0, np.arange(40) // 20)
    assert surplus[0] > 3
    assert surplus[10] == 1
    assert beside[0] == pytest.approx(9 / (19 * 5))
    assert beside[10] == 0


def test_failures_far_apart_are_no_crowd() -> None:
    """The same ten, one every ten days."""
    rows = failures(*((i, 10.0 * i, 0.9, 0, 0) for i in range(10)))
    surplus, beside = episodes.crowding(rows, 100.0, np.zeros(40, np.int64))
    assert surplus.max() == 1
    assert beside.max() == 0


def test_repeats_count_the_same_part_only() -> None:
    """Node 1: part 5 twice, part 6 once; node 2: two unknown parts."""
    rows = failures(
        (1, 9.0, 0.9, 5, 0),
        (1, 5.0, 0.9, 6, 0),
        (1, 1.0, 0.9, 5, 0),
        (2, 9.0, 0.9, -1, 0),
        (2, 1.0, 0.9, -1, 0),
    )
    assert episodes.repeats(rows, 4).tolist() == [0, 2, 0, 0]
