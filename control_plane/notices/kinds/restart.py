"""Jobs brought back, or not and why not."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.core import records, vocabulary

_WORDS = {
    "done": "requeued",
    "simulated": "would have been requeued (observe-only)",
    "denied": "not requeued",
    "failed": "could not be requeued",
}


def find(now: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per requeue that was decided."""
    for drain in now.drains:
        if drain.action == "requeue" and drain.state in _WORDS:
            reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
            failed = drain.state in {"denied", "failed"}
            why = f" ({drain.why_state})" if drain.why_state and failed else ""
            yield fact.Fact(
                fact_id=str(drain.drain_id),
                cause=drain_kind.cause(reason),
                at=drain.at,
                severity=records.Severity.LOW if failed else records.Severity.INFO,
                line=f"job {drain.job_id} {_WORDS[drain.state]}{why} off {drain.node}: {reason}",
                nodes=(drain.node,),
                partitions=now.partitions_of([drain.node]),
            )


KIND = fact.Kind(
    name="restart",
    meaning="jobs requeued off faulty nodes, or not and why",
    title="Jobs restarted",
    find=find,
    command="probing-report JOB",
)
