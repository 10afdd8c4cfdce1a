"""Gangs that do not get on, until they do or end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records
from probing_cluster.reports import phrase


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per hang that stands, or that was over just now."""
    for gang in notice_picture.gangs:
        attempt = notice_picture.attempts.get((gang.job_id, gang.submit_at))
        owner = f" of {attempt.user}" if attempt is not None and attempt.user else ""
        ref = str(gang.job_id) if attempt is None else attempt.ref
        partitions = (attempt.partition,) if attempt is not None and attempt.partition else ()
        over = gang.ended_at is not None
        why, more = _end(notice_picture, attempt) if over else ("", "")
        yield fact.Fact(
            fact_id=str(gang.gang_id),
            cause=f"job {ref}",
            at=gang.made_at,
            severity=records.Severity.LOW,
            line=f"job {ref}{owner} {'hung' if over else 'hangs'}: {gang.summary}{f'; {why}{more}' if why else ''}",
            nodes=gang.nodes,
            partitions=partitions or notice_picture.partitions_of(gang.nodes),
            stands=not over,
            ends=over,
            about=f"job {ref}: {why}" if why else "",
            job=ref,
        )


def _end(notice_picture: picture.NoticePicture, attempt: records.JobAttempt | None) -> tuple[str, str]:
    """Why a hang is over, in few words and then in more; empty if its job is not known."""
    if attempt is None:
        return "", ""
    if attempt.end_at is None:
        return "it makes progress again", ""
    by = f" by {attempt.cancelled_by}" if attempt.state == "CANCELLED" and attempt.cancelled_by else ""
    node = attempt.failed_node
    lost = f" of {node}" if node else ""
    age_s = (notice_picture.silent_s or {}).get(node or "")
    silence = (
        ""
        if age_s is None
        else f"; {node} was last heard at {phrase.stamp_z(notice_picture.now - timedelta(seconds=age_s))}"
    )
    return f"it ended as {attempt.state}{by}{lost}", f" at {phrase.stamp_z(attempt.end_at)}{silence}"


KIND = fact.Kind(
    name="hang",
    meaning="jobs whose ranks do not get on, until they do or end",
    title="Job hangs",
    find=find,
    command="probing-ctl ranks JOB",
)
