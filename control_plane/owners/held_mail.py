"""Owners of jobs that hold GPUs idle or printed an alarm word: one mail each, if they asked Slurm for mail. Nothing else is done about the job."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from datetime import timedelta

from probing_cluster.control_plane import alarmed_jobs, context, held_jobs
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import missing
from probing_cluster.core import errors
from probing_cluster.reports.sending import headers, job_mail

_EVERY_S = 60.0
_NEWS = timedelta(hours=24)
"""A word said longer ago is no news: the outbox may have forgotten that it was told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _HeldNotice:
    """What the owner of one job is to be told."""

    job_id: int
    ref: str
    stage: str
    subject: str
    words: tuple[str, ...]
    keys: tuple[str, ...]
    """Identity of each idle stretch or alarm word, so that each is mailed once; the first is the mail's own."""


def run(service: context.Context) -> int:
    """One look a minute; how many mails are new."""
    now_s = service.clock.monotonic_s()
    if service.seldom("held_mail", _EVERY_S, lambda: now_s) != now_s:
        return 0
    box = queue.of(service.config)
    news = [*_held(service, box), *_alarmed(service, box)]
    if not news:
        return 0
    requests = missing.mail_requests(service, {one.job_id for one in news})
    sure = [one for one in news if one.job_id not in requests.doubtful]
    return sum(_put(service, box, one, requests.by_job.get(one.job_id)) for one in sure)


def _held(service: context.Context, box: queue.Outbox) -> Iterator[_HeldNotice]:
    config = service.config
    for job in held_jobs.read(service.store, config.cluster.name, config.policy.idle_s, service.clock.now()):
        key = f"held.{job.job_id}.{job.since:%Y%m%d%H%M%S}"
        if not box.known(key):
            subject = f"Job_id={job.ref} holds GPUs idle"
            yield _HeldNotice(
                job_id=job.job_id, ref=job.ref, stage="held", subject=subject, words=(job.words,), keys=(key,)
            )


def _alarmed(service: context.Context, box: queue.Outbox) -> Iterator[_HeldNotice]:
    """One mail a job with every word that is new."""
    new: dict[int, dict[str, alarmed_jobs.AlarmedJob]] = {}
    for job in alarmed_jobs.read(service.store, service.config.cluster.name):
        word = hashlib.blake2b(job.word.lower().encode(), digest_size=4).hexdigest()
        key = f"alarm.{job.job_id}.{job.attempt}.{word}"
        if service.clock.now() - job.at < _NEWS and not box.known(key):
            new.setdefault(job.job_id, {})[key] = job
    for job_id, found in new.items():
        words = tuple(job.words for job in found.values())
        ref = next(iter(found.values())).ref
        subject = f"Job_id={ref} printed an alarm word"
        yield _HeldNotice(
            job_id=job_id, ref=ref, stage="alarm", subject=subject, words=words, keys=tuple(found)
        )


def _put(
    service: context.Context, box: queue.Outbox, news: _HeldNotice, request: missing.MailRequest | None
) -> bool:
    now = service.clock.now()
    try:
        address = headers.address(request.recipient if request is not None else "")
    except errors.UsageError:
        # Nobody asked Slurm for mail: the names remember that this was looked at.
        for key in news.keys:
            box.done(queue.QueuedMessage(key=key, kind="mail", body=b"", recipients=(), made_at=now))
        return False
    about = job_mail.MailHeader(
        job_id=news.job_id,
        restart_count=0,
        subject=news.subject,
        recipient=address,
        mark=news.keys[0],
        stage=news.stage,
        at=now,
    )
    made = job_mail.compose_news(about, news.ref, news.words, service.config)
    message = queue.QueuedMessage(
        key=news.keys[0], kind="mail", lane="owners", body=bytes(made), recipients=(address,), made_at=now
    )
    put = box.put(message)
    for key in news.keys[1:]:
        box.done(queue.QueuedMessage(key=key, kind="mail", body=b"", recipients=(), made_at=now))
    return put
