"""The lemon score on fleets small enough to check by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.lemon import episodes, model, proof

NODES = 200
DAYS = 24.0


def window(
    named: dict[int, float],
    *,
    days: dict[int, int] | None = None,
    exposure: dict[int, float] | None = None,
    gangs: Sequence[tuple[list[int], float]] = (),
    auxiliary: dict[int, float] | None = None,
) -> model.LemonWindow:
    """A fleet of 200 equal nodes with one failure on every tenth, changed where said."""
    counts = np.zeros(NODES)
    counts[::10] = 1.0
    spread = np.minimum(counts, 1).astype(np.int64)
    used = np.full(NODES, DAYS)
    extra = np.zeros(NODES)
    for node, value in named.items():
        counts[node] = value
        spread[node] = (days or {}).get(node, int(value))
    for node, value in (exposure or {}).items():
        used[node] = value
    for node, value in (auxiliary or {}).items():
        extra[node] = value
    return model.LemonWindow(
        exposure_days=used,
        named=counts,
        episodes=counts.astype(np.int64),
        days=spread,
        gangs=[(np.array(nodes), weight) for nodes, weight in gangs],
        auxiliary=extra if auxiliary else None,
    )


def test_a_node_that_keeps_failing_is_named() -> None:
    """Six failures on six days where a node usually has a tenth of one."""
    scores = model.score(window({7: 6}))
    assert scores.probability[7] > 0.95
    assert np.delete(scores.probability, 7).max() < 0.1


def test_a_busy_node_is_not_worse() -> None:
    """Ten times the use and ten times the failures is the same node."""
    counts = dict.fromkeys(range(0, NODES, 5), 1.0)
    idle = model.score(window({**counts, 7: 1.0}))
    busy = model.score(window({**counts, 7: 10.0}, exposure={7: DAYS * 50}))
    assert busy.probability[7] < 0.2
    assert idle.probability[7] < 0.2


def test_two_failures_in_two_days_are_not_proof() -> None:
    """Whatever the odds say, such a node is at most a suspect, were it the same part and a trend beside it."""
    close = dataclasses.replace(
        one_by_one((7, 3.4, 3), (7, 1.0, 3)), auxiliary=np.where(np.arange(NODES) == 7, 4.0, 0.0)
    )
    scores = model.score(close)
    assert scores.episodes[7] == 2
    assert scores.probability[7] == proof.UNPROVEN
    far = dataclasses.replace(close, failures=one_by_one((7, 8.0, 3), (7, 1.0, 3)).failures)
    assert model.score(far).probability[7] > 0.9


def test_two_different_failures_are_not_proof_however_far_apart() -> None:
    """A third sign can make them one: the same part, a trend."""
    assert model.score(window({7: 2})).probability[7] <= proof.UNPROVEN
    assert model.score(window({7: 2}, auxiliary={7: 4.0})).probability[7] > proof.UNPROVEN


def test_ten_failures_on_one_day_are_one_bad_day() -> None:
    """A burst is one fault seen often."""
    assert model.score(window({7: 10}, days={7: 1})).probability[7] <= proof.UNPROVEN


def test_a_fleet_without_lemons_names_nobody() -> None:
    """Failures spread as chance spreads them."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        counts = dict(enumerate(rng.poisson(0.06, NODES).astype(float)))
        assert model.score(window(counts)).probability.max() < 0.9


def test_the_common_factor_of_unnamed_gang_failures_is_found() -> None:
    """Node 7 is in every gang that died of nothing known, its peers differ: it is suspected, they are not."""
    gangs = [([7, 20 + 3 * i, 21 + 3 * i, 22 + 3 * i], 0.6) for i in range(6)]
    scores = model.score(window({7: 2}, gangs=gangs))
    assert scores.probability[7] > 0.9
    assert np.delete(scores.probability, 7).max() < 0.2
    assert scores.shared[7] > 2


def test_a_large_gang_convicts_nobody() -> None:
    """One failure of 150 nodes says nearly nothing about each."""
    before = model.score(window({}))
    after = model.score(window({}, gangs=[(list(range(150)), 0.6)]))
    assert np.abs(after.probability - before.probability).max() < 0.05


@settings(max_examples=20)
@given(st.permutations(range(NODES)))
def test_the_order_of_nodes_means_nothing(order: list[int]) -> None:
    """Relabelling the nodes relabels the scores."""
    base = window({7: 4, 9: 2}, gangs=[([7, 9, 11], 0.6)])
    place = {node: i for i, node in enumerate(order)}
    moved = model.LemonWindow(
        exposure_days=base.exposure_days[order],
        named=base.named[order],
        episodes=base.episodes[order],
        days=base.days[order],
        gangs=[(np.array([place[int(n)] for n in nodes]), w) for nodes, w in base.gangs],
    )
    assert model.score(moved).probability == pytest.approx(model.score(base).probability[order], abs=1e-9)


def one_by_one(
    *rows: tuple[int, float, int],
    span: float = 28.0,
    place: np.ndarray | None = None,
    cause: int = 0,
    nodes: int = NODES,
) -> model.LemonWindow:
    """Sure failures as (node, age in days, part), in a fleet where every twentieth node has one of its own."""
    usual = [(node, 3.0 + node / 10, 40 + node % 7) for node in range(0, nodes, 20)]
    node, age, part = (np.array(c) for c in zip(*usual, *rows, strict=True))
    causes = np.full(node.size, cause)
    causes[: len(usual)] = np.arange(len(usual)) % 5 + 10
    unread = np.zeros(nodes)
    return model.LemonWindow(
        exposure_days=np.full(nodes, span * 0.85),
        named=unread,
        episodes=unread.astype(np.int64),
        days=unread.astype(np.int64),
        span_days=span,
        failures=episodes.Failures(
            node=node, age_days=age.astype(float), weight=np.full(node.size, 0.99), part=part, cause=causes
        ),
        place=place,
    )


def test_the_same_part_again_tells_more_than_two_different_ones() -> None:
    """Three failures of GPU 3, against three of a GPU, a DIMM and a link."""
    same = model.score(one_by_one((7, 9.0, 3), (7, 6.0, 3), (7, 1.0, 3)))
    mixed = model.score(one_by_one((7, 9.0, 3), (7, 6.0, 4), (7, 1.0, 5)))
    unknown = model.score(one_by_one((7, 9.0, -1), (7, 6.0, -1), (7, 1.0, -1)))
    assert same.probability[7] > unknown.probability[7] > mixed.probability[7]
    assert (same.repeats[7], mixed.repeats[7], unknown.repeats[7]) == (3, 1, 0)


def test_a_node_that_broke_last_week_is_not_excused_by_good_weeks_before() -> None:
    """Three failures in the last ten days, and three spread over twelve weeks."""
    late = model.score(one_by_one((7, 9.0, 3), (7, 6.0, 3), (7, 1.0, 3), span=84.0))
    spread = model.score(one_by_one((7, 80.0, 3), (7, 45.0, 3), (7, 1.0, 3), span=84.0))
    assert late.probability[7] > spread.probability[7]
    assert late.since_days[7] < spread.since_days[7]


def test_a_node_quiet_since_its_bad_weeks_is_less_suspect() -> None:
    """The same three failures, ten weeks ago: mended, or chance."""
    fresh = model.score(one_by_one((7, 9.0, 3), (7, 6.0, 3), (7, 1.0, 3), span=84.0))
    old = model.score(one_by_one((7, 83.0, 3), (7, 80.0, 3), (7, 75.0, 3), span=84.0))
    assert old.probability[7] < 0.5 < fresh.probability[7]


def test_two_failures_of_one_part_in_two_days_are_one_episode() -> None:
    """Seen again before anybody looked."""
    scores = model.score(one_by_one((7, 2.5, 3), (7, 1.0, 3)))
    assert scores.episodes[7] == 1
    assert scores.probability[7] <= proof.UNPROVEN


def test_a_switch_is_nobodys_lemon() -> None:
    """Twenty nodes of one switch fail three times each of one cause; one that does so alone is a lemon."""
    place = np.arange(NODES) // 20
    pod = [(node, age, 3 + node % 8) for node in range(40, 60) for age in (9.0, 6.0, 1.0)]
    assert model.score(one_by_one(*pod, place=place)).probability.max() < 0.5
    alone = model.score(one_by_one((47, 9.0, 3), (47, 6.0, 3), (47, 1.0, 3), place=place))
    assert alone.probability[47] > 0.9


def test_possible_verdicts_prove_little_where_they_are_dealt_out_freely() -> None:
    """Four "possible" failures, among nodes that have none, and among nodes that nearly all have one."""

    def among(share: int) -> float:
        window = one_by_one(*((7, age, -1) for age in (20.0, 14.0, 8.0, 2.0)))
        rows = window.failures
        extra = np.arange(0, NODES, share)
        failures = episodes.Failures(
            node=np.concatenate([rows.node, extra]),
            age_days=np.concatenate([rows.age_days, np.linspace(1, 27, extra.size)]),
            weight=np.concatenate([np.where(rows.node == 7, 0.6, 0.99), np.full(extra.size, 0.6)]),
            part=np.concatenate([rows.part, np.full(extra.size, -1)]),
            cause=np.concatenate([rows.cause, np.full(extra.size, -1)]),
        )
        return float(model.score(dataclasses.replace(window, failures=failures)).probability[7])

    assert among(100) > 0.9 > among(1)


def test_days_out_of_use_are_no_good_days() -> None:
    """A node drained for three weeks and back since one has failed twice in that week, not in four."""
    window = one_by_one((7, 5.0, 3), (7, 1.0, 4), (8, 5.0, 3), (8, 1.0, 4))
    daily = np.full((NODES, 28), 0.85)
    daily[8, 7:] = 0.0
    scores = model.score(
        dataclasses.replace(window, daily_exposure_days=daily, exposure_days=daily.sum(axis=1))
    )
    assert scores.expected_failures[7] == scores.expected_failures[8]
    assert scores.usual_failures[8] == pytest.approx(scores.usual_failures[7] / 4)


@pytest.mark.parametrize("others", [[0.04, 3.94], [4.0, 4.0], [1.0] * 5])
def test_the_worst_of_a_few_nodes_is_not_what_is_usual_among_them(others: list[float]) -> None:
    """Nine jobs of half an hour on nine days all died of it, and the others' many hours of nothing."""
    alone = np.zeros(9, np.int64)
    failures = episodes.Failures(
        node=alone, age_days=1.56 + np.arange(9.0), weight=np.full(9, 0.9), part=alone - 1, cause=alone
    )
    daily = np.zeros((len(others) + 1, 112))
    daily[:, 1:10] = np.array([0.1875, *others])[:, None] / 9
    window = model.LemonWindow(
        exposure_days=daily.sum(axis=1), named=daily[:, 0], episodes=alone, days=alone,
        failures=failures, span_days=112.0, daily_exposure_days=daily,
    )  # fmt: skip
    scores = model.score(window)
    assert scores.probability[0] > 0.9
    assert (scores.probability[1:] < 0.1).all()
    if len(others) < 3:  # used as much as the others: three episodes may be chance, or the site
        daily[:, 1:10] = 4.0 / 9
        alike = dataclasses.replace(window, daily_exposure_days=daily, exposure_days=daily.sum(axis=1))
        assert model.score(alike).probability[0] < 0.5


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_a_fleet_of_hardly_any_nodes_is_judged_too(nodes: int) -> None:
    """No node, no division by none; one node alone is never named for nothing."""
    scores = model.score(
        model.LemonWindow(
            exposure_days=np.full(nodes, 20.0),
            named=np.zeros(nodes),
            episodes=np.zeros(nodes, np.int64),
            days=np.zeros(nodes, np.int64),
        )
    )
    assert scores.probability.size == nodes
    assert (scores.probability < 0.05).all()


def test_an_idle_node_is_not_judged_worse_than_the_prior() -> None:
    """No use, no failure, nothing known."""
    exposure = np.full(NODES, 24.0)
    exposure[3] = 0.0
    window = dataclasses.replace(one_by_one(), exposure_days=exposure)
    assert model.score(window).probability[3] <= model.PRIOR_SHARE * 1.5


def test_a_node_that_slurm_loses_every_other_day_is_suspected_on_a_small_fleet() -> None:
    """Twenty losses of one node of 36 in 27 days, on ten others one each: one cause for all, never a part, never certain.

    Losses within two days count once, so eight remain of the twenty.
    """
    bad = np.array(
        [
            26.7,
            25.2,
            24.9,
            24.7,
            24.2,
            23.4,
            19.8,
            19.6,
            19.5,
            13.7,
            13.2,
            12.6,
            10.7,
            10.2,
            9.9,
            6.9,
            5.4,
            3.7,
            2.7,
            1.9,
        ]
    )
    others = np.array([25.6, 24.2, 24.0, 23.4, 22.5, 19.4, 11.7, 10.5, 6.9, 5.9])
    node = np.concatenate([np.zeros(bad.size, np.int64), np.arange(1, 11)])
    lost = np.zeros(node.size, np.int64)
    failures = episodes.Failures(
        node=node,
        age_days=np.concatenate([bad, others]),
        weight=np.full(node.size, 0.9),
        part=lost - 1,
        cause=lost,
    )
    daily = np.full((36, 27), 0.75)
    window = model.LemonWindow(
        exposure_days=daily.sum(axis=1),
        named=daily[:, 0],
        episodes=lost,
        days=lost,
        failures=failures,
        span_days=27.0,
        daily_exposure_days=daily,
    )
    scores = model.score(window)
    assert scores.probability[0] > 0.3
    assert (scores.probability[1:] < 0.05).all()
