"""The owner's next steps: those of the verdicts, then the present state of the job."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from probing_cluster.core import records, vocabulary
from probing_cluster.reports import attempt_view, phrase, rows

_MOST_STEPS = 3
_NOTHING = ("Nothing: ", "Nothing for the job")
"""The beginnings of a next step that asks its owner for nothing (taxonomy.toml)."""
_OF_OWNER = re.compile(r"(?:Nothing for the job|Submit the job again)[^.]*\.(?:\s+|$)")
"""The owner's sentence in front of the operators' in a next step about a machine (taxonomy.toml)."""
_SUBMIT_AGAIN = re.compile(r"Submit the job again(?:, or wait for Slurm's requeue)?: ")
"""Begins the owner's sentence about a job that Slurm may not have requeued (taxonomy.toml)."""
_LOOK_AT_OUTPUT = "Look at the program's own output"
"""Begins a next step that points to the job's output (taxonomy.toml, `verdict.next_steps`)."""
_OF_CODE = f"{_LOOK_AT_OUTPUT} first: a script may end with any code. "
"""Begins the next step of an exit code with a usual meaning, which needs no output."""
_EMPTY_LOG = (
    "Its log is empty. If the script writes to a file of its own (`> my.log`, `exec > …`), look there. Otherwise make the job write more: "
    "`set -x` in the batch script shows the command that ended it, `srun -u` and `python -u` write without buffering, and errors belong on standard error."
)
_HUNG_UP = " Slurm records code 1 also of a script that SIGHUP ended (129): the batch step in `sacct` then shows 0:1."
"""The signal stands at the batch step only, which we do not read."""
AWAITED_LOG = "Ask again in a minute: this verdict was made before its output was read, and what that holds may change it."
"""The next step of a report whose verdict is without the job's output."""
_UNREAD_LOG = "The job's output could not be read: {files}. "
_UNREAD_STEPS = {
    vocabulary.DISCARDED_OUTPUT: "Resubmit with an --output file: what went there is gone.",
    vocabulary.ON_A_TERMINAL: "A job of sbatch: that file was removed or renamed, so use the owner's copy if there is one, or resubmit with an --output path that is kept and readable. A job of srun or salloc: look at the terminal where it ran.",
    "": "Use the owner's copy if there is one; otherwise resubmit with an --output path that is kept and readable.",
}
"""What to do then, by a part of the reason."""
_PARTLY_READ_LOG = "The error may stand in what was not read of its log: {files}. `grep -nE 'Traceback|[Ee]rror' FILE | head` shows where errors begin. "
_REQUEUED = "The job is requeued under the same id and waits to start again."
_PART_FAILED = (
    "If the failed part matters, fix it and submit the job again. With `set -eo pipefail` at its top, "
    "a batch script ends as FAILED at the first command that fails."
)
_PART_MAY_HAVE_FAILED = (
    "If that error was not handled, fix it and submit the job again. If it ended a command of the batch script, "
    "`set -eo pipefail` at the script's top makes such a job FAILED."
)
_STEP_LIMIT = (
    "Give that step more time with srun's own --time (-t, or SLURM_TIMELIMIT), or leave it out: a step then has the job's whole limit. "
    "More time for the job would not help."
)
_STEP_MEMORY = (
    "Give that step more memory: the job's (--mem), and srun's own --mem where the step has one; or let it use less. "
    "`sacct -j {job} -o JobID,MaxRSS,ReqMem` shows what each step used, as sampled."
)
_STEP_CANCELLED = (
    "If the script cancelled that step itself, or you did (`scancel {step}`), nothing failed. Otherwise ask the operators: "
    "slurmctld's log of that minute names the user."
)
_COMMAND_KILLED = (
    "If the script killed that command itself (`kill -9`), nothing failed. Otherwise find out what did: "
    "too little memory is the usual reason (--mem)."
)
_MOVED = (
    "Correct its working directory (--chdir, or the directory it was submitted from): "
    "it must exist on the job's nodes and be open to its owner. Files without a full path are looked for, and written, in /tmp of the node."
)
_NO_DIRECTORY = (
    "{directory} is the job's working directory (--chdir, or the directory it was submitted from), where files without a full path lie: "
    "see that it exists on {node} and is open to the job's owner (`srun -w {node} --chdir=/ ls -ld {directory}`), or submit from another one."
)
_HANGS = (
    "It stands still. `probing-ctl stacks {job}` shows what each rank does, and whom the others wait for. "
    "A hang seldom ends by itself: if it lasts, `scancel {job}` frees its nodes; the stacks are kept."
)
_WAITING = timedelta(hours=1)
"""A job requeued longer ago may no longer wait: it may be cancelled, or the accounting may be an old file."""
_NAMED_NODE = "by name (--nodelist)"
"""In the words of why a job was not restarted that asks for the node at fault (`policy.victims`)."""
OPERATORS = "For the operators: "
"""Begins a next step that the owner of a job cannot take."""
_OF_SERVICES = frozenset({"filesystem_mount", "system_services"})
"""Causes of system software that may hold for other nodes as well."""
_OF_MACHINES = _OF_SERVICES | {"gpu_driver", "gpu_gsp_timeout", "kernel_panic"}
"""Causes of system software that only operators repair."""
_OF_OWNERS = re.compile(r"\b(?:report it to its|tell its|ask the|have the) operators\b")
"""A next step about a machine that names the operators is its owner's: a check, and whom to tell."""
_DONE = re.compile(r" (?:passed every test of its repair|was noted as repaired)\b")
"""What operators were to do is done: nothing is asked of them."""
_Returned = Mapping[tuple[str, datetime | None], rows.ReturnedNode]
"""By node, and submission of the attempt after which it came back."""
_SURE = (records.Confidence.CERTAIN, records.Confidence.LIKELY)


def what_now(
    views: Sequence[attempt_view.AttemptView],
    *,
    now: datetime,
    requeued: bool = False,
    returned: Iterable[rows.ReturnedNode] = (),
    waits: str = "",
) -> tuple[str, ...]:
    """Distinct next steps, newest attempt first, older ones with their number; then the state of the job if an attempt ended unfinished.

    `views`: all attempts, oldest first. `requeued`: Slurm had requeued the job when we were about to. `returned`: nodes back from repair.
    `waits`: what Slurm says that a requeued job waits for.
    """
    back = {(one.node, one.submit_at): one for one in returned}
    last = views[-1]
    comes_back = bool(waits or requeued or last.attempt.state == "REQUEUED" or _requeued_by_us(last))
    steps = _steps(views, back, comes_back=comes_back)[:_MOST_STEPS]
    if last.running and any(g.ended_at is None for g in last.gangs):
        steps.insert(0, _HANGS.format(job=last.attempt.ref))
    if last.log_awaited:
        steps.insert(0, AWAITED_LOG)
    if last.doubt:
        failed = _PART_MAY_HAVE_FAILED if last.may_have_failed else _PART_FAILED
        failed = _STEP_LIMIT if last.step_at_its_limit else failed
        failed = _STEP_CANCELLED.format(step=step) if (step := last.cancelled_step) else failed
        failed = _STEP_MEMORY.format(job=last.attempt.ref) if last.step_without_memory else failed
        failed = _COMMAND_KILLED if last.may_have_failed and last.was_killed else failed
        return (*steps, *([_MOVED] if last.moved else []), *([failed] if last.failed_part else []))
    if not any(v.ended_unfinished for v in views):
        return tuple(steps)
    state = (
        _waits(waits)
        or _outcome(views, now)
        or (_requeued_pending(last) if requeued else _requeued_by_us(last))
    )
    ends = (state,) if state else (_why_not_restarted(last), _submit_again(last, back))
    return tuple(dict.fromkeys([*steps, *(sentence for sentence in ends if sentence)]))


def once_returned(step: str, *, domain: str, cause: str, back: rows.ReturnedNode) -> str:
    """The next step about a node that came back: what operators were to do is done, the owner's sentence stays."""
    if domain != records.Domain.HARDWARE and cause not in _OF_MACHINES:
        return step
    found = _OF_OWNER.match(step)
    done = f"{back.node} passed every test of its repair and came back into service at {phrase.stamp_z(back.at)}."
    if back.by_hand:
        done = f"{back.node} was noted as repaired at {phrase.stamp_z(back.at)}."
    return f"{found[0].strip()} {done}" if found else done


def once_requeued(step: str) -> str:
    """The next step of a start after which the job came back by itself: who submitted it again would run it twice."""
    return _SUBMIT_AGAIN.sub("Nothing for the job: ", step, count=1) if _SUBMIT_AGAIN.match(step) else step


def _came_back(view: attempt_view.AttemptView, node: str | None, back: _Returned) -> rows.ReturnedNode | None:
    """The node's return after the attempt; None if it did not come back."""
    end_at = view.attempt.end_at
    one = back.get((node or "", view.attempt.submit_at)) or back.get((node or "", None))
    return one if one is not None and end_at is not None and one.at > end_at else None


def _as_it_stands(
    view: attempt_view.AttemptView,
    verdict: records.Verdict,
    back: _Returned,
    *,
    is_over: bool,
) -> records.Verdict:
    """The verdict, with the next step that is left once its node came back; `is_over`: nothing came after this start."""
    if not is_over:
        verdict = dataclasses.replace(verdict, next_step=once_requeued(verdict.next_step))
    one = _came_back(view, verdict.node, back)
    if one is None:
        return verdict
    step = once_returned(verdict.next_step, domain=verdict.domain, cause=verdict.cause, back=one)
    return dataclasses.replace(verdict, next_step=step)


def _steps(views: Sequence[attempt_view.AttemptView], back: _Returned, *, comes_back: bool) -> list[str]:
    steps: list[str] = []
    known: set[str] = set()
    judged = [(view, view.verdict) for view in reversed(views) if view.verdict is not None]
    for view, verdict in judged:
        is_newest = not steps
        is_over = view is views[-1] and not comes_back
        for step in _of_verdict(view, _as_it_stands(view, verdict, back, is_over=is_over)):
            if not is_newest and (step.startswith(_NOTHING) or step in known):
                continue
            known.add(step)
            steps.append(step if is_newest else f"Attempt {view.attempt.attempt}: {step}")
    return steps


def asks_nothing(step: str) -> bool:
    """Whether the next step asks nobody for anything."""
    return step.startswith(_NOTHING[0])


def is_for_operators(verdict: records.Verdict) -> bool:
    """Whether only operators can take the verdict's next step: they repair machines, file systems and services."""
    if verdict.domain is records.Domain.SYSTEM_SOFTWARE:
        return verdict.cause in _OF_MACHINES
    return verdict.domain is records.Domain.HARDWARE


def parted(verdict: records.Verdict) -> tuple[str, str]:
    """The verdict's next step: the sentences of the job's owner, and behind OPERATORS those that only operators can follow."""
    step = verdict.next_step.strip()
    if asks_nothing(step) or _OF_OWNERS.search(step) or not is_for_operators(verdict):
        return step, ""
    found = _OF_OWNER.match(step)
    owners, operators = (found[0].strip(), step[found.end() :]) if found else ("", step)
    mark = "" if _DONE.search(operators) else OPERATORS
    return owners, f"{mark}{operators}" if operators else ""


def _of_verdict(view: attempt_view.AttemptView, verdict: records.Verdict) -> Iterator[str]:
    """The verdict's next step as sentences, the owner's first; one that points to an output that is empty or unread is replaced."""
    step, operators = parted(verdict)
    points_to_it = verdict.cause == "user_error" and step.startswith(_LOOK_AT_OUTPUT)
    if view.has_empty_log and step.startswith(_OF_CODE):
        step = f"Its log is empty. {step.removeprefix(_OF_CODE).replace('this one', 'its exit code', 1)}"
    elif points_to_it and view.has_empty_log:
        hung_up = view.attempt.exit_code == 1 and not view.attempt.exit_signal
        step = f"{_EMPTY_LOG}{_HUNG_UP if hung_up else ''}"
    elif points_to_it and view.unread_files:
        step = _UNREAD_LOG.format(files=view.unread_files) + next(
            then for why, then in _UNREAD_STEPS.items() if all(why in log.why for log in view.logs)
        )
    elif points_to_it and not verdict.evidence and view.partly_read_files:
        step = _PARTLY_READ_LOG.format(files=view.partly_read_files) + step
    if view.elsewhere:
        step = f"{_MOVED} {step}"
    if view.unusable_directory:
        step = _NO_DIRECTORY.format(directory=view.unusable_directory, node=view.attempt.nodes[0])
    if view.unopened_files:
        step = f"{view.unopened_files} {step}"
    for text in (step.strip(), operators):
        if text:
            yield text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _waits(words: str) -> str:
    return f"It was requeued under the same id; {words}." if words else ""


def _outcome(views: Sequence[attempt_view.AttemptView], now: datetime) -> str:
    last = views[-1].attempt
    if last.state == "REQUEUED":
        age = now - (last.end_at or now)
        if age <= _WAITING:
            return _REQUEUED
        return (
            f"Slurm requeued the job under the same id {phrase.span(age.total_seconds())} ago. No later start is known here; "
            f"squeue -j {last.job_id} shows whether it still waits."
        )
    if len(views) == 1:
        return ""
    if last.end_at is None:
        return f"The job already runs again as attempt {last.attempt}."
    if last.state == "COMPLETED":
        return f"The job has since completed as attempt {last.attempt}; nothing to do for it."
    return ""


def _restarts(last: attempt_view.AttemptView) -> list[records.Drain]:
    """Our decisions to restart the job after its end, oldest first."""
    return [d for d in last.actions if d.action == "restart"]


def _requeued_by_us(last: attempt_view.AttemptView) -> str:
    """The sentence for a job that we restarted after its end and that has not started yet."""
    restarts = _restarts(last)
    return _REQUEUED if restarts and restarts[-1].state == "done" else ""


def _requeued_pending(last: attempt_view.AttemptView) -> str:
    job = last.attempt.job_id
    return (
        f"Slurm has requeued the job under the same id; squeue -j {job} shows whether it waits. If its --nodelist names "
        f"a drained or down node, it waits for that node; scontrol update JobId={job} ReqNodeList= lets it start elsewhere. "
        "If its --exclude leaves it only such nodes, ExcNodeList= does."
    )


def _submit_again(last: attempt_view.AttemptView, back: _Returned) -> str:
    """Advice for a job that a machine ended for good; if that is only possible, its owner looks at its output, too."""
    verdict = last.verdict
    if verdict is None or last.running or verdict.confidence is records.Confidence.UNKNOWN:
        return ""
    if any(d.why_state.startswith(vocabulary.RESUBMITTED) for d in _restarts(last)):
        return ""
    if not is_for_operators(verdict) or _OF_OWNERS.search(verdict.next_step):
        return ""
    away = f" with --exclude={verdict.node}" if verdict.node else ""
    if verdict.node and any(_NAMED_NODE in d.why_state for d in _restarts(last)):
        away = f" without --nodelist, or with a list that leaves {verdict.node} out"
    if verdict.cause in _OF_SERVICES:
        away = " once that is repaired"
    if _came_back(last, verdict.node, back):
        away = ""
    if verdict.confidence is records.Confidence.POSSIBLE:
        return f"Look at the job's own output, too: that a machine ended it is only possible. If it shows no error of the program's own, submit the job again{away}."
    did = "did not" if verdict.confidence is records.Confidence.CERTAIN else "most likely did not"
    return f"The program {did} cause this. If squeue -j {verdict.job_id} no longer shows the job, submit it again{away}."


def _why_not_restarted(last: attempt_view.AttemptView) -> str:
    """Why we did not restart the job; its owner needs the reason to submit it in another way."""
    restarts = _restarts(last)
    if not restarts or restarts[-1].state not in {"skipped", "denied"}:
        return ""
    return f"The job was not restarted automatically: {restarts[-1].why_state}."
