"""The probe's view of all ranks when they stopped: which one did not arrive, and what it was doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from probing_cluster.attribution.gang import finding, snapshots, stacks
from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    phrases,
    taxonomy,
    window,
)
from probing_cluster.attribution.verdict import rank_claims as rank
from probing_cluster.core import digits, errors, hostlist, records, vocabulary

_CAUSES = {
    "rank_dead": "rank_killed",
    "rank_stopped": "rank_stopped",
    **dict.fromkeys(("dataloader", "python_loop", "user_code", "gil_held", "missing"), "missing_rank"),
    **dict.fromkeys(("rank_ended", "uneven_input", "deadlock", "stopped_itself"), "missing_rank"),
    "collective_mismatch": "collective_mismatch",
    "checkpoint_io": "filesystem_mount",
    "storage_io": "filesystem_mount",
}
"""Gang finding to cause. Findings about links and GPUs make no claim: the node's own events do."""

_UNSEEN = frozenset({"missing", "rank_ended"})
"""Findings that may be a death too close to the teardown to be told apart."""
_BY_SIGNAL = frozenset(vocabulary.BY_SIGNAL + signal for signal in (4, 6, 7, 8, 9, 11))
"""Exit codes of a shell whose rank was killed by a signal; 15 is left out, since Slurm ends the other ranks with it."""
_KILLED = frozenset({"oom_kill_suspected", "process_crashed", "process_aborted", "bus_error", "segfault"})
_LEFT = "left without an error (exit code 0) while the others went on"
_LEFT_STEP = "Find where that rank's program can end early: a return, an exit with 0, fewer batches than the others have"
_TRACED_STEP = "Find the debugger or strace with which the job's own user held the rank: one that waits for a command leaves the process stopped"

_WEIGHTS = {
    records.Confidence.CERTAIN: 0.85,
    records.Confidence.LIKELY: 0.82,
    records.Confidence.POSSIBLE: 0.6,
}

SIGHTED: frozenset[str] = frozenset()


def rule(view: evidence_view.EvidenceView) -> Iterable[claims.Claim]:
    """At most one claim, from the last snapshot of every node; never certain, since pages can be forged."""
    # Ranks that die after our requeue, or after a node of a hanging job went away, say nothing about its cause.
    lost = node_faults.loss_after_hang(view)
    ends = [a.at for a in view.own_actions if a.action == "requeue"] + ([lost.at] if lost else [])
    until = min(ends, default=view.window.end_at)
    found = snapshots.gang((f.event for f in view.findings if f.event.at <= until), end_at=view.end_at)
    if found is None:
        return
    gang_finding = snapshots.judge(
        found, node_faults.faults_of_ended(view, found.onset_at), view.attempt.nodes
    )
    cause = _CAUSES.get(gang_finding.kind)
    weight = _WEIGHTS.get(gang_finding.confidence, 0.0)
    words = f"{gang_finding.summary}{f' ({gang_finding.where})' if gang_finding.where else ''}"
    if gang_finding.kind in _UNSEEN and gang_finding.ranks and _killed(view, set(gang_finding.ranks)):
        cause, weight = "rank_killed", _WEIGHTS[records.Confidence.LIKELY]
        words = f"{gang_finding.summary.partition(':')[0]}, and Slurm says that {'it was' if len(gang_finding.ranks) == 1 else 'they were'} killed"
    step = ""
    log_lines = _kill_lines(view, set(gang_finding.ranks)) if gang_finding.kind == "rank_dead" else []
    if gang_finding.kind == "rank_dead" and (codes := _left(view, set(gang_finding.ranks))):
        cause = "user_error"
        words = f"{gang_finding.summary.partition(' died')[0]} ended by itself with exit code {codes[0]} while the others went on"
    elif (
        gang_finding.kind == "rank_dead"
        and not log_lines
        and _left_without_error(view, set(gang_finding.ranks), found.world_size)
        # A shell that ran the rank may have ended with 0 in its place.
        and not view.of("oom_host")
        and not any(e.kind in _KILLED for e in _log_lines(view))
    ):
        cause = "missing_rank"
        words, step = f"{gang_finding.summary.partition(' died')[0]} {_LEFT}", _LEFT_STEP
    if gang_finding.kind == "rank_stopped" and gang_finding.domain is records.Domain.USER_PROGRAM:
        step = _TRACED_STEP
    if gang_finding.kind == "rank_ended":
        if any(f.signature.role is findings.FindingRole.OWN for f in view.findings):
            return  # Python also leaves in order after the exception that the log shows.
        if _left_without_error(view, set(gang_finding.ranks), found.world_size):
            words, step = f"{gang_finding.summary.partition(' left')[0]} {_LEFT}", _LEFT_STEP
    if cause is None or not weight:
        return
    first = gang_finding.nodes[0] if gang_finding.nodes else None
    # The job's log or dumps may report the same without the rank: together they weigh more.
    same = [f for f in view.findings if f.signature.cause == cause and f.event not in found.evidence]
    own = taxonomy.cause(cause).domain is records.Domain.USER_PROGRAM
    hint_weight = max((f.signature.weight for f in same), default=0.0)
    yield claims.Claim(
        cause=cause,
        weight=claims.combine([min(weight, 0.6) if cause == "filesystem_mount" else weight, hint_weight]),
        at=min(e.at for e in found.evidence),
        rule="gang",
        node=first,
        domain=gang_finding.domain if gang_finding.kind == "rank_stopped" else None,
        evidence=(
            *sorted(found.evidence, key=lambda e: (e.node != first, e.node)),
            *(f.event for f in same),
            *(e for e in log_lines if all(e is not f.event for f in same)),
        ),
        # Pages can be forged. For the program's own mistake, its own report may be certain, as in other rules.
        cap=records.Confidence.CERTAIN if same and own else records.Confidence.LIKELY,
        n_sources=1 + bool(same),
        words=words,
        next_step=step or (_next_step(view, found, gang_finding) if cause == "missing_rank" else ""),
        sentence=_killed_words(gang_finding.summary, log_lines)
        if cause == "rank_killed"
        else _hung_words(view, words, lost),
        explains=(rank.ENDINGS | (rank.LOSSES if lost else frozenset()))
        if view.hung_since is not None
        else frozenset(),
    )


def _next_step(
    view: evidence_view.EvidenceView, found: snapshots.Gang, gang_finding: finding.GangFinding
) -> str:
    """Where to look: rank, node, line, and the command that shows all stacks; empty for ranks without a report."""
    known = [r for r in found.ranks if r.rank in gang_finding.ranks]
    if not known:
        return ""
    names = f"{'rank' if len(known) == 1 else 'ranks'} {stacks.ranges(r.rank for r in known)}"
    nodes = hostlist.compress(list(dict.fromkeys(r.node for r in known)))
    where = f": {phrases.clean(gang_finding.where)}" if gang_finding.where else ""
    step = f"Look at what {names} on {nodes} did last{where}."
    # The command shows the job's latest start, which of a requeued job is another.
    again = view.state == "REQUEUED" or window.given_up(view.attempt)
    if again or not any(r.stack for r in found.ranks):
        return step
    return f"{step} `probing-ctl stacks {view.attempt.ref} --last` shows the stacks of all its ranks."


def _hung_words(view: evidence_view.EvidenceView, words: str, lost: evidence_view.CaseSighting | None) -> str:
    """The summary of a hang that the loss of a node ended; empty without such a loss."""
    if lost is None or view.hung_since is None:
        return ""
    since = phrases.since(view.hung_since, view.end_at)
    return f"Hung since {since} before the end: {phrases.clean(words)}; then {lost.event.node} stopped answering Slurm"


def _killed_words(summary: str, log_lines: Sequence[records.HealthEvent]) -> str:
    """The summary of a rank's death by a signal that Slurm's line names; empty without such a line."""
    if not log_lines:
        return ""
    ended = "killed (SIGKILL)" if log_lines[0].kind == "oom_kill_suspected" else "ended by a signal"
    return (
        f"A process of the job was {ended}, and nothing shows why: {summary}; "
        f"its log says: {phrases.clean(log_lines[0].message)}"
    )


def _killed(view: evidence_view.EvidenceView, ranks: set[int]) -> bool:
    """True if Slurm's lines report that a signal killed these ranks."""
    return bool(_kill_lines(view, ranks))


def _kill_lines(view: evidence_view.EvidenceView, ranks: set[int]) -> list[records.HealthEvent]:
    """Slurm's lines on a signal that killed these ranks; ranks that Slurm ended itself are terminated, not killed.

    Slurm writes one line for several tasks of a node. If it had to kill the others too, that line holds nearly all of them,
    so a line with several tasks counts only if together they are exactly these ranks.
    """
    # From the events, not the findings: these lines need not be the log's first cause.
    killed = [e for e in _log_lines(view) if e.kind in _KILLED or _exit_code(e) in _BY_SIGNAL]
    lines = [_tasks(e.detail) for e in killed]
    alone = {rank for line in lines if len(line) == 1 for rank in line}
    if not (ranks <= alone or ranks == {rank for line in lines for rank in line}):
        return []
    return [e for e, line in zip(killed, lines, strict=True) if line & ranks]


def _left(view: evidence_view.EvidenceView, ranks: set[int]) -> list[int]:
    """The exit codes with which, by Slurm's lines, exactly these ranks ended by themselves."""
    lines = [(_tasks(e.detail), _exit_code(e)) for e in _log_lines(view) if e.kind == "task_exit"]
    return sorted({code for tasks, code in lines if tasks == ranks and code and code < vocabulary.BY_SIGNAL})


def _left_without_error(view: evidence_view.EvidenceView, ranks: set[int], world_size: int | None) -> bool:
    """True if Slurm reports how other tasks ended, and of these none: it names every task that ends with another code than 0.

    Ranks and tasks have the same numbers if each node has one rank, or if a task's number shows that a node has several tasks.
    """
    tasks = {task for e in _log_lines(view) for task in _tasks(e.detail)}
    n_nodes = len(view.attempt.nodes)
    alike = world_size == n_nodes or max(tasks, default=0) >= n_nodes
    return bool(tasks) and alike and not tasks & ranks


def _log_lines(view: evidence_view.EvidenceView) -> Iterable[records.HealthEvent]:
    mine = (e for e in view.case.events if e.source == "joblog" and e.job_id == view.attempt.job_id)
    return (e for e in mine if e.at >= view.start_at)


def _exit_code(event: records.HealthEvent) -> int | None:
    return digits.index(event.detail.get("exit_code"))


def _tasks(detail: Mapping[str, Any]) -> set[int]:
    """The ranks of a Slurm line: `5`, `4-5` or `0,4-5`."""
    try:
        return {int(task) for task in hostlist.expand(f"[{detail['tasks']}]")}
    except (errors.MalformedInput, KeyError, ValueError):
        return set()
