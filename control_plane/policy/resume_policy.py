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


class Next(StrEnum):
    """What to do with a node of ours that is drained."""

    WAIT = "wait"
    RESUME = "resume"
    ESCALATE = "escalate"


@records.record
class Green:
    """How long a node has shown no fault."""

    since: datetime = records.doc("first beat without a fault")
    beats: int = records.doc("distinct beats without a fault since then")
    last_at: datetime = records.doc("the latest of them")


@records.record
class Patient:
    """One drained node and its history."""

    drain: records.Drain = records.doc("the drain to lift")
    kinds: frozenset[str] = records.doc("kinds of the faults behind it")
    green: Green | None = records.doc("null while it still shows a fault, or says nothing", default=None)
    booted_at: datetime | None = records.doc("its latest boot, by its agent or Slurm", default=None)
    past: tuple[records.Drain, ...] = records.doc("earlier drains of this node", default=())


def follow(before: Green | None, beat: records.AgentHeartbeat | None, silent_s: float | None) -> Green | None:
    """The node's green time after its latest beat; any fault, or silence, starts it anew."""
    if beat is None or not confirm.is_current(beat, silent_s) or _ill(beat):
        return None
    if before is None:
        return Green(since=beat.at, beats=1, last_at=beat.at)
    if beat.at <= before.last_at:
        return before
    return Green(since=before.since, beats=before.beats + 1, last_at=beat.at)


def _ill(beat: records.AgentHeartbeat) -> bool:
    acting = {records.Severity.HIGH.value, records.Severity.LOW.value}
    return any(f.get("severity") in acting for f in beat.faults.values())


def fault_name(reason: str) -> str:
    """A reason without what differs between two drains for the same fault."""
    return _FOLDED.sub("", reason.strip())


def cures(patient: Patient, policy: settings.PolicySettings) -> int:
    """How often this very fault was cured on this node before."""
    since = patient.drain.at - timedelta(days=policy.escalate_days)
    same = fault_name(patient.drain.reason)
    return sum(
        d.action == "drain"
        and d.ended_at is not None
        and since <= d.at < patient.drain.at
        and fault_name(d.reason) == same
        for d in patient.past
    )


def judge(patient: Patient, policy: settings.PolicySettings, now: datetime) -> tuple[Next, str]:
    """What to do now and why."""
    if cures(patient, policy) >= policy.escalate_cures:
        return (
            Next.ESCALATE,
            f"the same fault again after {cures(patient, policy)} cures: inspect the hardware",
        )
    if patient.drain.reason.startswith(vocabulary.LEMON_PREFIX):
        return (
            Next.WAIT,
            "a lemon passes every check: it comes back by a person's word (probing-ctl lemon repaired)",
        )
    if not policy.auto_resume:
        return Next.WAIT, "policy.auto_resume is off"
    if patient.green is None:
        return Next.WAIT, "it still shows a fault, or its agent is silent"
    needs = sorted(patient.kinds & set(policy.reboot_kinds))
    if needs and (patient.booted_at is None or patient.booted_at <= patient.drain.at):
        return Next.WAIT, f"{', '.join(needs)} needs a reboot, and none was seen since the drain"
    held_s = (now - patient.green.since).total_seconds()
    if held_s < policy.resume_green_s:
        return Next.WAIT, f"healthy for {held_s:.0f} of {policy.resume_green_s:.0f} s"
    if patient.green.beats < policy.resume_green_beats:
        return Next.WAIT, f"{patient.green.beats} of {policy.resume_green_beats} healthy beats"
    return Next.RESUME, f"healthy for {held_s:.0f} s in {patient.green.beats} beats"


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
