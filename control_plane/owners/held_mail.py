"""Owners of jobs that hold GPUs idle, where they asked Slurm for mail: one mail for each stretch, and nothing is done about the job."""

from __future__ import annotations

from datetime import datetime

from probing_cluster.control_plane import context, held_jobs
from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.owners import handover, missing
from probing_cluster.core import errors
from probing_cluster.reports.sending import job_mail

_EVERY_S = 60.0


def run(service: context.Context) -> int:
    """One look a minute; how many mails are new."""
    now_s = service.clock.monotonic_s()
    if service.seldom("held_mail", _EVERY_S, lambda: now_s) != now_s:
        return 0
    config, now, box = service.config, service.clock.now(), queue.of(service.config)
    found = held_jobs.read(service.store, config.cluster.name, config.policy.idle_s, now)
    new = [job for job in found if not box.known(_key(job))]
    if not new:
        return 0
    asked = missing.asked_for(
        service.run_slurm("scontrol", "-a", "-o", "show", "jobs").decode("utf-8", "replace")
    )
    return sum(_put(service, box, job, asked.get(job.job_id, ("", "", frozenset()))[1], now) for job in new)


def _key(job: held_jobs.HeldJob) -> str:
    return f"held.{job.job_id}.{job.since:%Y%m%d%H%M%S}"


def _put(
    service: context.Context, box: queue.Outbox, job: held_jobs.HeldJob, recipient: str, now: datetime
) -> bool:
    key = _key(job)
    try:
        address = handover.address(recipient)
    except errors.UsageError:
        # Nobody asked Slurm for mail: the name remembers that this stretch was looked at.
        box.done(queue.Letter(key=key, kind="mail", body=b"", recipients=(), made_at=now))
        return False
    about = job_mail.About(
        job_id=job.job_id,
        restart_count=0,
        subject=f"Job_id={job.job_id} holds GPUs idle",
        recipient=address,
        mark=key,
        stage="held",
        at=now,
    )
    made = job_mail.compose_held(about, job.words, service.config)
    return box.put(
        queue.Letter(
            key=key, kind="mail", lane="owners", body=bytes(made), recipients=(address,), made_at=now
        )
    )
