"""Jobs that have said one of the site's words of alarm; nothing is done about them."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per job and word."""
    for job in (j for j in notice_picture.alarmed if notice_picture.now - j.at < picture.LOOK_BACK):
        yield fact.Fact(
            fact_id=f"{job.job_id} {job.attempt} {job.word}",
            cause=f"job {job.ref}",
            at=job.at,
            severity=records.Severity.INFO,
            line=f"job {job.ref}{f' of {job.user}' if job.user else ''} {job.words}",
            nodes=(job.node,),
            partitions=(job.partition,) if job.partition else notice_picture.partitions_of((job.node,)),
            stands=False,
        )


KIND = fact.Kind(
    name="alarm",
    meaning="jobs whose output says one of `agent.alarm_words`, once a job and word (severity info)",
    title="Word of alarm",
    find=find,
    command="probing-ctl nodes",
)
