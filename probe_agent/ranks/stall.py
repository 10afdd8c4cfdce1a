"""Decides when a training rank has stopped, by a bound learnt from the job itself and from what the rank is doing.

Progress is a step, a phase change, a further collective; in phases that legitimately take long
(importing, loading, compiling, checkpointing, validating) also bytes moved or CPU used. A rank is
stalled when nothing of that has happened for longer than its own history allows.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from probing_cluster.probe_agent.ranks import pages

MIN_STEPS = 5
"""Before as many steps are known nothing is learnt: first steps compile, warm up, fill caches."""
MEDIAN_FACTOR = 10.0
LONGEST_FACTOR = 3.0
CHECKPOINT_FACTOR = 10.0
BUSY_PHASES = frozenset({"importing", "loading", "compiling", "checkpointing", "validating"})
OVER = frozenset({"ended"})


@dataclass(frozen=True, kw_only=True)
class StallLimits:
    """How patient to be, seconds."""

    least_s: float
    """No bound is shorter: a hiccup of the network is not a stall."""
    startup_s: float
    """Without steps to learn from: until the first few, or in a phase without history."""


@dataclass(frozen=True, kw_only=True)
class RankObservation:
    """One rank as seen at one moment."""

    at_s: float
    """CLOCK_MONOTONIC seconds, the clock of the page."""
    page: pages.ProbePage
    moved_bytes: int | None = None
    """Bytes read and written by the process so far (/proc io); None when not readable."""
    cpu_s: float | None = None
    """CPU seconds of the process and its children so far; None when not readable."""


@dataclass(frozen=True, kw_only=True)
class RankProgress:
    """What is remembered of a rank between looks."""

    looked_s: float
    """When it was last looked at."""
    since_s: float
    """When it last got on."""
    mark: tuple[object, ...]
    moved_bytes: int | None
    cpu_s: float | None
    longest_checkpoint_s: float = 0.0
    reported: bool = False
    """This stall has been reported; progress re-arms it."""


@dataclass(frozen=True, kw_only=True)
class Stall:
    """A rank that has stopped."""

    page: pages.ProbePage
    stalled_s: float
    bound_s: float


BUSY_BYTES_PER_S = 64 * 1024
BUSY_CPU_FRAC = 0.2


def follow(
    before: RankProgress | None, look: RankObservation, limits: StallLimits
) -> tuple[RankProgress, Stall | None]:
    """What to remember after `look`, and the stall it shows, once."""
    page = look.page
    mark = _mark(page)
    if before is None:
        first = RankProgress(
            looked_s=look.at_s,
            since_s=_last_sign(page, look.at_s),
            mark=mark,
            moved_bytes=look.moved_bytes,
            cpu_s=look.cpu_s,
            longest_checkpoint_s=_checkpoint_s(page),
        )
        return first, None
    longest = max(before.longest_checkpoint_s, _checkpoint_s(page))
    if mark != before.mark or page.phase in OVER or _busy(before, look):
        return (
            RankProgress(
                looked_s=look.at_s,
                since_s=look.at_s,
                mark=mark,
                moved_bytes=look.moved_bytes,
                cpu_s=look.cpu_s,
                longest_checkpoint_s=longest,
            ),
            None,
        )
    stalled_s = look.at_s - before.since_s
    bound_s = bound(page, longest, limits)
    fires = stalled_s > bound_s and not before.reported
    after = RankProgress(
        looked_s=look.at_s,
        since_s=before.since_s,
        mark=mark,
        moved_bytes=look.moved_bytes if look.moved_bytes is not None else before.moved_bytes,
        cpu_s=look.cpu_s if look.cpu_s is not None else before.cpu_s,
        longest_checkpoint_s=longest,
        reported=before.reported or fires,
    )
    return after, Stall(page=page, stalled_s=stalled_s, bound_s=bound_s) if fires else None


def bound(page: pages.ProbePage, longest_checkpoint_s: float, limits: StallLimits) -> float:
    """How long this rank may go without a sign, by its own history."""
    if page.phase == "checkpointing":
        if not longest_checkpoint_s:
            return limits.startup_s
        return max(limits.least_s, CHECKPOINT_FACTOR * longest_checkpoint_s)
    spans = _step_spans_s(page)
    if page.phase != "training" or len(spans) < MIN_STEPS:
        return limits.startup_s
    return max(limits.least_s, MEDIAN_FACTOR * statistics.median(spans), LONGEST_FACTOR * max(spans))


def _step_spans_s(page: pages.ProbePage) -> list[float]:
    """Seconds between consecutive steps, checkpoints left out."""
    steps = page.recent_steps
    return [
        max(0.0, (b.end_ns - a.end_ns - b.checkpoint_ns) / 1e9)
        for a, b in itertools.pairwise(steps)
        if b.step == a.step + 1 and b.end_ns >= a.end_ns
    ]


def _mark(page: pages.ProbePage) -> tuple[object, ...]:
    last = page.recent_collectives[-1] if page.recent_collectives else None
    call = (last.enter_ns, last.leave_ns is None) if last is not None else None
    return (page.steps, page.phase, page.phase_since_ns, page.checkpoints, call)


def _last_sign(page: pages.ProbePage, now_s: float) -> float:
    """The last progress of a rank met for the first time, by its own page; never in the future."""
    signs = [page.phase_since_ns, page.step_ns or 0]
    signs += [max(c.enter_ns, c.leave_ns or 0) for c in page.recent_collectives[-1:]]
    return min(now_s, max(signs) / 1e9) if max(signs) else now_s


def _checkpoint_s(page: pages.ProbePage) -> float:
    begin, end = page.checkpoint_begin_ns, page.checkpoint_end_ns
    return (end - begin) / 1e9 if begin is not None and end is not None and end > begin else 0.0


def _busy(before: RankProgress, look: RankObservation) -> bool:
    """Whether the process has moved bytes or used the CPU since the last look, in a phase without a usual length."""
    if look.page.phase not in BUSY_PHASES:
        return False
    # A death is looked at once: in a moment too short to measure, one tick of the CPU is nothing.
    span_s = max(look.at_s - before.looked_s, 1.0)
    moved = _more(before.moved_bytes, look.moved_bytes) > BUSY_BYTES_PER_S * span_s
    # A thread may spin while its file server is dead: for a checkpoint only bytes count.
    spun = look.page.phase != "checkpointing" and _more(before.cpu_s, look.cpu_s) > BUSY_CPU_FRAC * span_s
    return moved or spun


def _more(before: float | None, now: float | None) -> float:
    return now - before if before is not None and now is not None else 0.0
