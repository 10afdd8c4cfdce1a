"""What the owner should do now: the verdicts' next steps, and what became of the job meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.core import records, vocabulary
from probing_cluster.reports import phrase

_MOST_STEPS = 3
_NOTHING = "Nothing: "
"""How the step begins of an attempt after which nothing is to be done (taxonomy.toml)."""
_SILENT = (
    "Its log is empty: where the script writes to a file of its own (`> my.log`, `exec > …`), look there; else have the program speak. `set -x` in the batch script shows the command that ended it, `srun -u` and "
    "`python -u` write at once what is held back otherwise, and errors belong on standard error."
)
_NOT_READ = "What the program had to say is not to be had: {files}. Where the owner has it, look there; else submit it again with an --output that stays and that may be read."
_BACK = "The job is requeued under the same id and waits to start again."
_NOT_ALL = (
    "If what failed matters, submit the job again once it is mended. `set -eo pipefail` at the top of a batch script ends it, "
    "as FAILED, at the first command that fails."
)
_WAITING = timedelta(hours=1)
"""Of a job requeued longer ago nobody knows here whether it still waits: it may be cancelled, or the accounting an old file."""
_SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)


def what_now(
    judged: Sequence[records.Verdict],
    attempts: Sequence[records.JobAttempt],
    *,
    now: datetime,
    died: int,
    done: Sequence[records.Drain] = (),
    requeued: bool = False,
    silent: Collection[datetime] = (),
    unopened: Mapping[datetime, str] | None = None,
    unread: Mapping[datetime, str] | None = None,
    doubted: bool = False,
) -> tuple[str, ...]:
    """Distinct next steps, newest first and older ones with their attempt, then the state of the job; nothing when nothing `died`.

    `done`: what was done because of the last attempt; `requeued`: Slurm had requeued the job when we were about to; `silent`:
    when the attempts were submitted whose logs were read and are empty; `unopened`: files that Slurm could not open, and why, by
    when the attempts were submitted; `unread`: likewise, files of which nothing could be read; `doubted`: the last attempt
    completed, but not all of it.
    """
    steps: list[str] = []
    known: set[str] = set()
    numbers = {a.submit_at: a.attempt for a in attempts}
    for verdict in sorted(judged, key=lambda v: v.submit_at, reverse=True):
        step = verdict.next_step.strip()
        if verdict.cause == "user_error" and verdict.submit_at in silent:
            step = _SILENT  # its own step sends people to an output that there is not
        elif verdict.cause == "user_error" and (files := (unread or {}).get(verdict.submit_at)):
            step = _NOT_READ.format(files=files)
        if files := (unopened or {}).get(verdict.submit_at):
            step = f"Slurm could not open {files}. {step}"
        step = step if not step or step.endswith((".", "!", "?")) else f"{step}."
        if steps and (step.startswith(_NOTHING) or step in known):
            continue
        known.add(step)
        older = bool(steps) and verdict.submit_at in numbers
        if step:
            steps.append(f"Attempt {numbers[verdict.submit_at]}: {step}" if older else step)
    if doubted:
        return (*steps[:_MOST_STEPS], _NOT_ALL)
    fate = _outcome(attempts, now) or (_waits(attempts[-1]) if requeued else _requeued_by_us(done))
    last = (fate,) if fate else (_stays(done), _submit_again(judged, attempts[-1], done))
    return tuple(dict.fromkeys([*steps[:_MOST_STEPS], *(words for words in last if words and died)]))


def _outcome(attempts: Sequence[records.JobAttempt], now: datetime) -> str:
    last = attempts[-1]
    if last.state == "REQUEUED":
        age = now - (last.end_at or now)
        if age <= _WAITING:
            return _BACK
        return (
            f"Slurm requeued the job under the same id {phrase.span(age.total_seconds())} ago, and no later start of it is known here: "
            f"squeue -j {last.job_id} shows whether it still waits."
        )
    if len(attempts) == 1:
        return ""
    if last.end_at is None:
        return f"The job already runs again as attempt {last.attempt}."
    if last.state == "COMPLETED":
        return f"The job has since completed as attempt {last.attempt}; nothing to do for it."
    return ""


def _requeued_by_us(done: Sequence[records.Drain]) -> str:
    """Of a job that we brought back after its end, and that has not started yet."""
    decided = [d for d in done if d.action == "restart"]
    return _BACK if decided and decided[-1].state == "done" else ""


def _waits(last: records.JobAttempt) -> str:
    job = last.job_id
    return (
        f"Slurm has requeued the job under the same id: squeue -j {job} shows whether it waits. Where its --nodelist names "
        f"a node that is drained or down it waits for that node, or until scontrol update JobId={job} ReqNodeList= lets it go elsewhere."
    )


def _submit_again(
    judged: Sequence[records.Verdict], last: records.JobAttempt, done: Sequence[records.Drain]
) -> str:
    """Advice for a job that hardware ended for good, as far as its verdict is sure of that."""
    if any(d.action == "restart" and d.why_state.startswith(vocabulary.RESUBMITTED) for d in done):
        return ""
    for verdict in judged:
        ours = verdict.domain is records.Domain.HARDWARE and verdict.confidence in _SURE
        if ours and verdict.submit_at == last.submit_at and last.end_at is not None:
            away = f" with --exclude={verdict.node}" if verdict.node else ""
            did = "did not" if verdict.confidence is records.Confidence.CERTAIN else "most likely did not"
            return (
                f"The program {did} cause this: unless Slurm still has the job "
                f"(squeue -j {verdict.job_id} shows it), submit it again{away}."
            )
    return ""


def _stays(done: Sequence[records.Drain]) -> str:
    """Why the job was not brought back by itself, as its owner must know to submit it another way."""
    decided = [d for d in done if d.action == "restart"]
    if not decided or decided[-1].state not in {"skipped", "denied"}:
        return ""
    return f"The job was not brought back by itself: {decided[-1].why_state}."
