"""What a job's nodes showed: faults that may have stopped its gang, waits, errors that no table lists, and losses of nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution.gang import finding, snapshots
from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    gpus,
    onset,
    phrases,
    recovery,
    signatures,
    taxonomy,
    view_builder,
    window,
)
from probing_cluster.core import digits, errors, hostlist, records, vocabulary
from probing_cluster.core.catalogue import unlisted as unlisted_codes

LOOK_BACK = timedelta(minutes=10)
"""How long before a gang's last progress a fault may lie: a mount may hang for a while before somebody uses it."""
OUTLIVED = timedelta(seconds=60)
"""Ranks that made progress for longer than this after a fault outlived it; a program runs less far ahead of its GPU."""

LINK_FOUND, FOUND = timedelta(seconds=60), timedelta(minutes=5)
"""How long after the gang needed a part the fault that stopped it may first be reported: readings find a link that is down within seconds,
a driver or a file system reports a missing answer only after its own timeouts. The gang may need it only at the end of its longest step."""

LOST = "node_lost"
AGENT_SILENT = "agent_silent"
_SRUN_LINES = 16
"""So many different lists of srun's lost nodes are read."""
STILL_ALIVE = timedelta(seconds=60)
"""An agent that reported so long after its node was given up shows that the node lived on."""
NODE_DOWN = "node_down"
SILENCES = frozenset({AGENT_SILENT, NODE_DOWN})
"""Kinds of events that carry the time of a node's last sign."""

_HELD = frozenset({"cpu_mce", "main_memory", "nvswitch", "pcie"})
"""Causes, beside those of GPUs, that the kernel may report only when the processes are killed."""

_AT_ONCE = finding.GPU_FAULTS | finding.LINK_FAULTS
"""Faults that stop a job at once or not at all."""


def faults_of_running(
    events: Iterable[records.HealthEvent],
    attempt: records.JobAttempt,
    allocations: Sequence[records.JobAllocation],
    onset_at: datetime,
    step: timedelta = timedelta(),
) -> dict[str, set[str]]:
    """Node to the kinds of its faults from trusted sources, for a running gang; `allocations` are its job's.

    A GPU that the gang may not hold is left out: it may be a neighbour's. `step` is the gang's longest.
    """
    every = list(events)
    known = gpus.learn(every, allocations)
    held = {a.node: a for a in allocations}
    found: dict[str, set[str]] = {}
    own = frozenset(attempt.nodes)
    for event in every:
        signature = signatures.of(event)
        if event.node not in own or event.source in vocabulary.JOB_SIDE_SOURCES:
            continue
        if signature.role is not signatures.Role.ROOT or _outlived(event.kind, event.at, onset_at):
            continue
        if _came_later(event.kind, event.at, onset_at + step):
            continue
        if view_builder.means_gpu(event, signature):
            names = known.get(event.node, gpus.GpuMap())
            hold = gpus.hold_of_gpu(event, attempt, names, held.get(event.node), alone=False)
            if hold is not gpus.PartCertainty.HELD:
                continue
        found.setdefault(event.node, set()).add(event.kind)
    return found


def faults_of_ended(view: evidence_view.EvidenceView, onset_at: datetime) -> Mapping[str, set[str]]:
    """The same for an ended attempt, from its sightings; `onset_at` is the onset that its ranks report.

    A fault that can convict nobody counts as little here: a later job's, or one that came with the node's repair.
    """
    began = min(onset_at, view.onset_at)
    found: dict[str, set[str]] = {}
    for s in view.sightings:
        held = s.signature.role is signatures.Role.ROOT and s.hold is not gpus.PartCertainty.MAYBE
        kind = s.event.kind
        if (
            held
            and claims.weigh(s) > 0
            and not began_after_the_end(view, s.cause, s.at)
            and not _outlived(kind, s.at, began)
            and (
                (noticed_at_the_end(view, s.cause, s.at) and claims.weigh(s) >= claims.POSSIBLE)
                or not _came_later(kind, s.at, onset_at + longest_step(view))
            )
        ):
            found.setdefault(s.event.node, set()).add(kind)
    return found


def noticed_at_the_end(view: evidence_view.EvidenceView, cause: str, at: datetime) -> bool:
    """True for a fault of a GPU or processor that showed when the processes of stalled ranks were killed: only then its driver noticed."""
    since_end = at - view.end_at
    return view.ranks_stalled and _is_held(cause) and -evidence_view.SLACK <= since_end <= recovery.FOUND


def began_after_the_end(view: evidence_view.EvidenceView, cause: str, at: datetime) -> bool:
    """True for a fault of another part that no two readings begun before the end may have found, if ranks were reported as stalled."""
    return view.ranks_stalled and not _is_held(cause) and at > view.end_at + recovery.READ_TWICE


def is_unexplained(view: evidence_view.EvidenceView) -> bool:
    """True if no GPU or processor that the attempt held showed a fault since its ranks last made progress."""
    return not any(
        _is_held(s.cause)
        and s.hold is not gpus.PartCertainty.MAYBE
        and s.signature.role is signatures.Role.ROOT
        and claims.weigh(s) > 0
        and not _outlived(s.event.kind, s.at, view.onset_at)
        for s in view.sightings
    )


def _is_held(cause: str) -> bool:
    """True for a part that processes hold until they are killed."""
    return taxonomy.cause(cause).is_of_gpu or cause in _HELD


def longest_step(view: evidence_view.EvidenceView) -> timedelta:
    """How long its stalled ranks may have computed after their last step; zero if the probe reported no stall of them."""
    return snapshots.longest_step(f.event for f in view.findings) if view.ranks_stalled else timedelta()


def loss_after_hang(view: evidence_view.EvidenceView) -> evidence_view.CaseSighting | None:
    """The first silence of a node that Slurm gave up, if the ranks were reported as stalled before it and made no step since.

    What the ranks do from then on is the loss's doing; why they stood still is not.
    """
    if not window.given_up(view.attempt) or not view.ranks_stalled:
        return None
    silent = (s for s in view.of(LOST) if s.event.kind in SILENCES)
    first = next((s for s in silent if view.start_at < s.at <= view.end_at + evidence_view.SLACK), None)
    step_at = view.case.last_progress_at or view.start_at
    stalls = [f.event.at for f in view.findings if f.event.kind == snapshots.STALL]
    return first if first is not None and any(step_at <= at <= first.at for at in stalls) else None


def silent_mounts(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """File systems that had not answered for a twentieth of its time when it ended, oldest first: none that its own steps outlived.

    One that answered within `onset.BRIEF`, be it after the end, cost the job no more than that.
    """
    silent = {e.event_id for e in view.active_at_the_end}
    least = (view.end_at - view.start_at) / 20
    recoveries = [s for s in view.sightings if s.signature.recovery]

    def was_brief(sighting: evidence_view.CaseSighting) -> bool:
        later = (r for r in recoveries if timedelta() <= r.at - sighting.at < onset.BRIEF)
        return any(recovery.recovers(r, sighting) for r in later)

    long = (s for s in view.disturbances if s.event.event_id in silent and view.end_at - s.at >= least)
    waits = [s.event for s in long if onset.makes_calls_wait(s.event) and not was_brief(s)]
    return _not_outlived_by_steps(view, waits)


def blocked_tasks(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """The kernel's reports, while it ran, that a task of its nodes waited for minutes, oldest first: none that its own steps outlived."""
    during = (s.event for s in view.disturbances if s.at <= view.end_at)
    return _not_outlived_by_steps(view, [e for e in during if e.kind == "hung_task"])


def _not_outlived_by_steps(
    view: evidence_view.EvidenceView, waits: list[records.HealthEvent]
) -> list[records.HealthEvent]:
    step_at = view.case.last_progress_at
    return waits if step_at is None else [e for e in waits if e.at >= step_at]


def unlisted(view: evidence_view.EvidenceView) -> list[evidence_view.CaseSighting]:
    """Errors of GPUs that it may have held, or of their switches, while it ran, that no vendor's table lists: nobody knows whether they are faults."""
    if view.attempt.n_gpus == 0:
        return []
    return [
        s
        for s in view.sightings
        if unlisted_codes.is_unlisted(s.event.kind, s.event.code)
        and s.signature.role is signatures.Role.CONTEXT
        and s.when is evidence_view.EventPhase.RUNNING
        and not (s.signature.recovery or s.after_own_action or unlisted_codes.is_graded(s.event.detail))
        and (s.gpu is not None or s.signature.scope is signatures.Scope.NODE)
    ]


def of_unlisted(view: evidence_view.EvidenceView) -> str:
    """`GPU 2 of n2 reported Xid 999, which no table we know lists`, of the last such error; empty for none."""
    found = unlisted(view)
    if not found:
        return ""
    where = phrases.device_of_node(found[-1].device, found[-1].event.node)
    return f"{where} reported {phrases.what(found[-1].event)}, which no table we know lists"


def shown_before_loss(view: evidence_view.EvidenceView, node: str) -> evidence_view.CaseSighting | None:
    """The last thing that a lost node showed before the job's end; None if nothing of it is known."""
    there = [
        s
        for s in view.sightings
        if s.event.node == node
        and s.at <= view.end_at
        and s.cause not in (LOST, "node_reboot")
        and not s.signature.recovery
        # The kernel repeats an old record every day.
        and s.event.code != "fs_recorded"
        # Of what came before the start, only a fault that lasts was there when the node went away.
        and (s.when is not evidence_view.EventPhase.BEFORE_START or claims.weigh(s))
    ]
    return there[-1] if there else None


def signs_of_loss(view: evidence_view.EvidenceView) -> list[evidence_view.CaseSighting]:
    """Silences that had begun when Slurm gave the node up, and reboots, oldest first; none of a later loss.

    A silence of the agent that ended was a network problem or a suspended machine: no node was lost.
    """
    sightings = [
        s
        for s in (*view.of(LOST), *view.of("node_reboot"))
        if s.when is not evidence_view.EventPhase.BEFORE_START and not s.of_later_attempt
    ]
    return [
        s
        for s in sightings
        if s.event.kind not in SILENCES
        or (
            s.at <= view.end_at + STILL_ALIVE
            and (s.event.kind != AGENT_SILENT or fell_silent(view, s.event.node))
        )
    ]


def lost_nodes(view: evidence_view.EvidenceView) -> frozenset[str]:
    """The nodes whose loss ended the attempt: named by Slurm, else those that fell silent, else those that srun names; empty if unknown."""
    nodes = view.attempt.nodes
    if view.attempt.failed_node or len(nodes) == 1:
        return frozenset({view.attempt.failed_node or nodes[0]})
    srun = named_by_srun(view)
    signs = [s for s in signs_of_loss(view) if not outlived_its_loss(view, s.event.node)]
    # What fell silent only after the end may be the next attempt's loss.
    signs = [s for s in signs if s.at <= view.end_at + evidence_view.SLACK] or signs
    unreached = frozenset(s.event.node for s in signs if s.event.kind == NODE_DOWN)
    if unreached:
        return unreached & srun or unreached
    # The end of a log says nothing about its node: a healthy kernel writes nothing for hours.
    agents = {n for n in nodes if n not in view.case.by_log and view.case.watched.get(n) is not None}
    silent = frozenset(s.event.node for s in signs if s.event.kind == AGENT_SILENT).union(view.unheard_nodes)
    # Where srun names a node that was not silent, or every agent was silent, the silence may be the agents' own.
    if silent and (srun or (len(agents) > 1 and silent >= agents)):
        return silent & srun
    return silent or srun


def named_by_srun(view: evidence_view.EvidenceView) -> frozenset[str]:
    """The attempt's nodes that srun's lines name as lost: a host or a Slurm hostlist a line."""
    hosts = (f.event.detail.get("host") for f in view.findings if f.event.kind == "slurm_node_fail")
    # Any program can print such lines, each of a list that is long when expanded.
    different = list(dict.fromkeys(h for h in hosts if isinstance(h, str)))[:_SRUN_LINES]
    named: set[str] = set()
    for host in different:
        with contextlib.suppress(errors.MalformedInput):
            named.update(hostlist.expand(host))
    return frozenset(view.attempt.nodes) & named


def outlived_its_loss(view: evidence_view.EvidenceView, node: str) -> bool:
    """True if the agent that ran when Slurm gave the node up reported later."""
    last_sign = None if node in view.case.by_log else view.case.watched.get(node)
    return last_sign is not None and last_sign > view.end_at + STILL_ALIVE


def ended_before_loss(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """The line of the log that shows that the program had ended when Slurm reported NODE_FAIL; None where it ran on or a node may be lost.

    A slurmctld that is restarted just after a job's end may not know of it, and gives up the job that it does not find.
    A node that is set DOWN, or whose slurmd stopped, is named by srun or slurmstepd in the log.
    """
    by_agents = view.attempt.nodes and not set(view.attempt.nodes) & view.case.by_log
    gone = view.of(LOST, "node_reboot", "node_set_down")
    during = [s for s in gone if view.start_at < s.at <= view.end_at + STILL_ALIVE]
    if view.state != "NODE_FAIL" or not by_agents or view.unwatched_nodes or during:
        return None
    if any(f.event.kind == "slurm_node_fail" for f in view.findings):
        return None
    ends = (f.event for f in view.findings if f.event.source == "joblog" and _ends_the_program(f))
    return next(ends, None)


def _ends_the_program(found: evidence_view.CaseFinding) -> bool:
    """True for the error that began the end, if the program did not go on, and for srun's line on a task that no signal ended."""
    detail = found.event.detail
    if found.event.kind == "task_exit":
        code = digits.index(detail.get("exit_code")) or 0
        return 0 < code < vocabulary.BY_SIGNAL
    own = found.signature.role is findings.FindingRole.OWN and detail.get("first_cause") is True
    return own and not (detail.get("goes_on") is True or detail.get("went_on"))


def lived_on(view: evidence_view.EvidenceView, node: str, booted_at: datetime) -> bool:
    """True if the node's agent reported between the end and that boot.

    A silence of under a minute leaves no gap in `watched`, so a boot that soon after the end cannot be judged.
    """
    last = view.case.watched.get(node)
    beat_after_end = (
        last is not None and node not in view.case.by_log and last > view.end_at + evidence_view.SLACK
    )
    return beat_after_end and booted_at > view.end_at + STILL_ALIVE


def ended_there(view: evidence_view.EvidenceView, node: str, before: datetime) -> bool:
    """True if the job's Epilog ran on the node before it was found gone: the node outlived the job."""
    return any(
        a.released_at is not None and view.start_at <= a.released_at < before
        for a in view.case.allocations
        if a.node == node and a.job_id == view.attempt.job_id
    )


def fell_silent(view: evidence_view.EvidenceView, node: str) -> bool:
    """True if the node had an agent that did not report after Slurm gave the node up."""
    last = view.case.watched.get(node)
    return last is not None and last <= view.end_at + STILL_ALIVE


def _outlived(kind: str, at: datetime, onset_at: datetime) -> bool:
    return kind in _AT_ONCE and at < onset_at - OUTLIVED


def _came_later(kind: str, at: datetime, needed_at: datetime) -> bool:
    return at > needed_at + (LINK_FOUND if kind in finding.LINK_FAULTS else FOUND)
