"""Out of memory: on the host (Slurm's or the kernel's kill) and on the GPU (the program's own error)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    gpus,
    phrases,
)
from probing_cluster.core import records, vocabulary

HOST, GPU = "oom_host", "oom_gpu"
_KILLED = 9
_REFUSED = "host_memory_error"
_OF_KERNEL = "host_oom_kill"
_NOT_GIVEN = "The program asked for more main memory than it could get, and ended: {words}"
_OWN_HEAP = "The program used up {limit}, and ended: {words}"
_REFUSED_STEP = "See how much it asked for at once (a wrong size?), and its limits: `ulimit -v` in the job, and --mem. Nothing was killed"
_MANAGED = (
    "The framework that runs the job's processes (Ray, Dask, YARN) ended one at its own memory limit: {words}"
)
_MANAGED_STEP = "Raise the framework's limit (Dask's memory_limit, Ray's RAY_memory_usage_threshold, YARN's memoryOverhead) or use fewer workers; the kernel killed nothing"
_DAEMONS = frozenset({"slurmd", "munged"})
"""A node without these daemons does not answer Slurm."""
_SUSPECTED = "a process of the job was killed (SIGKILL); the usual reason is the OOM killer, but no evidence here confirms it; its log says: {words}"
_WHOLE_NODE = "{node} ran out of main memory as a whole, and the kernel killed a process of the job; other jobs ran there as well"
_ANOTHERS = (
    "{node} ran out of main memory as a whole; the kernel killed a process that was not the job's ({process})"
)
_OWN_LIMIT = (
    "the kernel of {node} killed {process} at the memory limit of a cgroup that is not the job's ({group})"
)
_OTHER_LIMIT = "See whether that group is a container of the job, and raise its own limit then; --mem does not bound it, and a group of other processes has not ended the job"
_WHAT_FILLED = "Find what filled the node: a job without a memory limit, or a process outside of jobs; see its kernel's list of processes at that minute"
_HELD = "the job found its GPU full: {holder} held {held:.1f} of its {gpu:.1f} GiB"
_WHOSE = "Find out whose process that is (nvidia-smi on the node): a leftover one, or another rank of the job on the same GPU"
_TIMEOUT_KILLED = re.compile(
    r"\bKilled\s+(?:/\S{0,80}/)?timeout\s(?:.{0,80}\s)?(?:(?:-s ?|--signal[= ])(?:SIG)?(?:KILL|9)|(?:-k ?|--kill-after[= ])\d\S*)\s"
)
"""The shell's message about a timeout(1) that kills its command with SIGKILL, and itself with it."""
_MORE_TIME = "Allow the command more time, or find out why it takes that long"
_USAGE = 2
"""Exit code of a refused command line: nothing was killed."""


_OWN_GROUPS = ("slurm", "/job_")
"""Parts of the names of jobs' cgroups."""
CONTAINERS = re.compile(r"docker|containerd|crio|libpod|podman|apptainer|singularity|user\.slice|kubepods")
"""cgroups that a job's own process may have been moved to."""
_SERVICES = re.compile(r"(?:^|/)(?:system\.slice|init\.scope)(?:/|$)")
"""systemd's groups of services. Of any other group (`/`, `/lxc/…`, another batch system's) a process may be the job's own."""


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims from the state OUT_OF_MEMORY, else from a kernel line or the job's log."""
    sightings = _in_time([s for s in memory_kills(view) if not s.after_own_action])
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
            # Slurm counts kills in the job's own group, and the kernel names that group: a GPU fault causes neither.
            proven=any(s.event.job_id == view.attempt.job_id and s.event.code != "global" for s in mine),
        )
    else:
        yield from _killed_daemon(view)
        for claim in claims.collect(view, HOST, "memory_limit", sightings, _killed(view)):
            yield _of_whole_node(view, claim, [s for s in sightings if s.event in claim.evidence])
        yield from _killed_by_somebody(view, sightings)
    for claim in claims.hints(view, GPU, "memory_limit", findings.FindingRole.OWN):
        if claim.evidence[0] in lines_of_other_jobs(view):
            continue
        yield claims.replace_claim(
            claim, cap=claims.less_confident(claim.cap, _gpu_memory_confidence(view, claim.evidence[0]))
        )
    yield from _held_by_others(view)


def _gpu_memory_confidence(
    view: evidence_view.EvidenceView, first: records.HealthEvent
) -> records.Confidence:
    """How surely exhausted GPU memory ended the job: a job without GPUs, or one that went on after the error, has only its text."""
    if view.attempt.n_gpus == 0 or first.detail.get("goes_on") is True:
        return records.Confidence.POSSIBLE
    by_python = view.attempt.exit_code in (None, 1) and not view.signal
    return records.Confidence.CERTAIN if by_python or view.state != "FAILED" else records.Confidence.LIKELY


def lines_of_other_jobs(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """Lines on a full GPU in the log of a job without GPUs that printed on, or in front of which no node of it stands: most often another job's."""
    if view.attempt.n_gpus != 0:
        return []
    full = (f.event for f in view.findings if f.signature.cause == GPU)
    return [e for e in full if e.detail.get("went_on") or _of_another_host(view, e.detail.get("host"))]


def quotation(view: evidence_view.EvidenceView, event: records.HealthEvent) -> str:
    """The line of a finding as a verdict quotes it: with its label where that shows that another job or container printed it."""
    host = event.detail.get("host")
    is_foreign = event in lines_of_other_jobs(view) and _of_another_host(view, host)
    return f"{host}: {event.message}" if is_foreign else event.message


def _of_another_host(view: evidence_view.EvidenceView, host: object) -> bool:
    """True for a label in front of a line that is none of the job's nodes, such as the name of another job's output file."""
    return isinstance(host, str) and not {host, host.partition(".")[0]} & set(view.attempt.nodes)


def _killed_by_somebody(
    view: evidence_view.EvidenceView, sightings: list[evidence_view.CaseSighting]
) -> Iterable[claims.Claim]:
    """Claims from the job's side: the kill was usually for memory, but not if the watched kernel killed nothing."""
    made = claims.hints(view, HOST, "memory_limit", findings.FindingRole.OWN)
    no_reason = all(e.kind in findings.BARE_KILLS for c in made for e in c.evidence)
    if no_reason and (made or view.signal == _KILLED) and (kills := reported_kills(view)):
        # The log's first error is an exception that the program caught (an uncaught one ends Python with 1), or a kill without a reason.
        made = [claims.of_findings(view, kills, HOST, "memory_limit")]
    for claim in made:
        bare = all(e.kind in findings.BARE_KILLS for e in claim.evidence)
        if all(e.kind == _REFUSED for e in claim.evidence):
            limit = findings.own_limit(claim.words)
            words = (_OWN_HEAP if limit else _NOT_GIVEN).format(words=phrases.clean(claim.words), limit=limit)
            step = findings.advice(claim.words) or _REFUSED_STEP
            claim = claims.replace_claim(claim, sentence=words, next_step=step)
        managed = any(e.detail.get("retried") for e in claim.evidence)
        if managed and not sightings:
            words = _MANAGED.format(words=phrases.clean(claim.words))
            claim = claims.replace_claim(claim, sentence=words, next_step=_MANAGED_STEP)
        elif all(e.kind == _OF_KERNEL for e in claim.evidence) and not sightings and view.fully_watched:
            # The job's log quotes a kernel line that its node's kernel did not write: copied from elsewhere, or from earlier.
            claim = claims.replace_claim(claim, weight=min(claim.weight, claims.POSSIBLE))
        if bare and not sightings and _TIMEOUT_KILLED.search(claim.words):
            words = f"The script's own timeout(1) killed the command when its time was up: {phrases.clean(claim.words)}"
            claim = claims.replace_claim(
                claim, cause="user_error", weight=claims.LIKELY, sentence=words, next_step=_MORE_TIME
            )
        elif bare and not sightings and (view.fully_watched or _logs_go_on(view)):
            words = (
                f"the kernel killed nothing for lack of memory; its log says: {phrases.clean(claim.words)}"
            )
            claim = claims.replace_claim(claim, cause="rank_killed", words=words)
        elif bare and not sightings and _logs_at_hand(view):
            words = f"the available kernel logs show no kill for lack of memory; its log says: {phrases.clean(claim.words)}"
            claim = claims.replace_claim(
                claim, cause="rank_killed", domain=records.Domain.UNKNOWN, words=words
            )
        elif bare:
            words = _SUSPECTED.format(words=" ".join(claim.words.split())[:160].rstrip("."))
            claim = claims.replace_claim(claim, sentence=f"{words}{_last_line(view, claim)}")
        yield claim


def _last_line(view: evidence_view.EvidenceView, claim: claims.Claim) -> str:
    """Clause with the last line of a job of one node that printed on after the kill and ended with a code of its own."""
    last = phrases.clean(str(claim.evidence[0].detail.get("went_on") or ""))
    own_code = len(view.attempt.nodes) == 1 and view.attempt.exit_code and not _was_killed(view)
    return f"; the job went on, and its last line is: {last}" if last and own_code else ""


def reported_kills(view: evidence_view.EvidenceView) -> list[evidence_view.CaseFinding]:
    """Findings in which Slurm or the kernel reports a memory kill, in the job's own log."""
    every = (*view.findings, *view.further_errors)
    return [
        f for f in every if f.signature.cause == HOST and f.event.kind not in (*findings.BARE_KILLS, _REFUSED)
    ]


def _logs_go_on(view: evidence_view.EvidenceView) -> bool:
    """True if the kernel log of every node continues after the end: a memory kill would be in it."""
    ends_s = [view.log_ends_s(node) for node in view.attempt.nodes if node in view.logged_nodes]
    return len(ends_s) == len(view.attempt.nodes) and all(end is not None and end < 0 for end in ends_s)


def _logs_at_hand(view: evidence_view.EvidenceView) -> bool:
    """True if the kernel log of every node has a line from the job's time: it was most likely collected after the end."""
    ran_s = (view.end_at - view.start_at).total_seconds()
    ends_s = [view.log_ends_s(node) for node in view.attempt.nodes if node in view.logged_nodes]
    return len(ends_s) == len(view.attempt.nodes) and all(end is not None and end < ran_s for end in ends_s)


def _killed_daemon(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """Claims for a kill of Slurm's own daemon for memory: that is why Slurm gave up the node."""
    if view.state not in ("NODE_FAIL", "BOOT_FAIL"):
        return
    for s in _in_time([s for s in view.of(HOST) if not s.after_own_action]):
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
    """The kills up to the job's end; all of them if there are no others (a clock may be off). Later kills are another job's."""
    ended = evidence_view.EventPhase.AFTER_END
    return [s for s in sightings if s.when is not ended] or sightings


def _killed(view: evidence_view.EvidenceView) -> claims.Adjust:
    """Raises a memory kill if a process of the job died by SIGKILL or the job's side reports the kill."""
    attempt, sigkill = view.attempt, _was_killed(view)
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


def _was_killed(view: evidence_view.EvidenceView) -> bool:
    """True if SIGKILL ended the job: Slurm records a script's exit code 137 as signal 9 or as code 9."""
    attempt = view.attempt
    return attempt.exit_signal == _KILLED or attempt.exit_code in (_KILLED, vocabulary.BY_SIGNAL + _KILLED)


def _whole_node(view: evidence_view.EvidenceView, sighting: evidence_view.CaseSighting) -> bool:
    """True if the whole node ran out of memory while other jobs ran: the kernel's choice of a process accuses none of them."""
    return sighting.event.code == "global" and any(
        since <= sighting.at and (until is None or sighting.at <= until)
        for since, until in view.case.shared.get(sighting.event.node, ())
    )


def _of_whole_node(
    view: evidence_view.EvidenceView, claim: claims.Claim, sightings: list[evidence_view.CaseSighting]
) -> claims.Claim:
    """The claim, in words that do not blame the job if the whole node ran out of memory."""
    outside = next((s for s in sightings if group_outside(s.event)), None)
    if outside is not None and not any(s.event.job_id == view.attempt.job_id for s in sightings):
        process = outside.event.process or "of the system"
        group = str(outside.event.detail.get("task_memcg"))
        if outside.event.code != "global":
            return claims.replace_claim(
                claim,
                weight=min(claim.weight, claims.POSSIBLE),
                sentence=_OWN_LIMIT.format(node=claim.node, process=process, group=group),
                next_step=_OTHER_LIMIT,
                domain=records.Domain.UNKNOWN,
            )
        sentence = _ANOTHERS.format(node=claim.node, process=process)
        return claims.replace_claim(
            claim,
            weight=min(claim.weight, claims.POSSIBLE),
            sentence=sentence,
            next_step=_WHAT_FILLED,
            domain=records.Domain.UNKNOWN,
        )
    if any(_whole_node(view, s) for s in sightings):
        return claims.replace_claim(
            claim, sentence=_WHOLE_NODE.format(node=claim.node), next_step=_WHAT_FILLED
        )
    return claim


def _held_by_others(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """A claim if another process held most of the program's GPU memory before it began."""
    named = [f.event for f in view.findings if f.signature is findings.named("cuda_held_by_others")]
    held = [e for e in named if all(isinstance(e.detail.get(k), float) for k in ("held_gib", "gpu_gib"))]
    if not held or any(f.signature.cause == GPU for f in view.findings):
        return
    detail = held[0].detail
    holder = f"another process (pid {detail['held_by']})" if "held_by" in detail else "another process"
    yield claims.Claim(
        cause=GPU,
        weight=0.65,
        at=view.end_at,
        rule="memory_limit",
        evidence=tuple(held),
        n_sources=1,
        sentence=_HELD.format(holder=holder, held=detail["held_gib"], gpu=detail["gpu_gib"]),
        next_step=_WHOSE,
        domain=records.Domain.UNKNOWN,
    )


def _job_side_events(view: evidence_view.EvidenceView, cause: str) -> tuple[records.HealthEvent, ...]:
    return tuple(f.event for f in view.findings if f.signature.cause == cause)


def group_outside(event: records.HealthEvent) -> str:
    """The cgroup, outside of every job, of the process that the kernel killed for memory; empty for a job's, or if no line names it."""
    group = str(event.detail.get("task_memcg") or "")
    return "" if event.job_id is not None or any(own in group for own in _OWN_GROUPS) else group


def kills_of_others(view: evidence_view.EvidenceView) -> list[evidence_view.CaseSighting]:
    """Kills at the memory limit of a system service's own group: none of a process of the job.

    Of a node that ran out of memory as a whole only if the job's log names another process as killed.
    """
    every = (*view.findings, *view.further_errors)
    named = {f.event.pid for f in every if f.signature.cause == HOST} - {None}
    return [
        s
        for s in view.of(HOST)
        if (group := group_outside(s.event))
        and (s.event.code != "global" or named)
        and _SERVICES.search(group)
        and not CONTAINERS.search(group)
        and s.event.pid not in named
    ]


def memory_kills(view: evidence_view.EvidenceView) -> list[evidence_view.CaseSighting]:
    """The kills for memory that may have been of its own processes. The kernel names the group in one of the lines about a kill only."""
    others = kills_of_others(view)
    if not others:
        return list(view.of(HOST))
    ids = {s.event.event_id for s in others}
    pids = {(s.event.node, s.event.pid) for s in others if s.event.pid is not None}

    def is_beside(line: evidence_view.CaseSighting, kills: Iterable[evidence_view.CaseSighting]) -> bool:
        near = (s for s in kills if s.event.node == line.event.node and s.event.code != "invoked")
        return any(abs(s.at - line.at) <= evidence_view.SLACK for s in near)

    left = [
        s for s in view.of(HOST) if s.event.event_id not in ids and (s.event.node, s.event.pid) not in pids
    ]
    kills = [s for s in left if s.event.code != "invoked"]
    return [s for s in left if s in kills or is_beside(s, kills) or not is_beside(s, others)]
