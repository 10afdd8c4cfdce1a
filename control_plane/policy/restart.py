"""Whether an attempt that ended by itself is brought back: decided from one picture of the queue, every reason against it in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from probing_cluster.control_plane.policy import budget, restart_loop, victims, view
from probing_cluster.core import hostlist, records, sanitize, settings, vocabulary
from probing_cluster.slurm_plugins.acts import restarts
from probing_cluster.slurm_plugins.live import live_records

CANDIDATES = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"})
"""States of an attempt about which something is decided; a requeue, a preemption and a good end need nothing."""
SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)
EVIDENCE_COMES = timedelta(seconds=60)
"""How long after an attempt's end its nodes' evidence may still arrive: mounts and links are polled, and agents report at intervals."""
RUN_BUDGET = "budget: its run was restarted"
"""Begins what is said of a run's own budget; that of drains is another."""
WAIT = "wait"
"""Not decided yet: its nodes are not free."""
_SINGLETON = 0
"""The number under which a dependency on every job of the same name is kept."""


@records.record
class EndedAttempt:
    """One attempt that ended, and what is known of its run."""

    attempt: records.JobAttempt = records.doc("as accounting has it")
    verdict: records.Verdict = records.doc("why it ended")
    evidence: tuple[records.HealthEvent, ...] = records.doc("the verdict's events", default=())
    deaths: tuple[restart_loop.Death, ...] = records.doc("ends of its run, this one last", default=())
    n_restarts: int = records.doc("times the run was restarted within policy.restart_window_s", default=0)


@records.record
class Queue:
    """Slurm's jobs and nodes, read just before the decision."""

    now: datetime = records.doc("the instant of the decision")
    jobs: Mapping[int, live_records.LiveJob] = records.doc("every job that slurmctld holds, by raw id")
    nodes: Mapping[str, view.Node] = records.doc("Slurm's nodes by name")
    waiting: tuple[records.JobDependency, ...] = records.doc("who waited for the jobs decided on", default=())


@records.record
class RestartDecision:
    """One attempt to bring back, or not and why."""

    case: EndedAttempt = records.doc("the attempt")
    leader: int = records.doc("the job that Slurm is told of: the leader of a het job")
    components: tuple[int, ...] = records.doc("its components; of a plain job itself", default=())
    restart_count: int = records.doc("Slurm's restart count of the start that ended", default=0)
    start_at: datetime | None = records.doc("that start, by Slurm", default=None)
    exclude: tuple[str, ...] = records.doc("nodes to leave out of it", default=())
    dependents: Mapping[int, int] = records.doc(
        "jobs whose dependency must be set again, with the number of it that they wait for",
        default_factory=dict,
    )
    held: str = records.doc("skipped, denied or wait; empty when it is to be done", default="")
    why: str = records.doc("why it is held back", default="")
    loop: bool = records.doc("true when a restart loop is why", default=False)


def concerns(verdict: records.Verdict) -> bool:
    """Whether a verdict names hardware or a node, at least likely."""
    if verdict.confidence not in SURE:
        return False
    of_a_node = verdict.domain is records.Domain.SYSTEM_SOFTWARE and verdict.node is not None
    return verdict.domain is records.Domain.HARDWARE or of_a_node


def decide(
    case: EndedAttempt, queue: Queue, policy: settings.PolicySettings, ledger: budget.Ledger
) -> RestartDecision:
    """What becomes of one attempt; a node that is left out counts against the budget at once."""
    attempt = case.attempt
    leader = attempt.het_job_id or attempt.job_id
    live = queue.jobs.get(leader)
    base = RestartDecision(case=case, leader=leader)
    found = restart_loop.loop(case.deaths)
    if found:
        return _held(base, "skipped", found, loop=True)
    for state, why in (*_of_the_verdict(case, policy), *_of_the_job(case, live, queue)):
        if why:
            return _held(base, state, why)
    assert live is not None
    assert case.verdict.node is not None
    exclude, state, why = _left_out(case, live, queue, ledger)
    if why:
        return _held(base, state, why)
    return RestartDecision(
        case=case,
        leader=leader,
        components=tuple(sorted(j.job_id for j in _components(leader, queue))),
        restart_count=live.restart_count,
        start_at=live.start_at,
        exclude=exclude,
        dependents=_stuck(attempt, queue),
    )


def _of_the_verdict(case: EndedAttempt, policy: settings.PolicySettings) -> Iterator[tuple[str, str]]:
    attempt, verdict = case.attempt, case.verdict
    by = f" by {attempt.cancelled_by}" if attempt.cancelled_by else ""
    yield "skipped", f"it was cancelled{by}" if attempt.state == "CANCELLED" else ""
    yield "skipped", "" if verdict.node else "the verdict names no node to leave out"
    yield (
        "skipped",
        ""
        if is_witnessed(case.evidence)
        else "no node reported a fault: the verdict rests on the job's own ranks and output",
    )
    yield "denied", spent(case.n_restarts, policy)


def spent(n_restarts: int, policy: settings.PolicySettings) -> str:
    """Words about a run that was restarted as often as it may be; empty for another."""
    n, hours = policy.restarts_per_run, policy.restart_window_s / 3600
    return f"{RUN_BUDGET} {n_restarts} of {n} times within {hours:g} h" if n_restarts >= n else ""


def is_ripe(case: EndedAttempt, now: datetime) -> bool:
    """Whether a decision may be made: one without a node's evidence is final, and that may be on its way."""
    end_at = case.attempt.end_at
    return is_witnessed(case.evidence) or end_at is None or now - end_at >= EVIDENCE_COMES


def is_witnessed(evidence: Iterable[records.HealthEvent]) -> bool:
    """Whether a node itself saw what the verdict names."""
    return any(_by_the_node(e) for e in evidence)


def _by_the_node(event: records.HealthEvent) -> bool:
    """Whether an event is a witness that no user's process can be; a log that a person imported is history."""
    return event.source not in vocabulary.JOB_SIDE_SOURCES and event.source != "import"


def _of_the_job(
    case: EndedAttempt, live: live_records.LiveJob | None, queue: Queue
) -> Iterator[tuple[str, str]]:
    attempt = case.attempt
    if live is None or attempt.start_at is None:
        yield "skipped", "Slurm holds the job no longer (MinJobAge)"
        return
    family = _components(live.job_id, queue)
    yield WAIT, "its nodes are not free yet" if any(j.completing for j in family) else ""
    for job in family:
        yield (
            "skipped",
            _with_subject(restarts.why_not_requeued(job, job.start_at or queue.now, live.restart_count)),
        )
    own = next((j for j in family if j.job_id == attempt.job_id), live)
    yield "skipped", "" if own.start_at == attempt.start_at else "Slurm now shows another start of it"
    yield "skipped", _dependent(attempt, queue)
    yield "skipped", _resubmitted(attempt, live, queue)


def _with_subject(why: str) -> str:
    return f"it {why}" if why else ""


def _components(leader: int, queue: Queue) -> list[live_records.LiveJob]:
    """The parts of a het job; of a plain job itself."""
    found = [j for j in queue.jobs.values() if j.het_job_id == leader]
    return sorted(found, key=lambda j: j.job_id) or [queue.jobs[leader]]


def _names(attempt: records.JobAttempt) -> frozenset[int]:
    """The numbers by which others may wait for it."""
    known = (attempt.job_id, attempt.array_job_id, attempt.het_job_id)
    return frozenset(n for n in known if n is not None)


def _dependent(attempt: records.JobAttempt, queue: Queue) -> str:
    """Words about a job of the same owner that waited for this one and has gone on without it.

    Anyone may wait for anyone's job, so only the owner's own count: a stranger must not be able to forbid a restart.
    """
    names = _names(attempt)
    waited = {d.job_id for d in queue.waiting if d.on_job_id in names}
    chained = {d.job_id for d in queue.waiting if d.on_job_id == _SINGLETON}
    for job in sorted(queue.jobs.values(), key=lambda j: j.job_id):
        if job.user != attempt.user or job.job_id in names or _same_family(job, attempt):
            continue
        if job.name == attempt.name and (job.job_id in chained or "singleton" in job.dependency):
            if job.state == "PENDING" or (job.start_at and attempt.end_at and job.start_at >= attempt.end_at):
                return f"job {job.job_id} takes its place (dependency singleton)"
        elif job.job_id in waited or names & restarts.depends_on(job.dependency):
            if job.state == "CANCELLED":
                return f"job {job.job_id}, which waited for it, has been cancelled"
            if job.state != "PENDING":
                return f"job {job.job_id}, which waited for it, has started"
    return ""


def _resubmitted(attempt: records.JobAttempt, live: live_records.LiveJob, queue: Queue) -> str:
    """Words about another job of the same owner, name, script and directory that was submitted since the end."""
    for job in sorted(queue.jobs.values(), key=lambda j: j.job_id):
        alike = (job.user, job.name, job.command, job.work_dir) == (
            live.user,
            live.name,
            live.command,
            live.work_dir,
        )
        later = job.submit_at and attempt.end_at and job.submit_at >= attempt.end_at
        if alike and later and job.restart_count == 0 and not _same_family(job, attempt):
            return f"{vocabulary.RESUBMITTED} as job {job.job_id}"
    return ""


def _same_family(job: live_records.LiveJob, attempt: records.JobAttempt) -> bool:
    """The job itself, a task of its array or a component of its het job."""
    if job.job_id == attempt.job_id:
        return True
    array = attempt.array_job_id is not None and job.array_job_id == attempt.array_job_id
    return array or (attempt.het_job_id is not None and job.het_job_id == attempt.het_job_id)


def _stuck(attempt: records.JobAttempt, queue: Queue) -> dict[int, int]:
    """Jobs that wait for its success, for ever as things are; anybody's, since setting them again costs nobody anything."""
    names = _names(attempt)
    found: dict[int, int] = {}
    for job in queue.jobs.values():
        on = names & restarts.depends_on(job.dependency)
        if on and job.state == "PENDING" and (job.reason == restarts.STUCK or "failed" in job.dependency):
            found[job.job_id] = min(on)
    return found


def _left_out(
    case: EndedAttempt, live: live_records.LiveJob, queue: Queue, ledger: budget.Ledger
) -> tuple[tuple[str, ...], str, str]:
    """The nodes to leave out; or why it cannot come back without its culprit: (), state, words."""
    name = case.verdict.node or ""
    node = queue.nodes.get(name)
    if node is None:
        return (), "skipped", f"Slurm knows no node {name}"
    if why := named(live, queue, name):
        return (), "skipped", why
    if node.states & vocabulary.DRAINED_STATES or name in live.excluded_nodes:
        return (), "", ""
    away = {name, *live.excluded_nodes}
    others = [n.name for n in queue.nodes.values() if live.partition in n.partitions and n.name not in away]
    needed = max(len(case.attempt.nodes), 1)
    if len(others) < needed:
        if "DOWN" in node.states:
            return (), "", ""  # nothing starts there until it is back
        own = [n for n in live.excluded_nodes if n in queue.nodes]
        apart = f" and {hostlist.compress(own)}, which the job excludes" if own else ""
        short = (
            f"it needs {needed} nodes, and partition {live.partition} has {len(others)} without {name}{apart}"
        )
        return (), "skipped", f"{short}; {name} is not drained"
    denied = ledger.refuses(name, leaves_service=False)
    if denied:
        return (), "denied", denied
    ledger.take(name)
    return (name,), "", ""


def named(live: live_records.LiveJob, queue: Queue, node: str) -> str:
    """Words about a part of the job that names the node, which it would wait for instead of starting elsewhere."""
    words = (victims.asks_for(j.required_nodes, node) for j in _components(live.job_id, queue))
    return next(filter(None, words), "")


def reason_for(verdict: records.Verdict) -> str:
    """`probing: gpu_lost n2 gpu3`."""
    words = (vocabulary.OWN_PREFIX.strip(), verdict.cause, verdict.node, verdict.device)
    return sanitize.clean(" ".join(w for w in words if w), 160)


def _held(base: RestartDecision, state: str, why: str, *, loop: bool = False) -> RestartDecision:
    return RestartDecision(
        case=base.case, leader=base.leader, held=state, why=sanitize.clean(why, 300), loop=loop
    )
