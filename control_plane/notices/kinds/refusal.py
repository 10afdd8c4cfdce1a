"""Nodes whose Prolog was allowed to refuse a job."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records, vocabulary


def find(now: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per permission to refuse, given or denied."""
    for drain in now.drains:
        if drain.action == "refuse" and drain.state in {"done", "denied", "failed"}:
            reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
            why = f": {drain.why_state}" if drain.why_state and drain.state != "done" else ""
            verb = "may refuse jobs" if drain.state == "done" else f"may not refuse jobs ({drain.state}{why})"
            yield fact.Fact(
                fact_id=str(drain.drain_id),
                cause=drain_kind.cause(reason),
                at=drain.at,
                severity=records.Severity.LOW,
                line=f"{drain.node} {verb}: {reason}",
                nodes=(drain.node,),
                partitions=now.partitions_of([drain.node]),
            )


KIND = fact.Kind(
    name="refusal",
    meaning="nodes whose Prolog may refuse jobs, or was not allowed to",
    title="Refusing jobs",
    find=find,
    command="probing-ctl nodes --faulty",
)
