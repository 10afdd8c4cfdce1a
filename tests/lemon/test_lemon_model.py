"""The lemon score on fleets small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probing_cluster.lemon import baseline, model, trends

NODES = 200
DAYS = 24.0


def window(
    named: dict[int, float],
    *,
    days: dict[int, int] | None = None,
    exposure: dict[int, float] | None = None,
    gangs: Sequence[tuple[list[int], float]] = (),
    auxiliary: dict[int, float] | None = None,
) -> model.Window:
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
    return model.Window(
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
    """Whatever the odds say, such a node is at most a suspect; a third sign can make it one."""
    assert model.score(window({7: 2})).probability[7] <= model.UNPROVEN
    assert model.score(window({7: 2}, auxiliary={7: 3.0})).probability[7] > model.UNPROVEN


def test_ten_failures_on_one_day_are_one_bad_day() -> None:
    """A burst is one fault seen often."""
    assert model.score(window({7: 10}, days={7: 1})).probability[7] <= model.UNPROVEN


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
    moved = model.Window(
        exposure_days=base.exposure_days[order],
        named=base.named[order],
        episodes=base.episodes[order],
        days=base.days[order],
        gangs=[(np.array([place[int(n)] for n in nodes]), w) for nodes, w in base.gangs],
    )
    assert model.score(moved).probability == pytest.approx(model.score(base).probability[order], abs=1e-9)


def test_trends_speak_for_the_unusual_only() -> None:
    """Forty corrected errors among nodes with one or none is a sign; one is not."""
    values = np.zeros(NODES)
    values[::4] = 1.0
    values[3] = 40.0
    ratio = trends.log_ratio({"ecc": values}, np.full(NODES, DAYS))
    assert ratio[3] == trends.SIGN
    assert set(np.delete(ratio, 3)) == {trends.NO_SIGN}


def test_without_any_sign_there_is_no_evidence() -> None:
    """A site that records no minor events loses nothing."""
    assert not trends.log_ratio({}, np.full(NODES, DAYS)).any()


def test_the_papers_rule_needs_a_failure_signal() -> None:
    """Exclusions and tickets alone never name a node; two failing signals do."""
    signals = {name: np.zeros(NODES) for name in baseline.SIGNALS}
    signals["excl_jobid_count"][1] = signals["tickets"][1] = 9
    signals["multi_node_node_fails"][2] = signals["xid_cnt"][2] = 4
    rule = baseline.Rule(percentile=99.0, floor=2.0, votes=2)
    assert np.flatnonzero(baseline.named(signals, baseline.thresholds(signals, rule), rule)).tolist() == [2]
