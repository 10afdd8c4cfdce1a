"""Decides whether a fault was over before it could end an attempt: its part recovered, or its node or driver restarted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution.gang import finding
from probing_cluster.attribution.verdict import evidence_view, findings, onset, signatures, taxonomy
from probing_cluster.core import records, vocabulary

LETHAL = 0.96
"""From this lethality on, no program on the part survives."""
_UNTIL_END = timedelta(minutes=5)
_LOOKED_BACK = timedelta(days=1)
"""For this long before the window a case has the faults."""
_ONE_MOMENT = timedelta(minutes=2)
"""As for incidents: what follows within it is of the same fault."""
_A_RATE = 3
"""Least moments that show how often a fault comes."""
READ_TWICE = timedelta(seconds=20) + evidence_view.SLACK
"""The agent reports a part as gone or down after two readings without it at most (`agent.poll_s`, 10 s by default)."""
_WENT_ON = timedelta(seconds=5)
"""A job that is alive for so long after a part came back went on with it; a program takes seconds to end after its error."""
OUTLIVED = 0.5
"""Share of weight that a fault from before the attempt keeps if it was seen to end while the attempt ran, before the onset."""


def without_repaired(
    sightings: Sequence[evidence_view.CaseSighting], start_at: datetime
) -> list[evidence_view.CaseSighting]:
    """The sightings without the faults that were over when the attempt began: their part recovered, or their node or driver restarted."""
    begun = start_at + evidence_view.SLACK
    ends = [s for s in sightings if s.at <= begun and (s.signature.recovery or s.cause == "node_reboot")]
    if not ends:
        return list(sightings)
    return [
        s
        for s in sightings
        if s.when is not evidence_view.EventPhase.BEFORE_START or not any(_is_end(e, s) for e in ends)
    ]


def _is_end(later: evidence_view.CaseSighting, sighting: evidence_view.CaseSighting) -> bool:
    if later.at <= sighting.at or later.event.node != sighting.event.node:
        return False
    return later.cause == "node_reboot" or _is_over(later, sighting)


def remaining_share(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> float:
    """Share of weight that a fault keeps: OUTLIVED if it was there before the attempt began and over before the onset, else 1."""
    if sighting.when is not evidence_view.EventPhase.BEFORE_START:
        return 1.0
    since = [s for s in view.sightings if s.event.node == sighting.event.node and s.at > sighting.at]
    return OUTLIVED if any(s.at < view.onset_at and _is_over(s, sighting) for s in since) else 1.0


def is_outlived(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a lost GPU, if the job's log shows that it worked on, and names no such fault itself.

    After other faults the driver ends the one task that met them, and the others' steps go on.
    """
    after, signature = view.worked_after, sighting.signature
    lost = taxonomy.cause(signature.cause).until_reset and signature.scope is signatures.Scope.GPU
    # A check that lists the Xids of a lost GPU reports the same loss.
    lost = lost or (sighting.cause == "gpu_xid" and any(_same_gpu(sighting, s) for s in view.lost_gpus))
    if after is None or not lost or max(sighting.last_at, view.start_at) >= after:
        return False
    hints = (f.signature for f in view.findings if f.signature.role is findings.FindingRole.HINT)
    return not any(sign.supports(sighting.cause) for sign in hints)


def no_accident(
    view: evidence_view.EvidenceView,
    cause: str,
    node: str,
    convicting: Sequence[evidence_view.CaseSighting],
) -> float:
    """How likely it is that no fault of this cause would have come into the window by accident, from 1 down.

    The attempt's other nodes had such faults earlier, and it went on: at that rate, which grows with the number of nodes, more
    come without ending it. What came at one moment counts once, and fewer than three moments are no rate. No program survives a
    lethal fault; and what the job's own output names did not come by accident.
    """
    came = sorted(e.at for e in view.survived if e.node != node and signatures.of(e).cause == cause)
    moments = sum(n == 0 or at - came[n - 1] > _ONE_MOMENT for n, at in enumerate(came))
    if moments < _A_RATE or any(s.signature.lethality >= LETHAL for s in convicting):
        return 1.0
    if any(
        f.signature.role is findings.FindingRole.HINT and f.signature.supports(cause) for f in view.findings
    ):
        return 1.0
    before = min(view.window.start_at - view.start_at, _LOOKED_BACK)
    return math.exp(-moments * ((view.window.end_at - view.window.start_at) / before))


def _same_gpu(sighting: evidence_view.CaseSighting, other: evidence_view.CaseSighting) -> bool:
    return sighting.gpu is not None and (sighting.event.node, sighting.gpu) == (other.event.node, other.gpu)


def last_error(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """The error with which its output ends (`onset.last_error`); None if the job, by its log, worked until shortly before its end.

    The output may be two files, and the lines below an error are counted in its own.
    """
    if view.worked_after is not None and view.end_at - view.worked_after <= _UNTIL_END:
        return None
    return onset.last_error(f.event for f in view.findings)


def _is_over(later: evidence_view.CaseSighting, sighting: evidence_view.CaseSighting) -> bool:
    """True if `later` shows the end of the fault: its part recovered, or the driver of a lost GPU was loaded again."""
    return recovers(later, sighting) or (later.signature.recovery and _sets_up_gpus(later, sighting))


def recovers(later: evidence_view.CaseSighting, earlier: evidence_view.CaseSighting) -> bool:
    """True if `later` reports the end of the fault of `earlier`: of the same GPU, or of the same kind and part.

    A report that names no part counts for every part with this kind of fault.
    """
    if not later.signature.recovery or later.event.node != earlier.event.node:
        return False
    if later.gpu is not None and later.gpu == earlier.gpu:
        return True
    names = part_names(later), part_names(earlier)
    return later.event.kind == earlier.event.kind and (not all(names) or not names[0].isdisjoint(names[1]))


def _was_there_at_the_end(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a fault from before the end, or found by a reading so soon after it that the part was mostly gone before.

    Within Slurm's second of the end nobody knows which came first, unless the job's output names such a fault. No reading
    dates a fault that a line of the node's log dates to after the end.
    """
    end = view.end_at + evidence_view.SLACK
    if sighting.at <= view.end_at - evidence_view.SLACK:
        return True
    if sighting.at <= end and _is_named(view, sighting.cause):
        return True
    polled = sighting.event.source in vocabulary.POLLED_SOURCES
    if not polled or sighting.at > view.end_at + READ_TWICE:
        return False
    mine = part_names(sighting)
    return not any(
        s.cause == sighting.cause
        and s.event.node == sighting.event.node
        and s.event.source not in vocabulary.POLLED_SOURCES
        and not s.signature.recovery
        and not mine.isdisjoint(part_names(s))
        and end < s.at <= sighting.at
        for s in view.sightings
    )


def _is_named(view: evidence_view.EvidenceView, cause: str) -> bool:
    """True if an error in the job's output is one that this cause raises in its user: the job felt it."""
    felt = (findings.FindingRole.HINT, findings.FindingRole.PROXIMAL)
    return any(f.signature.role in felt and f.signature.supports(cause) for f in view.findings)


_NEARLY = 0.6
"""Share of weight of a part that worked again in the last seconds, if no error in the output is one of its users': other proof goes before."""


def saved(
    view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting, backs: Iterable[datetime]
) -> tuple[datetime | None, float]:
    """The first of these recoveries of the part by which the attempt may have outlived the fault (None if it had none), and the share of weight left without one.

    A job that is dead is saved by none, however soon it comes, and one that ends as the part comes back was dying: it must have gone
    on for as long as the part was away, or for `_WENT_ON`. Of a fault that was not there at the end, every recovery counts.
    """
    later = [t for t in backs if t >= sighting.last_at]
    if not _was_there_at_the_end(view, sighting):
        return min(later, default=None), 1.0
    died_at = _died_at(view, sighting.at)
    by = [t for t in later if t + min(_WENT_ON, t - sighting.last_at) <= died_at]
    if by:
        return min(by), 1.0
    nearly = any(view.end_at - _WENT_ON <= t <= view.end_at for t in later)
    return None, _NEARLY if nearly and not _is_named(view, sighting.cause) else 1.0


def _died_at(view: evidence_view.EvidenceView, since: datetime) -> datetime:
    """The time of the error that began the end, where the log dates it; else the end.

    Launchers take half a minute to end the other ranks. An error from before the fault (`since`) is none of its.
    """
    began = (
        findings.error_at(f.event)
        for f in view.findings
        if f.event.detail.get("first_cause") is True
        and not (f.event.detail.get("goes_on") or f.event.detail.get("went_on"))
    )
    return min([view.end_at, *(at for at in began if at is not None and at >= since)])


def part_names(sighting: evidence_view.CaseSighting) -> set[str]:
    """The part's names: kernel lines name a port's interface, readings its adapter, most of them its PCI function."""
    names = (sighting.gpu or sighting.device, (sighting.event.pci_bus_id or "").lower())
    return {n for n in names if n}


def _sets_up_gpus(later: evidence_view.CaseSighting, sighting: evidence_view.CaseSighting) -> bool:
    """True if the driver was loaded again after a GPU was lost."""
    return later.event.kind == "driver_load" and taxonomy.cause(sighting.cause).until_reset


LATE = 0.5
"""Share of weight that a fault keeps if it was first seen too late to have ended the attempt: too little for "possible"."""
FOUND = timedelta(seconds=60)
"""A part that is gone is found within this time, by the kernel at once or by the next reading."""
_CRASHING = frozenset({"main_memory", "cpu_mce"})
"""Causes that make a correct program crash, and that a reading may show only after the end."""


def came_too_late(
    view: evidence_view.EvidenceView, cause: str, convicting: Sequence[evidence_view.CaseSighting]
) -> bool:
    """True if all sightings came after the end, and either it explains itself (a crash, a surely own error) or they came much later.

    Otherwise a mount that hangs when the next job begins would explain this job's end. More than a minute later, any own error
    that the cause would not produce is enough, and a part that was read well meanwhile needs none.
    """
    if any(s.when is not evidence_view.EventPhase.AFTER_END for s in convicting):
        return False
    own = [f for f in view.findings if f.signature.role is findings.FindingRole.OWN]
    # A launcher may turn the signal into another exit code; Slurm records a script's 139 as signal 11 or as code 11.
    crashed = view.crashed or view.attempt.exit_code in evidence_view.CRASHES
    crashed = crashed or any(f.event.kind == "segfault" for f in own)
    if (crashed and cause not in _CRASHING) or any(findings.is_surely_own(f.event) for f in own):
        return True
    if min(s.at for s in convicting) <= view.end_at + FOUND:
        return False
    unlike = any(f.event.detail.get("first_cause") is True and not f.signature.supports(cause) for f in own)
    return unlike or all(_was_well_at_the_end(view, s) for s in convicting)


def _was_well_at_the_end(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True for a part that the node's agent still read without fault after the end of a job that did not hang.

    The processes of one that hung may hold the part for minutes, and the driver complains when they are gone.
    """
    hung = view.ranks_stalled or view.log_stall or view.output_stall or view.state in ("TIMEOUT", "NODE_FAIL")
    node = sighting.event.node
    by_agent = node not in view.case.by_log and node not in view.unwatched_nodes
    return not hung and by_agent and sighting.event.kind in finding.GPU_FAULTS | finding.LINK_FAULTS
