"""One pass over owners' mails: what is known of their jobs, the report that a mail is made of, and the mail in the outbox."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import handover, job_facts
from probing_cluster.core import errors
from probing_cluster.db import engines
from probing_cluster.reports import job_ref, model, query, rows
from probing_cluster.reports.sending import job_mail

LOG = logging.getLogger("probing.owners")
RULES = "rules"
"""The author of a verdict that no person gave."""
_Kept = TypeVar("_Kept")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MailPass:
    """What every mail of one pass shares."""

    service: context.Context
    box: queue.Outbox
    """Where what the pass is about is kept."""
    facts: job_facts.JobFacts | None
    """None while the database is away."""
    now: datetime

    def each(
        self,
        waiting: Iterable[tuple[queue.QueuedMessage, _Kept]],
        send: Callable[[MailPass, queue.QueuedMessage, _Kept], list[str]],
        give_up: timedelta,
    ) -> list[str]:
        """The keys of the mails that `send` put into the outbox; one that cannot be made keeps nobody else's back."""
        sent = []
        for kept, found in waiting:
            try:
                sent += send(self, kept, found)
            except errors.DatabaseUnavailable:
                continue
            except Exception:  # what users wrote is in it: the others get theirs
                LOG.exception("an owner's mail cannot be made", extra={"fields": {"key": kept.key}})
                if self.now - kept.made_at >= give_up:
                    self.box.done(kept)
        return sent

    def report_on(self, owed: handover.OwedMail, *, has_started: bool) -> job_mail.Report | None:
        """The job's report; of an array the rows of its tasks; of a job that ended while it waited, how."""
        ref = job_ref.JobRef(base=owed.job_id)
        with engines.translated(), self.service.store.engine.connect() as connection:
            raw = connection.connection.driver_connection
            assert raw is not None
            raw.execute("set local timezone = 'UTC'")
            if not has_started:
                return query.never_started(
                    raw, self.service.config.cluster.name, owed.ref, is_whole=owed.array
                )
            document = query.fetch(raw, self.service.config.cluster.name, ref)
        found = rows.from_json(document)
        if owed.array:
            return found
        start = owed.restart_count if owed.requeued else None
        return model.build(ref, found, now=self.service.clock.now(), requeued_start=start)

    def put(
        self,
        owed: handover.OwedMail,
        report: job_mail.Report | None,
        stage: str,
        mailed: tuple[str, str] = ("", ""),
    ) -> str:
        """Put a mail into the outbox; its key. `mailed`: the domain and the cause that a correction's mail named."""
        key = f"{owed.key}.{stage}"
        about = job_mail.MailHeader(
            job_id=owed.job_id,
            restart_count=owed.restart_count,
            subject=owed.subject,
            recipient=owed.recipient,
            mark=key,
            stage="never" if stage == "verdict" and report is None else stage,
            again=owed.followed,
            requeued=owed.requeued,
            mailed=mailed,
            at=self.now,
        )
        made = job_mail.compose(about, report, self.service.config)
        message = queue.QueuedMessage(
            key=key,
            kind="mail",
            lane="owners",
            body=bytes(made),
            recipients=(owed.recipient,),
            made_at=self.now,
        )
        queue.of(self.service.config).put(message)
        return key
