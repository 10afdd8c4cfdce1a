"""Nodes drained, until they are resumed."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.core import records, vocabulary


def find(now: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per drain that was carried out, or would have been in observe-only mode."""
    for drain in now.drains:
        if drain.action == "drain" and drain.state in {"done", "simulated"}:
            reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
            simulated = drain.state == "simulated"
            verb = "would have been drained (observe-only)" if simulated else "drained"
            by = "" if drain.owner == "probing" else f", by {drain.owner}"
            yield fact.Fact(
                fact_id=str(drain.drain_id),
                cause=cause(reason),
                at=drain.at,
                severity=records.Severity.LOW if simulated else drain.severity,
                line=f"{drain.node} {verb}: {reason}{by}",
                nodes=(drain.node,),
                partitions=now.partitions_of([drain.node]),
                stands=not simulated and drain.ended_at is None,
            )


def cause(reason: str) -> str:
    """The kind of fault a reason begins with: `xid 79 gpu3` -> `xid`."""
    return (reason.split() or [""])[0].rstrip(",;:")[:40]


KIND = fact.Kind(
    name="drain",
    meaning="nodes drained by us or through `probing-ctl drain`, until they are resumed",
    title="Drained",
    find=find,
    command="probing-ctl nodes --faulty",
)
