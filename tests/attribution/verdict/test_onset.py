"""When the trouble began, and in which stretch of time evidence counts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from probing_cluster.attribution.gang import views
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import onset, window
from probing_cluster.core import records


def test_without_a_symptom_the_onset_is_the_end(make):
    """A plain failure began when it ended."""
    assert onset.onset(make.attempt(), [make.finding("python_exception")]) == make.end


def test_the_longest_wait_told_counts(make):
    """Timeout and elapsed time of several findings."""
    findings = [
        make.finding("watchdog_timeout", detail={"timeout_ms": 600_000}),
        make.finding("watchdog_timeout", detail={"timeout_ms": 600_000, "elapsed_ms": 660_000}),
    ]
    assert onset.onset(make.attempt(), findings) == make.end - timedelta(seconds=660)


def test_the_onset_never_lies_before_the_start(make):
    """A claimed timeout longer than the job."""
    findings = [make.finding("watchdog_timeout", detail={"timeout_ms": 10**9})]
    assert onset.onset(make.attempt(), findings) == make.start


def test_ranks_that_lost_each_other_may_have_stood_for_long_before_somebody_ended_them(make):
    """Only where a person or a limit ended the job, and only what began the failure: the log does not say since when."""
    first = {"first_cause": True}
    failed = make.finding("net_ib_completion_error", detail=first)
    cancelled = make.attempt(state="CANCELLED", cancelled_by="root", exit_code=0)
    assert onset.unanswered_s(cancelled, [failed]) == onset.LEFT_HANGING_S
    assert onset.unanswered_s(cancelled, [make.finding("nccl_remote_error", detail=first)]) > 0
    for state, found in (
        ("FAILED", failed),
        ("CANCELLED", make.finding("net_ib_completion_error")),
        ("CANCELLED", make.finding("python_exception", detail=first)),
        ("CANCELLED", make.finding("watchdog_timeout", detail=first)),
    ):
        assert onset.unanswered_s(make.attempt(state=state), [found]) == 0


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


def probe(make, kind, before_end_s, **over):
    """The probe's events about the usual attempt."""
    return make.event(
        before_end_s, kind=kind, source="probe", job_id=4242, severity=records.Severity.INFO, **over
    )


def test_the_probe_says_when_a_gang_last_got_on(make):
    """A stall goes back to its beginning; steps after it say that the gang got on again."""
    stalled = probe(make, "rank_stall", 300, measured=100.0)
    assert onset.last_progress(make.attempt(), [stalled]) == make.end - timedelta(seconds=400)
    last = [probe(make, "last_progress", s, detail={"phase": "checkpointing"}) for s in (20, 30)]
    assert onset.last_progress(make.attempt(), [stalled, *last]) == make.end - timedelta(seconds=20)


def test_the_last_step_before_an_evaluation_is_no_onset(make):
    """Without a stall, only a gang that was training had its trouble from its last step on."""
    evaluating = [probe(make, "last_progress", 900, detail={"phase": "validating"})]
    assert onset.last_progress(make.attempt(), evaluating) is None
    training = [probe(make, "last_progress", 900, detail={"phase": "training"})]
    assert onset.last_progress(make.attempt(), training) == make.end - timedelta(seconds=900)
    forged = [probe(make, "last_progress", 10**5, detail={"phase": "training"})]
    assert onset.last_progress(make.attempt(), forged) is None


def test_what_a_dump_shows_outstanding_began_when_it_was_issued(make):
    """Twelve minutes before the end; a number that is no time moves nothing."""
    issued = make.end - timedelta(minutes=12)
    detail = {
        "outstanding": [
            {"created_ns": int(issued.timestamp() * 1e9)},
            {"created_ns": 1 << 62},
            {"created_ns": "x"},
        ]
    }
    dump = make.finding("dump", source="dump", detail=detail)
    assert abs(onset.onset(make.attempt(), [dump]) - issued) < timedelta(seconds=1)
    assert (
        onset.onset(make.attempt(), [make.finding("dump", source="dump", detail={"outstanding": 7})])
        == make.end
    )


@pytest.mark.parametrize(
    ("steps", "before_end_s", "since_s"),
    [
        (300, 0.0, 0.0),
        (300, -0.4, 0.0),
        (300, -20.0, 0.0),
        (9, -0.4, 400.0),
        (9, 1.0, 400.0),
        (9, 5.0, 5.0),
        (9, 60.0, 60.0),
        (8, 400.0, 400.0),
    ],
    ids=["to the end", "in Slurm's last second", "until it was killed", "woken to be ended", "woken by another clock", "a slow step before the end", "a slow step", "never"],
)  # fmt: skip
def test_a_stall_has_ended_once_its_ranks_trained_on(make, steps, before_end_s, since_s):
    """Slurm cuts its end off to the second, and tasks live on until they are killed; it wakes stopped ranks before that."""
    stalled = probe(make, "rank_stall", 300, node="n1", pid=7, measured=100.0, detail={"rank": 0, "steps": 8})
    waits = probe(make, "rank_stall", 300, node="n2", pid=8, measured=100.0, detail={"rank": 1, "steps": 8})
    last = probe(make, "last_progress", before_end_s, node="n1", pid=7, detail={"rank": 0, "steps": steps, "phase": "ended"})  # fmt: skip
    other = probe(make, "last_progress", before_end_s, node="n2", pid=8, detail={"rank": 1, "steps": steps, "phase": "ended"})  # fmt: skip
    for events in ([stalled, last], [stalled, waits, last, other], [stalled, waits, other]):
        assert onset.last_progress(make.attempt(), events) == make.end - timedelta(seconds=since_s)


def test_another_process_does_not_end_a_stall_while_tasks_are_ended(make):
    """It is of a rank that ran ahead, or of another replica. Before the end, it shows that the job went on: its ranks were restarted."""
    stalled = probe(make, "rank_stall", 300, node="n1", pid=7, measured=100.0, detail={"rank": 0, "steps": 8})
    for pid, steps, before_end_s, since_s in ((8, 300, -0.4, 400.0), (80, 9, 0.5, 0.5), (80, 9, 30.0, 30.0)):
        last = probe(make, "last_progress", before_end_s, node="n1", pid=pid, detail={"rank": 0, "steps": steps, "phase": "training"})  # fmt: skip
        assert onset.last_progress(make.attempt(), [stalled, last]) == make.end - timedelta(seconds=since_s)
    ahead = probe(make, "rank_stall", 300, node="n2", pid=8, measured=100.0, detail={"rank": 1, "steps": 12})
    woken = probe(make, "last_progress", -0.4, node="n1", pid=7, detail={"rank": 0, "steps": 9, "phase": "ended"})  # fmt: skip
    assert onset.last_progress(make.attempt(), [stalled, ahead, woken]) == make.end - timedelta(seconds=400)


def test_a_step_long_after_the_end_is_the_next_starts(make):
    """Of a job whose starts accounting does not count."""
    stalled = probe(make, "rank_stall", 300, node="n1", pid=7, measured=100.0, detail={"rank": 0, "steps": 8})
    last = probe(make, "last_progress", -90, node="n1", pid=70, detail={"rank": 0, "steps": 900, "phase": "training"})  # fmt: skip
    assert onset.last_progress(make.attempt(), [stalled, last]) == make.end - timedelta(seconds=400)


def test_a_stall_of_a_program_without_steps_ends_with_its_calls(make, monkeypatch):
    """It has no last step, and stood still hours before its end. Calls of another replica do not end it."""

    # A large job has many ranks, and their stacks take long to read.
    monkeypatch.setattr(views, "from_snapshot", None)

    def look(before_end_s, seq, pid=7):  # fmt: skip
        call = {"group": "0", "seq": seq, "op": "all_reduce", "numel": 4, "group_size": 2, "left": False}
        ranks = [{"rank": 0, "pid": pid, "alive": True, "steps": 0, "calls": [call]}]
        return probe(make, "rank_snapshot", before_end_s, node="n1", detail={"ranks": ranks, "world_size": 2})

    stalled = probe(make, "rank_stall", 300, node="n1", pid=7, measured=100.0, detail={"rank": 0, "steps": 0})
    assert onset.last_progress(make.attempt(), [stalled, look(298, 8), look(-1, 9)]) is not None
    assert onset.last_progress(make.attempt(), [stalled, look(298, 8), look(-1, 900)]) is None
    served = [look(297, 8, pid=9), look(-1, 900, pid=9)]
    assert onset.last_progress(make.attempt(), [stalled, *served]) == make.end - timedelta(seconds=400)
