"""What users exclude with `--exclude`, kept: accounting forgets it, the controller knows it while the job lives."""

from __future__ import annotations

from probing_cluster.control_plane import context
from probing_cluster.core import records


def run(service: context.Context) -> str:
    """One look at the queue; how many exclusions are new."""
    now, cluster = service.clock.now(), service.config.cluster.name
    seen = [
        records.JobExclusion(cluster=cluster, node=node, job_id=told.job_id, at=now, user=told.user)
        for told in service.hands.exclusions()
        for node in sorted(set(told.nodes))
    ]
    new = service.store.save_exclusions(seen)
    return f"{new} exclusions" if new else ""


TASK = context.Task(
    name="exclusions",
    meaning="keeps which nodes jobs' users excluded",
    run=run,
    every_s=lambda _: 60.0,
)
