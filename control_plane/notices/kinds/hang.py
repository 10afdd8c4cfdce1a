"""Gangs that do not get on, until they do or end."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per hang that stands."""
    for gang in notice_picture.gangs:
        attempt = notice_picture.attempts.get(gang.job_id)
        owner = f" of {attempt.user}" if attempt is not None and attempt.user else ""
        ref = str(gang.job_id) if attempt is None else attempt.ref
        partitions = (attempt.partition,) if attempt is not None and attempt.partition else ()
        yield fact.Fact(
            fact_id=str(gang.gang_id),
            cause=f"job {ref}",
            at=gang.made_at,
            severity=records.Severity.LOW,
            line=f"job {ref}{owner} hangs: {gang.summary}",
            nodes=gang.nodes,
            partitions=partitions or notice_picture.partitions_of(gang.nodes),
            stands=True,
            job=ref,
        )


KIND = fact.Kind(
    name="hang",
    meaning="jobs whose ranks do not get on, until they do or end",
    title="Job hangs",
    find=find,
    command="probing-ctl ranks JOB",
)
