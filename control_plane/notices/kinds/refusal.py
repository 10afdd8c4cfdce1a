"""Nodes whose Prolog was allowed to refuse a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records

_RENEWED = timedelta(minutes=15)
"""A permission for the same within this time of the last goes on with it; a service that was away may have let one run out."""


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per permission to refuse, given or denied; one that is given again and again while its fault stands is one."""
    begin = notice_picture.now - picture.LOOK_BACK
    latest: dict[tuple[str, str, str], datetime] = {}
    for drain in notice_picture.drains:
        if drain.action == "refuse" and drain.state in {"done", "denied", "failed"}:
            same = (drain.node, drain.state, drain.reason)
            before, latest[same] = latest.get(same, begin), drain.at
            if drain.at - before <= _RENEWED:
                continue
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
