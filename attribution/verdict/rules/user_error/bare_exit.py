"""A claim from how the program ended alone: its exit code, a signal, or a rank that called MPI_Abort."""

from __future__ import annotations

import re
from collections.abc import Iterable

from probing_cluster.attribution.verdict import (
    claims,
    evidence_view,
    findings,
    node_faults,
    phrases,
    signatures,
    taxonomy,
)
from probing_cluster.attribution.verdict.rules import memory_limit
from probing_cluster.core import digits, records, vocabulary
from probing_cluster.core.catalogue import slurm_lines

CAUSE, KILLED = "user_error", "rank_killed"
_DOUBTFUL_SIGNALS = {2: 0.55, 9: 0.55, 15: 0.55, 7: 0.6, 6: 0.6}
"""Signals that often come from elsewhere (a person, a watchdog, a server, memory): interrupt, kill, end, bus error, abort."""
_INT, _KILL, _TERM = 2, 9, 15
_SENT = frozenset({_INT, _KILL, _TERM})
"""Signals that somebody sends: no error of the program raises them."""
_ENDS_BY = {_KILL: frozenset({"oom_kill_suspected"}), _TERM: frozenset({"process_terminated"})}
"""Signal to the findings that report it."""
_NOT_SHOWN = "exited with a code other than 0, which the accounting does not show"
_SHOWN_AS_0 = "failed, and Slurm records exit code 0, as of a script that ends with 128 (git's fatal errors)"
_LOGGED_AS = {_INT: "KeyboardInterrupt", 4: "Illegal instruction", 8: "Floating point exception", 24: "CPU time limit exceeded", 25: "File size limit exceeded"}  # fmt: skip
"""Signal to the words of the shell, or of Python, for it."""
_NOT_ITS_OWN = "and it is unknown whether the process killed for lack of memory was its own"
_HINTED = 0.6
"""Weight of an exit code beside a hint at a machine."""
_NOBODY_SHOWN = "nothing shows who sent the signal"
_ASK_SLURM = "If its owner did not send it (`scancel --signal`), ask the operators: slurmctld's log of that minute names the user"
_OF_ANOTHER = "Look at the program's own output; the line about a full GPU in it is most likely another job's"
_OF_STEP = "Look at what that step printed, above srun's line on its task. `set -eo pipefail` at the script's top ends it at the first command that fails"
_NO_OUTPUT_WORDS = "never began: Slurm could not open its output, error or input file (0:53): no such directory on the node, or not writable"


def _clears_program(found: evidence_view.CaseFinding) -> bool:
    """True for an error that only the system's software can cause: the exit code then accuses nobody."""
    signature = found.signature
    system = records.Domain.SYSTEM_SOFTWARE
    return (
        signature.role is findings.FindingRole.HINT
        and found.event.detail.get("goes_on") is not True
        and taxonomy.cause(signature.cause).domain is system
        and signature.weight > _HINTED
        and list(found.event.detail.get("domains") or ()) == [system.value]
    )


def _interrupt(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """Python's report that SIGINT ended the program; None without one."""
    raised = (f.event for f in view.findings if f.event.kind == "interrupted")
    return next((e for e in raised if e.message.startswith(_LOGGED_AS[_INT])), None)


def _place_of(interrupt: records.HealthEvent) -> str:
    """Clause with the place of the program that SIGINT met, as the traceback shows it."""
    frame, code = (phrases.clean(str(interrupt.detail.get(key) or "")) for key in ("frame", "code"))
    if not frame:
        return f"its log says {_LOGGED_AS[_INT]}, not who sent the signal"
    return f"its traceback ends{f' in `{code}`' if code else ''} ({frame}), and does not show who sent the signal"


def _sent_signal(view: evidence_view.EvidenceView) -> int:
    """The signal that the exit code stands for, if the log reports it (for a script's 143 Slurm records 15); else 0.

    What started a Python program that SIGINT ended may itself exit with 1.
    """
    code = view.attempt.exit_code or 0
    interrupt = _interrupt(view)
    if code == 1 and interrupt is not None and interrupt.detail.get("first_cause") is True:
        return _INT
    number = code - vocabulary.BY_SIGNAL if code > vocabulary.BY_SIGNAL else code
    logged = any(
        f.event.kind in _ENDS_BY.get(number, ())
        or _LOGGED_AS.get(number, "\n") in phrases.in_english(f.event)
        for f in view.findings
    )
    return number if logged else 0


def claims_of(
    view: evidence_view.EvidenceView, caught: records.HealthEvent | None = None
) -> Iterable[claims.Claim]:
    """None or one, from the exit code or signal alone; `caught`: an exception in the log that does not end a program so."""
    by_itself = _first_task_to_exit(view) or _aborted_with(view)
    signal = 0 if by_itself else view.signal or _sent_signal(view)
    failed = signal or view.attempt.exit_code or _without_code(view) or _first_task_to_exit(view)
    if not failed or any(map(_clears_program, view.findings)):
        return
    weight = _exit_weight(view, signal)
    if (other := _other_cause(view, signal)) is not None:
        yield _exit_claim(view, taxonomy.UNKNOWN, weight, *other)
        return
    exits = [f.event for f in view.findings if f.signature.role is findings.FindingRole.EXIT]
    interrupt = _interrupt(view) if signal == _INT else None
    exits += [interrupt] if interrupt is not None else []
    evidence = (*exits, *(e for e in _quoted(view) if e not in exits))
    words = _exit_words(view, signal, caught)
    made = _exit_claim(view, KILLED if signal in _SENT else CAUSE, weight, words, evidence)
    if _quotes_another(view):
        made = claims.replace_claim(made, next_step=_OF_ANOTHER)
    elif (task := _first_task_to_exit(view)) is not None and _script_went_on(view, task):
        made = claims.replace_claim(made, next_step=_OF_STEP)
    if signal in _SENT:
        sent = [f.event for f in view.findings if findings.signals_job(f.event, view.attempt.job_id)][:1]
        by = (
            f"its log shows that Slurm passed the signal on, not who sent it: {phrases.clean(sent[0].message)}"
            if sent
            else _place_of(interrupt)
            if interrupt is not None
            else _NOBODY_SHOWN
        )
        made = claims.replace_claim(
            made,
            evidence=(*evidence, *sent),
            sentence=f"The program {words}; {by}",
            next_step=_ASK_SLURM if sent else made.next_step,
        )
    if caught is not None:
        both = (*evidence, caught)
        made = claims.replace_claim(
            made, evidence=both, by_elimination=False, sentence=f"The program {words}"
        )
    yield made


def _exit_claim(
    view: evidence_view.EvidenceView,
    cause: str,
    weight: float,
    words: str,
    evidence: tuple[records.HealthEvent, ...],
) -> claims.Claim:
    return claims.Claim(
        cause=cause,
        weight=weight,
        at=view.end_at,
        rule="user_error",
        evidence=evidence,
        by_elimination=True,
        words=words,
    )


def _without_code(view: evidence_view.EvidenceView) -> str:
    """How a failed job ended whose exit code accounting does not show, or shows as 0; empty for others."""
    attempt = view.attempt
    if attempt.exit_code is None and attempt.exit_signal is None and attempt.nodes:
        return _NOT_SHOWN
    recorded_as_0 = attempt.exit_code == 0 and not view.signal and attempt.nodes and view.fully_watched
    return _SHOWN_AS_0 if recorded_as_0 else ""


def _exit_weight(view: evidence_view.EvidenceView, signal: int) -> float:
    """Weight of the exit alone; lower if a node was not watched, or if a finding or a memory kill suggests another cause."""
    bounds = [_DOUBTFUL_SIGNALS.get(signal, 0.85)]
    proximal = any(f.signature.role is findings.FindingRole.PROXIMAL for f in view.findings)
    unwatched = not view.attempt.nodes or view.unwatched_nodes or view.case.by_log
    if unwatched or (proximal and not view.crashed):
        bounds.append(0.7)
    if _without_code(view) or any(f.signature.role is findings.FindingRole.HINT for f in view.findings):
        bounds.append(_HINTED)
    if _memory_kill_beside(view) or signal == vocabulary.OUTPUT_NOT_OPENED or node_faults.unlisted(view):
        bounds.append(0.7)
    return min(bounds)


def _exit_words(view: evidence_view.EvidenceView, signal: int, caught: records.HealthEvent | None) -> str:
    if signal == vocabulary.OUTPUT_NOT_OPENED:
        return _NO_OUTPUT_WORDS
    if code := _aborted_with(view):
        others = ", and its launcher ended the others" if view.signal or _sent_signal(view) else ""
        how = f"{_called_abort(view)} with code {code}{others}"
    elif (task := _first_task_to_exit(view)) is not None and _script_went_on(view, task):
        how = f"exited with code {view.attempt.exit_code} after a step of its script had exited with code {task.detail['exit_code']} (task {task.detail['tasks']} on {task.detail.get('host') or task.node}) and the script had gone on"
    elif task is not None:
        how = f"exited with code {task.detail['exit_code']} (task {task.detail['tasks']} on {task.detail.get('host') or task.node}, before any other)"
    elif aborted := _called_abort(view):
        how = f"{aborted} and exited with code {view.attempt.exit_code}"
    elif signal == _INT and view.attempt.exit_code == 1:
        how = f"was interrupted by signal {phrases.signal(signal)} and exited with code 1"
    elif signal:
        how = f"was ended by signal {phrases.signal(signal)}"
    else:
        code = view.attempt.exit_code or 0
        refused = any(_is_refusal(code, f.event) for f in view.findings)
        code_words = phrases.exit_code(
            code,
            refusal_logged=refused,
            names_none=_names_none(view, code),
            interrupted=any(phrases.names_signal(f.event.message, _INT) for f in view.findings),
        )
        how = _without_code(view) or f"exited with code {code_words}"
    words = f"{how}, {_NOT_ITS_OWN if _memory_kill_beside(view) else _beside(view)}"
    if caught is not None:
        last = phrases.clean(str(caught.detail.get("last_words") or ""))
        what, unlike = (
            ("exception", "an exception does not cause")
            if "exception" in caught.detail
            else ("complaint", "the complaint in its log does not cause")
        )
        behind = f"its last line: {last}; the {what} above it" if last else what
        words = f"{how}, which {unlike}; {behind}: {caught.message}"
    words += " (Slurm gave it no GPU)" if _quotes_another(view) else ""
    quoted = _quoted(view)
    return f"{words}; its log says: {memory_limit.quotation(view, quoted[0])}" if quoted else words


def _names_none(view: evidence_view.EvidenceView, code: int) -> bool:
    """Whether lines of its output were read and none reports how the program ended. An agent on the node, or an empty output, shows nothing."""
    lines = [f for f in view.findings if f.event.source == "joblog" and f.event.detail.get("line")]
    ends = (
        f.signature.role is findings.FindingRole.EXIT
        or phrases.names_signal(phrases.in_english(f.event), code)
        for f in lines
    )
    return bool(lines) and not any(ends)


def _quotes_another(view: evidence_view.EvidenceView) -> bool:
    """True if the line to quote is most likely another job's: the owner is not sent after it."""
    return any(e in memory_limit.lines_of_other_jobs(view) for e in _quoted(view)[:1])


def _memory_kill_beside(view: evidence_view.EvidenceView) -> bool:
    """True if the kernel killed a process for memory on one of its nodes while it ran: a later kill is of another's process."""
    return any(
        s.signature.role is signatures.Role.ROOT and s.when is evidence_view.EventPhase.RUNNING
        for s in memory_limit.memory_kills(view)
    )


def _other_cause(
    view: evidence_view.EvidenceView, signal: int
) -> tuple[str, tuple[records.HealthEvent, ...]] | None:
    """Words and evidence of an end that accuses nobody: the launcher got SIGTERM, or the exit code only follows from a loss."""
    ended = tuple(f.event for f in view.findings if f.event.detail.get("told_to_end") is True)
    if signal == _TERM and ended:
        # The launcher's end ends the whole job: no process went first.
        return "its launcher got SIGTERM, and nothing shows who sent it", ended
    first = _first_cause(view)
    if first is not None and not signal and (what := findings.failure_of_others(first)):
        return f"{what}, for an unknown reason; its log says: {first.message}", (first,)
    return None


def _first_cause(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    return next((f.event for f in view.findings if f.event.detail.get("first_cause") is True), None)


def _first_task_to_exit(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """srun's line about the one task that ended by itself before the others (`--kill-on-bad-exit`, `--wait`); None without one."""
    first = _first_cause(view)
    if first is None or first.kind != "task_exit":
        return None
    code, tasks = digits.index(first.detail.get("exit_code")), first.detail.get("tasks")
    left = code and code < vocabulary.BY_SIGNAL and digits.is_number(str(tasks))
    return first if left and first.detail.get("rank") is not None else None


def _script_went_on(view: evidence_view.EvidenceView, task: records.HealthEvent) -> bool:
    """Whether the script printed more after the end of the step and ended with a code of its own.

    It is none of a signal, which a launcher sends the other tasks, and none of another task: srun itself ends with the highest.
    """
    code = view.attempt.exit_code or 0
    every = (f.event for f in (*view.findings, *view.further_errors) if f.event.kind == task.kind)
    of_tasks = {e.detail.get("exit_code") for e in every}
    others = of_tasks | {task.detail["exit_code"], *_SENT, *(vocabulary.BY_SIGNAL + s for s in _SENT)}
    return bool(code and task.detail.get("behind")) and not view.signal and code not in others


def _called_abort(view: evidence_view.EvidenceView) -> str:
    """Phrase for a rank that ended the program with MPI_Abort, if the job ended with a code; else empty."""
    if (abort := _abort(view)) is None:
        return ""
    rank = digits.index(abort.detail.get("rank"))
    return f"called MPI_Abort{f' in rank {rank}' if rank is not None else ''}"


def _abort(view: evidence_view.EvidenceView) -> records.HealthEvent | None:
    """The report that a rank called MPI_Abort, if that began the end of a job that ended with a code: srun's line on that rank may stand above it."""
    first = _first_cause(view)
    if first is None or not view.attempt.exit_code:
        return None
    task = _first_task_to_exit(view)
    calls = (f.event for f in view.findings if f.event.detail.get("called_abort") is True)
    same_task = (e for e in calls if task is not None and e.detail.get("rank") == task.detail.get("rank"))
    return first if first.detail.get("called_abort") is True else next(same_task, None)


def _aborted_with(view: evidence_view.EvidenceView) -> int:
    """The code that a rank gave MPI_Abort, by srun's line on that rank, where the job ended with another code: that of the others, which got a signal."""
    abort = _abort(view)
    rank = None if abort is None else abort.detail.get("rank")
    if rank is None:
        return 0
    own = (f.event.detail for f in view.findings if f.event.kind == "task_exit")
    codes = (digits.index(d.get("exit_code")) or 0 for d in own if d.get("rank") == rank)
    code = next((c for c in codes if 0 < c < vocabulary.BY_SIGNAL), 0)
    return 0 if code == view.attempt.exit_code else code


_OF_KERNEL = frozenset({"kernel_xid", "kernel_bad_page"})
_DEATHS = frozenset({"process_aborted", "process_crashed"})
_OF_SCRIPT = re.compile(f": {slurm_lines.SHELLS_CHILD}")
"""The shell's line about a command of its script that a signal ended."""
_REFUSALS = frozenset({"command_not_found", "file_not_found", "permission_denied"})
_NOT_RUN = re.compile(
    r"(?!.*(?:\[Errno |\w(?:Error|Exception)\b|\b(?:cannot (?!execute)|can't (?!execute)|unable to |could not |failed to (?!run command))|\(publickey))"
    r".*(?:[Pp]ermission denied|cannot execute|bad interpreter|Exec format error|: Is a directory)"
)
"""The shell's reasons for 126; a program's exception, or a tool that could not open a file, is none."""


def _is_refusal(code: int, event: records.HealthEvent) -> bool:
    """Whether the line is the shell's reason for its code 126 or 127."""
    if code == 127:
        return event.kind == "command_not_found"
    return code == 126 and event.source == "joblog" and _NOT_RUN.match(event.message) is not None


def _quoted(view: evidence_view.EvidenceView) -> list[records.HealthEvent]:
    """The most telling log lines where nothing is proven: a hint, the kernel's own line, a command that the shell could not run, a GPU that it had not."""
    lines_of = [
        [f.event for f in view.findings if f.signature.role is findings.FindingRole.HINT],
        # A watched node's own kernel log says whether that line is true.
        [f.event for f in view.findings if f.event.kind in _OF_KERNEL and not view.fully_watched],
        # The script went on after an earlier one: its exit code is the last command's.
        sorted((f.event for f in view.findings if f.event.kind in _REFUSALS), key=_place, reverse=True),
        memory_limit.lines_of_other_jobs(view),
        [e for e in (_first_cause(view),) if e is not None and _came_before(view, e)],
    ]
    return [e for lines in lines_of for e in lines[:1] if e.message]


def _came_before(view: evidence_view.EvidenceView, event: records.HealthEvent) -> bool:
    """Whether what the line reports happened while the script went on, and may have led to its end."""
    if event.kind in _DEATHS and _OF_SCRIPT.search(event.message):
        return not view.signal and 0 < (view.attempt.exit_code or 0) < vocabulary.BY_SIGNAL
    at_limit = findings.step_at_its_limit(event, view.attempt.job_id)
    return event.kind == vocabulary.DIRECTORY_REPLACED or bool(at_limit)


def _place(event: records.HealthEvent) -> tuple[bool, int]:
    return event.detail.get("first_cause") is True, digits.index(event.detail.get("line")) or 0


def _beside(view: evidence_view.EvidenceView) -> str:
    """What was found beside the exit; if a node was not watched, that is stated."""
    if not view.attempt.nodes:
        return "and its nodes are not in the accounting"
    unlisted = node_faults.of_unlisted(view)
    if view.unwatched_nodes:
        return f"and {view.blind_spots}{f'; {unlisted}' if unlisted else ''}"
    if unlisted:
        return f"with no known fault beside it that explains this, but {unlisted}"
    faults = any(s.signature.role is signatures.Role.ROOT for s in view.disturbances)
    return "with no fault beside it that explains this" if faults else "with no fault beside it"
