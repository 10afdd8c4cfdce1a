"""Verdict mails of the last hour: each is corrected, once, if its verdict's cause or domain changes, or output that was read since changes its next step.

They lie in a directory of their own. What waits for its first mail keeps the form that the release before reads, to which a site may go back.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from datetime import datetime, timedelta
from pathlib import Path

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import handover, job_facts, mail_pass
from probing_cluster.core import errors, records, settings
from probing_cluster.reports.sending import job_mail

LOG = logging.getLogger("probing.owners")
KIND = "mailed"
CORRECTABLE = timedelta(hours=1)
"""A verdict that is made later than this after the job's end corrects no mail."""
_EVERY_S = 10.0
"""How often mails of the last hour are held against the verdicts: there may be thousands."""
_MOST = 20
"""Most corrections to one recipient in an hour: what ends many jobs at once may keep all their evidence from coming in time."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MailedVerdict:
    """A mail that went out with a verdict."""

    owed: handover.OwedMail
    cause: str
    domain: str
    next_step: str = ""
    log_read: bool | None = None
    """As of the verdict that was mailed; false: it was made before the job's output was read."""

    def differs_from(self, verdict: records.Verdict | None) -> bool:
        """Whether this verdict is one to correct the mail by. A person who gives a verdict tells the owner themselves."""
        return (
            verdict is not None
            and verdict.author == mail_pass.RULES
            and verdict.made_at - self.owed.at < CORRECTABLE
            and (
                (self.cause, self.domain) != (verdict.cause, verdict.domain.value)
                or self._is_read_now(verdict)
            )
        )

    def _is_read_now(self, verdict: records.Verdict) -> bool:
        """Whether the mail's verdict was made without the job's output, and what that holds changes what to do."""
        return self.log_read is False and verdict.log_read is True and self.next_step != verdict.next_step


@dataclasses.dataclass(kw_only=True)
class _Corrections:
    """When each recipient was sent corrections, in the last hour; of this process: a restarted service counts anew."""

    sent_at: dict[str, list[datetime]] = dataclasses.field(default_factory=dict)

    def take(self, recipient: str, now: datetime) -> bool:
        """Whether one more may be sent, which then counts."""
        lately = [at for at in self.sent_at.get(recipient, ()) if now - at < timedelta(hours=1)]
        is_allowed = len(lately) < _MOST
        self.sent_at[recipient] = [*lately, now] if is_allowed else lately
        return is_allowed


def box(config: settings.Settings) -> queue.Outbox:
    """The directory of the mails that may still be corrected."""
    return queue.Outbox(
        Path(config.mail.spool_directory) / "mailed",
        retry=timedelta(seconds=1),
        keep_trying=timedelta(days=1),
    )


def keep(config: settings.Settings, owed: handover.OwedMail, verdict: records.Verdict) -> None:
    """Keep what was mailed; no effect if it is kept already, or was corrected."""
    mailed = MailedVerdict(
        owed=owed,
        cause=verdict.cause,
        domain=verdict.domain.value,
        next_step=verdict.next_step,
        log_read=verdict.log_read,
    )
    box(config).put(message(mailed))


def message(mailed: MailedVerdict) -> queue.QueuedMessage:
    """A mailed verdict as it is kept."""
    owed = mailed.owed
    own = records.json_fields(mailed, "cause", "domain", "next_step", "log_read")
    row = {"owed": handover.as_row(owed), **own}
    return queue.QueuedMessage(
        key=owed.key,
        kind=KIND,
        body=json.dumps(row).encode("ascii"),
        recipients=(owed.recipient,),
        made_at=owed.at,
    )


def from_message(kept: queue.QueuedMessage) -> MailedVerdict:
    """The mailed verdict that was kept; fields of a later release are ignored."""
    fields = records.known_fields(MailedVerdict, json.loads(kept.body))
    return MailedVerdict(**fields | {"owed": handover.from_row(fields["owed"])})


def run(service: context.Context, now: datetime) -> list[str]:
    """One look every ten seconds; the keys of the corrections that were put into the outbox."""
    now_s = service.clock.monotonic_s()
    if service.seldom("owners_corrections", _EVERY_S, lambda: now_s) != now_s:
        return []
    kept_in = box(service.config)
    waiting = [(kept, from_message(kept)) for kept in kept_in.pending()]
    if not waiting:
        return []
    try:
        facts = job_facts.read(service, [mailed.owed for _, mailed in waiting])
    except errors.DatabaseUnavailable:
        return []
    found = mail_pass.MailPass(service=service, box=kept_in, facts=facts, now=now)
    return found.each(waiting, _correct, CORRECTABLE)


def _correct(mails: mail_pass.MailPass, kept: queue.QueuedMessage, mailed: MailedVerdict) -> list[str]:
    """Sends one correction if the report, made within the hour, has another cause or domain than the mail."""
    service, owed, facts = mails.service, mailed.owed, mails.facts
    assert facts is not None
    is_over = mails.now - owed.at >= CORRECTABLE
    found = facts.of(owed)
    report = None
    if found and mailed.differs_from(facts.verdict_on(found[0])):
        if not is_over and not facts.may_correct_now(found[0], mails.now, service.config.service):
            return []
        report = mails.report_on(owed, has_started=True)
    # What its owner read is held against what they would read.
    is_other = mailed.differs_from(job_mail.verdict_of(owed.restart_count, report))
    if not is_over and not is_other:
        return []
    keys = []
    if is_other and service.memory(_Corrections).take(owed.recipient, mails.now):
        keys.append(mails.put(owed, report, "correction", (mailed.domain, mailed.cause)))
    elif is_other:
        LOG.info("a correction is left out", extra={"fields": {"key": owed.key}})
    mails.box.done(kept)
    return keys
