"""Nodes newly found to be lemons, until they no longer are."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per lemon of the last scored day."""
    for score in notice_picture.lemons:
        since = str(score.signals.get("since") or f"{score.day:%Y-%m-%d}")
        reasons = "; ".join(score.reasons[:3])
        yield fact.Fact(
            fact_id=f"{score.node} {since}",
            cause="",
            at=score.made_at,
            severity=records.Severity.LOW,
            line=f"{score.node} keeps killing jobs: {reasons}",
            nodes=(score.node,),
            partitions=notice_picture.partitions_of([score.node]),
            stands=True,
        )


KIND = fact.Kind(
    name="lemon",
    meaning="nodes newly found to be lemons, until they no longer are",
    title="Lemons",
    find=find,
    command="probing-ctl lemon list",
)
