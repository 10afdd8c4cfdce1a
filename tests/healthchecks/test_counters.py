"""Growth of counters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.healthchecks import counters, nodeview


def view(node: Any, memory: dict[str, Any]) -> nodeview.NodeView:
    return nodeview.NodeView(node.spec, memory=memory)


def test_first_look_counts_from_boot(node: Any) -> None:
    """At first everything since boot counts, over the time since boot."""
    grown = counters.growth(view(node, {}), {"a": 240, "b": None})
    assert (grown.by_key, grown.first, grown.elapsed_s) == ({"a": 240}, True, 864000.0)
    assert grown.per_hour("a") == 1.0


def test_then_only_what_is_new(node: Any) -> None:
    """Later looks count the difference; a reset counter counts from zero; a new one has no past."""
    memory: dict[str, Any] = {}
    counters.growth(view(node, memory), {"a": 100, "b": 100})
    node.later(1800)
    grown = counters.growth(view(node, memory), {"a": 130, "b": 5, "c": 9})
    assert grown.by_key == {"a": 30, "b": 5, "c": 0}
    assert grown.elapsed_s == 1800
    assert grown.per_hour("a") == 30  # less than an hour counts as one: a burst is not a day's rate


def test_an_unreadable_look_loses_nothing(node: Any) -> None:
    """A counter that could not be read once is compared with its last known value."""
    memory: dict[str, Any] = {}
    counters.growth(view(node, memory), {"a": 100})
    counters.growth(view(node, memory), {"a": None})
    assert counters.growth(view(node, memory), {"a": 103}).by_key == {"a": 3}


def test_a_jumping_clock_invents_no_rate(node: Any) -> None:
    """Elapsed time is the node's uptime: the wall clock may jump."""
    memory: dict[str, Any] = {}
    counters.growth(view(node, memory), {"a": 0})
    node.clock.at = node.clock.at.replace(year=2031)
    node.later(300)
    assert counters.growth(view(node, memory), {"a": 1}).elapsed_s == 300


def test_windows_forget(node: Any) -> None:
    """What grew longer ago than the window is forgotten; the first look adds nothing."""
    memory: dict[str, Any] = {}

    def look(value: int) -> dict[str, int]:
        node_view = view(node, memory)
        return counters.within(node_view, counters.growth(node_view, {"a": value}), 3600)

    assert look(100) == {}
    node.later(1800)
    assert look(103) == {"a": 3}
    node.later(1801)
    assert look(104) == {"a": 4}
    node.later(1801)
    assert look(104) == {"a": 1}


@given(st.lists(st.integers(min_value=0, max_value=1000), min_size=1, max_size=30))
def test_growth_is_never_negative(values: list[int]) -> None:
    """Whatever a counter does, growth is never negative and never more than the counter itself shows."""
    memory: dict[str, Any] = {}
    for i, value in enumerate(values):
        spec = nodeview.NodeSpec(node="n")
        grown = counters.growth(nodeview.NodeView(spec, memory=memory), {"a": value})
        assert 0 <= grown.by_key["a"] <= value
        assert grown.first is (i == 0)


def test_memory_stays_small(node: Any) -> None:
    """A counter that grows for ever keeps a bounded past."""
    memory: dict[str, Any] = {}
    for i in range(counters.MAX_KEPT + 50):
        node.later(1)
        node_view = view(node, memory)
        counters.within(node_view, counters.growth(node_view, {"a": i}), 1e9)
    assert len(memory["grown"]) == counters.MAX_KEPT
