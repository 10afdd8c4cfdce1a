"""Mails about the ends of jobs, handed over by Slurm's MailProg: kept on disk before it learns that we have them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import digits, errors, records, settings
from probing_cluster.reports import job_ref
from probing_cluster.reports.sending import headers
from probing_cluster.slurm_plugins.hooks import mail_program

KIND = "owed"
MOST_CHARS = 1000
_REQUEUED = "Requeued"
_ARRAY_TASK = re.compile(r"Slurm Array Task Job_id=(\d{1,10}_\d{1,10}) \((\d{1,10})\) ", re.ASCII)
"""How Slurm's subject begins for one task of an array: as squeue names it, and its raw id."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwedMail:
    """One mail that is owed to somebody who asked Slurm for it.

    Its fields are the file's: a new one stops every mail of a site that goes back to a release whose reader does not know it.
    """

    job_id: int
    restart_count: int
    """Slurm's, of the attempt the mail is about."""
    recipient: str
    subject: str
    """Slurm's own."""
    event: str
    """Slurm's word: Ended, Failed, Requeued."""
    state: str = ""
    user: str = ""
    array: bool = False
    """Whether it sums up a whole array, whose master id is `job_id`."""
    at: datetime
    """When it was handed over."""
    followed: bool = False
    """Whether "the verdict follows" was sent already."""

    @property
    def requeued(self) -> bool:
        """Whether it is about a requeue: the job has not ended for good."""
        return self.event == _REQUEUED

    @property
    def start(self) -> tuple[int, int, str]:
        """The start that it is about, and to whom: Slurm mails about the end and the requeue of one."""
        return self.job_id, self.restart_count, self.recipient

    @property
    def key(self) -> str:
        """Identity: the same end of the same attempt is mailed to one recipient once, whoever hands it over."""
        name = hashlib.blake2b(self.recipient.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
        what = "requeued" if self.requeued else "ended"
        return f"job.{self.job_id}.{self.restart_count}.{self.at:%Y%m%d}.{what}.{name}"

    @property
    def ref(self) -> job_ref.JobRef:
        """The job as its owner names it; a task of an array is known by Slurm's subject."""
        found = _ARRAY_TASK.match(self.subject)
        is_task = found is not None and not self.array and int(found[2]) == self.job_id
        return job_ref.parse(found[1]) if found is not None and is_task else job_ref.JobRef(base=self.job_id)


def box(config: settings.Settings) -> queue.Outbox:
    """The directory in which owed mails wait for their verdicts."""
    return queue.Outbox(
        Path(config.mail.spool_directory) / "owed", retry=timedelta(seconds=1), keep_trying=timedelta(days=1)
    )


def put(config: settings.Settings, owed: OwedMail) -> bool:
    """Keep an owed mail; False when it is known already."""
    return box(config).put(message(owed))


def take_back(config: settings.Settings, key: str, now: datetime) -> None:
    """Leave a mail to the site's own program: whoever handed it over went away before the answer."""
    box(config).done(queue.QueuedMessage(key=key, kind=KIND, body=b"", recipients=(), made_at=now))


def message(owed: OwedMail) -> queue.QueuedMessage:
    """An owed mail as it is kept."""
    return queue.QueuedMessage(
        key=owed.key,
        kind=KIND,
        body=json.dumps(as_row(owed)).encode("ascii"),
        recipients=(owed.recipient,),
        made_at=owed.at,
    )


def from_message(kept: queue.QueuedMessage) -> OwedMail:
    """The owed mail that was kept."""
    return from_row(json.loads(kept.body))


def as_row(owed: OwedMail) -> dict[str, Any]:
    """An owed mail as JSON has it."""
    return dataclasses.asdict(owed) | {"at": owed.at.isoformat()}


def from_row(row: Mapping[str, Any]) -> OwedMail:
    """The owed mail of a row; fields of a later release are ignored."""
    fields = records.known_fields(OwedMail, row)
    return OwedMail(**fields | {"at": datetime.fromisoformat(fields["at"])})


def read(request: Mapping[str, Any], cluster: str, now: datetime) -> OwedMail:
    """The mail that MailProg's request names; raises UsageError: then the site's own program sends it."""
    environment = request.get("environment")
    if not isinstance(environment, Mapping):
        raise errors.UsageError("the mail comes without a job")
    subject, recipient = request.get("subject"), request.get("recipient")
    job_id, array_id = (_number(environment.get(k)) for k in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"))
    if job_id is None or not isinstance(subject, str) or len(subject) > MOST_CHARS:
        raise errors.UsageError("the mail names no job, or its subject is too long")
    if environment.get("SLURM_CLUSTER_NAME", cluster) != cluster:
        raise errors.UsageError("the mail is of another cluster")
    array = array_id is not None and subject.startswith(mail_program.ARRAY_SUMMARY)
    return OwedMail(
        job_id=array_id if array and array_id is not None else job_id,
        restart_count=_number(environment.get("SLURM_JOB_RESTART_COUNT")) or 0,
        recipient=headers.address(recipient),
        subject=subject,
        event=str(environment.get("SLURM_JOB_MAIL_TYPE", ""))[:40],
        state=str(environment.get("SLURM_JOB_STATE", ""))[:40],
        user=str(environment.get("SLURM_JOB_USER", ""))[:100],
        array=array,
        at=now,
    )


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    return int(value) if digits.is_number(str(value)) else None
