"""Chooses the finding that explains a log's end which nothing else explains: a reported interruption, a warning of stalled ranks, or a single process's last exception."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from probing_cluster.core import digits, sanitize, vocabulary
from probing_cluster.evidence import wrapper_lines
from probing_cluster.evidence.joblog import grammar, labels, precedence, progress, teardown
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import closing, links, sentences
from probing_cluster.evidence.joblog.messages.communication import coordination
from probing_cluster.evidence.joblog.messages.devices import kernel_lines

KINDS = grammar.UNEXPLAINED_EXIT_KINDS | {"python_consequence"}
"""Ends that do not name their reason."""
SIGNAL_LINES = 1_000
"""A launcher reports a signal at most so many lines before its ranks do."""
_TERMINATED_CODE = 143
_INTERRUPTED_LINES, _FAREWELL_LINES = 40, 80
_STALLS, _STALL_LINES = 2, 40
"""A warning about stalled ranks lists them in at most _STALL_LINES lines."""
_HEAD_LINES, _STEPS = 2, 3
_OFTEN = 3
_LAST_CHARS = 200
_WORDS = re.compile(r"\w")
_ENDLESS = 1_000
"""A program that printed an exception so often handled it each time."""
_EXCEPTIONS = frozenset({"python_exception", "import_error"})
_EXIT_LINES = 3
"""A launcher reports the exit of a single task within so many lines below its exception."""
_LSF_EXIT = re.compile(r"\s*Exited with exit code (?:\d{1,2}|1[01]\d|12[0-7])\.\s*")
_A_WORD = re.compile(r"[A-Za-z]{2}")
_OF_RAY = re.compile(r"\s*\((?:raylet|autoscaler|gcs_server)\b")
_COMPLAINS = re.compile(
    r"(?<!\b0 )(?<!\bno )\b(?:errors?|exceptions?|fail\w{0,4}|died|dead|lost|abort\w{0,3}|fatal|killed|timed out|cannot|could not|unable)\b",
    re.IGNORECASE,
)
_PEER_GONE = re.compile(
    r"\b(?:actor|worker|node|peer|rank|process|raylet)s?\b.{0,60}\b(?:died|dead|lost|gone)\b", re.IGNORECASE
)
_HANDLER = re.compile(r"\*{3} SIG(?:TERM|INT) received at time=\d")
"""A crash handler's report of a signal, which Ray's processes print before a farewell of many lines."""
_RAISED = re.compile(
    r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit): |.{0,200}\bMain process received SIG\w{3,6}, exiting"
)
"""An exception that reports a signal, or a launcher that ends with it."""
_SUMS_UP = re.compile(r"\b[1-9]\d{0,8} (?:(?:of|out of|/) \d{1,9} )?(?:[a-z]{1,20} ){0,2}failed\b")
"""How many units of work failed, as a harness reports it at its end."""
_NUMBER = re.compile(r"[\d.]+")
_LAUNCHER = re.compile(r"death signal, shutting down workers")
_KNOWS_WHY = re.compile(
    r"\b(?:because|due|caused|after|since|as|while|when|for|on|of|at|in|by)\b", re.IGNORECASE
)


def is_later(new: JobFinding, best: JobFinding | None, since: progress.LogProgress, *, exited: bool) -> bool:
    """Whether the program worked on after `best` and failed otherwise in `new`; not where a command ended badly and a later one lacks something."""
    if new.role is not LineRole.ROOT or (exited and lacks(new)):
        return False
    return since.steps >= _STEPS or (best is not None and since.units.begun > 0 and is_of_next(new, best))


def is_of_next(new: JobFinding, best: JobFinding) -> bool:
    """Whether `new`, an error of a later unit of work, is another one than `best`, which the work went on after.

    Each attempt may end by the same error, but for its numbers. A machine that failed in one unit may fail otherwise in
    the next, and a unit may lack what the last one should have made: then the first error stays.
    """
    if "hardware" in best.domains or sums_up(new) or not progress.can_be_survived(best):
        return False
    if None not in (new.rank, best.rank) and new.rank != best.rank:
        return False
    if new.detail.get("exception") in precedence.MISSING or precedence.LACKING.search(new.message):
        return False
    return (new.kind, _NUMBER.sub("", new.message)) != (best.kind, _NUMBER.sub("", best.message))


def interruption(held: Sequence[JobFinding], best: JobFinding | None, last_line: int) -> int | None:
    """Index of a reported interruption shortly before the end; None without one, or if `best`, the first cause so far, explains the end.

    A received signal alone may be the normal way to stop a server. It counts only if a process then ended badly.
    """
    if best is not None and (best.kind not in KINDS or best.detail.get("after_work")):
        return None
    if best is None and all(f.detail.get("after_work") for f in held if _is_signal(f, last_line)):
        return None
    if best is not None and not (best.kind == "python_consequence" and _is_interrupted(held, last_line)):
        # The launcher reports the end below the program's own message; broken connections come before or after it.
        last_line = best.line
        lost = best.kind == "python_consequence"
        if not _is_interrupted(
            held, last_line, {"interrupted", "process_terminated"} if lost else {"interrupted"}
        ):
            return None
    ended = [i for i, f in enumerate(held) if _is_signal(f, last_line)]
    ends = [held[i] for i in ended]
    died = any(
        "exit_code" in f.detail
        or "exit_string" in f.detail
        or _RAISED.match(f.message)
        or _HANDLER.search(f.message)
        for f in ends
    )
    died = died or any(f.kind == "interrupted" for f in ends)
    # Processes lose those that were ended; their exceptions name no signal.
    died = died or (best is not None and best.kind == "python_consequence" and bool(ends))
    return _launcher_end(held, ended[0]) if died else None


def stall(
    held: Sequence[JobFinding], last_line: int, only_lists: Callable[[int], bool], *, ended: str
) -> int | None:
    """Index of the first of the warnings in short succession about stalled ranks before the end at `last_line`.

    Without one, of a lost store with which the log begins: neither above nor below it stands anything that could have ended well.
    `only_lists`: whether only lists of ranks follow a line. `ended`: the kind of Slurm's end of the job, if it
    ended it: a single warning is then no proof of a hang, and who cancels a job whose step waits need not do so for that.
    """
    stalls: list[int] = []
    for i in range(len(held) - 1, -1, -1):
        if not held[i].detail.get("stalled"):
            continue
        if (held[stalls[-1]].line if stalls else last_line) - held[i].line > _STALL_LINES:
            break
        stalls.append(i)
    # srun says once that a step waits, and says when it begins.
    waits = bool(stalls) and held[stalls[-1]].kind == "slurm_launch_failed"
    if len(stalls) >= (_STALLS if ended and not waits else 1) and only_lists(held[stalls[0]].line):
        # Where steps took turns, the first one began: the last still waits.
        took_turns = waits and held[stalls[0]].detail.get(vocabulary.STEPS_TOOK_TURNS) is True
        of_another = waits and ended not in ("", "slurm_timeout")
        return None if of_another else stalls[0 if took_turns else -1]
    if ended or not held or held[0].kind != "store_lost" or held[0].line > _HEAD_LINES:
        return None
    lines = [*(f.line for f in held), last_line]
    near = all(behind - line <= _STALL_LINES for line, behind in pairwise(lines))
    return 0 if near and only_lists(held[0].line) else None


def last_error(
    best: JobFinding,
    held: Sequence[JobFinding],
    behind: Callable[[int], Sequence[str]],
    of_one: Callable[[int, int], bool],
) -> int | None:
    """Index of the exception with which a single process ended, after others that it had handled; None if `best` stays.

    An uncaught exception is printed once, at the end: what the process printed before was handled. Ranks, and programs that
    one script started, print theirs side by side; then the first one counts. An exception that reports something missing may
    follow from an earlier one. A sentence at the end counts after several exceptions of one class. What is not the program's own
    fault does not follow from the end of a thread or a child process.
    `behind`: the lines of the log after a line; `of_one`: whether the exceptions in two lines can be one process's.
    """
    errors = [f for f in held if f.role is not LineRole.OBSERVATION]
    if len(errors) > 1 and errors[-1].kind == "task_exit" and errors[-1].detail.get("exit_code") == 1:
        below, alone = (
            errors[-1].line - errors[-2].line,
            digits.is_number(str(errors[-1].detail.get("tasks", "0"))),
        )
        errors = errors[:-1] if alone and 0 < below <= _EXIT_LINES else []
        ended = bool(errors)
    else:
        ended = bool(errors) and all(line[:1].isspace() for line in behind(errors[-1].line) if line.strip())
    if not ended or errors[-1].line <= best.line:
        return None
    last = errors[-1]
    if last.role is LineRole.ROOT and _of_machine(last) and _ended_other(best, held):
        return held.index(last)
    if not _is_single(errors, best):
        return None
    if last.kind == "program_error":
        chosen = _n_alike(best, errors) >= _OFTEN and not last.detail.get("handled")
    else:
        other = last.detail.get("exception") != best.detail.get("exception")
        raised = any(last.detail.get(name) for name in ("chained", "linked", "thread"))
        lacking = last.detail.get("exception") in precedence.MISSING or precedence.LACKING.search(
            last.message
        )
        about = str(best.detail.get("exception", "")).rpartition(".")[2] in last.message
        chosen = other and not (raised or lacking or about) and of_one(best.line, last.line)
    return held.index(last) if chosen and last.role is LineRole.ROOT else None


def _of_machine(finding: JobFinding) -> bool:
    """Whether it is neither the program's own fault nor a lost peer."""
    return "user_program" not in finding.domains and finding.kind not in teardown.LOSSES


def _ended_other(best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether `best`, or what it is chained to, is a program's own exception that ended a thread or a child process."""
    chain = (f.detail for f in held if best.line in (f.line, f.detail.get("chained")))
    return best.domains == grammar.USER and any(d.get("thread") or d.get("child") for d in chain)


def with_endless(best: JobFinding, held: Sequence[JobFinding]) -> JobFinding:
    """`best`, with `goes_on` if the program printed exceptions of its class so often that it must have gone on after each."""
    if "exception" not in best.detail or len(held) < _ENDLESS or _n_alike(best, held) < _ENDLESS:
        return best
    return replace(best, detail={**best.detail, "goes_on": True})


def is_own_statement(finding: JobFinding) -> bool:
    """Whether a program states an error of its own, and not that it lacks what a command before it may not have written."""
    states = finding.role is LineRole.ROOT or finding.kind == "program_error"
    return states and not lacks(finding) and not finding.detail.get("handled")


def lacks(finding: JobFinding) -> bool:
    """Whether a program did not find something."""
    missing = finding.detail.get("exception") in precedence.MISSING
    return finding.domains == grammar.USER and (
        missing or precedence.LACKING.search(finding.message) is not None
    )


def _is_single(errors: Sequence[JobFinding], best: JobFinding) -> bool:
    """Whether all `errors`, but for a sentence at the end, are exceptions of one process."""
    of_python = errors[:-1] if errors[-1].kind == "program_error" else errors
    processes = {(f.rank, f.labelled) for f in errors}
    alike = all(f.kind in _EXCEPTIONS and "exception" in f.detail for f in of_python)
    return alike and best in of_python and len(processes) == 1 and (None, True) not in processes


def _n_alike(best: JobFinding, held: Sequence[JobFinding]) -> int:
    return sum(f.detail.get("exception") == best.detail.get("exception") for f in held)


def thread_outlived(best: JobFinding, held: Sequence[JobFinding], lines: Sequence[str]) -> bool:
    """Whether the program reports in `lines`, those behind `best`, that its work ended well after the exception of a thread.

    What Slurm ended did not end well. A batch script's farewell and the report of another rank prove nothing.
    """
    if not best.detail.get("thread") or any(f.role is LineRole.END and f.line > best.line for f in held):
        return False
    for line in lines:
        record = labels.bare(0, line)
        of_another = record.rank not in (None, best.rank)
        if not of_another and progress.reports_success(record.text):
            return True
    return False


def followed(finding: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the complaint that explains what `finding` lacks, although the script went on in between; None without one.

    If the command tried again, the last complaint in the same words counts.
    """
    line = finding.detail.get("follows")
    first = next((f for f in held if f.line == line), None) if line is not None else None
    return None if first is None else max(i for i, f in enumerate(held) if f.message == first.message)


def signal_before(last: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the line that reports the SIGTERM of which `last` died, or that ended what should have written the file it lacks; None without one."""
    by_term = last.detail.get("terminated") or last.detail.get("exit_code") == _TERMINATED_CODE
    for i, earlier in enumerate(held):
        if earlier.kind != "process_terminated" or earlier.role is not LineRole.OBSERVATION:
            continue
        # Once a task has ended, its launcher ends the others.
        lacked = last.detail.get("follows") == earlier.line and all(
            f.role is not LineRole.EXIT for f in held[:i]
        )
        near = last.line - earlier.line <= SIGNAL_LINES and not earlier.detail.get("survived")
        if near and (by_term or lacked):
            return i
    return None


def sums_up(finding: JobFinding) -> bool:
    """Whether a launcher, a program or a harness reports a bad end, or how many of its units failed, without a reason."""
    if finding.kind in KINDS and finding.role in (LineRole.EXIT, LineRole.REMOTE):
        return True
    if finding.kind != "program_error":
        return False
    ends = closing.is_ending(finding.message) or sentences.reports_exit(finding.message, "")
    return ends or _SUMS_UP.search(finding.message) is not None


def words_behind(lines: Sequence[str], held: Sequence[JobFinding]) -> dict[str, Any]:
    """How many `lines` the job printed after its first cause, the last one, and the last that no wrapper printed."""
    more: dict[str, Any] = {
        "behind": len(lines),
        "last_words": sanitize.clean(lines[-1].strip(), _LAST_CHARS),
    }
    raised = {f.message.strip() for f in held if f.detail.get("chained")}
    words = (line for line in lines if _WORDS.search(line) and line.strip() not in raised)
    if own := [line for line in words if not wrapper_lines.is_wrapper_line(line)]:
        more["went_on"] = sanitize.clean(own[-1], _LAST_CHARS)
    return more


def explains_nothing(best: JobFinding, held: Sequence[JobFinding]) -> bool:
    """Whether `best` is only LSF's account of an exit, or one of errors that the program handled so often that it went on after the last as well."""
    alike = [f.detail.get("goes_on") is True for f in held if f.kind == best.kind]
    return (len(alike) >= _OFTEN and all(alike)) or _LSF_EXIT.fullmatch(best.message) is not None


def is_consequence(last: JobFinding, best: JobFinding) -> bool:
    """Whether `last`, an error at the log's end, follows from `best`, the loss of a peer, or only repeats the bad end that the launcher's table reports.

    The program may have gone on without the peer and failed by itself. Who started the launcher may know more than its table.
    """
    repeats = last.kind == "program_error" and closing.is_ending(last.message)
    if repeats and "ended_at" in best.detail and _KNOWS_WHY.search(last.message) is None:
        return True
    if best.role is not LineRole.REMOTE or last.kind != "program_error":
        return False
    return not best.detail.get("goes_on") or _PEER_GONE.search(last.message) is not None


def is_replaced(best: JobFinding, held: Sequence[JobFinding], behind: Sequence[str]) -> bool:
    """Whether `best` is the loss of a node whose work Ray begins anew, and the job's lines `behind` it go on without a complaint."""
    if not best.detail.get("rescheduled"):
        return False
    others = [text for text in behind if not coordination.NODE_GONE.search(text)]
    went_on = any(_A_WORD.search(text) and not _OF_RAY.match(text) for text in others)
    later = (f for f in held if f.line > best.line and not f.detail.get("rescheduled"))
    bad = any(f.role is not LineRole.OBSERVATION for f in later) or any(map(_COMPLAINS.search, others))
    return went_on and not bad


def _is_near(finding: JobFinding, last_line: int) -> bool:
    most = _FAREWELL_LINES if _HANDLER.search(finding.message) else _INTERRUPTED_LINES
    return 0 <= last_line - finding.line <= most and not finding.detail.get("survived")


def _is_signal(finding: JobFinding, last_line: int) -> bool:
    return _is_near(finding, last_line) and finding.kind in ("interrupted", "process_terminated")


def _is_interrupted(
    held: Sequence[JobFinding], last_line: int, kinds: Collection[str] = ("interrupted",)
) -> bool:
    """Whether the program reported shortly before `last_line` that it was interrupted."""
    return any(f.kind in kinds and _is_near(f, last_line) for f in held)


def _launcher_end(held: Sequence[JobFinding], end: int) -> int:
    """Index of the signal to the launcher shortly before a rank's interruption `end`; `end` itself without one."""
    for i, earlier in enumerate(held[:end]):
        near = held[end].line - earlier.line <= SIGNAL_LINES and not earlier.detail.get("survived")
        if near and earlier.kind == "process_terminated" and _LAUNCHER.search(earlier.message):
            return i
    return end


_OF_OTHERS = frozenset({"python_exception", "watchdog_timeout", "gloo_timeout"})
"""Errors of a rank that waits for one that has left."""


def _left_before(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of a single task's exit before `best`, the complaint of another rank; None without one.

    A task's output reaches the log before srun reports its end. Exit code 1 does not count: it may belong to a Python exception
    whose text is lost.
    """
    if best.rank is None or (best.kind not in _OF_OTHERS and best.role is not LineRole.REMOTE):
        return None
    for i, earlier in enumerate(held):
        if earlier.line >= best.line:
            return None
        code = earlier.detail.get("exit_code")
        left = (
            isinstance(code, int) and 1 < code < vocabulary.BY_SIGNAL and not earlier.detail.get("survived")
        )
        alone = earlier.rank is not None and earlier.detail.get("tasks") == str(earlier.rank)
        if earlier.kind == "task_exit" and left and alone and earlier.rank != best.rank:
            return i
    return None


_PATHS = re.compile(
    r"(?:can't open file '/tmp/(?=[^/']{1,200}')|['\"‘`])(?P<path>[^'\"’`\n]{1,400})['\"’`]|(?:^|[\s:])(?P<here>\./[^\s:]{1,400})"
)
"""The files in a message. Python's interpreter puts the directory in front of the one that it does not find."""


def _of_system(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index in `held` of the kernel's line about `best`, or of Slurm's about a directory that it replaced where `best` lacks a file of that directory."""
    if (shown := kernel_lines.reason(best, held)) is not None:
        return shown
    paths = [found["path"] or found["here"] for found in _PATHS.finditer(best.message)]
    if not lacks(best) or not paths or any(path.startswith(("/", "~", "$")) for path in paths):
        return None
    moved = (i for i, f in enumerate(held) if f.kind == vocabulary.DIRECTORY_REPLACED and f.line < best.line)
    return next(moved, None)


def earlier_end(best: JobFinding, held: Sequence[JobFinding]) -> int | None:
    """Index of the earlier end of another process of which `best` is the complaint, or of what the kernel or Slurm printed about its reason; None without one."""
    left = _left_before(best, held)
    left = _of_system(best, held) if left is None else left
    for find in (links.service_before, links.of_server, links.not_written_before):
        left = find(best, held) if left is None else left
    return left
