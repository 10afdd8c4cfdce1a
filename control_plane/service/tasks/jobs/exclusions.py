"""What users exclude with `--exclude`, and which job waits for which: accounting has neither, the controller forgets both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from probing_cluster.control_plane import context
from probing_cluster.core import records
from probing_cluster.slurm_plugins.acts import restarts
from probing_cluster.slurm_plugins.live import live_records

_OURS = timedelta(days=30)
"""No job lives longer with a node that a restart of ours left out of it."""


def run(service: context.Context) -> str:
    """One look at the queue; what is new."""
    now, cluster, store = service.clock.now(), service.config.cluster.name, service.store
    jobs = list(service.slurm.queue())
    excluding = [job for job in jobs if job.excluded_nodes]
    ours = (
        {
            (d.job_id, d.node)
            for d in store.drains(since=now - _OURS, actions=["exclude"], cluster=service.cluster)
        }
        if excluding
        else set()
    )
    exclusions = [
        records.JobExclusion(cluster=cluster, node=node, job_id=job.job_id, at=now, user=job.user)
        for job in excluding
        for node in sorted(set(job.excluded_nodes))
        if (job.job_id, node) not in ours
    ]
    waiting = list(_waiting(jobs, cluster, now))
    new = {"exclusions": store.save_exclusions(exclusions), "dependencies": store.save_dependencies(waiting)}
    return ", ".join(f"{n} {what}" for what, n in new.items() if n)


def _waiting(
    jobs: Iterable[live_records.LiveJob], cluster: str, now: datetime
) -> Iterator[records.JobDependency]:
    """A row per job and job that it waits for; 0 stands for all of its name."""
    for job in jobs:
        on = set(restarts.depends_on(job.dependency)) | ({0} if "singleton" in job.dependency else set())
        for other in sorted(on):
            yield records.JobDependency(
                cluster=cluster, job_id=job.job_id, on_job_id=other, user=job.user, at=now
            )


TASK = context.Task(
    name="exclusions",
    meaning="keeps which nodes jobs' users excluded, and which job waits for which",
    run=run,
    every_s=lambda config: config.service.queue_poll_s,
)
