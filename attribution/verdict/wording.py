"""The summary of a verdict: what happened, in one sentence."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import (
    claims,
    eliminate,
    evidence_view,
    findings,
    node_faults,
    onset,
    phrases,
    rank_claims,
    recovery,
    taxonomy,
)
from probing_cluster.core import digits, hostlist, records, vocabulary


def summary(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """One sentence: what happened, where, by which evidence, how long before the end; of an attempt that we requeued, that too."""
    text = _of_winner(view, ranking)
    if not view.requeued_by_us or ranking.winner.rule == "scheduler":
        return text
    unfelt = ranking.winner.weight == claims.ANSWERED and not view.findings
    felt = ", and nothing shows that it felt the fault" if unfelt else ""
    return phrases.sentence(f"{text.removesuffix('.')}; the job was {view.requeued_by_us}{felt}")


def _of_winner(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    winner = ranking.winner
    if winner.sentence:
        return phrases.sentence(winner.sentence)
    special = _SPECIAL.get(winner.cause)
    if special is not None:
        return special(view, ranking)
    happened = taxonomy.cause(winner.cause).happened
    if winner.words and winner.rule != "scheduler" and not happened:
        return phrases.sentence(f"The program {phrases.clean(winner.words)}")
    noun = winner.info.noun
    by_job_side = bool(winner.evidence) and winner.evidence[0].source in vocabulary.JOB_SIDE_SOURCES
    if by_job_side and winner.words:
        happened = findings.find(winner.evidence[0]).happened or happened
    text = _filled_in(happened, winner.node, winner.device, noun)
    if winner.words and by_job_side:
        words = f"{phrases.clean(winner.words)}{_unseen(view, winner)}"
        by = "Slurm in the job's log" if _OF_SLURM.match(words) else "the job itself"
        return phrases.sentence(f"{text} (reported only by {by}: {words})")
    if winner.words:
        what = phrases.device_of_node(winner.device, winner.node) if winner.device else winner.node
        text = f"{what if winner.node else 'the job'} {phrases.clean(winner.words)}"
    if winner.rule == "stuck" and view.log_stall is not None and view.log_stall in winner.evidence:
        hung = _hung(view, onset.stalled_since(view.log_stall))
        return phrases.sentence(f"{hung}: {text}{_by(winner)}; then {_ended_by(view, 'the job')}")
    # How the job was ended is stated here, since it is no other explanation of the fault.
    then = (
        f"; then {_ended_by(view, 'the job')}" if view.state in _ENDED_BY and winner.at <= view.end_at else ""
    )
    return phrases.sentence(f"{text}{_by(winner)}{_when(view, winner)}{then}")


def of_cause(verdict: records.Verdict) -> str:
    """What happened, by the cause, the node and the device alone: no word of it is the job's. Empty for a cause that this release does not know."""
    info = taxonomy.load().causes.get(verdict.cause)
    if info is None:
        return ""
    if info.happened:
        return phrases.sentence(_filled_in(info.happened, verdict.node, verdict.device, info.noun))
    return phrases.sentence(info.meaning.partition(":")[0].partition(". ")[0])


def _filled_in(happened: str, node: str | None, device: str | None, noun: str) -> str:
    return happened.format(
        device=phrases.device_of_node(device, node, noun),
        part=phrases.part_of_node(device, node, noun),
        node=node or "a node",
        on_node=f" on {node}" if node else "",
    )


def _by(winner: claims.Claim) -> str:
    first = next((e for e in winner.evidence), None)
    if first is None or winner.words:
        return ""
    if first.source in vocabulary.JOB_SIDE_SOURCES:
        return " (reported by its own log; no node event confirms it)"
    return f" ({phrases.what(first)})"


def _unseen(view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    """Names the nodes that nobody watched, where only the job reports a fault of a machine."""
    nodes = [winner.node] if winner.node else view.attempt.nodes
    unwatched = [n for n in nodes if n in view.unwatched_nodes and n not in view.logged_nodes]
    of_machine = winner.info.domain in (records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE)
    return f"; nobody watched {hostlist.compress(unwatched)} then" if unwatched and of_machine else ""


def _when(view: evidence_view.EvidenceView, winner: claims.Claim) -> str:
    if not winner.evidence or winner.evidence[0].source in vocabulary.JOB_SIDE_SOURCES:
        return ""
    before = view.end_at - winner.at
    if winner.at < view.start_at:
        began = _began(view, winner)
        return f", {phrases.duration((view.start_at - began).total_seconds())} before the job started"
    if before < timedelta(0):
        return f", first seen {phrases.duration(-before.total_seconds())} after the job ended"
    if before < timedelta(seconds=1):
        return " as the job ended"
    late = ", when it already hung" if rank_claims.came_into_the_hang(view, winner) else ""
    return f" {phrases.duration(before.total_seconds())} before the job ended{late}"


def _began(view: evidence_view.EvidenceView, winner: claims.Claim) -> datetime:
    """Time of the fault's first event. In the claim, a fault from before the window counts from the window's begin."""
    named = {e.event_id for e in winner.evidence}
    lasting = (s.event.at for s in view.sightings if s.still_active and s.event.event_id in named)
    return min([winner.at, *lasting])


def _node_lost(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    winner = ranking.winner
    node, before = winner.node or "a node of the job", _before_its_loss(view, winner.node)
    if view.state == "BOOT_FAIL":
        return phrases.sentence(f"{node} did not boot for the job, as Slurm says{before}")
    boots = [s for s in view.of("node_reboot") if s.event.node == winner.node]
    back = [s for s in boots if s.when is not evidence_view.EventPhase.BEFORE_START]
    ordered = any(s.event.code == vocabulary.AFTER_SHUTDOWN for s in back)
    since = f"; it {'was shut down in order and ' if ordered else ''}has restarted since" if back else ""
    if again_at := view.case.returned.get(node):
        since = f"; {phrases.answers_again(again_at, view.end_at)}"
    return phrases.sentence(f"{node} stopped answering Slurm{before}{since}")


def _before_its_loss(view: evidence_view.EvidenceView, node: str | None) -> str:
    """Clause with the last thing that is known of a lost node."""
    if node is None:
        return f", and it is not known which{_lost_node_candidates(view)}"
    if shown := node_faults.shown_before_loss(view, node):
        return f"; before that it showed {phrases.what(shown.event)}"
    log_ends = view.log_ends_s(node)
    if log_ends is None:
        return "; nothing was seen on it before" if node in view.case.watched else "; nobody watched it"
    if log_ends <= _LONG_BEFORE_S:
        return "; its log holds nothing of it"
    ends = f"; its log ends {phrases.duration(log_ends)} before"
    last = view.ends_in(node)
    return f"{ends}, with {phrases.what(last)}" if last else f"{ends} and shows nothing of it"


def _node_reboot(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    """The sentence of a restart. After an orderly shutdown it says that nothing broke."""
    winner = ranking.winner
    node = winner.node or "a node"
    if is_ordered(winner):
        return phrases.sentence(
            f"{node} was shut down in order and restarted under the job{_when(view, winner)}: by software or a person, as its log shows"
        )
    return phrases.sentence(f"{node} restarted under the job{_by(winner)}{_when(view, winner)}")


def is_ordered(claim: claims.Claim) -> bool:
    """True if the node was shut down in order."""
    return any(e.code == vocabulary.AFTER_SHUTDOWN for e in claim.evidence)


_LONG_BEFORE_S = 600.0
"""A log that ends longer than this before the node was given up shows nothing of its end: Slurm waits half as long."""


def _lost_node_candidates(view: evidence_view.EvidenceView) -> str:
    """What is known about each node, when it is not known which one was lost."""
    booted = {s.event.node for s in view.of("node_reboot")}
    ended = {n: left for n in view.attempt.nodes if (left := view.log_ends_s(n)) is not None}
    lived = [n for n, left in ended.items() if left <= 0 and n not in booted]
    silent = [n for n in ended if n not in lived and n not in booted]
    agents = [n for n in view.attempt.nodes if n in view.case.watched and n not in ended]
    unseen = [n for n in view.attempt.nodes if n not in view.case.watched]
    parts = (
        (lived, "the log of {} continues past the end, without a restart within the hour"),
        (silent, "the log of {} ends before"),
        (agents, "nothing was seen on {} before"),
        (unseen, "nobody watched {}"),
    )
    return "".join(f"; {words.format(hostlist.compress(nodes))}" for nodes, words in parts if nodes)


def _unknown(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    winner = ranking.winner
    unwatched = hostlist.compress(view.unwatched_nodes)
    felt = f"The job's own view: {phrases.clean(winner.words)}; " if winner.evidence and winner.words else ""
    if winner.rule == "scheduler" and winner.words:
        felt = f"The job {winner.words}; "
    if not view.attempt.nodes:
        return phrases.sentence(f"{felt}its nodes are not in the accounting")
    watched = hostlist.compress(view.watched_nodes)
    parts = [eliminate.unexplained(view, watched)] if watched else []
    were = "was" if len(view.unwatched_nodes) == 1 else "were"
    parts += [f"{unwatched} {were} not watched"] if unwatched else []
    return phrases.sentence(felt + " and ".join(parts))


_OF_SLURM = re.compile(r"slurm(?:step)?d\b")
_CHAINED = {"raised_as": "which it raised on as", "caused_by": "caused by"}


def _user_error(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    winner = ranking.winner
    first = next(iter(winner.evidence), None)
    if first is not None and first.source in vocabulary.JOB_SIDE_SOURCES and not winner.by_elimination:
        alone = " by itself" if ranking.confidence is not records.Confidence.POSSIBLE else ""
        chained = ((words, str(first.detail.get(name) or "")) for name, words in _CHAINED.items())
        others = "".join(f", {words} {phrases.clean(message)}" for words, message in chained if message)
        where = phrases.in_rank(first, view.attempt.nodes, [f.event for f in view.findings])
        return phrases.sentence(f"The program failed{alone}{where}: {phrases.clean(winner.words)}{others}")
    # The quoted line keeps its own end, and what is before it too.
    words, quoted, line = winner.words.partition("; its log says: ")
    return phrases.sentence(f"The program {phrases.clean(words)}{quoted}{phrases.clean(line)}")


def _oom_gpu(_view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> str:
    return "The program asked for more GPU memory than there is."


def _own_words(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    if view.hung_since is not None and ranking.winner.rule == "gang" and view.state in _ENDED_BY:
        return phrases.sentence(
            f"{_hung(view, view.hung_since)}: {phrases.clean(ranking.winner.words)}; then {_ended_by(view)}"
        )
    meaning = ranking.winner.info.meaning.rstrip(".")
    if not node_faults.is_unexplained(view):
        meaning = meaning.removesuffix(", and nothing on their nodes explains it")
    return phrases.sentence(f"{meaning}: {phrases.clean(ranking.winner.words)}")


_ENDED_BY = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE"})


def _hung(view: evidence_view.EvidenceView, since: datetime) -> str:
    return f"Hung since {phrases.since(since, view.end_at)} before the end"


def _ended_by(view: evidence_view.EvidenceView, it: str = "it") -> str:
    if view.state == "CANCELLED":
        return f"{it} {_cancelled_by(view)}"
    if view.state == "DEADLINE":
        return "the job's deadline passed"
    return f"{it} was ended as TIMEOUT" if view.within_limit else f"{it} reached its time limit"


def _log_stalled(view: evidence_view.EvidenceView) -> str:
    """States since when the job's log shows no progress, or nothing was written to it; that is evidence, no cause."""
    if view.log_stall is None:
        return _silent(view)
    return f"; its log shows no progress since {phrases.since(onset.stalled_since(view.log_stall), view.end_at)} before the end"


def _silent(view: evidence_view.EvidenceView) -> str:
    stall = view.output_stall
    if stall is None or view.state == "CANCELLED":
        return ""
    silence_s = (view.end_at - onset.stalled_since(stall)).total_seconds()
    text = f"; nothing was written to its output for the last {phrases.duration(silence_s)} of {phrases.duration(view.ran_s)}"
    gap_s, n_writes = digits.number(stall.detail.get("gap_s")), digits.index(stall.detail.get("n_writes"))
    if onset.asks(stall):
        return f"{text}, which ends in a question: {phrases.clean(str(stall.detail.get('last_line')))}"
    if gap_s is not None and (n_writes or 0) >= _REGULAR:
        return (
            f"{text}, and before that it was never silent for longer than {phrases.duration(max(gap_s, 1.0))}"
        )
    return text


_REGULAR = 3
"""With fewer looks that found it grown, the gaps before say little."""


def _cancelled_by(view: evidence_view.EvidenceView) -> str:
    by, user = view.attempt.cancelled_by, view.attempt.user
    if not by:
        return "was cancelled; it is not recorded by whom"
    if by == user:
        return f"was cancelled by its user ({user})"
    if view.cancelled_by_root:
        return "was cancelled by root: by an administrator, or by Slurm itself"
    if digits.is_number(by):
        return f"was cancelled by user id {by}"
    return f"was cancelled by {by}, not by its user"


def _time_limit(view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> str:
    limit_s = view.attempt.time_limit_s
    limit = phrases.duration(limit_s) if limit_s else ""
    if view.state == "DEADLINE":
        what = f"The deadline of the job (sbatch --deadline) passed after it had run {phrases.duration(view.ran_s)}"
    elif view.within_limit:
        what = f"The job was ended by Slurm as TIMEOUT after {phrases.duration(view.ran_s)}, though its limit is recorded as {limit}"
    else:
        what = f"The job reached its time limit{f' of {limit}' if limit else ''}"
    parts = (_lost_gpu(view), _stalled(view), _log_stalled(view), _output_ends(view))
    return phrases.sentence(f"{what}{''.join(parts)}")


def _output_ends(view: evidence_view.EvidenceView) -> str:
    """Names the error that its output ends with, or the step that waited until the end."""
    error = recovery.last_error(view)
    if error is None:
        return ""
    if onset.is_waiting_step(error):
        until = "that deadline" if view.state == "DEADLINE" else "the time limit"
        return f"; {phrases.step_that_waited(error.message, until)}"
    return f"; its output ends with an error: {phrases.clean(error.message)}"


def _cancelled(view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> str:
    if view.hung_since is not None:
        return phrases.sentence(f"{_hung(view, view.hung_since)}; then {_ended_by(view)}{_lost_gpu(view)}")
    return phrases.sentence(
        f"The job {_cancelled_by(view)}{_lost_gpu(view)}{_stalled(view)}{_log_stalled(view)}"
    )


def _stalled(view: evidence_view.EvidenceView) -> str:
    """Names the first stall from before the window, or file system that was silent at its end: the job may have been ended for it."""
    waits = (*view.stalls, *node_faults.silent_mounts(view), *node_faults.blocked_tasks(view))
    first = next(iter(waits), None)
    if first is None:
        return ""
    name = f" ({phrases.device(first.device)})" if first.device else ""
    what = f"{phrases.what(first).replace('_', ' ')}{name} on {first.node}"
    return f"; {what} {phrases.duration((view.end_at - first.at).total_seconds())} before, and no line reports its end"


def _lost_gpu(view: evidence_view.EvidenceView) -> str:
    """Names the GPU that was lost while the job had its node, and when."""
    first = next(iter(view.lost_gpus), None)
    if first is None:
        return ""
    name = phrases.device_of_node(first.device, first.event.node, "GPU")
    before = phrases.duration((view.end_at - first.at).total_seconds())
    return f"; {name} had been lost {before} before ({phrases.what(first.event)})"


def _requeued(view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> str:
    if view.fully_watched:
        return "A person, or the job itself, requeued the job; no fault was seen that explains it."
    unseen = hostlist.compress(view.partly_watched_nodes)
    why = f"nobody watched {unseen} throughout" if unseen else "its nodes are not in the accounting"
    return phrases.sentence(
        f"The job was requeued: by a person or service, itself, or Slurm after a fault; {why}"
    )


def _refused(view: evidence_view.EvidenceView, ranking: rank_claims.Ranking) -> str:
    node, why = ranking.winner.node or "a node", ranking.winner.words
    then = (
        phrases.starts_again(ranking.winner.evidence)
        if view.state == "REQUEUED"
        else "Slurm then ended the job"
    )
    return phrases.sentence(
        f"Our Prolog refused {node} before the job began{f' ({why})' if why else ''}; {then}"
    )


def _preempted(view: evidence_view.EvidenceView, _ranking: rank_claims.Ranking) -> str:
    by, verdict = view.case.preemptor, view.case.preemptor_verdict
    if by is None:
        return "A job of higher priority took its place."
    own = (by.user, by.account) == (view.attempt.user, view.attempt.account)
    return phrases.preempted_by(by.job_id, verdict if own else None)


_SPECIAL = {
    "node_lost": _node_lost,
    "node_reboot": _node_reboot,
    "unknown": _unknown,
    "user_error": _user_error,
    "oom_gpu": _oom_gpu,
    "collective_mismatch": _own_words,
    "missing_rank": _own_words,
    "rank_killed": _own_words,
    "rank_stopped": _own_words,
    "time_limit": _time_limit,
    "user_cancelled": _cancelled,
    "requeued_by_user": _requeued,
    "node_refused": _refused,
    "preempted": _preempted,
}
