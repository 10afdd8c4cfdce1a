"""What accounting and attribution have of the jobs that mails are owed about; a few statements for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import ended_waiting, handover
from probing_cluster.control_plane.policy import restart, restart_loop, view
from probing_cluster.core import records, settings
from probing_cluster.core.catalogue import slurm_lines

_ACCOUNTS = """
select run_key, max(end_at) as end_at from probing.run_account
where run_key = any(:keys) and cluster = :cluster
group by run_key
"""
_LOST = "node_lost"
_LOOP_KNOWN = timedelta(seconds=5)
"""How long after its verdict it is known whether a start belongs to a restart loop."""
_NO_OUTPUT = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States in which the node that could read the output is mostly gone."""
_SUMMED_UP = timedelta(minutes=10)
"""After this an array's summary counts what is on record: of tasks that never started there is none."""
_ASIDE = timedelta(hours=1)
"""A verdict that is given anew may be younger than the decision that rested on the one before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobFacts:
    """What accounting and attribution say of the jobs that mails are owed about."""

    attempts: Mapping[int, Sequence[records.JobAttempt]]
    verdicts: Mapping[tuple[int, datetime], records.Verdict]
    """Attempt to its verdict."""
    accounted: Mapping[str, datetime]
    """Run to the end of what its account counts."""
    awaiting: Collection[tuple[int, datetime]]
    """Attempts about whose restart something will be decided: what their owners are to do hangs on it."""
    decided_at: Mapping[int, datetime]
    """Job to when that was decided last."""
    unwitnessed: Collection[tuple[int, datetime]] = frozenset()
    """Attempts of which only Slurm says that a node was lost: its agent's silence, its next beats or a person's note decide within a minute."""
    never_started: Mapping[handover.OwedMail, bool] = dataclasses.field(default_factory=dict)
    """Mails about jobs that ended while they waited, to whether it is known how what they waited for ended."""

    def of(self, owed: handover.OwedMail) -> Sequence[records.JobAttempt]:
        """The attempts that the mail is about: of an array every task, else one."""
        return _attempts_of(self.attempts, owed)

    def ready(self, owed: handover.OwedMail, now: datetime, config: settings.ServiceSettings) -> bool:
        """Whether everything that will be judged has been, its restart decided, and its cost counted (for which less patience is due)."""
        found, may_wait = self.of(owed), now - owed.at < timedelta(seconds=config.mail_wait_s)
        if not found:
            return self.never_started.get(owed, False) or (not may_wait and owed in self.never_started)
        if not all(a.end_at is not None and self.is_judged(a) for a in found):
            return False
        if may_wait and any(map(self.awaits_output, found)):
            return False
        if owed.array:
            # Its last tasks may not be on record yet: accounting is asked for them until then.
            waited = now - owed.at
            return waited >= _SUMMED_UP or (
                waited >= timedelta(seconds=config.accounting_poll_s + config.settle_s)
                and _agrees(owed, found)
            )
        (attempt,) = found
        if may_wait and (
            self._is_undecided(attempt) or (attempt.job_id, attempt.submit_at) in self.unwitnessed
        ):
            return False
        verdict = self.verdict_on(attempt)
        judged_at = verdict.made_at if verdict is not None else now
        return self.is_counted(attempt) or now - judged_at >= timedelta(seconds=2 * config.attribution_poll_s)

    def awaits_output(self, attempt: records.JobAttempt) -> bool:
        """Whether its verdict was made before its output was read, and it may yet be read."""
        verdict = self.verdict_on(attempt)
        return verdict is not None and verdict.log_read is False and attempt.state not in _NO_OUTPUT

    def may_correct_now(
        self, attempt: records.JobAttempt, now: datetime, config: settings.ServiceSettings
    ) -> bool:
        """Whether its output was read, or has been waited for long enough since the verdict: there is one correction."""
        verdict = self.verdict_on(attempt)
        waited_s = (now - verdict.made_at).total_seconds() if verdict is not None else 0.0
        return not self.awaits_output(attempt) or waited_s >= config.mail_wait_s

    def verdict_on(self, attempt: records.JobAttempt) -> records.Verdict | None:
        """Its verdict; None until it has one."""
        return self.verdicts.get((attempt.job_id, attempt.submit_at))

    def _is_undecided(self, attempt: records.JobAttempt) -> bool:
        if attempt.state not in restart.CANDIDATES or attempt.end_at is None:
            return False
        decided_at = self.decided_at.get(attempt.job_id)
        is_old = decided_at is None or decided_at < attempt.end_at
        return is_old and (attempt.job_id, attempt.submit_at) in self.awaiting

    def is_counted(self, attempt: records.JobAttempt) -> bool:
        """Whether its run's account goes as far as its end."""
        counted = self.accounted.get(attempt.run_key)
        return counted is not None and attempt.end_at is not None and counted >= attempt.end_at

    def is_judged(self, attempt: records.JobAttempt) -> bool:
        """Whether it has its verdict, or needs none."""
        return attempt.state == "COMPLETED" or self.verdict_on(attempt) is not None


def _agrees(owed: handover.OwedMail, tasks: Sequence[records.JobAttempt]) -> bool:
    """False while the tasks on record are not all those that Slurm's own subject speaks of."""
    if (ended := slurm_lines.array_ending(owed.subject)) is None:
        return True
    died = any(task.state != "COMPLETED" for task in tasks)
    return (died or not ended.failed) and (len(tasks) > 1 or not ended.mixed)


def _attempts_of(
    attempts: Mapping[int, Sequence[records.JobAttempt]], owed: handover.OwedMail
) -> Sequence[records.JobAttempt]:
    found = attempts.get(owed.job_id, ())
    if owed.array:
        return found
    # An array's number is the raw id of one task, too: the others are not this mail's.
    mine = [a for a in found if a.job_id == owed.job_id and a.n_restarts == owed.restart_count]
    return [max(mine, key=lambda a: a.submit_at)] if mine else []


def read(service: context.Context, wanted: Sequence[handover.OwedMail]) -> JobFacts:
    """What the mails' jobs are known to have come to; raises DatabaseUnavailable."""
    jobs = sorted({owed.job_id for owed in wanted})
    by_job: dict[int, list[records.JobAttempt]] = {}
    for attempt in service.store.attempts(job_ids=jobs, cluster=service.config.cluster.name):
        for job_id in {attempt.job_id, attempt.array_job_id, attempt.het_job_id} - {None}:
            assert job_id is not None
            by_job.setdefault(job_id, []).append(attempt)
    ids = sorted({a.job_id for found in by_job.values() for a in found})
    verdicts = service.store.verdicts(job_ids=ids) if ids else []
    keys = sorted({a.run_key for found in by_job.values() for a in found if a.run_key})
    given = {"keys": keys, "cluster": service.config.cluster.name}
    accounts = service.store.rows(_ACCOUNTS, given) if keys else []
    return JobFacts(
        attempts=by_job,
        verdicts={(v.job_id, v.submit_at): v for v in verdicts},
        accounted={row["run_key"]: row["end_at"] for row in accounts},
        awaiting=_awaiting(service, verdicts),
        decided_at=_decided_at(service, verdicts),
        never_started=ended_waiting.ends(service, [o for o in wanted if not _attempts_of(by_job, o)]),
        unwitnessed={(v.job_id, v.submit_at) for v in verdicts if v.cause == _LOST and not v.evidence},
    )


def _awaiting(service: context.Context, verdicts: Sequence[records.Verdict]) -> set[tuple[int, datetime]]:
    """Attempts that a node saw die of hardware, and those judged just now that may be in a loop."""
    if not service.config.policy.restart_ended:
        return set()
    fresh = service.clock.now() - _LOOP_KNOWN
    concerned = [v for v in verdicts if restart.concerns(v)]
    ids = {i for v in concerned for i in v.evidence}
    evidence = {e.event_id: e for e in service.store.events_by_id(ids)} if ids else {}
    wanted = [v for v in verdicts if v.attempt >= restart_loop.STARTS and v.made_at > fresh]
    wanted += [v for v in concerned if restart.is_witnessed(evidence[i] for i in v.evidence if i in evidence)]
    return {(v.job_id, v.submit_at) for v in wanted}


def _decided_at(service: context.Context, verdicts: Sequence[records.Verdict]) -> dict[int, datetime]:
    """Job, or part of a het job, to when its restart was last decided and done, or not."""
    if not verdicts:
        return {}
    rows = service.store.drains(
        since=min(v.made_at for v in verdicts) - _ASIDE, actions=["restart"], cluster=service.cluster
    )
    return {
        int(job_id): row.at
        for row in rows
        if not view.is_begun(row)
        for job_id in (row.job_id, *row.detail.get("components", ()))
        if job_id is not None
    }
