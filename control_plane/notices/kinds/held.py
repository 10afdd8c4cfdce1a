"""Jobs that hold GPUs and do nothing with them; nothing is done about them."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per job that is held idle."""
    for job in notice_picture.held:
        yield fact.Fact(
            fact_id=f"{job.job_id} {job.since.isoformat()}",
            cause=f"job {job.ref}",
            at=job.since,
            severity=records.Severity.INFO,
            line=f"job {job.ref}{f' of {job.user}' if job.user else ''}: {job.words}",
            nodes=job.nodes,
            partitions=(job.partition,) if job.partition else notice_picture.partitions_of(job.nodes),
            stands=True,
        )


KIND = fact.Kind(
    name="held",
    meaning="jobs that hold GPUs without a process or load on them, until they use them or end (severity info)",
    title="GPUs held idle",
    find=find,
    command="probing-ctl nodes",
)
