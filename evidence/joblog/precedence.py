"""Decides which of two findings began the failure (the rules: `cause`).

Other findings complete the first cause: an earlier reason, an earlier exit, the ranks that did not arrive.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from probing_cluster.core import digits
from probing_cluster.evidence import locales
from probing_cluster.evidence.joblog import grammar, progress
from probing_cluster.evidence.joblog.grammar import JobFinding, LineRole
from probing_cluster.evidence.joblog.last_errors import links, unnamed

_FORCED_ENDS = frozenset({"slurm_timeout", "slurm_preempted", "slurm_requeued"})
_CLOCKS_DIFFER_S = 60
PEER_NOISE = frozenset({
    "net_ib_completion_error", "net_ib_error", "net_ib_async_event", "nccl_system_error", "nccl_internal_error", "nccl_watchdog_exception",
    "gloo_timeout", "gloo_connect_failed",
})  # fmt: skip
"""How a peer's death appears to ranks that wait for it; as weak as a lost peer."""
_WHY_NO_CONTAINER = frozenset({"disk_full", "cuda_version"})
_OWN_ERROR_KINDS = frozenset({
    "python_exception", "import_error", "cuda_oom", "cuda_device_assert", "cuda_unavailable", "host_memory_error",
})  # fmt: skip
"""Errors of a rank itself. Ranks that waited for it report a timeout, which may be printed first."""
MISSING = frozenset({"FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "OSError", "IOError"})
"""Exceptions of a step whose input an earlier command did not make."""
_PLAIN_EXITS = frozenset({"task_exit", "process_aborted"})
"""Ends that the signal of another process may explain."""
CRASHES = frozenset({"segfault", "bus_error", "process_crashed"})
"""Deaths that no lost peer orders, as it does an abort or a kill."""
_SUMMED_UP_LINES, _REASON_LINES, _RESULT_LINES = 1_000, 8, 3
_ALLOCATOR = re.compile(r"Tried to allocate \d")
_BARE_MEMORY = re.compile(r"CUDA error: out of memory\W*$")
_SOURCE_LINES = 2_000
"""Most source lines that a run-time compiler quotes above its own error."""
_TOP_LINES = 40
"""A helper of the site prints within the first lines of a log."""
_OF_PANIC = re.compile(r"panick|\b(?:Join|Recv|Send|Poison)Error\b|\bAny \{")
_PANIC_LINES = 40
"""Within so many lines after a thread's panic, the main thread's panic repeats it."""
_BARE_RESULT = re.compile(r"\bunhandled system error\b(?! ?,)")
_WRAPPED_LINES = 100
"""Most lines of the chain below an exception that only wraps another one."""
_RAISED = re.compile(r"\s{0,8}(?:\w{1,60}\.){0,8}\w{1,60}(?:Error|Exception): ")
_ACTOR_DIED = re.compile(r"node has died|worker died or was killed|worker process has died")
LACKING = re.compile(
    rf"{unnamed.NO_FILE}|{unnamed.NO_DATA}|not found|opening (?:\w{{1,20}} )?file|missing|no best trial\b|\ball (?:\w{{1,20}} )?(?:trials|runs|jobs|fits|tasks|subjects) failed\b",
    re.IGNORECASE,
)
"""Messages of a command that lacks its input, or finds it empty."""


def _clearly_before(new: JobFinding, best: JobFinding) -> bool:
    """Whether the clock of PyTorch's own lines puts `new` before `best`, although it is printed later.

    Launchers print ranks' messages in the order of arrival. Clocks differ by less than a minute.
    """
    ours, theirs = new.detail.get("stamp"), best.detail.get("stamp")
    return bool(ours and theirs and ours[0] == theirs[0] and ours[1] + _CLOCKS_DIFFER_S <= theirs[1])


def refuted(best: JobFinding, new: JobFinding) -> bool:
    """Whether `new` is the program's own exception, and `best` blames hardware by a line of text alone or memory by a note."""
    if best.detail.get("perhaps"):
        return new.role is LineRole.ROOT
    if not best.detail.get("unattributed") or new.kind not in ("python_exception", "import_error"):
        return False
    return best.rank is None or new.rank is None or best.rank == new.rank


def _began_after(best: JobFinding, new: JobFinding) -> bool:
    """True if `best` came from a batch-script command that failed earlier and the step of `new` started nevertheless.

    A launcher that labels lines of tasks labels all of them. If `new` reports a missing file, `best` may be the reason and stays.
    """
    if best.labelled or not new.labelled or new.detail.get("exception") in MISSING:
        return False
    return best.kind in ("python_exception", "import_error") and new.kind in _OWN_ERROR_KINDS - {
        "import_error"
    }


def _script_went_on(best: JobFinding, new: JobFinding) -> bool:
    """Whether the batch script went on after `best` and `new` ended a later command.

    A site's helper at the top of a script can fail in every job without ending one. If `new` reports something missing, `best` may be
    the reason and stays.
    """
    if best.detail.get("script_went_on") is not True or best.labelled or best.line > _TOP_LINES:
        return False
    if new.role is LineRole.END:
        # srun cancels a step whose task failed; a whole job is ended by a person or its limit.
        return new.kind in _FORCED_ENDS or (new.kind == "slurm_cancelled" and "*** JOB" in new.message)
    own = new.role is LineRole.ROOT and new.kind == "program_error" and not new.detail.get("handled")
    return own and not LACKING.search(new.message) and not progress.is_of_script(new.message)


def _is_of_next_command(new: JobFinding, best: JobFinding) -> bool:
    """Whether a file command of the script complained in `best`, and `new` is a program's own error that it does not explain."""
    if new.role is not LineRole.ROOT or new.kind == "program_error" or "follows" in new.detail:
        return False
    of_script = [progress.is_of_script(locales.english(f.message)) for f in (best, new)]
    return of_script == [True, False]


_KILLED = re.compile(rf"{unnamed.SHELL_DEATH}Killed\b")
"""A shell's message about a killed helper of the container runtime."""


def _explains(new: JobFinding, best: JobFinding) -> bool:
    """Whether `best` is only the heading, the wrapper or the suspicion of the error that `new` reports itself."""
    behind = new.line - best.line
    root = new.role is LineRole.ROOT
    own = new.kind in _OWN_ERROR_KINDS - {"import_error"} and new.detail.get("exception") not in MISSING
    if best.detail.get("modules") and (own or new.role is LineRole.REMOTE):
        # The script went on without the module, and the program failed by an error of its own or lost a peer.
        return True
    most = _WRAPPED_LINES if best.detail.get("glued") else _REASON_LINES * root
    bare = best.message == best.detail.get("exception") and 0 < behind <= most
    if bare and new.message.startswith(f"{best.message}: "):
        # Ranks write into each other: the name stands alone, and again with its message.
        return True
    own_words = not new.detail.get("handled") and new.message != best.message
    reason_lines = _REASON_LINES * (2 if new.message.startswith(best.message) else 1)
    if best.detail.get("heading") and root and own_words and 0 < behind <= reason_lines:
        return True
    if best.detail.get("wrapper") and (root or new.role is LineRole.REMOTE) and 0 < behind <= _WRAPPED_LINES:
        return True
    if best.kind in ("program_error", "process_aborted") and best.role is LineRole.EXIT:
        # Right below the end, the process reports a lost peer: in its error stack, or as the thrown exception.
        apart = new.host != best.host and None not in (new.host, best.host)
        its_own = new.kind in ("peer_lost", "net_ib_error") and new.rank in (None, best.rank)
        thrown = new.role is LineRole.REMOTE and behind == 1
        if not apart and (thrown or (its_own and 0 < behind <= _REASON_LINES)):
            return True
    if (
        new.detail.get("below_source")
        and "exception" in best.detail
        and best.message.rstrip().endswith("Error:")
    ):
        return behind <= _SOURCE_LINES
    if best.kind == "python_consequence" and new.kind.startswith("nccl_") and 0 < behind <= _RESULT_LINES:
        # A cut line separated the exception from its own result.
        return new.rank == best.rank
    if best.kind == "process_aborted" and new.message.lstrip().startswith("what(): "):
        return "terminate called after " in best.message and 0 < behind <= _RESULT_LINES
    if new.detail.get("signal_named") and (best.kind, best.pid) == (new.kind, new.pid):
        # torchelastic's box: the exit code stands above the signal's name.
        return "ended_at" in best.detail and 0 < behind <= _RESULT_LINES
    if "ended_at" in best.detail and new.role is LineRole.SYMPTOM and _RAISED.match(new.message):
        # torchelastic's box holds the traceback of the process.
        return 0 < behind <= _WRAPPED_LINES
    if (
        best.kind == "python_consequence"
        and new.kind in grammar.SIGNAL_DEATH_KINDS
        and 0 < behind <= _RESULT_LINES
    ):
        return new.role is LineRole.EXIT  # joblib's exception, with the workers' signals below its text
    if new.detail.get("exit_string") and best.kind == new.kind and 0 < behind <= _REASON_LINES:
        # The launcher's box: the code of the signal stands above its name.
        return True
    if new.detail.get("instead_since"):
        # The program's fallback failed as well and ended it.
        return bool(new.detail["instead_since"] <= best.line) and "exception" in best.detail
    no_way = new.kind in ("net_ib_completion_error", "nccl_no_interface") and best.kind.startswith("nccl_")
    last_error = best.detail.get("last_error")
    alike = not last_error and best.kind in (new.kind, "nccl_system_error", "nccl_remote_error")
    if new.detail.get("last_error") and (no_way or alike):
        return 0 < behind <= _REASON_LINES and new.rank in (None, best.rank)
    if best.kind == new.kind == "cuda_oom" and None in (best.rank, new.rank):
        # `best` is a bare out-of-memory error; `new` is the allocator's own, with the size it asked for.
        return _ALLOCATOR.search(new.message) is not None and _BARE_MEMORY.search(best.message) is not None
    if best.kind == "nccl_system_error" and new.kind == "net_ib_error" and _BARE_RESULT.search(best.message):
        # `best` only names the result; NCCL's own warning names the call that failed.
        return 0 < behind <= _REASON_LINES
    if best.kind == "slurm_launch_failed" and new.kind in _WHY_NO_CONTAINER and 0 < behind <= _REASON_LINES:
        return True
    if best.kind == "nccl_unhandled_cuda" and root and new.kind.startswith("cuda_"):
        return 0 < behind <= _REASON_LINES and new.rank == best.rank
    if best.kind == "shm_full" and new.kind == "too_many_open_files":
        # Opening a shared-memory segment needs a descriptor, too: without a reason of its own, this is the reason.
        return "No space" not in best.message and behind <= _WRAPPED_LINES
    if best.kind == "gloo_timeout" and new.kind == "monitored_barrier_timeout":
        # Gloo reports the receive that did not end; the barrier names the ranks it waited for.
        return bool(new.detail.get("ranks")) and behind <= _WRAPPED_LINES
    out_of_memory = new.kind in ("slurm_oom", "host_oom_kill")
    if best.kind == "slurm_launch_failed" and out_of_memory and _KILLED.search(best.message):
        return 0 < behind <= _REASON_LINES
    if best.kind == "dataloader_oom" and out_of_memory:
        return True
    # A step that is cancelled first, with a time of grace: the job's own line names the reason.
    return best.kind == "slurm_cancelled" and new.kind in _FORCED_ENDS


def _summed_up(best: JobFinding, new: JobFinding) -> bool:
    """True if the launcher's line `best` only summarises the exit that the process itself reports in `new`.

    The launcher's lines can overtake the process's. A line that names a rank, or another signal than `new`, is more precise and stays.
    """
    if new.detail.get("last_word"):
        return best.kind in _PLAIN_EXITS
    same = best.kind == new.kind or (best.kind in _PLAIN_EXITS and new.kind != "task_exit")
    return same and best.rank is None and new.line - best.line <= _SUMMED_UP_LINES


def _ended_the_step(new: JobFinding, best: JobFinding) -> bool:
    """Whether `new` is the exit of one task, and `best` tells in one line that srun killed several others, as it does after such an exit."""
    killed = best.kind == "oom_kill_suspected" and not digits.is_number(str(best.detail.get("tasks", "0")))
    alone = new.kind == "task_exit" and digits.is_number(str(new.detail.get("tasks", "")))
    return killed and alone and best.host == new.host and 0 < new.line - best.line <= _REASON_LINES


def _only_passes_on(finding: JobFinding) -> bool:
    """Whether a tool such as make only reports that a command failed, or a later command of the script lacks a file."""
    if finding.kind != "program_error" or finding.detail.get("panic"):
        return False
    message = locales.english(finding.message)
    lacks = progress.is_of_script(message) and "No such file" in message
    return lacks or finding.detail.get("handled") is True


def outranks(new: JobFinding, best: JobFinding | None) -> bool:
    """Whether `new`, printed after `best`, is nevertheless the cause."""
    if new.role is LineRole.OBSERVATION:
        return False
    if best is None:
        return True
    if best.kind == new.kind and best.detail.get("handled") is True and new.detail.get("handled") is True:
        return False
    died = best.role is LineRole.EXIT and best.kind in grammar.SIGNAL_DEATH_KINDS
    if new.detail.get("follows") == best.line or (died and _only_passes_on(new)):
        return False
    if best.detail.get("handled") is True and links.lacks_file_of(new.message, best.message):
        return False  # it was not handled, whatever the script's next heading says
    if best.message.startswith("Error in rule ") and new.message.startswith("WorkflowError:"):
        return False  # Snakemake's sum of its rules' errors
    near = new.line - best.line <= _PANIC_LINES and new.detail.get("panic")
    if best.detail.get("panic") and (near or _OF_PANIC.search(new.message)):
        return False
    if _script_went_on(best, new) or _ended_the_step(new, best) or _is_of_next_command(new, best):
        return True
    if best.detail.get("of_launcher") and new.role is LineRole.EXIT and not new.detail.get("of_launcher"):
        return _summed_up(best, new)
    if best.detail.get("failed_step") and new.role is LineRole.EXIT:
        # A workflow engine reports the failed step; the step's exit follows below.
        return new.line - best.line <= _REASON_LINES
    if _explains(new, best):
        return True
    if best.role is LineRole.REMOTE and (new.kind in CRASHES or new.detail.get("noticed")):
        # The peer that was lost: another process crashed by itself, or mpirun noticed that it was killed.
        apart = ((new.host, best.host), (new.rank, best.rank))
        if any(None not in of and of[0] != of[1] for of in apart):
            return True
    weak = best.role in (LineRole.EXIT, LineRole.REMOTE) or best.detail.get("handled") is True
    if new.role is best.role is LineRole.SYMPTOM:
        return _clearly_before(new, best)
    if best.detail.get("list_cut") and "ended_at" in new.detail:
        # The log begins inside the launcher's list; the launcher's own choice of the first failure follows it.
        return True
    if new.role is best.role is LineRole.EXIT and "ended_at" in new.detail and "ended_at" in best.detail:
        # Launchers' tables, each with the instant of every end (ISO order is the order of time).
        # Of several in the same second, the launcher chose the first; two launchers' choices do not compare.
        ours, theirs = new.detail["ended_at"], best.detail["ended_at"]
        chosen = "first_observed" in new.detail and "first_observed" not in best.detail
        return bool(ours < theirs) or (ours == theirs and chosen)
    if (best.kind, new.kind) == ("python_consequence", "peer_lost"):
        # Ray's exception reports a dead actor; the line below it reports the dead node.
        near = 0 < new.line - best.line <= _REASON_LINES
        return near and _ACTOR_DIED.search(new.message) is not None
    if new.role is LineRole.ROOT:
        plain_cancel = best.kind == "slurm_cancelled"
        waited = (
            best.kind in grammar.TIMEOUT_KINDS
            and new.kind in _OWN_ERROR_KINDS
            and None not in (new.rank, best.rank)
        )
        # The launcher lost its store. A rank that reports its own error had already passed the rendezvous.
        lost_store = best.kind == "rendezvous_failed" and best.rank is None and new.kind in _OWN_ERROR_KINDS
        noise = best.kind in PEER_NOISE or (waited and new.rank != best.rank)
        noise = noise or (lost_store and new.rank is not None)
        # Waiting ranks do not make another one load a library. If two print at once, the rank may be lost.
        unloaded = new.detail.get("undefined_symbol") is True and best.kind in grammar.TIMEOUT_KINDS
        noise = noise or (unloaded and (new.rank is None or new.rank != best.rank))
        announced = (
            best.detail.get("warned") is True and new.kind == best.kind and not new.detail.get("warned")
        )
        return (
            weak
            or noise
            or _began_after(best, new)
            or announced
            or refuted(best, new)
            or (new.late and (best.role is LineRole.SYMPTOM or plain_cancel))
        )
    terminated = best.kind == "process_terminated" and new.role is LineRole.END
    return weak and (new.kind in _FORCED_ENDS or terminated)


_NO_GPU = re.compile(
    r"\b(?:no|any|not? (?:a|an|find|detect(?:ed)?)|without (?:a )?|zero|0)\b.{0,30}\b(?:GPUs?|CUDA(?:-capable)?|accelerators?|NVIDIA)\b|\b(?:GPUs?|CUDA|accelerators?)\b.{0,40}\b(?:(?:is|are|was|were)(?: not|n't)|not) (?:available|found|detected|visible|present|enabled|supported)"
    r"|\b(?:needs?|requires?|required?|must have)\b.{0,24}\b(?:GPUs?|CUDA|accelerators?)\b|is_available\(\) is False|assert .{0,80}\bcuda\.is_available\(\)|device_count\b.{0,20}\b0\b|[Ii]nvalid device (?:id|ordinal)",
    re.IGNORECASE,
)
"""Messages of programs that find no GPU. PyTorch may have printed the reason long before."""
_NEEDS = r"\b(?:not|cannot|only|expected|requires?|needs?|support\w{0,3}|active)\b|n't\b"
_ON_CPU = r"(?:\b|_)cpu\b|\b(?:is_cuda|GPUs?|CUDA|Triton|bf16|fp16|Half|BFloat16|drivers)\b"
_WITHOUT_GPU = re.compile(
    rf"(?:{_NEEDS}).{{0,60}}(?:{_ON_CPU})|(?:{_ON_CPU}).{{0,60}}(?:{_NEEDS})", re.IGNORECASE
)
"""Messages of programs that work on a CPU and cannot. Only PyTorch's own reason above them shows that no GPU was found."""

_NO_HANDLE = re.compile(
    r"\bBlas \w{0,5}GEMM|create (?:cudnn|cublas|cusolver)\w{0,4} (?:handle|instance)|convolution algorithm|DNN library initialization"
    r"|\bCU(?:BLAS|DNN|SOLVER)_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR)\b",
    re.IGNORECASE,
)
"""Errors of CUDA's libraries when no memory was left for them."""
_NOT_ALLOCATED = re.compile(r"\bfailed to allocate \S{1,20} \(\d{1,18} bytes\) from device\b")
"""TensorFlow's and XLA's message for a failed device allocation. They retry with less and go on while that works."""
_ALLOCATION_LINES = 2_000
_GIVEN_UP, _SEVERAL = re.compile(r"\b[1-9]\d{0,3} workers died while trying to run it\b"), 2


def named_before(finding: JobFinding, held: Sequence[JobFinding]) -> tuple[int, JobFinding] | None:
    """The earlier finding that explains `finding`: its index in `held`, and itself as a cause.

    PyTorch may have reported earlier why there is no GPU. TensorFlow may have reported that the device had no memory left for CUDA's library.
    What Python ignored is all that is known of a bad exit right below it. Dask gives up a task whose workers died: they crashed, or it had ended them for their memory.
    """
    no_gpu = finding.kind == "python_exception" and (
        _NO_GPU.search(finding.message) or _WITHOUT_GPU.search(finding.message)
    )
    no_handle = finding.kind == "cuda_library_error" and _NO_HANDLE.search(finding.message)
    exited = finding.kind in grammar.UNEXPLAINED_EXIT_KINDS
    pool_ended = _GIVEN_UP.search(finding.message)
    near = [f for f in held if finding.line - f.line <= _TOP_LINES] if pool_ended else []
    ended = [f for f in near if f.kind in CRASHES] or [f for f in near if f.kind == "host_oom_kill"]
    given_up = len(ended) >= _SEVERAL
    for i, earlier in enumerate(held if no_gpu or no_handle or exited or given_up else ()):
        behind = finding.line - earlier.line
        if no_gpu:
            explained = finding.message.startswith(earlier.detail.get("only_for", ""))
            names: object = earlier.detail.get("no_gpu") and explained and not earlier.detail.get("survived")
        elif no_handle and earlier.kind == "cuda_oom" and earlier.rank == finding.rank:
            names = behind <= _ALLOCATION_LINES and _NOT_ALLOCATED.search(earlier.message)
        elif given_up:
            names = earlier in ended and not earlier.detail.get("survived")
        else:
            names = exited and earlier.detail.get("unraised") and behind <= _TOP_LINES
        if names:
            detail = {k: v for k, v in earlier.detail.items() if k not in ("survived", "handled", "goes_on")}
            return i, replace(earlier, role=LineRole.ROOT, detail=detail)
    return None


_LEAST_WAITING, _MOST_ABSENT = 3, 8
_SHARE = 8
"""At most one rank in so many may be absent. If more are, the log is more likely incomplete."""


def with_absent_ranks(first: JobFinding, found: Sequence[JobFinding]) -> JobFinding:
    """A watchdog's timeout with the absent ranks added, if all other ranks report the same collective or some report the one before.

    A rank inside a collective reports its own timeout; a rank that never entered it reports none. Absence of the last rank cannot be
    seen, because the log does not give the number of ranks.
    """
    if first.kind not in grammar.WATCHDOG_KINDS or first.seq is None or "culprit_ranks" in first.detail:
        return first
    waiting = {f.rank for f in found if _in_the_same(f, first) and f.rank is not None}
    if behind := {f.rank for f in found if _came_only_before(f, first) and f.rank is not None} - waiting:
        count = f"{len(behind)} rank{'s' if len(behind) > 1 else ''} had not entered it yet"
        detail = {**first.detail, "ranks": sorted(behind), "missing": True, "by_count": True}
        return replace(first, meaning=f"{first.meaning} By PyTorch's own count {count}.", detail=detail)
    if len(waiting) < _LEAST_WAITING:
        return first
    size = max(waiting) + 1
    absent = sorted(set(range(size)) - waiting) if size <= len(waiting) + max(1, size // _SHARE) else []
    if not absent or any(f.rank in absent for f in found):
        return first
    names = ", ".join(map(str, absent[:_MOST_ABSENT]))
    meaning = f"{first.meaning} Every rank but {names} reports it."
    return replace(first, meaning=meaning, detail={**first.detail, "ranks": absent, "missing": True})


def _in_the_same(other: JobFinding, first: JobFinding) -> bool:
    of_all = {first.group, other.group} <= grammar.WORLD_GROUP_NAMES and not other.detail.get("in_subgroup")
    same_op = None in (first.op, other.op) or first.op == other.op
    return other.kind in grammar.WATCHDOG_KINDS and of_all and same_op and other.seq == first.seq


def _came_only_before(other: JobFinding, first: JobFinding) -> bool:
    """Whether the rank, when it received the dump signal, had entered only the collective before. All ranks that wait now have ended that one."""
    of_all = {first.group, other.group} <= grammar.WORLD_GROUP_NAMES
    before = first.seq is not None and other.detail.get("enqueued") == first.seq - 1
    return other.kind == "dump_signal" and of_all and before
