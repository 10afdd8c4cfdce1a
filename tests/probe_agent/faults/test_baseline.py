"""Counters over time: moved, reset, full, unreadable."""

from __future__ import annotations

from probing_cluster.probe_agent.faults import baseline


def test_first_reading_is_where_counting_begins() -> None:
    """What was there before the agent looked has not happened now."""
    counters = baseline.Baseline()
    moved = counters.move("x", 8109)
    assert moved is not None
    assert moved.delta == 0


def test_step_reset_and_ceiling() -> None:
    """Up is a step, down is a reset, and at the ceiling nothing more can be seen."""
    counters = baseline.Baseline()
    counters.move("x", 3)
    up = counters.move("x", 5)
    down = counters.move("x", 1)
    full = counters.move("x", 15, ceiling=15)
    assert up is not None
    assert down is not None
    assert full is not None
    assert (up.delta, up.was_reset) == (2, False)
    assert (down.was_reset, down.position) == (True, "1:1")
    assert (full.saturated, full.delta) == (True, 14)


def test_unreadable_value_keeps_the_old_one() -> None:
    """A gap in reading is not a step back to nothing."""
    counters = baseline.Baseline()
    counters.move("x", 5)
    assert counters.move("x", None) is None
    moved = counters.move("x", 6)
    assert moved is not None
    assert moved.delta == 1


def test_another_boot_counts_anew() -> None:
    """Counters of another boot are other counters."""
    memory = {"boot_id": "b1", "counters": {"x": 5}}
    assert baseline.Baseline.of(memory, "b1").values == {"x": 5}
    assert baseline.Baseline.of(memory, "b2").values == {}


def test_streaks_count_readings_in_a_row() -> None:
    """One reading without it begins anew."""
    streaks = baseline.Streaks()
    assert [streaks.at_least("x", 2, holds=h) for h in (True, True, False, True, True)] == [
        False, True, False, False, True,
    ]  # fmt: skip


def test_decades_are_powers_of_ten() -> None:
    """1, 10 and 100 are steps worth telling."""
    assert [baseline.decade(n) for n in (0, 1, 9, 10, 99, 100)] == [0, 1, 1, 2, 2, 3]
