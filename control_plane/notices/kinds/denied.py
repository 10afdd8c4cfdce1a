"""Drains that were decided and not carried out: the node is faulty and in service."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records

_WORDS = {"denied": "denied", "failed": "failed", "skipped": "left undone"}


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per drain that was denied, failed or left undone; none where the node was out of service already, drained or under test.

    It stands while the node has the fault and is not drained.
    """
    for drain in notice_picture.drains:
        if drain.action != "drain" or not view.left_in_service(drain):
            continue
        high = drain.severity is records.Severity.HIGH
        words = f"drain {_WORDS[drain.state]}: {drain.why_state}"
        yield drain_kind.fact_of(
            notice_picture,
            drain,
            line=f"{drain.node} ({drain_kind.reason_of(drain)}): {words}",
            severity=records.Severity.HIGH if high else records.Severity.LOW,
            stands=drain.drain_id in notice_picture.unanswered,
        )


KIND = fact.Kind(
    name="denied",
    meaning="drains that were denied by the budget, failed, or were left undone: a faulty node in service, until it is repaired or drained",
    title="Not drained",
    find=find,
    command="probing-ctl nodes --faulty",
)
