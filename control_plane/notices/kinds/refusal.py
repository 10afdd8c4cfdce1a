"""Nodes whose Prolog was allowed to refuse a job."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per permission to refuse, given or denied."""
    for drain in notice_picture.drains:
        if drain.action == "refuse" and drain.state in {"done", "denied", "failed"}:
            why = f": {drain.why_state}" if drain.why_state and drain.state != "done" else ""
            verb = "may refuse jobs" if drain.state == "done" else f"may not refuse jobs ({drain.state}{why})"
            line = f"{drain.node} {verb}: {drain_kind.reason_of(drain)}"
            yield drain_kind.fact_of(
                notice_picture,
                drain,
                line=line,
                severity=records.Severity.LOW,
                title="May refuse jobs" if drain.state == "done" else "May not refuse jobs",
            )


KIND = fact.Kind(
    name="refusal",
    meaning="nodes whose Prolog may refuse jobs, or was not allowed to",
    title="Refusals of jobs",
    find=find,
    command="probing-ctl nodes --faulty",
)
