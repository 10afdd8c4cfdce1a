"""Drains that were decided and not carried out: the node is faulty and in service."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records, vocabulary

_WORDS = {"denied": "denied", "failed": "failed", "skipped": "left undone"}


def find(now: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per drain that was denied, failed or left undone; another's drain that stands already is none."""
    for drain in now.drains:
        if drain.action != "drain" or drain.state not in _WORDS:
            continue
        if drain.state == "skipped" and "by another" in drain.why_state:
            continue  # the node is out of service, by somebody's decision
        reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
        yield fact.Fact(
            fact_id=str(drain.drain_id),
            cause=drain_kind.cause(reason),
            at=drain.at,
            severity=records.Severity.HIGH
            if drain.severity is records.Severity.HIGH
            else records.Severity.LOW,
            line=f"{drain.node} ({reason}): drain {_WORDS[drain.state]}: {drain.why_state}",
            nodes=(drain.node,),
            partitions=now.partitions_of([drain.node]),
        )


KIND = fact.Kind(
    name="denied",
    meaning="drains that were denied by the budget, failed, or were left undone: a faulty node in service",
    title="Not drained",
    find=find,
    command="probing-ctl policy show",
)
