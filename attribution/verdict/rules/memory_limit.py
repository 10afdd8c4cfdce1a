"""Out of memory: the host's (Slurm's or the kernel's kill) and the GPU's (the program's own error)."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.verdict import claims, evidence_view, findings, gpus
from probing_cluster.core import records

HOST, GPU = "oom_host", "oom_gpu"
_KILLED = 9
_BARE = "oom_kill_suspected"
"""A shell's or Slurm's word "Killed", which names no reason."""
_DAEMONS = frozenset({"slurmd", "munged"})
"""Without these a node does not answer Slurm."""
_WHOLE_NODE = "ran out of main memory as a whole, and the kernel chose a process of the job; other jobs ran there as well"
_USAGE = 2
"""The exit code of a command line that a program refused: nothing was killed."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """The state says it; a kernel line or the log say it for a job that ended FAILED."""
    sightings = _in_time([s for s in view.of(HOST) if not s.ours])
    if view.state == "OUT_OF_MEMORY":
        mine = [
            s
            for s in sightings
            if s.hold is not gpus.PartCertainty.NOT and s.when is not evidence_view.EventPhase.BEFORE_START
        ]
        node = mine[0].event.node if mine else None
        if node is None and len(view.attempt.nodes) == 1:
            node = view.attempt.nodes[0]
        yield claims.Claim(
            cause=HOST,
            weight=0.98,
            at=min((s.at for s in mine), default=view.end_at),
            rule="memory_limit",
            node=node,
            evidence=tuple(s.event for s in mine) + _job_side_events(view, HOST),
            n_sources=1 + bool(mine),
            # Slurm counts the kills of the job's own group, and the kernel names the group: a fault of a GPU makes neither.
            proven=any(s.event.job_id == view.attempt.job_id and s.event.code != "global" for s in mine),
        )
    else:
        yield from _took_the_daemon(view, sightings)
        for claim in claims.collect(view, HOST, "memory_limit", sightings, _killed(view)):
            whole = any(_whole_node(view, s) for s in sightings if s.event in claim.evidence)
            yield claims.changed(claim, words=_WHOLE_NODE) if whole else claim
        yield from _killed_by_somebody(view, sightings)
    yield from claims.hints(view, GPU, "memory_limit", findings.FindingRole.OWN)


def _killed_by_somebody(
    view: evidence_view.EvidenceView, sightings: list[evidence_view.CaseSighting]
) -> Iterable[claims.Claim]:
    """The job's own side tells of a kill: most often for memory, but not where the kernel was watched and killed nothing."""
    for claim in claims.hints(view, HOST, "memory_limit", findings.FindingRole.OWN):
        bare = all(e.kind == _BARE for e in claim.evidence)
        if bare and view.fully_watched and not sightings:
            words = f"{claim.words} (the kernel killed nothing for want of memory)"
            claim = claims.changed(claim, cause="rank_killed", words=words)
        yield claim


def _took_the_daemon(
    view: evidence_view.EvidenceView, sightings: list[evidence_view.CaseSighting]
) -> Iterable[claims.Claim]:
    """The kernel killed Slurm's own daemon for want of memory: that is why Slurm gave the node up."""
    if view.state not in ("NODE_FAIL", "BOOT_FAIL"):
        return
    for s in sightings:
        if s.event.process in _DAEMONS and s.when is evidence_view.EventPhase.RUNNING:
            yield claims.Claim(
                cause="system_services",
                weight=0.9,
                at=s.at,
                rule="memory_limit",
                node=s.event.node,
                device=s.event.process,
                evidence=(s.event,),
                nodes=frozenset({s.event.node}),
                n_sources=1,
                words="was killed by the kernel: the node ran out of main memory",
                explains=frozenset({"node_lost", "node_reboot"}),
            )


def _in_time(sightings: list[evidence_view.CaseSighting]) -> list[evidence_view.CaseSighting]:
    """Without the kills of after the end, which are another job's; all of them where no other is known (a clock that is off)."""
    ended = evidence_view.EventPhase.AFTER_END
    return [s for s in sightings if s.when is not ended] or sightings


def _killed(view: evidence_view.EvidenceView) -> claims.Adjust:
    """A job of which a process died by SIGKILL just when the kernel killed one for memory."""
    attempt = view.attempt
    # Slurm itself takes 128 off a script's exit code: 137 is recorded as 9:0.
    sigkill = attempt.exit_signal == _KILLED or attempt.exit_code in (_KILLED, 128 + _KILLED)
    reported = any(f.signature.cause == HOST for f in view.findings)

    def adjust(sighting: evidence_view.CaseSighting, weight: float) -> float:
        if sighting.when is not evidence_view.EventPhase.RUNNING:
            return weight * 0.5
        if sighting.event.job_id == attempt.job_id:
            return 0.9 if _whole_node(view, sighting) else 0.97
        if attempt.exit_code == _USAGE and not sigkill and not reported:
            return weight * 0.5
        return (
            max(weight, 0.9)
            if weight and (sigkill or reported) and sighting.hold is gpus.PartCertainty.HELD
            else weight * 0.7
        )

    return adjust


def _whole_node(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """Whether the memory of a whole node ran out that other jobs ran on as well: whose doing it was, the choice of a victim does not say."""
    return sighting.event.code == "global" and any(
        since <= sighting.at and (until is None or sighting.at <= until)
        for since, until in view.case.shared.get(sighting.event.node, ())
    )


def _job_side_events(view: evidence_view.EvidenceView, cause: str) -> tuple[records.HealthEvent, ...]:
    return tuple(f.event for f in view.findings if f.signature.cause == cause)
