"""Jobs brought back, or not and why not."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.control_plane.notices import fact, picture
from probing_cluster.control_plane.notices.kinds import drain as drain_kind
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records, vocabulary

_WORDS = {
    "done": "requeued",
    "simulated": "would have been requeued (observe-only)",
    "denied": "not requeued",
    "failed": "could not be requeued",
}
_TITLES = {"done": "Job requeued", "simulated": "Job would be requeued"}


def find(notice_picture: picture.NoticePicture) -> Iterator[fact.Fact]:
    """A fact per requeue that was decided: of a job that ran, or (`restart`) after its end."""
    for drain in notice_picture.drains:
        if drain.action in view.BRINGS_BACK and (words := _words(drain)):
            failed = drain.state in {"denied", "failed"}
            is_plain = not drain.why_state or drain.state in {"done", "simulated"}
            why = "" if is_plain else f" ({drain.why_state})"
            yield drain_kind.fact_of(
                notice_picture,
                drain,
                line=f"job {_ref(notice_picture, drain)} {words}{why}: {drain_kind.reason_of(drain)}",
                severity=records.Severity.LOW if failed else records.Severity.INFO,
                title=_TITLES.get(drain.state, "Job not requeued"),
                job=_ref(notice_picture, drain),
            )


def _ref(notice_picture: picture.NoticePicture, drain: records.Drain) -> str:
    """The job as its owner names it, as far as accounting has told."""
    return notice_picture.refs.get(drain.job_id or 0, str(drain.job_id))


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
    title="Restarts of jobs",
    find=find,
    command="probing-report JOB",
)
