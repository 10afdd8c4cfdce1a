"""Agents that are not heard, until they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> list[fact.Fact] | None:
    """A fact per silent agent; None before the service has looked."""
    return None if notice_picture.silent_s is None else list(_facts(notice_picture))


def _facts(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    for node, age_s in (notice_picture.silent_s or {}).items():
        yield fact.Fact(
            fact_id=node,
            cause="",
            at=notice_picture.now - timedelta(seconds=age_s),
            severity=records.Severity.LOW,
            line=f"{node}: the agent has not been heard; what the node does is not known",
            nodes=(node,),
            partitions=notice_picture.partitions_of([node]),
            stands=True,
        )


KIND = fact.Kind(
    name="silent",
    meaning="agents that missed two beats, until they are heard again",
    title="Agents silent",
    find=find,
    command="probing-ctl nodes --faulty",
)
