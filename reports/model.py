"""The content of a report without its layout: stored rows in, one frozen model out."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from probing_cluster.attribution.verdict import findings
from probing_cluster.core import records, sanitize, vocabulary
from probing_cluster.reports import advice, attempt_view, cost, job_ref, node_state, phrase, rows

ETTR_FROM_S = 600.0
"""A run of one start and less than this was mostly start-up; its ETTR is not shown."""

_ENDED = "end"
"""The role of Slurm's own lines on an end: of an earlier start, whose output this one's is appended to, or of a stop that the program
took well. They are no errors."""
_LOG_READ_WITHIN = timedelta(minutes=5)
"""After this an agent that has not reported a job's output files reports none: it is down, or reads no logs."""
_PROLOG_EARLY = timedelta(seconds=2)
"""Clocks of nodes, controller and file server may differ by this much."""


@records.record
class ReportModel:
    """One job's report."""

    ref: str = records.doc("the job as its owner names it")
    job_id: int = records.doc("Slurm's raw job id")
    cluster: str = records.doc("Slurm cluster name")
    run_key: str = records.doc("the run it belongs to")
    run_jobs: tuple[int, ...] = records.doc("job ids of that run")
    user: str = records.doc("its owner")
    account: str = records.doc("Slurm account")
    partition: str = records.doc("partition")
    name: str = records.doc("job name")
    state: str = records.doc("state of its last attempt")
    n_requeues: int = records.doc("starts after the first")
    n_nodes: int = records.doc("nodes of its last attempt")
    n_gpus: int | None = records.doc("GPUs of its last attempt; null when unknown")
    submit_at: datetime = records.doc("first submission")
    start_at: datetime | None = records.doc("first start")
    end_at: datetime | None = records.doc("end of the last attempt; null while running")
    drawn_until: datetime = records.doc("right edge of the timeline")
    exported_until: datetime | None = records.doc(
        "the last instant that imported accounting shows of a job without an end", default=None
    )
    attempts: tuple[attempt_view.AttemptView, ...] = records.doc("oldest first")
    run: records.RunAccount | None = records.doc("where the run's time went; null until computed")
    has_steps: bool | None = records.doc(
        "whether the probe, or a log that stood still, showed a step of the run; null if not known",
        default=None,
    )
    cost: cost.Cost | None = records.doc("cost of its failures; null without failures, or until computed")
    advice: tuple[str, ...] = records.doc("next steps, one sentence each", default=())
    nodes_now: tuple[str, ...] = records.doc(
        "the present state of a running job's nodes, and results of tests since it ended, one sentence each",
        default=(),
    )
    cause_elsewhere: str = records.doc(
        "the component of its heterogeneous job whose verdict names a cause, one sentence; empty where its own does",
        default="",
    )
    components: tuple[rows.Sibling, ...] = records.doc("other components of a heterogeneous job", default=())
    other_submits: tuple[datetime, ...] = records.doc(
        "when other jobs that had the same id were submitted, oldest first", default=()
    )
    other_clusters: tuple[str, ...] = records.doc("other clusters that have a job of this id", default=())
    made_at: datetime = records.doc("when the report was made")

    @property
    def title(self) -> str:
        """`4242`; `4242_7 (4250)` for an array task whose own id is another, and is Slurm's."""
        base = self.ref.partition("_")[0].partition("+")[0]
        ours = self.job_id >= vocabulary.STAND_IN_BASE
        return self.ref if ours or base == str(self.job_id) else f"{self.ref} ({self.job_id})"

    @property
    def shows_ettr(self) -> bool:
        """Whether the run's ETTR is known, the run was long enough for one, and it may have trained: steps or GPUs are on record."""
        run = self.run
        if run is None or run.ettr_measured is None:
            return False
        if run.n_gpus == 0 and self.has_steps is False:
            return False
        return run.measured or run.n_attempts > 1 or run.wall_s - run.queued_s >= ETTR_FROM_S

    @property
    def ettr_basis(self) -> str:
        """Whether the ETTR is measured, assumed in part, or assumes that the run trained at all."""
        if self.run is not None and self.run.measured:
            return "measured"
        if self.has_steps is False:
            return "if it trained: no step of it is on record, checkpoints and start-up are assumed"
        return "checkpoints and start-up assumed where not seen"

    @property
    def queue_words(self) -> str:
        """`3 h of its 4 h in the queue` if that was most of the run's time; else empty."""
        run = self.run
        if run is None or run.queued_s * 2 <= run.wall_s:
            return ""
        return f"{phrase.span(run.queued_s)} of its {phrase.span(run.wall_s)} in the queue"

    @property
    def headline(self) -> str:
        """`COMPLETED after 1 requeue`; `FAILED, exit code 1`."""
        after = f" after {vocabulary.plural(self.n_requeues, 'requeue')}" if self.n_requeues else ""
        last = self.attempts[-1].attempt
        # Of other states Slurm's own numbers, such as 0:125, say no more than the state.
        unopened = last.exit_signal == vocabulary.OUTPUT_NOT_OPENED
        ending = phrase.ending(last) if self.state == last.state == "FAILED" and not unopened else ""
        return f"{self.state}{after}{f', {ending}' if ending else ''}"

    @property
    def elsewhere(self) -> str:
        """A sentence on other clusters that have a job of this id, and how to ask for it; empty if there are none."""
        if not self.other_clusters:
            return ""
        names = [sanitize.clean(name, 60) for name in self.other_clusters]
        return f"This is the job of cluster {sanitize.clean(self.cluster, 60)}; a job of this id is also in {', '.join(names)}: probing-report {self.ref} --cluster {names[0]}"

    @property
    def reuse(self) -> str:
        """A sentence on other jobs with the same id, and how to ask for the latest; empty if there are none."""
        return phrase.reuse(self.ref, self.attempts[-1].attempt.submit_at, self.other_submits)

    @property
    def suspended_s(self) -> float:
        """Seconds that its attempts were suspended."""
        return sum(view.attempt.suspended_s for view in self.attempts)

    @property
    def open_end(self) -> tuple[str, datetime | None]:
        """For a job without an end: the last known state and its instant; empty for others."""
        if self.end_at is not None:
            return "", None
        return phrase.open_end(self.state, self.exported_until, self.attempts[-1].last_seen_at)

    @property
    def shape(self) -> str:
        """`2 nodes x 8 GPUs`, `1 node, 12 GPUs` when uneven, `2 nodes` when GPUs are not accounted, words when no nodes are."""
        if not self.n_nodes:
            return "nodes not in the accounting" if self.attempts[-1].attempt.start_at else "not started"
        nodes = f"{self.n_nodes} node{'' if self.n_nodes == 1 else 's'}"
        if not self.n_gpus:
            return nodes
        each, rest = divmod(self.n_gpus, self.n_nodes)
        plural = "" if (each if not rest else self.n_gpus) == 1 else "s"
        return f"{nodes}, {self.n_gpus} GPU{plural}" if rest else f"{nodes} x {each} GPU{plural}"


def build(
    ref: job_ref.JobRef, found: rows.ReportRows, *, now: datetime, requeued_start: int | None = None
) -> ReportModel:
    """The report on the job whose rows `found` holds; it must have an attempt. `requeued_start`: the start after which Slurm says that it requeued it."""
    found = dataclasses.replace(found, drains=node_state.as_shown(found.drains, now))
    attempts = sorted(found.attempts, key=lambda a: (a.submit_at, a.attempt))
    is_reused = bool(found.other_submits)
    if not cost.covers(found.account, attempts, found.run_jobs, is_reused=is_reused):
        found = dataclasses.replace(found, account=None)
    views = tuple(_view(a, found, attempts[i + 1 :], now) for i, a in enumerate(attempts))
    views = _with_losses(views, found)
    last, n_unfinished = attempts[-1], sum(v.ended_unfinished for v in views)
    if found.account is not None:
        found = dataclasses.replace(found, account=cost.without_stall(found.account, last, views[-1].gangs))
    return ReportModel(
        ref=_name(ref, last),
        job_id=last.job_id,
        cluster=last.cluster,
        run_key=last.run_key or str(last.job_id),
        run_jobs=found.run_jobs,
        user=last.user,
        account=last.account,
        partition=last.partition,
        name=last.name,
        state=last.state,
        n_requeues=len(attempts) - 1,
        n_nodes=len(last.nodes),
        n_gpus=last.n_gpus,
        submit_at=attempts[0].submit_at,
        start_at=next((a.start_at for a in attempts if a.start_at), None),
        end_at=last.end_at,
        drawn_until=last.end_at or max(found.exported_until or now, last.start_at or last.submit_at),
        exported_until=found.exported_until if last.end_at is None else None,
        attempts=views,
        run=found.account,
        has_steps=found.has_steps if not any(v.hung_s for v in views) else True,
        cost=cost.of_failures(found.account, attempts, sum(v.hung_s for v in views))
        if n_unfinished
        else None,
        advice=advice.what_now(
            views,
            now=now,
            requeued=requeued_start == last.n_restarts or node_state.has_come_back(last, found.drains),
            returned=found.returned,
            waits=found.waits,
        ),
        nodes_now=(
            *(
                node_state.sentences(
                    last, found.heartbeats, found.drains, now, found.listening_since, found.read_at
                )
                if found.exported_until is None
                else ()
            ),
            *node_state.tested(last, found.tested),
        ),
        cause_elsewhere=_cause_elsewhere(last, found.siblings),
        components=tuple(s for s in found.siblings if s.het_offset is not None),
        other_submits=found.other_submits,
        other_clusters=found.other_clusters,
        made_at=now,
    )


_NO_CAUSE = frozenset({"unknown", "user_cancelled", "requeued_by_user"})
"""Causes that Slurm's end of the other components alone may give."""


def _cause_elsewhere(last: records.JobAttempt, siblings: Sequence[rows.Sibling]) -> str:
    """Slurm ends all components of a heterogeneous job when one fails: the sentence that names the one with a cause."""
    if failed := _failed_component(last, siblings):
        return failed
    mine = next((s for s in siblings if s.job_id == last.job_id), None)
    # The batch script runs in the first component: another one's exit code is that script's.
    weak = _NO_CAUSE | ({"user_error"} if last.het_offset else set())
    if last.het_job_id is None or (mine is not None and mine.cause and mine.cause not in weak):
        return ""
    found = [s for s in siblings if s.het_offset is not None and s.job_id != last.job_id and s.cause]
    named = [s for s in found if s.cause not in _NO_CAUSE]
    if not named:
        return ""
    words = ", ".join(f"{s.ref} ({s.cause})" for s in named[:3])
    return f"The cause is at another component: {words}; probing-report {named[0].ref} shows it."


def _failed_component(last: records.JobAttempt, siblings: Sequence[rows.Sibling]) -> str:
    """The sentence on the one component whose task failed by itself; the output of them all is component 0's file."""
    failed = [s for s in siblings if s.task_failed]
    own = {None, "user_error", "unknown"}
    if len(failed) != 1 or not {s.cause for s in siblings} <= own:
        return ""
    if failed[0].job_id != last.job_id:
        return f"The task that failed is of another component: {failed[0].ref}."
    if not last.het_offset:
        return ""
    first = f"{last.het_job_id}+0"
    return f"The task that failed is of this component; what it wrote is in the output of {first}: probing-report {first} shows it."


def is_overview(ref: job_ref.JobRef, found: rows.ReportRows) -> bool:
    """True when a bare number names an array of several tasks; a task's own job id names that task."""
    names_an_array = any(a.array_job_id == ref.base for a in found.attempts)
    return ref.plain and found.n_siblings > 1 and names_an_array


def strongest(
    events: Sequence[records.HealthEvent], order: Sequence[uuid.UUID], most: int
) -> tuple[records.HealthEvent, ...]:
    """At most `most` events, oldest first: those whose ids come first in `order`, then the oldest."""
    rank = {event_id: n for n, event_id in enumerate(order)}
    chosen = sorted(events, key=lambda e: rank.get(e.event_id, len(rank)))[:most]
    return phrase.in_order(chosen)


def _is_of_lost_node(
    attempt: records.JobAttempt, verdict: records.Verdict, evidence: Sequence[records.HealthEvent]
) -> bool:
    """Whether Slurm's accounting and a node's own events make it certain that a node was lost: no output of the job changes that."""
    lost = attempt.state in ("NODE_FAIL", "BOOT_FAIL") and verdict.confidence is records.Confidence.CERTAIN
    return lost and any(e.source not in vocabulary.JOB_SIDE_SOURCES for e in evidence)


def _name(ref: job_ref.JobRef, attempt: records.JobAttempt) -> str:
    return attempt.ref if ref.plain else ref.name


def _accused(attempt: records.JobAttempt, verdict: records.Verdict | None) -> set[str]:
    """Its nodes at which the verdict names another possible cause: what shows it need not be among the events listed."""
    named = verdict.less_likely if verdict else ()
    return {n for n in attempt.nodes if any(f" on {n} (" in words for words in named)}


def _view(
    attempt: records.JobAttempt, found: rows.ReportRows, later: Sequence[records.JobAttempt], now: datetime
) -> attempt_view.AttemptView:
    verdict = next((v for v in found.verdicts if v.submit_at == attempt.submit_at), None)
    wanted = set(verdict.evidence) if verdict else set()
    evidence = phrase.in_order(e for e in found.evidence if e.event_id in wanted)
    others = tuple(e for e in found.others if e.event_id not in wanted and _concerns(attempt, e))
    until = later[0].start_at if later else None
    returned = {r.node: r.at for r in found.returned if r.submit_at in (None, attempt.submit_at)}
    nodes_with_events = {e.node for e in (*evidence, *others)} | _accused(attempt, verdict)
    silent = [n for n in attempt.nodes if n not in nodes_with_events]
    unwatched = tuple(n for n in silent if (attempt.submit_at, n) in found.unwatched)
    written = (log for log in found.logs if _is_of(log.at, attempt, until, log.restart_count))
    own = (_of_component(log, attempt).before(until, found.logs) for log in written)
    # A start that was refused wrote nothing: what its file holds is another's. Two Prologs of one start have the same file.
    refused = verdict is not None and verdict.cause == "node_refused"
    logs = () if refused else tuple({(log.path, log.stream, log.tail, log.why): log for log in own}.values())
    return attempt_view.AttemptView(
        attempt=attempt,
        verdict=verdict,
        evidence=evidence,
        others=others,
        others_left_out=found.left_out.get(attempt.submit_at, 0),
        pace=phrase.in_order(e for e in found.pace if _concerns(attempt, e)),
        own_errors=phrase.in_order(e for e in found.own_errors if _wrote(attempt, e)),
        moved=tuple(e for e in found.moved if _is_of(e.at, attempt, until)),
        gangs=attempt_view.stalls_of(attempt, found.gangs),
        logs=logs,
        log_awaited=verdict is not None
        and verdict.log_read is False
        and attempt.end_at is not None
        and now - attempt.end_at < _LOG_READ_WITHIN
        and not _is_of_lost_node(attempt, verdict, evidence),
        actions=node_state.worth_a_line(
            sorted(
                (
                    d
                    for d in found.drains
                    if node_state.acted_on(attempt, d, until)
                    and node_state.concerns(attempt, d, verdict, returned.get(d.node))
                ),
                key=lambda d: d.at,
            )
        ),
        nodes_without_faults=tuple(n for n in silent if n not in unwatched),
        unwatched_nodes=unwatched,
        last_seen_at=node_state.last_seen(attempt, found.heartbeats),
    )


def _with_losses(
    views: tuple[attempt_view.AttemptView, ...], found: rows.ReportRows
) -> tuple[attempt_view.AttemptView, ...]:
    """Gives each attempt its lost work.

    If one attempt ended unfinished, the run's loss is its own, also where the run's only start is that of several components of a
    heterogeneous job. With several, the loss cannot be divided, unless no work was kept: then each lost all that it ran. The time
    that an attempt hung before its end is known for each.
    """
    unfinished = [v for v in views if v.ended_unfinished]
    account = found.account
    if (
        len(unfinished) > 1
        and account is not None
        and account.productive_s == 0
        and account.lost_to_replay_s > 0
    ):
        return tuple(
            dataclasses.replace(v, lost_s=cost.ran_s(v.attempt)) if v.ended_unfinished else v for v in views
        )
    of_several = len(found.run_jobs) > 1 and account is not None and account.n_attempts > 1
    if account is None or len(unfinished) != 1 or of_several:
        return tuple(dataclasses.replace(v, lost_s=v.hung_s) if v.hung_s else v for v in views)
    lost_s = account.lost_to_replay_s
    return tuple(dataclasses.replace(v, lost_s=lost_s) if v is unfinished[0] else v for v in views)


def _concerns(attempt: records.JobAttempt, event: records.HealthEvent) -> bool:
    if event.node not in attempt.nodes or attempt.start_at is None:
        return False
    return attempt.start_at <= event.at and (attempt.end_at is None or event.at <= attempt.end_at)


def _wrote(attempt: records.JobAttempt, event: records.HealthEvent) -> bool:
    """Whether an error of the job's output is this attempt's: it completed, so it is the last, and its output is read after its end."""
    if attempt.state != "COMPLETED" or attempt.start_at is None:
        return False
    is_error = event.detail.get("role") != _ENDED or findings.step_at_its_limit(event, attempt.job_id) != ""
    return is_error and event.at >= attempt.start_at - _PROLOG_EARLY


def _of_component(log: rows.JobLog, attempt: records.JobAttempt) -> rows.JobLog:
    """The file; of a later component of a heterogeneous job, which writes no file of its own, a pointer to the one it writes to."""
    if not attempt.het_offset or not log.why:
        return log
    first = f"{attempt.het_job_id}+0"
    return dataclasses.replace(
        log, path="", why=f"its steps write to the output of component 0 (probing-report {first})"
    )


def _is_of(
    prolog_at: datetime, attempt: records.JobAttempt, until: datetime | None, restart_count: int | None = None
) -> bool:
    """Whether a Prolog ran for this attempt, with its `restart_count` if that is known; it may begin seconds before the start that Slurm records."""
    if attempt.start_at is None or prolog_at < attempt.start_at - _PROLOG_EARLY:
        return False
    if (
        restart_count is not None
        and attempt.restart_count is not None
        and restart_count > attempt.restart_count
    ):
        return False  # of a later start, which accounting may not list yet
    return until is None or prolog_at < until - _PROLOG_EARLY
