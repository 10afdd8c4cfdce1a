"""Owed mails into mails: with the verdict as soon as there is one, else that it follows, and then it does.

A few statements a pass for all that wait, and one for each mail that is sent.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import corrections, handover, job_facts, mail_pass
from probing_cluster.core import errors
from probing_cluster.reports import rows
from probing_cluster.reports.sending import job_mail

GIVE_UP = timedelta(hours=24)
"""A verdict that has not come by then will not come."""
_AT_ONCE = timedelta(minutes=1)
"""How far apart Slurm's mails about the end and the requeue of one start may be that are one story."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Waits:
    """What mails that were owed lately wait for."""

    ends_of: frozenset[int] = frozenset()
    """Jobs of which accounting has not told the end, and arrays, of which it may not have told every task."""
    verdicts: bool = False
    """Whether something that has settled is not judged."""
    accounts: bool = False
    """Whether a run's account lacks such an end."""


def run(service: context.Context, now: datetime) -> list[str]:
    """One pass; the keys of the mails that were put into the outbox."""
    box = handover.box(service.config)
    waiting = _without_twins(box, [(kept, handover.from_message(kept)) for kept in box.pending()])
    if not waiting:
        return []
    facts: job_facts.JobFacts | None
    try:
        facts = job_facts.read(service, [owed for _, owed in waiting])
    except errors.DatabaseUnavailable:
        facts = None  # "the verdict follows" needs no database
    found = mail_pass.MailPass(service=service, box=box, facts=facts, now=now)
    return found.each(waiting, _one, GIVE_UP)


def _without_twins(
    box: queue.Outbox, waiting: list[tuple[queue.QueuedMessage, handover.OwedMail]]
) -> list[tuple[queue.QueuedMessage, handover.OwedMail]]:
    """The mails that wait, one where Slurm told of a start's end and of its requeue at once: that of the requeue, unless the other was begun."""
    ends = {o.start: (kept, o) for kept, o in waiting if not o.requeued and not o.array}
    left = {kept.key: (kept, o) for kept, o in waiting}
    for kept, requeue in waiting:
        if not requeue.requeued or (twin := ends.get(requeue.start)) is None:
            continue
        if abs(requeue.at - twin[1].at) <= _AT_ONCE:
            needless = kept if twin[1].followed else twin[0]
            box.done(needless)
            left.pop(needless.key, None)
    return list(left.values())


def waits_for(service: context.Context, now: datetime) -> Waits:
    """What mails wait for that were owed lately; raises DatabaseUnavailable."""
    pending = map(handover.from_message, handover.box(service.config).pending())
    owing = [owed for owed in pending if not owed.followed]
    if not owing:
        return Waits()
    known = job_facts.read(service, owing)
    settled = now - timedelta(seconds=service.config.service.settle_s)
    of_each = {o: known.of(o) for o in owing}
    ended = [a for found in of_each.values() for a in found if a.end_at is not None and a.end_at <= settled]
    return Waits(
        ends_of=frozenset(
            o.job_id
            for o, found in of_each.items()
            if o.array or (not found and o not in known.never_started) or any(a.end_at is None for a in found)
        ),
        verdicts=any(not known.is_judged(a) or known.awaits_output(a) for a in ended)
        or not all(known.never_started.values()),
        accounts=any(not known.is_counted(a) for a in ended),
    )


def _one(mails: mail_pass.MailPass, kept: queue.QueuedMessage, owed: handover.OwedMail) -> list[str]:
    """Sends what one owed mail needs now; the debt is deleted only after the mail is in the outbox."""
    service, facts, waited = mails.service, mails.facts, mails.now - owed.at
    ready = facts is not None and facts.ready(owed, mails.now, service.config.service)
    report = mails.report_on(owed, has_started=bool(facts and facts.of(owed))) if ready else None
    if isinstance(report, rows.ReportRows) and not _is_judged(report):
        ready, report = False, None  # a task was read between the two looks
    if not ready and waited < GIVE_UP:
        if owed.followed or waited.total_seconds() < service.config.service.mail_wait_s:
            return []
        key = mails.put(owed, None, "follows")
        mails.box.update(handover.message(dataclasses.replace(owed, followed=True)))
        return [key]
    key = mails.put(owed, report, "verdict")
    mailed = job_mail.verdict_of(owed.restart_count, report)
    if mailed is not None and mailed.author == mail_pass.RULES and waited < corrections.CORRECTABLE:
        corrections.keep(service.config, owed, mailed)
    mails.box.done(kept)
    return [key]


def _is_judged(array: rows.ReportRows) -> bool:
    """Whether each task that did not complete has its cause."""
    return all(task.cause or task.state == "COMPLETED" for task in array.siblings)
