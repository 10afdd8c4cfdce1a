"""Owed mails into mails: with the verdict as soon as there is one, else that it follows, and then it does.

Three statements a pass for all that wait, and one for each mail that is sent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import handover
from probing_cluster.core import errors, records
from probing_cluster.db import engines
from probing_cluster.reports import job_ref, model, query, rows
from probing_cluster.reports.sending import job_mail

GIVE_UP = timedelta(hours=24)
"""A verdict that has not come by then will not come."""
_ACCOUNTS = """
select run_key, max(end_at) as end_at from probing.run_account
where run_key = any(:keys) and cluster = :cluster
group by run_key
"""


def run(service: context.Context, now: datetime) -> list[str]:
    """One pass; the keys of the mails that were put into the outbox."""
    box = handover.box(service.config)
    waiting = [(kept, handover.of_letter(kept)) for kept in box.pending()]
    if not waiting:
        return []
    known: _Known | None
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
    return sent


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Known:
    """What accounting and attribution say of the jobs that mails are owed about."""

    attempts: Mapping[int, Sequence[records.JobAttempt]]
    judged: Mapping[tuple[int, datetime], datetime]
    """Attempt to when its verdict was made."""
    accounted: Mapping[str, datetime]
    """Run to the end of what its account counts."""

    def attempt(self, owed: handover.Owed) -> records.JobAttempt | None:
        """The attempt whose end the mail is about; None before accounting has its end."""
        found = [a for a in self.attempts.get(owed.job_id, ()) if _restarts(a) == owed.restart_count]
        latest = max(found, key=lambda a: a.submit_at, default=None)
        return latest if latest is not None and latest.end_at is not None else None

    def ready(self, owed: handover.Owed, now: datetime, patience: timedelta) -> bool:
        """Whether everything that will be judged has been, and its cost counted (for which less patience is due)."""
        if owed.array:
            tasks = self.attempts.get(owed.job_id, ())
            return bool(tasks) and all(a.end_at is not None and self._is_judged(a) for a in tasks)
        attempt = self.attempt(owed)
        if attempt is None or not self._is_judged(attempt) or attempt.end_at is None:
            return False
        judged_at = self.judged.get((attempt.job_id, attempt.submit_at), now)
        counted = self.accounted.get(attempt.run_key)
        return (counted is not None and counted >= attempt.end_at) or now - judged_at >= patience

    def _is_judged(self, attempt: records.JobAttempt) -> bool:
        return attempt.state == "COMPLETED" or (attempt.job_id, attempt.submit_at) in self.judged


def _restarts(attempt: records.JobAttempt) -> int:
    return attempt.attempt - 1 if attempt.restart_count is None else attempt.restart_count


def _read(service: context.Context, wanted: Sequence[handover.Owed]) -> _Known:
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
    return _Known(
        attempts=by_job,
        judged={(v.job_id, v.submit_at): v.made_at for v in verdicts},
        accounted={row["run_key"]: row["end_at"] for row in accounts},
    )


def _one(
    service: context.Context,
    box: queue.Outbox,
    kept: queue.Letter,
    owed: handover.Owed,
    known: _Known | None,
    now: datetime,
) -> list[str]:
    """What is sent about one owed mail now; crossed off only after its mail is in the outbox."""
    patience = timedelta(seconds=2 * service.config.service.attribution_poll_s)
    ready = known is not None and known.ready(owed, now, patience)
    waited = now - owed.at
    if not ready and waited < GIVE_UP:
        if owed.followed or waited.total_seconds() < service.config.service.mail_wait_s:
            return []
        key = _put(service, owed, None, "follows", now)
        box.update(handover.letter(dataclasses.replace(owed, followed=True)))
        return [key]
    report = _report(service, owed) if ready else None
    key = _put(service, owed, report, "verdict", now)
    box.done(kept)
    return [key]


def _put(
    service: context.Context,
    owed: handover.Owed,
    report: model.ReportModel | rows.ReportRows | None,
    stage: str,
    now: datetime,
) -> str:
    key = f"{owed.key}.{stage}"
    about = job_mail.About(
        job_id=owed.job_id,
        restart_count=owed.restart_count,
        subject=owed.subject,
        recipient=owed.recipient,
        mark=key,
        stage="never" if stage == "verdict" and report is None else stage,
        again=owed.followed,
        at=now,
    )
    made = job_mail.compose(about, report, service.config)
    queue.of(service.config).put(
        queue.Letter(
            key=key, kind="mail", lane="owners", body=bytes(made), recipients=(owed.recipient,), made_at=now
        )
    )
    return key


def _report(service: context.Context, owed: handover.Owed) -> model.ReportModel | rows.ReportRows:
    """The job's report; of an array the rows that tell of its tasks."""
    ref = job_ref.JobRef(base=owed.job_id)
    with engines.translated(), service.store.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        raw.execute("set local timezone = 'UTC'")
        document = query.fetch(raw, service.config.cluster.name, ref)
    found = rows.from_json(document)
    return found if owed.array else model.build(ref, found, now=service.clock.now())
