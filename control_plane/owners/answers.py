"""Owed mails into mails: with the verdict as soon as there is one, else that it follows, and then it does.

A few statements a pass for all that wait, and one for each mail that is sent.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import handover, never_started
from probing_cluster.control_plane.policy import restart, restart_loop, view
from probing_cluster.core import errors, records, settings
from probing_cluster.db import engines
from probing_cluster.reports import job_ref, model, query, rows
from probing_cluster.reports.sending import job_mail

LOG = logging.getLogger("probing.owners")
GIVE_UP = timedelta(hours=24)
"""A verdict that has not come by then will not come."""
_ACCOUNTS = """
select run_key, max(end_at) as end_at from probing.run_account
where run_key = any(:keys) and cluster = :cluster
group by run_key
"""
_LOST = "node_lost"
_LOOP_KNOWN = timedelta(seconds=5)
"""How long after its verdict it is known whether a start belongs to a restart loop."""
_CORRECTABLE = timedelta(hours=1)
"""A verdict that is made later than this after the job's end corrects no mail."""
_CORRECTIONS_EVERY_S = 10.0
"""How often mails of the last hour are held against the verdicts: there may be thousands."""
_CORRECTIONS = 20
"""Most corrections to one recipient in an hour: what ends many jobs at once may keep all their evidence from coming in time."""
_RULES = "rules"
_NO_OUTPUT = frozenset({"NODE_FAIL", "BOOT_FAIL"})
"""States in which the node that could read the output is mostly gone."""
_ASIDE = timedelta(hours=1)
"""A verdict that is given anew may be younger than the decision that rested on the one before."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waits:
    """What mails that were owed lately wait for."""

    ends_of: frozenset[int] = frozenset()
    """Jobs of which accounting has not told the end, and arrays, of which it may not have told every task."""
    verdicts: bool = False
    """Whether something that has settled is not judged."""
    accounts: bool = False
    """Whether a run's account lacks such an end."""


@dataclasses.dataclass(kw_only=True)
class _Corrections:
    """When each recipient was sent corrections, in the last hour; of this process: a restarted service counts anew."""

    sent_at: dict[str, list[datetime]] = dataclasses.field(default_factory=dict)

    def allows(self, recipient: str, now: datetime) -> bool:
        """Whether one more may be sent, which then counts."""
        lately = [at for at in self.sent_at.get(recipient, ()) if now - at < timedelta(hours=1)]
        is_allowed = len(lately) < _CORRECTIONS
        self.sent_at[recipient] = [*lately, now] if is_allowed else lately
        return is_allowed


def run(service: context.Context, now: datetime) -> list[str]:
    """One pass; the keys of the mails that were put into the outbox."""
    box = handover.box(service.config)
    now_s = service.clock.monotonic_s()
    corrects = service.seldom("owners_corrections", _CORRECTIONS_EVERY_S, lambda: now_s) == now_s
    waiting = [(kept, handover.of_letter(kept)) for kept in box.pending()]
    waiting = [(kept, owed) for kept, owed in waiting if corrects or not owed.mailed_cause]
    if not waiting:
        return []
    known: _JobFacts | None
    try:
        known = _read(service, [owed for _, owed in waiting])
    except errors.DatabaseUnavailable:
        known = None  # "the verdict follows" needs no database
    sent = []
    for kept, owed in waiting:
        try:
            sent += _one(service, box, kept, owed, known, now)
        except errors.DatabaseUnavailable:
            continue
        except Exception:  # what users wrote is in it: the others get theirs
            LOG.exception("an owner's mail cannot be made", extra={"fields": {"key": kept.key}})
            if now - owed.at >= GIVE_UP:
                box.done(kept)
    return sent


@dataclasses.dataclass(frozen=True, kw_only=True)
class _JobFacts:
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
    never_started: Mapping[int, bool] = dataclasses.field(default_factory=dict)
    """Jobs that ended while they waited, to whether it is known how what they waited for ended."""

    def of(self, owed: handover.OwedMail) -> Sequence[records.JobAttempt]:
        """The attempts that the mail is about: of an array every task, else one."""
        found = self.attempts.get(owed.job_id, ())
        if owed.array:
            return found
        mine = [a for a in found if _restarts(a) == owed.restart_count]
        return [max(mine, key=lambda a: a.submit_at)] if mine else []

    def ready(self, owed: handover.OwedMail, now: datetime, config: settings.ServiceSettings) -> bool:
        """Whether everything that will be judged has been, its restart decided, and its cost counted (for which less patience is due)."""
        found, may_wait = self.of(owed), now - owed.at < timedelta(seconds=config.mail_wait_s)
        if not found:
            return self.never_started.get(owed.job_id, False) or (
                not may_wait and owed.job_id in self.never_started
            )
        if not all(a.end_at is not None and self.is_judged(a) for a in found):
            return False
        if may_wait and any(map(self.awaits_output, found)):
            return False
        if owed.array:
            # Its last tasks may not be on record yet: accounting is asked for them until then.
            return not may_wait or now - owed.at >= timedelta(seconds=config.settle_s)
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

    def is_final(self, attempt: records.JobAttempt, now: datetime, config: settings.ServiceSettings) -> bool:
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


def _restarts(attempt: records.JobAttempt) -> int:
    return attempt.attempt - 1 if attempt.restart_count is None else attempt.restart_count


def _read(service: context.Context, wanted: Sequence[handover.OwedMail]) -> _JobFacts:
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
    return _JobFacts(
        attempts=by_job,
        verdicts={(v.job_id, v.submit_at): v for v in verdicts},
        accounted={row["run_key"]: row["end_at"] for row in accounts},
        awaiting=_awaiting(service, verdicts),
        decided_at=_decided_at(service, verdicts),
        never_started=never_started.ends(
            service,
            {o.job_id for o in wanted if o.job_id not in by_job or o.restart_count},
            min(o.at for o in wanted),
        ),
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


def waits_for(service: context.Context, now: datetime) -> Waits:
    """What mails wait for that were owed lately; raises DatabaseUnavailable."""
    pending = map(handover.of_letter, handover.box(service.config).pending())
    owing = [o for o in pending if not o.followed and not o.mailed_cause]
    if not owing:
        return Waits()
    known = _read(service, owing)
    settled = now - timedelta(seconds=service.config.service.settle_s)
    of_each = {o: known.of(o) for o in owing}
    ended = [a for found in of_each.values() for a in found if a.end_at is not None and a.end_at <= settled]
    return Waits(
        ends_of=frozenset(
            o.job_id
            for o, found in of_each.items()
            if o.array
            or (not found and o.job_id not in known.never_started)
            or any(a.end_at is None for a in found)
        ),
        verdicts=any(not known.is_judged(a) or known.awaits_output(a) for a in ended)
        or not all(known.never_started.values()),
        accounts=any(not known.is_counted(a) for a in ended),
    )


def _one(
    service: context.Context,
    box: queue.Outbox,
    kept: queue.QueuedMessage,
    owed: handover.OwedMail,
    known: _JobFacts | None,
    now: datetime,
) -> list[str]:
    """Sends what one owed mail needs now; the debt is deleted only after the mail is in the outbox."""
    if owed.mailed_cause:
        return _correct(service, box, kept, owed, known, now)
    ready = known is not None and known.ready(owed, now, service.config.service)
    waited = now - owed.at
    report = _report(service, owed, has_started=bool(known and known.of(owed))) if ready else None
    if isinstance(report, rows.ReportRows) and not _is_judged(report):
        ready, report = False, None  # a task was read between the two looks
    if not ready and waited < GIVE_UP:
        if owed.followed or waited.total_seconds() < service.config.service.mail_wait_s:
            return []
        key = _put(service, owed, None, "follows", now)
        box.update(handover.message(dataclasses.replace(owed, followed=True)))
        return [key]
    key = _put(service, owed, report, "verdict", now)
    mailed = job_mail.verdict_of(owed.restart_count, report)
    if mailed is None or mailed.author != _RULES or waited >= _CORRECTABLE:
        box.done(kept)
    else:
        after = dataclasses.replace(owed, mailed_cause=mailed.cause, mailed_domain=mailed.domain.value)
        box.update(handover.message(after))
    return [key]


def _is_judged(array: rows.ReportRows) -> bool:
    """Whether each task that did not complete has its cause."""
    return all(task.cause or task.state == "COMPLETED" for task in array.siblings)


def _correct(
    service: context.Context,
    box: queue.Outbox,
    kept: queue.QueuedMessage,
    owed: handover.OwedMail,
    known: _JobFacts | None,
    now: datetime,
) -> list[str]:
    """Sends one correction if the verdict, made within the hour, has another cause or domain than the mail."""
    if known is None:
        return []
    found = known.of(owed)
    verdict = known.verdict_on(found[0]) if found else None
    # A person who gives a verdict tells the owner themselves.
    is_other = (
        verdict is not None
        and verdict.author == _RULES
        and verdict.made_at - owed.at < _CORRECTABLE
        and (owed.mailed_cause, owed.mailed_domain) != (verdict.cause, verdict.domain.value)
    )
    if now - owed.at < _CORRECTABLE and not (
        is_other and known.is_final(found[0], now, service.config.service)
    ):
        return []
    keys = []
    if is_other:
        if service.memory(_Corrections).allows(owed.recipient, now):
            keys.append(_put(service, owed, _report(service, owed, has_started=True), "correction", now))
        else:
            LOG.info("a correction is left out", extra={"fields": {"key": owed.key}})
    box.done(kept)
    return keys


def _put(
    service: context.Context,
    owed: handover.OwedMail,
    report: job_mail.Report | None,
    stage: str,
    now: datetime,
) -> str:
    key = f"{owed.key}.{stage}"
    about = job_mail.MailHeader(
        job_id=owed.job_id,
        restart_count=owed.restart_count,
        subject=owed.subject,
        recipient=owed.recipient,
        mark=key,
        stage="never" if stage == "verdict" and report is None else stage,
        again=owed.followed,
        mailed=(owed.mailed_domain, owed.mailed_cause),
        at=now,
    )
    made = job_mail.compose(about, report, service.config)
    queue.of(service.config).put(
        queue.QueuedMessage(
            key=key, kind="mail", lane="owners", body=bytes(made), recipients=(owed.recipient,), made_at=now
        )
    )
    return key


def _report(
    service: context.Context, owed: handover.OwedMail, *, has_started: bool
) -> job_mail.Report | None:
    """The job's report; of an array the rows of its tasks; of a job that ended while it waited, how."""
    ref = job_ref.JobRef(base=owed.job_id)
    with engines.translated(), service.store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("set local timezone = 'UTC'")
        if not has_started:
            return query.never_started(raw, service.config.cluster.name, ref)
        document = query.fetch(raw, service.config.cluster.name, ref)
    found = rows.from_json(document)
    return found if owed.array else model.build(ref, found, now=service.clock.now())
