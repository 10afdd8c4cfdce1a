"""The likelihood's terms by hand."""

from __future__ import annotations

import numpy as np
import pytest

from probing_cluster.lemon import episodes, likelihood
from probing_cluster.lemon.gangs import Gangs

NODES = 50


def failures(*rows: tuple[int, float, int]) -> episodes.Failures:
    """Sure failures from (node, age in days, part)."""
    node, age, part = (np.array(c) for c in zip(*rows, strict=True))
    return episodes.Failures(
        node=node,
        age_days=age.astype(float),
        weight=np.full(node.size, 0.99),
        part=part,
        cause=np.full(node.size, -1),
    )


def facts(named: episodes.Failures, days: float = 24.0) -> likelihood.NodeRows:
    """The same use for every node, even over 28 days."""
    used = likelihood.Exposure(days=np.full(NODES, days), span_days=28.0, daily_days=None)
    return likelihood.NodeRows.of(used, named, Gangs.of([], None), None)


def test_the_same_part_twice() -> None:
    """A part of share 1/32: 1/32 (0.7 x 32 + 0.3)² + 31/32 0.3² times as likely, if the lemon has a part of its own."""
    got = facts(failures((7, 9.0, 3), (7, 3.5, 3), (20, 5.0, 3), (21, 5.0, 4), (22, 5.0, 5)))
    share = episodes.part_share(failures((7, 9.0, 3), (7, 3.5, 3), (20, 5.0, 3), (21, 5.0, 4), (22, 5.0, 5)))[
        0
    ]
    own = share * (0.7 / share + 0.3) ** 2 + (1 - share) * 0.3**2
    assert np.exp(got.log_parts[got.own_row[7], -1]) == pytest.approx(0.85 * own + 0.15)
    assert got.log_parts[got.own_row[7], 0] == pytest.approx(
        0.0
    )  # since four days ago it is one failure: no repetition
    assert got.log_parts[got.own_row[20], -1] == pytest.approx(0.0)


def test_nodes_that_failed_nobody_share_rows() -> None:
    """Fifty nodes of one exposure, one with a failure: two rows, and each node has the index of its row."""
    got = facts(failures((7, 9.0, 3)))
    assert got.row_exposure.size == 2
    assert got.own_row[7] == got.shared_row[7] == 0
    assert (np.delete(got.own_row, 7) == -1).all()
    assert (np.delete(got.shared_row, 7) == 1).all()


def test_use_since_each_onset() -> None:
    """24 of 28 days in use: 12 of the last fortnight, unless the daily use says that it was drained then."""
    even = likelihood.Exposure(days=np.array([24.0]), span_days=28.0, daily_days=None)
    assert even.after(np.array([24.0]))[0, :3] == pytest.approx(np.array([4.0, 8.0, 12.0]) * 24 / 28)
    daily = np.array([[0.0] * 10 + [1.0] * 18])
    drained = likelihood.Exposure(days=np.array([18.0]), span_days=28.0, daily_days=daily)
    assert drained.after(np.array([18.0]))[0, :4].tolist() == [0.0, 0.0, 2.0, 6.0]


def test_rates_are_those_of_ordinary_nodes() -> None:
    """Node 7's five failures do not count where node 7 is known to be a lemon; what is believed before is a hundredth in a day."""
    named = failures(*((7, 3.0 + 4 * i, 3) for i in range(5)), (20, 5.0, 3))
    got, gangs = facts(named), Gangs.of([], None)
    all_alike = likelihood.LemonRate.of(got, named, gangs, np.ones(NODES))
    without = likelihood.LemonRate.of(got, named, gangs, (np.arange(NODES) != 7).astype(float))
    assert all_alike.levels.sum() == pytest.approx(6.01 / (50 * 24 + 1))
    assert without.levels.sum() == pytest.approx(1.01 / (49 * 24 + 1))


def test_a_fleet_that_hardly_fails_has_a_rate_nevertheless() -> None:
    """One failure in 28 days would be proof of anything."""
    none = episodes.Failures.none()
    rate = likelihood.LemonRate.of(facts(none), none, Gangs.of([], None), np.ones(NODES))
    assert rate.levels.sum() == pytest.approx(likelihood.MIN_RATE_PER_DAY)


def test_the_time_within_an_episode_does_not_show_that_nothing_failed() -> None:
    """Four failures within 1.5 days are one episode: 1.5 days of use are left out, of an onset after its first the later part."""
    row = np.zeros(4, np.int64)
    four = episodes.Failures(
        node=row, age_days=np.array([9.0, 8.5, 8.0, 7.5]), weight=row + 0.99, part=row - 1, cause=row - 1
    )
    named = episodes.merged(four)
    daily = np.full((NODES, 28), 0.5)
    used = likelihood.Exposure(days=daily.sum(axis=1), span_days=28.0, daily_days=daily)
    got = likelihood.NodeRows.of(used, named, Gangs.of([], None), None)
    assert got.countable[:2].tolist() == [14.0 - 0.75, 14.0]
    own = got.own_row[0]
    assert got.countable_after[own, :3] == pytest.approx([2.0, 4.0 - 0.25, 6.0 - 0.75])
    assert got.after[own, :3] == pytest.approx([2.0, 4.0, 6.0])


def test_of_an_episode_in_a_crowd_only_its_share_is_left_out() -> None:
    """Five nodes fail for 1.5 days by one cause at one time: their surplus over the fleet's usual rate explains the rest."""
    node, age = np.repeat(np.arange(5), 2), np.tile([9.0, 7.5], 5)
    rows = np.zeros(10, np.int64)
    named = episodes.merged(
        episodes.Failures(node=node, age_days=age, weight=rows + 0.99, part=rows - 1, cause=rows)
    )
    daily = np.full((NODES, 28), 0.5)
    used = likelihood.Exposure(days=daily.sum(axis=1), span_days=28.0, daily_days=daily)
    got = likelihood.NodeRows.of(used, named, Gangs.of([], None), None)
    surplus = 5.0 / (5 * 5 / 28 + 1.0)
    assert got.surplus[0] == pytest.approx(surplus)
    assert got.countable[0] == pytest.approx(14.0 - 0.75 / surplus)


def test_a_node_is_compared_with_the_others() -> None:
    """One of its five episodes counts towards the rate it is compared with; a node of one has nothing left out."""
    named = failures(*((7, 3.0 + 4 * i, 3) for i in range(5)), (20, 5.0, 3))
    rate = likelihood.LemonRate.of(facts(named), named, Gangs.of([], None), np.ones(NODES))
    fleet, others = 6.01 / (50 * 24 + 1), 2.01 / (50 * 24 + 1 - 0.8 * 24)
    assert rate.beside[7] == pytest.approx(others / fleet)
    assert rate.beside[20] == rate.beside[0] == 1.0
