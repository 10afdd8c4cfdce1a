"""Drains that were decided and not carried out: the node is faulty and in service."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records

_WORDS = {"denied": "denied", "failed": "failed", "skipped": "left undone"}


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per drain that was denied, failed or left undone; another's drain that stands already is none."""
    for drain in notice_picture.drains:
        if drain.action != "drain" or drain.state not in _WORDS:
            continue
        if drain.state == "skipped" and "by another" in drain.why_state:
            continue  # the node is out of service, by somebody's decision
        high = drain.severity is records.Severity.HIGH
        words = f"drain {_WORDS[drain.state]}: {drain.why_state}"
        yield drain_kind.fact_of(
            notice_picture,
            drain,
            line=f"{drain.node} ({drain_kind.reason_of(drain)}): {words}",
            severity=records.Severity.HIGH if high else records.Severity.LOW,
        )


KIND = fact.Kind(
    name="denied",
    meaning="drains that were denied by the budget, failed, or were left undone: a faulty node in service",
    title="Not drained",
    find=find,
    command="probing-ctl policy show",
)
