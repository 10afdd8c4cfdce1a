"""The paper's rule on 200 nodes."""

from __future__ import annotations

import numpy as np

from probing_cluster.lemon import baseline

NODES = 200


def signals(**changed: dict[int, float]) -> dict[str, np.ndarray]:
    """All zero, changed where said."""
    made = {name: np.zeros(NODES) for name in baseline.SIGNALS}
    for name, values in changed.items():
        for node, value in values.items():
            made[name][node] = value
    return made


def named(made: dict[str, np.ndarray], rule: baseline.LemonRule) -> list[int]:
    """Whom the rule names with this fleet's own thresholds."""
    return np.flatnonzero(baseline.named(made, baseline.thresholds(made, rule), rule)).tolist()


def test_the_papers_rule_needs_a_failure_signal() -> None:
    """Exclusions and tickets alone never name a node; two failing signals do."""
    made = signals(excl_jobid_count={1: 9}, tickets={1: 9}, multi_node_node_fails={2: 4}, xid_cnt={2: 4})
    assert named(made, baseline.LemonRule(percentile=99.0, floor=2.0, votes=2)) == [2]


def test_thresholds_are_the_fleets_own_percentiles_but_never_below_the_floor() -> None:
    """One per cent of 200 nodes have ten tickets; none has an Xid."""
    limits = baseline.thresholds(
        signals(tickets={1: 10, 2: 10, 3: 10}), baseline.LemonRule(percentile=99.0, floor=2.0)
    )
    assert limits["tickets"] == 10
    assert limits["xid_cnt"] == 2


def test_a_high_failure_rate_on_one_failure_is_no_vote() -> None:
    """One job, one failure: a rate of 1, and nothing known."""
    made = signals(
        single_node_node_failure_rate={1: 1.0, 2: 1.0},
        single_node_node_fails={1: 1, 2: 3},
        multi_node_node_fails={1: 3, 2: 3},
    )
    assert named(made, baseline.LemonRule(percentile=98.0, floor=3.0, votes=2)) == [2]


def test_nodes_without_single_node_jobs_have_no_rate() -> None:
    """NaN is not over any threshold, and does not spoil the others'."""
    made = signals(single_node_node_fails={2: 3}, multi_node_node_fails={2: 3})
    made["single_node_node_failure_rate"][5] = np.nan
    assert named(made, baseline.LemonRule(percentile=99.0, floor=3.0, votes=2)) == [2]
