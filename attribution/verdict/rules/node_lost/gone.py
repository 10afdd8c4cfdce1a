"""A node that stopped answering or rebooted, without an earlier event that explains it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    phrases,
    signatures,
)
from probing_cluster.attribution.verdict.rules.node_lost import lived_on
from probing_cluster.core import digits, hostlist, records, vocabulary

LOST, REBOOT, POWER, SERVICES = node_faults.LOST, "node_reboot", "thermal_power", "system_services"
STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})
_TOO_HOT = "critical"
"""The kernel's report that a sensor reached the temperature at which the node is shut down."""
_REPORTED_BEFORE = timedelta(minutes=10)
"""Slurm gives up a node minutes after it went dark, and a server takes minutes to boot."""
_BOOTS = timedelta(seconds=120)
"""Least time that a server needs to shut down and boot."""
_LONGEST_SHUTDOWN_S = 86400.0
"""Longest credible shutdown: a larger number comes from a forged event."""
_JUST_BEFORE = timedelta(seconds=20)
"""An agent that reported so shortly before its node was given up shows no silence of the node."""
_CRASHED = 0.85
"""Weight if Slurm lost a node on which the job never ended: that explains the job's failure, but nobody saw it."""
_OVER = 0.6
"""Weight of a loss that Slurm reports of a job whose program had ended: possible."""
_SILENT_ONLY = 0.7
"""Weight of a loss of which only the agent's silence is known: less than likely."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for NODE_FAIL and for reboots while the attempt ran.

    After an orderly shutdown the domain is unknown: nothing broke, and who ordered it is not recorded.
    """
    for claim in _claims(view):
        ordered = any(e.code == vocabulary.AFTER_SHUTDOWN for e in claim.evidence)
        if ordered:
            yield claims.replace_claim(claim, domain=records.Domain.UNKNOWN)
        else:
            yield lived_on.answers_again(view, _explained(view, claim))


def _reports(
    view: evidence_view.EvidenceView, claim: claims.Claim, cause: str, kind: str
) -> list[records.HealthEvent]:
    """Events of this kind shortly before the claim, on its node; on all of the job's nodes if the lost one is unknown."""
    if claim.node is None and view.of(REBOOT):
        return []
    return [
        s.event
        for s in view.of(cause)
        if s.event.kind == kind
        and claim.node in (None, s.event.node)
        and claim.at - _REPORTED_BEFORE <= s.at <= claim.at
    ]


def _too_hot(view: evidence_view.EvidenceView, claim: claims.Claim) -> list[records.HealthEvent]:
    """The reports of the node's critical temperature, if nothing else happened to it since and nobody set it DOWN."""
    found = [e for e in _reports(view, claim, POWER, "thermal") if e.code == _TOO_HOT]
    mine = (POWER, LOST, REBOOT)
    since = [s for s in view.disturbances if found and s.at >= found[0].at and s.signature.cause not in mine]
    return [] if since or view.of("node_set_down") else found


def _explained(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """The claim that cooling, power or slurmd failed, if the node's log reports that shortly before it went away; else `claim`.

    A forged line cannot make a node go away.
    """
    stopped = claim.node not in view.case.returned
    if stopped and (reports := _too_hot(view, claim)):
        cause, words = POWER, "went away, and had reached its critical temperature"
    elif stopped and (reports := _reports(view, claim, POWER, "hardware_report")):
        cause, words = POWER, "went away, and the BMC had reported that power or cooling failed"
    elif claim.cause == LOST and (reports := _reports(view, claim, SERVICES, "slurmd")):
        cause, words = (
            SERVICES,
            "stopped answering Slurm: slurmd had crashed there, and the job may have run on",
        )
    else:
        return claim
    nodes = frozenset(e.node for e in reports)
    return claims.replace_claim(
        claim,
        cause=cause,
        node=next(iter(nodes)) if len(nodes) == 1 else None,
        nodes=nodes,
        domain=None,
        device=None,
        evidence=(*reports, *claim.evidence),
        cap=records.Confidence.LIKELY,
        n_sources=2,
        next_step="",
        sentence=f"{hostlist.compress(sorted(nodes))} {words}: {phrases.clean(reports[0].message)}",
    )


def _claims(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    boots = [
        s for s in view.of(REBOOT) if s.when is evidence_view.EventPhase.RUNNING and not s.after_own_action
    ]
    boots = [s for s in boots if s.at > view.start_at]
    yield from claims.collect(view, REBOOT, "node_lost", boots)
    if view.state in STATES:
        yield _lost(view)
    elif view.state == "REQUEUED":
        yield from _gone_by_the_requeue(view)
    elif view.state == "FAILED":
        crashed = list(_crashed(view))
        yield from crashed
        if not crashed:
            yield from _reported_by_srun(view)
        if len(view.attempt.nodes) > 1:
            yield from (c for c in _left_its_peers(view) if c.node not in {k.node for k in crashed})


def _gone_by_the_requeue(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for nodes that had gone away when the job was requeued, maybe for a fault of another node.

    An agent's silence alone, without Slurm's word, makes it possible at most.
    """
    signs = [s for s in node_faults.signs_of_loss(view) if s.event.kind in node_faults.SILENCES]
    signs = [s for s in signs if view.start_at < s.at <= view.end_at and not s.after_own_action]
    for node in sorted({s.event.node for s in signs}):
        mine = [s for s in signs if s.event.node == node]
        if not node_faults.outlived_its_loss(view, node) and not node_faults.ended_there(
            view, node, mine[0].event.observed_at
        ):
            by_slurm = any(s.event.kind != node_faults.AGENT_SILENT for s in mine)
            yield _gone_claim(view, LOST, mine[0], _CRASHED if by_slurm else _SILENT_ONLY, mine[0].at)


def _reported_by_srun(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """A claim if srun's line names the lost node: a step of a job that survives a lost node (--no-kill) ended there."""
    named = node_faults.named_by_srun(view)
    node = next((n for n in view.attempt.nodes if n in named), None)
    if node is None:
        return
    last_sign = view.case.watched.get(node)
    lived_on = (
        last_sign is not None
        and node not in view.case.by_log
        and last_sign > view.end_at + evidence_view.SLACK
    )
    yield claims.Claim(
        cause=LOST,
        weight=_CRASHED,
        at=view.end_at,
        rule="node_lost",
        node=node,
        evidence=tuple(f.event for f in view.findings if f.event.kind == "slurm_node_fail"),
        nodes=frozenset({node}),
        n_sources=1,
        cap=records.Confidence.POSSIBLE if lived_on else records.Confidence.LIKELY,
        # Slurm's report alone proves no broken part.
        domain=records.Domain.UNKNOWN,
        sentence=f"The job's output holds srun's message that {node} failed; {'its agent kept reporting' if lived_on else 'nothing else is known of a loss'}",
        next_step=f"See whether Slurm lost {node} then (`sacctmgr show event nodes={node}`); if not, look at what else the job's output says: any program can print that message.",
    )


def _left_its_peers(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for nodes that went away while the attempt ran: ranks elsewhere lost their peer and ended the job (FAILED).

    The node must have fallen silent by the end. It must also have rebooted, or peers must report a lost connection while
    every other node kept reporting. On agentless nodes a reboot just after the end is a hint: no server reboots within two
    minutes, so it was gone by the end. Unlike `_crashed`, this needs no Prolog; an Epilog excludes a loss in both.
    """
    peer_gone = any(f.signature is findings.named("peer_lost") for f in view.findings)
    boots = {s.event.node: s for s in reversed(view.of(REBOOT)) if _after(view, s)}
    silences = {s.event.node: s for s in reversed(view.of(LOST)) if s.event.kind == node_faults.AGENT_SILENT}
    for node in view.attempt.nodes if boots or silences else ():
        last = view.case.watched.get(node)
        silent = node not in view.case.by_log and last is not None and view.start_at < last
        silent = silent and last is not None and last <= view.end_at + evidence_view.SLACK
        found = boots.get(node) or silences.get(node)
        if found is not None and node_faults.ended_there(view, node, found.event.observed_at):
            continue  # it fell silent between two heartbeats, but after the job: its Epilog ran
        if silent and last is not None and node in boots:
            yield _gone_claim(view, REBOOT, boots[node], 0.9, last)
        elif (
            silent and last is not None and peer_gone and node in silences and view.unwatched_nodes == (node,)
        ):
            yield _gone_claim(view, LOST, silences[node], 0.82, last)
        elif node in view.case.by_log and node in boots and (peer_gone or _just_after(view, boots[node])):
            yield _gone_claim(view, REBOOT, boots[node], 0.6, view.end_at)


def _just_after(view: evidence_view.EvidenceView, boot: evidence_view.CaseSighting) -> bool:
    """True if the node came back so soon that it was gone by the end, and the program has no error of its own."""
    own = any(f.signature.role is findings.FindingRole.OWN for f in view.findings)
    return not own and boot.at <= view.end_at + _BOOTS


def _after(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    after = sighting.when is evidence_view.EventPhase.AFTER_END and not sighting.after_own_action
    return after and not _was_alive(view, sighting)


def _was_alive(view: evidence_view.EvidenceView, boot: evidence_view.CaseSighting) -> bool:
    """True if the node was shut down in order after the end: it was alive until then."""
    took_s = digits.number(boot.event.detail.get("shut_down_s"))
    if took_s is None or took_s > _LONGEST_SHUTDOWN_S:
        return False
    return boot.at - timedelta(seconds=took_s) > view.end_at + evidence_view.SLACK


def _gone_claim(
    view: evidence_view.EvidenceView,
    cause: str,
    sighting: evidence_view.CaseSighting,
    weight: float,
    at: datetime,
) -> claims.Claim:
    """The claim that the sighting's node went away at `at`; weaker beside an error of the program's own."""
    node = sighting.event.node
    return claims.Claim(
        cause=cause,
        weight=claims.weaken_by_own_error(weight, weight, view, cause, at),
        at=min(at, view.end_at),
        rule="node_lost",
        node=node,
        evidence=(sighting.event,),
        nodes=frozenset({node}),
        n_sources=1,
    )


def _lost(view: evidence_view.EvidenceView) -> claims.Claim:
    lost, restarted = node_faults.lost_nodes(view), _restarted(view)
    gone = lost or restarted
    node = next(iter(gone)) if len(gone) == 1 else None
    events = [s.event for s in node_faults.signs_of_loss(view) if s.event.node in gone]
    made = claims.Claim(
        cause=LOST,
        # A reboot that alone names the node is no proof: somebody may have rebooted a healthy one.
        weight=0.97 if events and node in lost else 0.9,
        # Slurm also gives up a node whose daemon or network failed, so its report alone proves no broken part. A missing
        # heartbeat proves none either, since the service may have stopped with it; an `agent_silent` event excludes that.
        domain=None if events else records.Domain.UNKNOWN,
        at=min((e.at for e in events), default=view.end_at),
        rule="node_lost",
        node=node,
        evidence=tuple(events),
        nodes=frozenset({node} if node else lost if events else ()),
        n_sources=1 + bool(events),
    )
    if before := node_faults.ended_before_loss(view):
        return claims.replace_claim(
            made,
            weight=_OVER,
            evidence=(before,),
            sentence=f"Slurm reported NODE_FAIL, but the agents of {view.node_list} kept reporting, and its log shows that the program had ended: {phrases.clean(before.message)}",
            next_step="See why the program ended. A slurmctld that was restarted just then does not know of the job's end (its log: `missing from batch node`)",
        )
    alive = [node] if node else [] if lost else view.attempt.nodes
    if alive and all(node_faults.outlived_its_loss(view, n) for n in alive):
        return lived_on.of_living_nodes(made, alive)
    if alive and all(_may_live(view, n, events) for n in alive):
        which = node or "a node of the job"
        return claims.replace_claim(
            made,
            sentence=f"Slurm gave up {which} (NODE_FAIL), whose agent had reported until then: whether the node still answers is not known yet",
            next_step=f"Look again in a minute. If {node or 'every node'} answers, see who set it DOWN and why (`scontrol show node {view.node_list}`); if not, look at its console.",
        )
    if node and view.state == "NODE_FAIL" and not events and view.case.watched.get(node) is None:
        return claims.replace_claim(
            made,
            sentence=f"{node} was lost to Slurm (NODE_FAIL), and nobody watched it: it stopped answering, or somebody set it DOWN",
            next_step=f"See whether somebody set {node} DOWN, and why (`sacctmgr show event nodes={node}`); if not, look at its console and its baseboard's event log before it takes jobs again.",
        )
    if node and view.hung_since is not None and node_faults.loss_after_hang(view):
        return claims.replace_claim(
            made,
            weight=min(made.weight, claims.ANSWERED),
            sentence=f"Hung since {phrases.since(view.hung_since, view.end_at)} before the end; then {node} stopped answering Slurm",
            next_step=f"Find out what it waited for before it is submitted again. {made.info.next_step.format(node=node)}",
        )
    if node or not events:
        return made
    names = hostlist.compress(sorted(gone))
    return claims.replace_claim(
        made,
        sentence=f"{names} stopped answering Slurm"
        if lost
        else f"A node of the job stopped answering Slurm; {names} restarted within the hour",
        next_step=f"Look for a part that {names} share: power, cooling, a switch; their baseboards' event logs show when each went down",
    )


def _may_live(view: evidence_view.EvidenceView, node: str, events: list[records.HealthEvent]) -> bool:
    """True if the node's agent reported until the end and neither its silence nor a later report is known."""
    if view.state != "NODE_FAIL" or node in view.case.by_log or events:
        return False
    last_sign = view.case.watched.get(node)
    return last_sign is not None and last_sign >= view.end_at - _JUST_BEFORE


def _restarted(view: evidence_view.EvidenceView) -> frozenset[str]:
    """Agentless nodes that rebooted after the end, within the time for a boot; none if another node has a fault of its own.

    One such node is the lost one. Several may all have been lost, as when a rack loses its power.
    """
    found = {
        s.event.node
        for s in view.of(REBOOT)
        if _after(view, s) and not s.of_later_attempt and s.event.node in view.case.by_log
    }
    faulty = {s.event.node for s in view.disturbances if s.signature.role is signatures.Role.ROOT}
    return frozenset(found) if faulty <= found else frozenset()


def _crashed(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for nodes that were gone before the job had ended on them: its other ranks noticed and ended it (FAILED).

    Slurm reports the node only later. If the agent reported after the end, a reboot proves nothing: somebody may have
    rebooted the node because of a hanging Epilog.
    """
    there = {s.event.node for s in view.of(LOST, REBOOT)}
    for node in view.attempt.nodes if there else ():
        if node not in there:
            continue
        down = [s for s in view.of(LOST) if s.event.node == node and s.event.kind == "node_down"]
        # A node that Slurm gave up before the job began there had come back.
        down = [
            s
            for s in down
            if s.at <= view.end_at + evidence_view.SLACK and s.event.observed_at > view.start_at
        ]
        booted = [
            s
            for s in view.of(REBOOT)
            if s.event.node == node and not s.after_own_action and not s.of_later_attempt
        ]
        booted = [
            s
            for s in booted
            if s.when is evidence_view.EventPhase.AFTER_END
            and _has_prolog(view, node)
            and not _was_alive(view, s)
        ]
        booted = [s for s in booted if not node_faults.lived_on(view, node, s.at)]
        gone = [s for s in (*down, *booted) if not node_faults.ended_there(view, node, s.event.observed_at)]
        if not gone:
            continue
        silent = [
            s
            for s in view.of(LOST)
            if s.event.node == node and s not in gone and s.at <= view.end_at + node_faults.STILL_ALIVE
        ]
        at = min(view.end_at, *(s.at for s in gone))
        weight = claims.weaken_by_own_error(
            claims.raise_by_job_side(_CRASHED, view, LOST), _CRASHED, view, LOST, at
        )
        yield claims.Claim(
            cause=LOST if down else REBOOT,
            weight=weight,
            at=at,
            rule="node_lost",
            node=node,
            evidence=tuple(s.event for s in (*gone, *silent)),
            nodes=frozenset({node}),
            n_sources=1,
            cap=records.Confidence.LIKELY,
        )


def _has_prolog(view: evidence_view.EvidenceView, node: str) -> bool:
    return any(a.node == node and a.job_id == view.attempt.job_id for a in view.case.allocations)
