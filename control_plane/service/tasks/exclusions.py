"""What users exclude with `--exclude`, kept: accounting forgets it, the controller knows it while the job lives."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.core import records


def run(service: context.Context) -> str:
    """One look at the queue; how many exclusions are new."""
    now, cluster = service.clock.now(), service.config.cluster.name
    exclusions = [
        records.JobExclusion(cluster=cluster, node=node, job_id=job.job_id, at=now, user=job.user)
        for job in service.hands.exclusions()
        for node in sorted(set(job.nodes))
    ]
    new = service.store.save_exclusions(exclusions)
    return f"{new} exclusions" if new else ""


TASK = context.Task(
    name="exclusions",
    meaning="keeps which nodes jobs' users excluded",
    run=run,
    every_s=lambda _: 60.0,
)
