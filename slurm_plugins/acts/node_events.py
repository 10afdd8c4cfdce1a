"""slurmdbd's record of who drained which node when, the only trace of a note that was overwritten."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterable
from dataclasses import dataclass

from probing_cluster.core import digits, errors, sanitize, vocabulary
from probing_cluster.slurm_plugins import commands

SLURMS_OWN = (
    "Not responding",
    "Node unexpectedly rebooted",
    "reboot complete",
    "reboot issued",
    "reboot requested",
    "reboot timed out",
    "Prolog error",
    "Prolog/Epilog failure",
    "Epilog error",
    "Kill task failed",
    "Duplicate jobid",
    "batch job complete failure",
    "ResumeTimeout reached",
    "NO NETWORK ADDRESS FOUND",
    "Low ",
    "gres/",
    "Could not unpack gres data",
    "CoreSpec differ",
    "RestrictedCoresPerGPU",
    "Reported active features",
    "Set in slurm.conf",
    "POWER_DOWN_ASAP",
)
"""How the reasons begin that slurmctld writes by itself (its source, 22.05 to 26.05); all others are a person's."""

_PLANNED = ("reboot complete", "reboot issued", "reboot requested", "Set in slurm.conf", "POWER_DOWN_ASAP")


GONE = (vocabulary.UNTOUCHABLE_STATES - vocabulary.DRAINED_STATES) | {"NOT_RESPONDING"}
"""States of a node that is out without being drained."""


def gone(states: Iterable[str]) -> str:
    """`DOWN+NOT_RESPONDING`: in which states a node is out although it may not be drained; empty for none."""
    return "+".join(sorted(GONE.intersection(states)))


def back_from_down(node: str) -> str:
    """What a person does about a node that Slurm has DOWN: nothing that lifts a drain helps there."""
    return f"find out why it is down; once it answers: scontrol update NodeName={node} State=RESUME"


@dataclass(frozen=True, kw_only=True)
class NoteHistory:
    """What accounting knows about the notes on a node since a moment."""

    settled: bool
    """Our own act has reached accounting, so nothing older is still on its way."""
    lost: bool
    note: str = ""
    """The lost note; empty when it fell into the same second as ours and only its author is known."""
    author: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeEvent:
    """One stretch of a node out of service."""

    start_s: int
    end_s: int | None
    user: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class NodeOutage:
    """One stretch of one node out of service."""

    node: str
    start_s: int
    end_s: int | None
    """None while it lasts."""
    reason: str


class NodeEvents:
    """`sacctmgr show event`; where slurmdbd does not answer nothing is known, and that is no failure."""

    def __init__(self, run: commands.Runner) -> None:
        self._run = run
        self._us = f"{_name_of(os.geteuid())}({os.geteuid()})"

    def overwritten(self, node: str, since_s: int, ours: str | None) -> NoteHistory | None:
        """Whether a note of another's lay on the node since then, under `ours` (None: under our resume)."""
        try:
            output = self._run(
                "sacctmgr",
                "-n",
                "-P",
                "show",
                "event",
                f"nodes={node}",
                f"start={time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(since_s - 1))}",
                "format=TimeStart,TimeEnd,User,Reason",
                environment={"SLURM_TIME_FORMAT": "%s"},
            )
        except errors.SlurmUnavailable:
            return None
        return judge(parse(output), since_s, ours, self._us)


def outages(run: commands.Runner, since_s: int, until_s: int) -> list[NodeOutage]:
    """Every stretch in which any node was down or drained, that began in the span; raises SlurmUnavailable."""
    output = run(
        "sacctmgr",
        "-n",
        "-P",
        "show",
        "event",
        "event=node",
        f"start={_utc(since_s)}",
        f"end={_utc(until_s)}",
        "format=NodeName,TimeStart,TimeEnd,Reason",
        environment={"SLURM_TIME_FORMAT": "%s"},
    )
    found = []
    for line in output.decode("utf-8", "replace").split("\n"):
        parts = line.split("|", 3)
        if len(parts) == 4 and parts[0] and digits.is_number(parts[1]) and since_s <= int(parts[1]) < until_s:
            end_s = int(parts[2]) if digits.is_number(parts[2]) else None
            found.append(
                NodeOutage(node=parts[0], start_s=int(parts[1]), end_s=end_s, reason=sanitize.clean(parts[3]))
            )
    return found


def _utc(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def parse(output: bytes) -> list[NodeEvent]:
    """Events of `format=TimeStart,TimeEnd,User,Reason`; the reason is last, it may hold the delimiter."""
    found = []
    for line in output.decode("utf-8", "replace").split("\n"):
        parts = line.split("|", 3)
        if len(parts) == 4 and digits.is_number(parts[0]):
            end_s = int(parts[1]) if digits.is_number(parts[1]) else None
            found.append(
                NodeEvent(start_s=int(parts[0]), end_s=end_s, user=parts[2], reason=sanitize.clean(parts[3]))
            )
    return found


def judge(events: list[NodeEvent], since_s: int, ours: str | None, us: str) -> NoteHistory:
    """What these events say about our act: `ours` is the reason we wrote, None when we resumed."""
    new = [event for event in events if event.start_s >= since_s]
    foreign = [event for event in new if event.reason != ours and is_a_persons(event.reason)]
    # A later note in the same second replaces the text of the earlier and keeps its author.
    replaced = [event for event in new if event.reason == ours and event.user != us]
    if ours is None:
        settled = bool(events) and all(event.end_s is not None for event in events)
    else:
        settled = any(event.reason == ours for event in new)
    if foreign:
        last = max(foreign, key=lambda event: event.start_s)
        return NoteHistory(settled=settled, lost=True, note=last.reason, author=last.user)
    if replaced:
        return NoteHistory(settled=settled, lost=True, author=replaced[-1].user)
    return NoteHistory(settled=settled, lost=False)


def is_a_persons(reason: str) -> bool:
    """Whether a person wrote this reason, and not slurmctld or we."""
    return bool(reason) and not reason.startswith((*SLURMS_OWN, vocabulary.OWN_PREFIX))


def is_mishap(reason: str) -> bool:
    """Whether slurmctld drained a node with this reason for what went wrong there, not for what somebody planned."""
    return reason.startswith(SLURMS_OWN) and not reason.startswith(_PLANNED)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
