"""One fault that ended several jobs, or stood on many nodes."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.attribution.places import scan
from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per incident; its sentence grows with it."""
    for row in notice_picture.incidents:
        nodes = tuple(sorted(n for n in row["nodes"] or () if n))
        jobs = "1 job" if row["n_jobs"] == 1 else f"{row['n_jobs']} jobs"
        place = row["place"] or ""
        died = "died" if row["sure"] else "may have died"
        yield fact.Fact(
            fact_id=str(row["incident_id"]),
            # What strikes one place is one story, by however many causes it shows.
            cause=scan.name_in(place) or str(row["incident_id"])[:8],
            about=scan.name_in(place) or row["cause"],
            at=row["onset_at"],
            severity=_severity(row["domain"], sure=row["sure"]),
            line=f"{jobs} {died} of one fault, {row['cause']}: {row['summary']}{f' Shared: {place}.' if place else ''}",
            nodes=nodes,
            partitions=notice_picture.partitions_of(nodes),
        )


def _severity(domain: str, *, sure: bool) -> records.Severity:
    """High wakes people: only for what is at least likely, and no program's own."""
    return records.Severity.HIGH if sure and domain != records.Domain.USER_PROGRAM else records.Severity.LOW


KIND = fact.Kind(
    name="incident",
    meaning="one fault that ended several attempts, or stood on many nodes",
    title="Incident",
    find=find,
    command="probing-ctl fleet",
)
