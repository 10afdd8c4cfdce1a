from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.control_plane.policy import resume_policy
from probing_cluster.core import records, settings

NOW = datetime(2026, 11, 21, 16, tzinfo=UTC)
POLICY = settings.PolicySettings(
    resume_green_s=900, resume_green_beats=30, escalate_cures=2, escalate_days=30
)
REASON = "probing: xid 79 gpu3"


def drain(hours_ago: float, **changes: object) -> records.Drain:
    values: dict[str, object] = {
        "drain_id": uuid.uuid4(), "cluster": "c", "node": "n2", "at": NOW - timedelta(hours=hours_ago),
        "action": "drain", "reason": REASON, "owner": "probing", "state": "done",
    }  # fmt: skip
    return records.Drain(**(values | changes))


def cured(hours_ago: float, **changes: object) -> records.Drain:
    return drain(hours_ago, state="resumed", ended_at=NOW - timedelta(hours=hours_ago - 0.5), **changes)


def drained(**changes: object) -> resume_policy.DrainedNode:
    """Drained an hour ago for a mount, healthy ever since: ready to go."""
    green = resume_policy.GreenTime(since=NOW - timedelta(seconds=1000), beats=100, last_at=NOW)
    values: dict[str, object] = {"drain": drain(1), "kinds": frozenset({"mount"}), "green": green}
    return resume_policy.DrainedNode(**(values | changes))


def verdict(**changes: object) -> resume_policy.ResumeStep:
    return resume_policy.judge(drained(**changes), POLICY, NOW)[0]


def test_a_node_healthy_long_enough_is_resumed() -> None:
    """Time and count are both met and the fault needs no reboot."""
    assert verdict() is resume_policy.ResumeStep.RESUME


@pytest.mark.parametrize(
    "green",
    [
        None,
        resume_policy.GreenTime(since=NOW - timedelta(seconds=899), beats=100, last_at=NOW),
        resume_policy.GreenTime(since=NOW - timedelta(seconds=9000), beats=29, last_at=NOW),
    ],
    ids=["still ill or silent", "not long enough", "too few beats"],
)
def test_a_node_not_green_for_its_time_and_count_waits(green: resume_policy.GreenTime | None) -> None:
    """Both the time and the count must be met."""
    assert verdict(green=green) is resume_policy.ResumeStep.WAIT


@pytest.mark.parametrize(
    ("kinds", "booted_h", "expected"),
    [
        ({"xid"}, None, resume_policy.ResumeStep.WAIT),
        ({"xid"}, 2, resume_policy.ResumeStep.WAIT),
        ({"xid"}, 0.5, resume_policy.ResumeStep.RESUME),
        ({"mount", "gpu_lost"}, None, resume_policy.ResumeStep.WAIT),
        ({"ib_link"}, None, resume_policy.ResumeStep.RESUME),
    ],
    ids=["never", "before the drain", "after the drain", "one of two needs it", "not needed"],
)
def test_a_fault_that_only_a_reboot_cures_waits_for_the_reboot(
    kinds: set[str], booted_h: float | None, expected: resume_policy.ResumeStep
) -> None:
    """A reboot counts only after the drain."""
    booted = None if booted_h is None else NOW - timedelta(hours=booted_h)
    assert verdict(kinds=frozenset(kinds), booted_at=booted) is expected


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ([cured(10), cured(20)], resume_policy.ResumeStep.ESCALATE),
        ([cured(10)], resume_policy.ResumeStep.RESUME),
        ([cured(10), cured(20, reason="probing: ib_link mlx5_0")], resume_policy.ResumeStep.RESUME),
        ([cured(10), cured(20, reason=f"{REASON} (+1 more)")], resume_policy.ResumeStep.ESCALATE),
        ([cured(10), cured(24 * 31)], resume_policy.ResumeStep.RESUME),
        ([cured(10), drain(20)], resume_policy.ResumeStep.RESUME),
        ([cured(10), cured(20, action="requeue")], resume_policy.ResumeStep.RESUME),
    ],
    ids=["twice", "once", "another fault", "same fault among others", "long ago", "never cured", "no drain"],
)
def test_the_same_fault_after_two_cures_goes_to_hardware_inspection(
    past: list[records.Drain], expected: resume_policy.ResumeStep
) -> None:
    """Only cures of this very fault, within the days that count, escalate."""
    assert verdict(past=tuple(past)) is expected


def test_auto_resume_can_be_switched_off() -> None:
    """Then people resume."""
    off = dataclasses.replace(POLICY, auto_resume=False)
    assert resume_policy.judge(drained(), off, NOW)[0] is resume_policy.ResumeStep.WAIT


def beat(at_s: float, **faults: str) -> records.AgentHeartbeat:
    return records.AgentHeartbeat(
        cluster="c",
        node="n2",
        at=NOW + timedelta(seconds=at_s),
        faults={k: {"severity": v} for k, v in faults.items()},
    )


def follow(
    before: resume_policy.GreenTime | None,
    latest: records.AgentHeartbeat | None,
    heard_s: float,
    silent_s: float | None = 1.0,
) -> resume_policy.GreenTime | None:
    """The green time after `latest`, which was heard at NOW + `heard_s`."""
    now = NOW + timedelta(seconds=heard_s + (silent_s or 0.0))
    return resume_policy.follow(before, latest, silent_s, now)


def test_a_flapping_fault_starts_the_green_time_anew() -> None:
    """Three green beats, one ill, one green: the time counts from the last."""
    green = None
    for step in (0, 10, 20):
        green = follow(green, beat(step), step)
    assert green is not None
    assert (green.since, green.beats) == (NOW, 3)
    assert follow(green, beat(30, ib="low"), 30) is None
    again = follow(None, beat(40), 40)
    assert again is not None
    assert (again.since, again.beats) == (NOW + timedelta(seconds=40), 1)


def test_silence_is_not_health_and_the_same_beat_counts_once() -> None:
    """A stale beat ends green time; a beat read twice is one beat; info faults do not matter."""
    green = follow(None, beat(0, note="info"), 0)
    assert green is not None
    assert follow(green, beat(0), 0, silent_s=5.0) == green
    assert follow(green, beat(10), 10, silent_s=60.0) is None
    assert follow(green, beat(10), 10, silent_s=None) is None
    assert follow(green, None, 10) is None


@pytest.mark.parametrize("ahead_s", [0, -3600, 3600])
@pytest.mark.parametrize("set_right_after_s", [None, 300])
def test_the_clock_of_a_node_does_not_change_when_it_comes_back(
    ahead_s: float, set_right_after_s: float | None
) -> None:
    """An hour behind or ahead, perhaps set right meanwhile: the time and the beats count by the service's clock."""
    green, step = None, resume_policy.ResumeStep.WAIT
    for heard_s in range(0, 7200, 10):
        off_s = ahead_s if set_right_after_s is None or heard_s < set_right_after_s else 0
        green = follow(green, beat(heard_s + off_s), heard_s)
        now = NOW + timedelta(seconds=heard_s)
        step, _ = resume_policy.judge(drained(green=green), POLICY, now)
        if step is resume_policy.ResumeStep.RESUME:
            break
    assert (step, heard_s) == (resume_policy.ResumeStep.RESUME, 900)
