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
    """A fact per requeue that was decided: of a job that ran, or (`restart`) after its end."""
    for drain in now.drains:
        if drain.action in picture.BRINGS_BACK and (words := _words(drain)):
            reason = drain.reason.removeprefix(vocabulary.OWN_PREFIX).strip()
            failed = drain.state in {"denied", "failed"}
            why = (
                f" ({drain.why_state})"
                if drain.why_state and drain.state not in {"done", "simulated"}
                else ""
            )
            yield fact.Fact(
                fact_id=str(drain.drain_id),
                cause=drain_kind.cause(reason),
                at=drain.at,
                severity=records.Severity.LOW if failed else records.Severity.INFO,
                line=f"job {_ref(now, drain)} {words}{why}: {reason}",
                nodes=(drain.node,),
                partitions=now.partitions_of([drain.node]),
            )


def _ref(now: picture.NoticePicture, drain: records.Drain) -> str:
    """The job as its owner names it, as far as accounting has told."""
    return now.refs.get(drain.job_id or 0, str(drain.job_id))


def _words(drain: records.Drain) -> str:
    """What became of it; empty where there is nothing to tell."""
    words = _WORDS.get(drain.state, "")
    if drain.action == "restart":
        if drain.state == "skipped" and not vocabulary.is_back_already(drain.why_state):
            words = "not requeued"
        return f"{words} after its end" if words else ""
    # The node of a program that hangs is as good as any other.
    return words if not words or "hang" in drain.detail else f"{words} off {drain.node}"


KIND = fact.Kind(
    name="restart",
    meaning="jobs requeued off faulty nodes, after their ends or because they hang, or not and why",
    title="Restart decided",
    find=find,
    command="probing-report JOB",
)
