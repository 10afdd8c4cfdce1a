"""What restarts are decided from: verdicts of what ended lately, the runs they belong to, and Slurm's queue. A few questions a pass, none per job."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import confirm, restart, restart_acts, restart_loop, view
from probing_cluster.core import records, vocabulary

LOOK_BACK = timedelta(hours=1)
"""What ended longer ago is history: Slurm has forgotten it (MinJobAge, 5 minutes by default)."""
RETRY = timedelta(seconds=30)
"""A restart that failed, or that the budget denied, is not decided again sooner,"""
RETRY_WITHIN = timedelta(minutes=10)
"""nor at all when its attempt ended longer ago."""
AT_ONCE = 50
"""Restarts decided in one pass."""
_MEMORY = timedelta(days=7)
_LAST_STEP = "last_progress"
_ERROR_SOURCES = ("joblog", "dump")

Key = tuple[str, int, datetime]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecentDecisions:
    """What was decided and done lately."""

    rows: Sequence[records.Drain]

    @property
    def begun(self) -> list[records.Drain]:
        """Restarts without an outcome."""
        return [r for r in self.rows if restart_acts.is_begun(r)]

    @property
    def excluded(self) -> list[records.Drain]:
        """Nodes that are left out of a job because of us, now."""
        return [r for r in self.rows if r.action == "exclude" and r.state == "done" and r.ended_at is None]

    def settles(self, attempt: records.JobAttempt, now: datetime) -> bool:
        """Whether nothing is to be decided about an attempt, now or ever."""
        leader = attempt.het_job_id or attempt.job_id
        mine = [
            r
            for r in self.rows
            if (r.action == "restart" or (r.action == "requeue" and r.state == "done"))
            and (r.job_id == attempt.job_id or r.detail.get("leader") == leader)
            and (r.submit_at == attempt.submit_at or (attempt.end_at is not None and r.at >= attempt.end_at))
        ]
        if any(r.state in {"done", "simulated", "skipped"} or restart_acts.is_begun(r) for r in mine):
            return True
        late = attempt.end_at is None or now - attempt.end_at > RETRY_WITHIN
        return bool(mine) and (late or now - mine[-1].at < RETRY)

    def denied(self, attempt: records.JobAttempt) -> bool:
        """Whether a denial of this attempt is on record: it is not written again."""
        return any(
            r.state == "denied" and (r.job_id, r.submit_at) == (attempt.job_id, attempt.submit_at)
            for r in self.rows
        )

    def n_restarts(self, attempt: records.JobAttempt, since: datetime) -> int:
        """How often the run of an attempt was restarted since then."""
        return sum(
            r.action in view.BRINGS_BACK
            and r.state == "done"
            and r.at > since
            and (
                r.job_id == attempt.job_id
                or (r.detail.get("run_key"), r.detail.get("user")) == (attempt.run_key, attempt.user)
            )
            for r in self.rows
        )


def past(service: context.Context, now: datetime) -> RecentDecisions:
    """Our restarts, requeues and exclusions."""
    window = max(_MEMORY, timedelta(seconds=service.config.policy.restart_window_s))
    rows = service.store.drains(
        since=now - window, actions=["restart", "exclude", "requeue"], cluster=service.cluster
    )
    return RecentDecisions(rows=[r for r in rows if r.cluster == service.config.cluster.name])


def ended(service: context.Context, known: RecentDecisions, now: datetime) -> list[restart.EndedAttempt]:
    """Attempts about which something is to be decided, oldest end first."""
    cluster = service.config.cluster.name
    verdicts = [
        v
        for v in service.store.verdicts(since=now - LOOK_BACK, confidences=restart.SURE, cluster=cluster)
        if restart.concerns(v) or v.attempt >= restart_loop.STARTS
    ]
    by_key = {(v.cluster, v.job_id, v.submit_at): v for v in verdicts}
    attempts = [
        a
        for a in service.store.attempts_of(list(by_key))
        if a.state in restart.CANDIDATES and a.end_at is not None and not known.settles(a, now)
    ]
    attempts.sort(key=lambda a: (a.end_at or now, a.job_id))
    return _with_runs(service, attempts[:AT_ONCE], by_key, known, now) if attempts else []


def _with_runs(
    service: context.Context,
    attempts: Sequence[records.JobAttempt],
    verdicts: Mapping[Key, records.Verdict],
    known: RecentDecisions,
    now: datetime,
) -> list[restart.EndedAttempt]:
    store, jobs = service.store, sorted({a.job_id for a in attempts})
    cluster = service.cluster
    judged = store.verdicts(job_ids=jobs, cluster=cluster)
    steps = store.events(job_ids=jobs, kinds=[_LAST_STEP], since=now - _MEMORY, cluster=cluster)
    ids = {i for v in judged for i in v.evidence}
    evidence = {e.event_id: e for e in store.events_by_id(ids)}
    since = now - timedelta(seconds=service.config.policy.restart_window_s)
    starts = {(a.cluster, a.job_id, a.submit_at): a for a in store.attempts(job_ids=jobs, cluster=cluster)}
    made = []
    for attempt in attempts:
        verdict = verdicts[attempt.cluster, attempt.job_id, attempt.submit_at]
        own = [v for v in judged if _is_of_job(v, attempt, starts)]
        deaths = [
            _death(v, starts.get((v.cluster, v.job_id, v.submit_at)), steps, evidence)
            for v in sorted(own, key=lambda v: v.submit_at)
        ]
        if not restart.concerns(verdict) and not restart_loop.loop(deaths):
            continue
        case = restart.EndedAttempt(
            attempt=attempt,
            verdict=verdict,
            evidence=tuple(evidence[i] for i in verdict.evidence if i in evidence),
            deaths=tuple(deaths),
            n_restarts=known.n_restarts(attempt, since),
        )
        if restart_loop.loop(deaths) or restart.is_ripe(case, now):
            made.append(case)
    return made


def _is_of_job(
    verdict: records.Verdict, attempt: records.JobAttempt, starts: Mapping[Key, records.JobAttempt]
) -> bool:
    """Whether a verdict is on this start of the job or an earlier one: Slurm uses an id again, and another cluster has it too."""
    if (verdict.cluster, verdict.job_id) != (attempt.cluster, attempt.job_id):
        return False
    start = starts.get((verdict.cluster, verdict.job_id, verdict.submit_at))
    return verdict.submit_at <= attempt.submit_at and (start is None or start.user == attempt.user)


def _death(
    verdict: records.Verdict,
    attempt: records.JobAttempt | None,
    steps: Iterable[records.HealthEvent],
    evidence: Mapping[uuid.UUID, records.HealthEvent],
) -> restart_loop.Death:
    """One end of a run: its cause, how far it was, and the program's own error where the log names one."""
    mine = [
        n
        for e in steps
        if attempt is not None and e.job_id == attempt.job_id and _within(e, attempt)
        and isinstance(n := e.detail.get("steps"), int)
    ]  # fmt: skip
    errors = (_error(evidence[i]) for i in verdict.evidence if i in evidence)
    return restart_loop.Death(
        cause=verdict.cause, step=max(mine, default=None), word=next(filter(None, errors), "")
    )


def _error(event: records.HealthEvent) -> str:
    """The error that the job's own side names in an event: KeyError; empty where it names none."""
    if event.source not in _ERROR_SOURCES:
        return ""
    exception = event.detail.get("exception")
    return exception if isinstance(exception, str) else event.code or ""


def _within(event: records.HealthEvent, attempt: records.JobAttempt) -> bool:
    if event.node not in attempt.nodes:  # whoever holds a node's certificate may name any job
        return False
    restarts = event.detail.get("restart_count")
    if isinstance(restarts, int) and attempt.restart_count is not None:
        return restarts == attempt.restart_count
    return (
        attempt.start_at is not None
        and attempt.start_at <= event.at
        and (attempt.end_at is None or event.at <= attempt.end_at + timedelta(seconds=30))
    )


def queue(service: context.Context, cases: Iterable[restart.EndedAttempt], now: datetime) -> restart.Queue:
    """Slurm's jobs and nodes, each asked for once, and who is known to have waited for these jobs."""
    names = {n for c in cases for n in (c.attempt.job_id, c.attempt.array_job_id, c.attempt.het_job_id) if n}
    waiting = service.store.dependencies([0, *names], service.config.cluster.name) if names else []
    return restart.Queue(
        now=now,
        jobs=restart_acts.by_id(service.slurm.queue()),
        nodes={n.name: n for n in service.slurm.nodes()},
        waiting=tuple(waiting),
    )


def green_nodes(service: context.Context, names: set[str], queue: restart.Queue, now: datetime) -> set[str]:
    """The nodes among these in service whose agents see no fault now and reported none for `policy.resume_green_s`."""
    since = now - timedelta(seconds=service.config.policy.resume_green_s)
    ages = service.store.heartbeat_ages_s(cluster=service.cluster)
    beats = {b.node: b for b in service.store.heartbeats(sorted(names), cluster=service.cluster)}
    bad = {
        e.node
        for e in service.store.events(
            nodes=sorted(names), since=since, min_severity="low", cluster=service.cluster
        )
    }
    return {
        name
        for name in names - bad
        if (node := queue.nodes.get(name)) is not None
        and not node.states & vocabulary.UNTOUCHABLE_STATES
        and (beat := beats.get(name)) is not None
        and confirm.is_current(beat, ages.get(name))
        and not beat.faults
    }
