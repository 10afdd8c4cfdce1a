"""Decides when a node we drained may come back: healthy for long enough, rebooted where that is the cure.

A fault that returns after it was cured often enough is no longer ours to judge: the node stays
out until a person has looked at the hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from probing_cluster.control_plane.policy import confirm
from probing_cluster.core import records, settings, vocabulary

_FOLDED = re.compile(r" \(\+\d+ more\)$")


class ResumeStep(StrEnum):
    """What to do with a node of ours that is drained."""

    WAIT = "wait"
    RESUME = "resume"
    ESCALATE = "escalate"


@records.record
class GreenTime:
    """How long a node has shown no fault."""

    since: datetime = records.doc("when the first beat without a fault was heard, by the service's clock")
    beats: int = records.doc("distinct beats without a fault since then")
    last_at: datetime = records.doc("the latest of them, by its node's own clock, which may be off")


@records.record
class DrainedNode:
    """One drained node and its history."""

    drain: records.Drain = records.doc("the drain to lift")
    kinds: frozenset[str] = records.doc("kinds of the faults behind it")
    green: GreenTime | None = records.doc("null while it still shows a fault, or says nothing", default=None)
    booted_at: datetime | None = records.doc("its latest boot, by its agent or Slurm", default=None)
    past: tuple[records.Drain, ...] = records.doc("earlier drains of this node", default=())


def follow(
    before: GreenTime | None, beat: records.AgentHeartbeat | None, silent_s: float | None, now: datetime
) -> GreenTime | None:
    """The node's green time after its latest beat, heard `silent_s` before `now`; any fault, or silence, starts it anew."""
    if beat is None or silent_s is None or not confirm.is_current(beat, silent_s) or _has_fault(beat):
        return None
    if before is None:
        return GreenTime(since=now - timedelta(seconds=silent_s), beats=1, last_at=beat.at)
    if beat.at == before.last_at:
        return before
    return GreenTime(since=before.since, beats=before.beats + 1, last_at=beat.at)


def _has_fault(beat: records.AgentHeartbeat) -> bool:
    acting = {records.Severity.HIGH.value, records.Severity.LOW.value}
    return any(f.get("severity") in acting for f in beat.faults.values())


def fault_name(reason: str) -> str:
    """A reason without what differs between two drains for the same fault."""
    return _FOLDED.sub("", reason.strip())


def cures(drained: DrainedNode, policy: settings.PolicySettings) -> int:
    """How often this very fault was cured on this node before."""
    since = drained.drain.at - timedelta(days=policy.escalate_days)
    same = fault_name(drained.drain.reason)
    return sum(
        d.action == "drain"
        and d.ended_at is not None
        and since <= d.at < drained.drain.at
        and fault_name(d.reason) == same
        for d in drained.past
    )


def judge(drained: DrainedNode, policy: settings.PolicySettings, now: datetime) -> tuple[ResumeStep, str]:
    """What to do now and why."""
    if cures(drained, policy) >= policy.escalate_cures:
        return (
            ResumeStep.ESCALATE,
            f"the same fault again after {cures(drained, policy)} cures: inspect the hardware",
        )
    if drained.drain.reason.startswith(vocabulary.LEMON_PREFIX):
        return (
            ResumeStep.WAIT,
            "a lemon passes every check: it comes back by a person's word (probing-ctl lemon repaired)",
        )
    if not policy.auto_resume:
        return ResumeStep.WAIT, "policy.auto_resume is off"
    if drained.green is None:
        return ResumeStep.WAIT, "it still shows a fault, or its agent is silent"
    needs = sorted(drained.kinds & set(policy.reboot_kinds))
    if needs and (drained.booted_at is None or drained.booted_at <= drained.drain.at):
        return ResumeStep.WAIT, f"{', '.join(needs)} needs a reboot, and none was seen since the drain"
    held_s = (now - drained.green.since).total_seconds()
    if held_s < policy.resume_green_s:
        return ResumeStep.WAIT, f"healthy for {held_s:.0f} of {policy.resume_green_s:.0f} s"
    if drained.green.beats < policy.resume_green_beats:
        return ResumeStep.WAIT, f"{drained.green.beats} of {policy.resume_green_beats} healthy beats"
    return ResumeStep.RESUME, f"healthy for {held_s:.0f} s in {drained.green.beats} beats"


def latest(drains: Iterable[records.Drain], node: str) -> records.Drain | None:
    """Our newest drain of `node` that stands."""
    open_drains = [
        d
        for d in drains
        if d.node == node
        and d.action == "drain"
        and d.state == "done"
        and d.ended_at is None
        and d.owner == "probing"
    ]
    return max(open_drains, key=lambda d: d.at, default=None)
