"""When the trouble began, and in which stretch of time evidence counts."""

from __future__ import annotations

from datetime import timedelta

from probing_cluster.attribution import case as cases
from probing_cluster.attribution import onset, window


def test_without_a_symptom_the_onset_is_the_end(make):
    """A plain failure began when it ended."""
    assert onset.onset(make.attempt(), [make.finding("python_exception")]) == make.end


def test_the_longest_wait_told_counts(make):
    """Timeout and elapsed time of several findings."""
    told = [
        make.finding("watchdog_timeout", detail={"timeout_ms": 600_000}),
        make.finding("watchdog_timeout", detail={"timeout_ms": 600_000, "elapsed_ms": 660_000}),
    ]
    assert onset.onset(make.attempt(), told) == make.end - timedelta(seconds=660)


def test_the_onset_never_lies_before_the_start(make):
    """A claimed timeout longer than the job."""
    told = [make.finding("watchdog_timeout", detail={"timeout_ms": 10**9})]
    assert onset.onset(make.attempt(), told) == make.start


def test_nonsense_from_users_moves_nothing(make):
    """Anyone can write a log line: wrong types and negative numbers are ignored."""
    for wrong in ("600000", -5, True, None, [1]):
        assert (
            onset.onset(make.attempt(), [make.finding("watchdog_timeout", detail={"timeout_ms": wrong})])
            == make.end
        )
    node_event = make.event(kind="watchdog_timeout", detail={"timeout_ms": 600_000})
    assert onset.collective_wait_s(node_event) == 0


def test_the_window_reaches_from_the_onset_to_after_the_end(make):
    """Ten minutes before, five after; the paper's is fixed to the end."""
    began = make.end - timedelta(minutes=30)
    ours = window.window(make.attempt(), began, cases.WindowPolicy())
    assert (ours.start_at, ours.end_at) == (began - timedelta(minutes=10), make.end + timedelta(minutes=5))
    assert window.window(
        make.attempt(), began, cases.WindowPolicy(paper=True)
    ).start_at == make.end - timedelta(minutes=10)


def test_a_coalesced_event_counts_by_its_last_sighting(make):
    """It began before the window and was still seen inside."""
    stretch = window.window(make.attempt(), make.end, cases.WindowPolicy())
    old = make.event(3600, last_at=make.end - timedelta(seconds=30))
    assert stretch.instant(old) == make.end - timedelta(seconds=30)
    assert stretch.instant(make.event(3600)) is None
    assert stretch.instant(make.event(-301)) is None
