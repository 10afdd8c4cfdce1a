"""A stall is told by the job's own history: named when it is one, silent when it is not."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.probe_agent.ranks import pages, stall

LIMITS = stall.StallLimits(least_s=10.0, startup_s=600.0)
NS = 1_000_000_000


def page(
    steps: int, *, step_s: float = 1.0, phase: str = "training", since_s: float = 0.0, **more: Any
) -> pages.ProbePage:
    """A rank that has done `steps` steps of `step_s` from time zero."""
    ring = tuple(
        pages.PageStep(
            step=i, end_ns=int(i * step_s * NS), input_ns=0, collective_ns=0, backward_ns=0, checkpoint_ns=0
        )
        for i in range(max(1, steps - 63), steps + 1)
    )
    values: dict[str, Any] = {
        "pid": 100, "pid_inside": 100, "pid_namespace": None, "parent_inside": None, "start_ticks": 1, "realtime_ns": NS, "monotonic_ns": NS, "job": 7, "restart": 0, "step_id": 0, "rank": 0,
        "world_size": 4, "local_rank": 0, "host": "n1", "torch": "2.13", "python": "3.11", "backend": "gloo", "phase": phase,
        "phase_since_ns": int(since_s * NS) or 1, "steps": steps, "step_ns": int(steps * step_s * NS) or None,
        "checkpoint_begin_ns": None, "checkpoint_end_ns": None, "checkpoints": 0, "steps_unseen": False,
        "first_step_ns": None, "loader_ends": 0, "checkpoint_total_ns": 0,
        "recent_steps": ring, "recent_collectives": (),
    }  # fmt: skip
    return pages.ProbePage(**(values | more))


def watch(looks: list[stall.RankObservation]) -> list[stall.Stall]:
    """The stalls a sequence of looks shows."""
    found, kept = [], None
    for look in looks:
        kept, stalled = stall.follow(kept, look, LIMITS)
        if stalled is not None:
            found.append(stalled)
    return found


def still(a_page: pages.ProbePage, start_s: float, end_s: float, **more: Any) -> list[stall.RankObservation]:
    """The same page seen again and again."""
    return [stall.RankObservation(at_s=start_s + t, page=a_page, **more) for t in range(int(end_s - start_s))]


@pytest.mark.parametrize(("step_s", "bound_s"), [(0.1, 10.0), (1.0, 10.0), (5.0, 50.0), (60.0, 600.0)])
def test_the_bound_is_learnt_from_the_steps(step_s: float, bound_s: float) -> None:
    """Ten medians, never less than the least: a job of one-minute steps is given ten minutes."""
    assert stall.bound(page(20, step_s=step_s), 0.0, LIMITS) == pytest.approx(bound_s)


def test_a_stopped_rank_is_told_once() -> None:
    """After its bound, and not again until it got on."""
    stopped = page(20)
    found = watch(still(stopped, 20, 120))
    assert len(found) == 1
    assert found[0].stalled_s == pytest.approx(11.0, abs=1.5)
    resumed = still(stopped, 20, 60) + still(page(30), 60, 100)
    assert len(watch(resumed)) == 2


def test_a_rank_that_steps_is_never_stalled() -> None:
    """Slow but steady is not a stall."""
    looks = [stall.RankObservation(at_s=float(t), page=page(20 + t // 8)) for t in range(20, 400)]
    assert watch(looks) == []


def test_collectives_are_progress_too() -> None:
    """A long validation that still exchanges results goes on."""
    call = pages.Collective(
        seq=0, group="0", group_size=4, op="all_reduce", numel=1, dtype_code=1, enter_ns=1, leave_ns=2,
        is_async=False, is_p2p=False, raised=False,
    )  # fmt: skip
    looks = [
        stall.RankObservation(
            at_s=float(t),
            page=page(
                20,
                recent_collectives=(
                    pages.Collective(**(call._asdict() | {"enter_ns": 1 + t // 5, "leave_ns": 2 + t // 5})),
                ),
            ),
        )
        for t in range(20, 200)
    ]
    assert watch(looks) == []


@pytest.mark.parametrize("phase", ["importing", "loading", "init", "compiling", "validating"])
def test_long_phases_do_not_fire(phase: str) -> None:
    """Minutes of compiling, loading or validating are not a stall of a one-second job."""
    assert watch(still(page(20, phase=phase, since_s=20), 20, 400)) == []


def test_first_steps_do_not_fire() -> None:
    """With three steps nothing has been learnt yet."""
    assert watch(still(page(3), 3, 300)) == []


def test_a_job_that_never_gets_started_is_told_in_the_end() -> None:
    """A deadlock at the first collective: after the start-up limit."""
    assert len(watch(still(page(0, phase="init", since_s=1), 1, 700))) == 1


def test_a_long_checkpoint_that_writes_is_no_stall() -> None:
    """Ten times longer than ever before, but bytes still move."""
    saving = page(20, phase="checkpointing", since_s=20, checkpoint_begin_ns=5 * NS, checkpoint_end_ns=6 * NS)
    looks = [
        stall.RankObservation(at_s=20.0 + t, page=saving, moved_bytes=t * 50_000_000) for t in range(200)
    ]
    assert watch(looks) == []


def test_a_checkpoint_on_a_dead_filesystem_is_a_stall() -> None:
    """Earlier ones took one second, this one moves nothing for eleven."""
    saved = page(19, checkpoint_begin_ns=5 * NS, checkpoint_end_ns=6 * NS)
    saving = page(
        20, phase="checkpointing", since_s=20, checkpoint_begin_ns=20 * NS, checkpoint_end_ns=6 * NS
    )
    looks = still(saved, 19, 20, moved_bytes=10**9) + still(saving, 20, 60, moved_bytes=10**9)
    (found,) = watch(looks)
    assert found.page.phase == "checkpointing"


def loads(looks_s: list[float], *, bytes_per_s: float, cpu_frac: float, pauses: bool) -> list[stall.Stall]:
    """What a rank that loads at a rate shows, which for 10 s of the first minutes may do nothing."""
    loading, moved, cpu_s, at_s, looks = page(0, phase="loading", since_s=1), 0.0, 0.0, 1.0, []
    for span_s in looks_s:
        at_s += span_s
        if not (pauses and 100 < at_s <= 110):
            moved, cpu_s = moved + bytes_per_s * span_s, cpu_s + cpu_frac * span_s
        looks.append(stall.RankObservation(at_s=at_s, page=loading, moved_bytes=int(moved), cpu_s=cpu_s))
    return watch(looks)


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize(("bytes_per_s", "cpu_frac"), [(100 * 1024, 0.0), (0, 0.3)])
def test_slow_work_is_no_stall_after_a_pause(bytes_per_s: float, cpu_frac: float, *, pauses: bool) -> None:
    """A model that comes from a busy file server: what it needs is a rate, however long ago it last got on."""
    assert loads([5.0] * 400, bytes_per_s=bytes_per_s, cpu_frac=cpu_frac, pauses=pauses) == []


@pytest.mark.parametrize("looks_s", [[5.0] * 400, [5.0, 0.01] * 400])
def test_a_trickle_is_no_work(looks_s: list[float]) -> None:
    """A thread that sends a heartbeat goes on when its program has stopped; a look just after another shows no more."""
    assert len(loads(looks_s, bytes_per_s=10 * 1024, cpu_frac=0.1, pauses=False)) == 1


def test_the_end_is_no_stall() -> None:
    """A rank that has ended cleanly is not waited for."""
    assert watch(still(page(20, phase="ended", since_s=20), 20, 2000)) == []


def test_one_long_step_in_the_past_widens_the_bound() -> None:
    """A job that once took 30 s for a step is given 90 s."""
    ring = list(page(20).recent_steps)
    late = [
        pages.PageStep(**(s._asdict() | {"end_ns": s.end_ns + 30 * NS})) if s.step > 15 else s for s in ring
    ]
    assert stall.bound(page(20, recent_steps=tuple(late)), 0.0, LIMITS) == pytest.approx(93.0)
