"""Nodes drained, until they are resumed."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, vocabulary


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per drain that was carried out, or would have been in observe-only mode, and per end of one after which the node is out still."""
    for drain in notice_picture.drains:
        # Another's now: who is told that it is over would take the node to be back.
        taken = drain.state == "resumed" and drain.why_state.startswith(view.TAKEN_OVER)
        if drain.action == "drain" and (taken or drain.state in {"done", "simulated"}):
            simulated = drain.state == "simulated"
            verb = "would have been drained (observe-only)" if simulated else "drained"
            by = "" if drain.owner == "probing" else f", by {drain.owner}"
            still = f"; still drained, {drain.why_state}" if taken else ""
            yield fact_of(
                notice_picture,
                drain,
                line=f"{drain.node} {verb}: {reason_of(drain)}{by}{still}",
                severity=records.Severity.LOW if simulated else drain.severity,
                stands=not simulated and drain.ended_at is None,
                title="Would be drained" if simulated else "",
                after="Taken over" if taken else "",
                ends=taken,
            )


def fact_of(
    notice_picture: picture.NoticePicture,
    drain: records.Drain,
    *,
    line: str,
    severity: records.Severity,
    stands: bool = False,
    title: str = "",
    job: str = "",
    after: str = "",
    ends: bool = False,
) -> fact.Fact:
    """A fact about one action on a node."""
    return fact.Fact(
        fact_id=str(drain.drain_id),
        cause=_cause(drain),
        at=drain.at,
        severity=severity,
        line=line,
        nodes=(drain.node,),
        partitions=notice_picture.partitions_of([drain.node]),
        stands=stands,
        title=title,
        job=job,
        after=after,
        ends=ends,
    )


def _cause(drain: records.Drain) -> str:
    """The kind of fault the reason begins with: `xid 79 gpu3` -> `xid`; of a check its name, of a person's drain the person."""
    if drain.owner != "probing":
        return f"by {drain.owner}"[:40]
    words = reason_of(drain).split()
    named = words[1:] if words[:1] == ["check"] and len(words) > 1 else words
    return (named or [""])[0].rstrip(",;:")[:40]


def reason_of(drain: records.Drain) -> str:
    """Why it was done, without our prefix."""
    return drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()


KIND = fact.Kind(
    name="drain",
    meaning="nodes drained by us or through `probing-ctl drain`, until they are resumed",
    title="Drained",
    find=find,
    command="probing-ctl nodes --faulty",
)
