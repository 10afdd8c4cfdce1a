"""What the owner should do now: the verdicts' next steps, and what became of the job meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import records

_MOST_STEPS = 3
_SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)


def what_now(
    judged: Sequence[records.Verdict], attempts: Sequence[records.JobAttempt], *, died: int
) -> tuple[str, ...]:
    """Distinct next steps, newest first, then the state of the job; nothing when nothing `died`."""
    steps: list[str] = []
    for verdict in sorted(judged, key=lambda v: v.submit_at, reverse=True):
        step = verdict.next_step.strip()
        if step and step not in steps:
            steps.append(step if step.endswith((".", "!", "?")) else f"{step}.")
    outcome = (_outcome(attempts) or _submit_again(judged, attempts[-1])) if died else ""
    return tuple(dict.fromkeys([*steps[:_MOST_STEPS], *([outcome] if outcome else [])]))


def _outcome(attempts: Sequence[records.JobAttempt]) -> str:
    last = attempts[-1]
    if last.state == "REQUEUED":
        return "The job is requeued under the same id and waits to start again."
    if len(attempts) == 1:
        return ""
    if last.end_at is None:
        return f"The job already runs again as attempt {last.attempt}."
    if last.state == "COMPLETED":
        return f"The job has since completed as attempt {last.attempt}; nothing to do for it."
    return ""


def _submit_again(judged: Sequence[records.Verdict], last: records.JobAttempt) -> str:
    """Advice for a job that hardware ended for good, as far as its verdict is sure of that."""
    for verdict in judged:
        ours = verdict.domain is records.Domain.HARDWARE and verdict.confidence in _SURE
        if ours and verdict.submit_at == last.submit_at and last.end_at is not None:
            away = f" with --exclude={verdict.node}" if verdict.node else ""
            return (
                "The program did not cause this: unless Slurm still has the job "
                f"(squeue -j {verdict.job_id} shows it), submit it again{away}."
            )
    return ""
