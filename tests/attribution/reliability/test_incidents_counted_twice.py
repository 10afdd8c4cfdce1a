"""Failures counted as incidents, and counted a second way: by every pair of rows that belongs together."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.attribution.reliability.fleet import failures

ROW = st.fixed_dictionaries(
    {
        "cluster": st.just("c"),
        "end_us": st.integers(0, 40).map(lambda n: n * 150_000_000),
        "cause": st.sampled_from(["node_lost", "node_reboot", "unjudged", "gpu_lost", None]),
        "component": st.just("node"),
        "fault_node": st.sampled_from(["a", "b", "c"]),
        "nodes": st.just([]),
        "incident_id": st.sampled_from([None, None, None, "x", "y"]),
        "gpus": st.just(8),
        "gpu_s": st.just(1.0),
        "size": st.just(8),
    }
)


def together(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are one incident by themselves: of one id, or of one node and sort within ten minutes."""
    if one["incident_id"] is not None and one["incident_id"] == other["incident_id"]:
        return True
    lost = {"node_lost", "node_reboot", "unjudged", None}
    sort = one["cause"] == other["cause"] or {one["cause"], other["cause"]} <= lost
    near = abs(one["end_us"] - other["end_us"]) <= 600_000_000
    return one["fault_node"] == other["fault_node"] and sort and near


@given(st.lists(ROW, max_size=14))
def test_incidents_are_what_belongs_together_pair_by_pair(rows: list[dict[str, Any]]) -> None:
    """The groups are those that walking from row to row reaches; the table marks one row of each, the earliest."""
    open_rows, groups = set(range(len(rows))), []
    while open_rows:
        group = {open_rows.pop()}
        grown = True
        while grown:
            more = {j for j in open_rows if any(together(rows[i], rows[j]) for i in group)}
            grown = bool(more)
            group |= more
            open_rows -= more
        groups.append(frozenset(group))
    numbers = failures.number(rows)
    assert {frozenset(i for i, n in enumerate(numbers) if n == m) for m in set(numbers)} == set(groups)
    made = failures.table(rows).to_pylist()
    firsts = [rows[i]["end_us"] for i, row in enumerate(made) if row["is_first"]]
    assert sorted(firsts) == sorted(min(rows[i]["end_us"] for i in group) for group in groups)
