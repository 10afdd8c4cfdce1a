"""Exceptions met while another one was handled: the fallback's own failure, or a wrapper around what failed first."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from tests.every_case import every

HANDLING = ["", "During handling of the above exception, another exception occurred:", ""]
RAISED_FROM = ["", "The above exception was the direct cause of the following exception:", ""]
HANDLER = ("hub.py", "fetch", "return open(path)")


def traceback(exception: str, *frames: tuple[str, str, str], rank: int | None = None) -> list[str]:
    """As Python prints it, of a rank where one is given: file, function and line of every frame."""
    lines = ["Traceback (most recent call last):"]
    for file, function, code in frames:
        lines += [f'  File "/opt/{file}", line 7, in {function}', f"    {code}"]
    mark = "" if rank is None else f"[rank{rank}]: "
    return [mark + line for line in (*lines, exception)]


def cause(*lines: str) -> str | None:
    """The first cause's message."""
    return next((f.message for f in reader.read(lines) if f.first_cause), None)


MISSING = traceback("FileNotFoundError: [Errno 2] No such file or directory: 'index'", HANDLER)
MAIN = ("main.py", "<module>", "fetch()")


@every(
    ("exception", "frames"),
    [
        ("PermissionError: [Errno 13] Permission denied: '/hub'", [MAIN, HANDLER, ("path.py", "mkdir", "os.mkdir(self)")]),
        ("PermissionError: [Errno 13] Permission denied: '/hub'", [MAIN, ("hub.py", "fetch", "os.mkdir(path)")]),
        ("urllib.error.HTTPError: HTTP Error 403: Forbidden",
         [MAIN, HANDLER, ("request.py", "open", "return self.error()"), ("request.py", "error", "raise HTTPError(url)")]),
    ],
)  # fmt: skip
def test_a_fallback_that_failed_is_the_cause(exception: str, frames: list[tuple[str, str, str]]) -> None:
    """The handler of an exception that programs expect tried something else."""
    assert cause(*MISSING, *HANDLING, *traceback(exception, *frames)) == exception


@every(
    ("link", "frames"),
    [
        (HANDLING, [MAIN, ("hub.py", "fetch", "raise SetupError(path)")]),
        (HANDLING, [MAIN, HANDLER, ("hub.py", "fail", "raise SetupError(path)")]),
        (RAISED_FROM, [MAIN, HANDLER, ("path.py", "mkdir", "os.mkdir(self)")]),
    ],
)
def test_what_a_handler_raises_itself_only_renames_the_first(
    link: list[str], frames: list[tuple[str, str, str]]
) -> None:
    """In the handler, or in the function that it calls for that."""
    assert cause(*MISSING, *link, *traceback("hub.SetupError: no index", *frames)) == MISSING[-1]


def test_a_clean_up_that_fails_after_an_unexpected_error_is_not_the_cause() -> None:
    """Nobody catches these to try something else."""
    first = traceback("torch.cuda.OutOfMemoryError: CUDA out of memory.", ("train.py", "step", "loss()"))
    close = traceback(
        "AttributeError: 'NoneType' has no attribute 'close'", MAIN, ("train.py", "step", "log.close()")
    )
    assert cause(*first, *HANDLING, *close) == first[-1]


def test_a_traceback_of_its_own_is_no_link_of_a_chain() -> None:
    """Nor is another rank's."""
    denied = "PermissionError: [Errno 13] Permission denied: '/hub'"
    own = traceback(denied, MAIN, HANDLER, ("path.py", "mkdir", "os.mkdir(self)"))
    assert cause(*MISSING, "", *own, "training failed") == MISSING[-1]
    ranked = [f"[rank0]: {line}" for line in MISSING]
    handling = [f"[rank0]: {line}" for line in HANDLING]
    other = traceback(denied, MAIN, HANDLER, ("path.py", "mkdir", "os.mkdir(self)"), rank=1)
    assert cause(*ranked, *handling, *other) == MISSING[-1]


def test_a_chain_of_several_is_the_last_fallbacks() -> None:
    """Whichever of its exceptions was taken for the cause until then."""
    not_found = traceback(
        "requests.exceptions.HTTPError: 404 Client Error", ("hub.py", "get", "raise HTTPError()")
    )
    named = traceback("hub.EntryNotFoundError: 404", ("hub.py", "get", "raise EntryNotFoundError()"))
    no_parent = traceback(
        "FileNotFoundError: [Errno 2] No such file or directory: 'a/b'",
        ("path.py", "mkdir", "os.mkdir(self)"),
    )
    denied = traceback(
        "PermissionError: [Errno 13] Permission denied: 'a'",
        MAIN,
        ("path.py", "mkdir", "self.parent.mkdir()"),
        ("path.py", "mkdir", "os.mkdir(self)"),
    )
    assert cause(*not_found, *RAISED_FROM, *named, *HANDLING, *no_parent, *HANDLING, *denied) == denied[-1]


DECODER = ("config.py", "load", "return decode(text)")
PADDING = traceback("binascii.Error: Incorrect padding", DECODER, ("base64.py", "decode", "return a2b(s)"))
WANTED = "ValueError: Expected the path of a settings file, or a dictionary, not ../zero.json"


def test_a_handler_that_says_in_words_what_was_wanted_is_the_cause() -> None:
    """What a decoder met says nothing of what was tried."""
    wanted = traceback(WANTED, MAIN, ("config.py", "load", "raise ValueError("))
    assert cause(*PADDING, *HANDLING, *wanted) == WANTED
    assert cause(*PADDING, *RAISED_FROM, *wanted) == WANTED
    assert cause(*(f"[rank2]: {line}" for line in (*PADDING, *HANDLING, *wanted))) == WANTED


@every(
    ("first", "link", "last", "frame"),
    [
        (PADDING, HANDLING, WANTED, ("config.py", "fail", "raise ValueError(")),
        (PADDING, HANDLING, "ValueError: bad settings", ("config.py", "load", "raise ValueError(")),
        (PADDING, HANDLING, "RunError: the run of today stopped at step 7, see the log above for it", ("config.py", "load", "raise RunError(")),
        (MISSING, HANDLING, "SetupError: the index that the hub should have is not on this machine now", ("hub.py", "fetch", "raise SetupError(")),
        (traceback("RuntimeError: NaN loss", DECODER), HANDLING, "TrainError: the trainer saved what it had and stopped at step 7 of 9", ("config.py", "load", "raise TrainError(")),
    ],
)  # fmt: skip
def test_a_handler_that_says_no_more_stays_a_wrapper(
    first: list[str], link: list[str], last: str, frame: tuple[str, str, str]
) -> None:
    """In another function, in fewer words, pointing elsewhere, or around an error with words of its own."""
    assert cause(*first, *link, *traceback(last, MAIN, frame)) == first[-1]


def test_a_recursion_without_an_end_is_the_cause_of_what_it_repeated() -> None:
    """Every turn handled the same error."""
    turn = traceback("OSError: broken data stream", ("data.py", "get", "return read(i)"))
    end = traceback(
        "RecursionError: maximum recursion depth exceeded", MAIN, ("data.py", "get", "return get(i)")
    )
    assert cause(*turn, *HANDLING, *turn, *HANDLING, *turn, *HANDLING, *end) == end[-1]
    assert cause(*turn, *end, "training failed") == turn[-1]


FALLBACK = [MAIN, HANDLER, ("model.py", "compute", "return torch.matmul(a, b)")]
KNOWN = [
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: unspecified launch failure",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "OSError: [Errno 28] No space left on device",
    "OSError: [Errno 5] Input/output error",
    "MemoryError",
]


@pytest.mark.parametrize("exception", KNOWN)
@pytest.mark.parametrize("first", ["KeyError: 'k'", "ModuleNotFoundError: No module named 'fast'"])
def test_a_fallback_that_failed_is_the_cause_whatever_family_knows_it(first: str, exception: str) -> None:
    """The chain places the exception, and its own family gives it its kind."""
    handled = traceback(first, HANDLER)
    assert cause(*handled, *HANDLING, *traceback(exception, *FALLBACK)) == exception
    exited = "srun: error: n4: task 0: Exited with exit code 1"
    assert cause(*handled, *HANDLING, *traceback(exception, *FALLBACK), exited) == exception


def test_a_retry_makes_no_error_of_the_hardware_weak() -> None:
    """The line above the traceback says that the program tries again; it cannot, on such a GPU."""
    ecc, oom = KNOWN[0], KNOWN[2]
    end = traceback("ValueError: no result after all attempts", MAIN)
    assert cause("retrying 1", *traceback(ecc, HANDLER), "saving", *end) == ecc
    assert cause("retrying 1", *traceback(oom, HANDLER), "saving", *end) == end[-1]


HANDLED = traceback("OSError: broken data stream", MAIN, ("data.py", "get", "return read(i)"))
ENDED = traceback("ValueError: no samples are left", MAIN)


@pytest.mark.parametrize(
    "end",
    [
        ENDED,
        [*ENDED, "srun: error: n4: task 0: Exited with exit code 1"],
        [*ENDED, "   hint: give another folder", ""],
        [f"[rank0]: {line}" for line in ENDED],
    ],
)
@pytest.mark.parametrize("times", [1, 4])
def test_a_single_process_ends_by_its_last_exception(times: int, end: list[str]) -> None:
    """It printed the others and went on: an uncaught one is printed last."""
    mark = "[rank0]: " if end[0].startswith("[rank0]") else ""
    before = [f"{mark}{line}" for line in ["epoch 1 begins", *HANDLED] * times]
    assert cause(*before, "validation begins", *end) == ENDED[-1]


@every(
    "end",
    [
        traceback("OSError: cannot seek", MAIN),
        traceback("FileNotFoundError: [Errno 2] No such file or directory: 'best.pt'", MAIN),
        traceback("RuntimeError: checkpoint best.pt not found", MAIN),
        traceback("hub.SupervisionError: the actor of generator has failed", MAIN),
        traceback("RuntimeError: a worker raised OSError, see above", MAIN),
        [*ENDED, "the job ends"],
        [HANDLING[1], *ENDED],
        ["Exception in thread Thread-1:", *ENDED],
        [*ENDED, "srun: error: n4: task 0: Exited with exit code 9"],
        [*traceback("RuntimeError: CUDA error: uncorrectable ECC error encountered", MAIN)],
        ["ERROR: nothing was trained"],
    ],
)
def test_the_first_exception_stays_where_the_last_one_may_follow_from_it(end: list[str]) -> None:
    """One of its class, one that lacks something, another process's, a thread's, a chain's; or words behind it."""
    assert cause(*HANDLED, "validation begins", *end) == HANDLED[-1]


@every(("mark", "other"), [("[rank0]: ", "[rank1]: "), ("0: ", "1: "), ("[rank1]: ", "")])
def test_the_first_exception_stays_where_processes_print_side_by_side(mark: str, other: str) -> None:
    """Two ranks, the tasks of a step, or a rank and the script around it."""
    assert cause(*(mark + line for line in HANDLED), *(other + line for line in ENDED)) == HANDLED[-1]


@every(
    "end",
    [
        traceback("IndexError: list index out of range", ("eval.py", "<module>", "files[-1]")),
        traceback("IndexError: list index out of range", ("eval.py", "<module>", "main()"), ("eval.py", "main", "files[-1]")),
        [*ENDED, "srun: error: n1: tasks 0-1: Exited with exit code 1"],
    ],
)  # fmt: skip
def test_the_first_program_of_a_script_that_ended_by_itself_stays(end: list[str]) -> None:
    """An uncaught exception begins at the script's own top; another program's, or another task's, may follow from it."""
    assert cause(*HANDLED, "the next step begins", *end) == HANDLED[-1]
    caught = traceback("OSError: broken data stream", ("data.py", "get", "return read(i)"))
    if end[-1].startswith("IndexError"):
        assert cause(caught[-1], "the next step begins", *end) == end[-1]
        assert cause(*caught, "the next step begins", *end) == end[-1]


FORKED = ("py/multiprocessing/process.py", "_bootstrap", "self.run()")
SPAWNED = [("py/multiprocessing/spawn.py", "spawn_main", "_main(fd)"), ("main.py", "<module>", "read()")]
WORK = ("main.py", "work", "raise ValueError(shard)")
ODD = "ValueError: shard 4 is odd"


@every(
    "child",
    [
        ["Process Process-1:", *traceback(ODD, FORKED, WORK)],
        traceback(ODD, FORKED, WORK),
        traceback(ODD, *SPAWNED),
        ["Process ForkProcess-2:", *traceback(ODD, WORK), *HANDLING, *traceback("OSError: bad shard", FORKED, WORK)],
        ["CRITICAL Exception in initializer:", *traceback(ODD, ("py/concurrent/futures/process.py", "_process_worker", "initializer()"), WORK)],
        ["Exception in thread Thread-1 (work):", *traceback(ODD, ("py/threading.py", "_bootstrap_inner", "self.run()"), WORK)],
    ],
)  # fmt: skip
def test_nobody_caught_what_ended_a_child_process_or_a_thread(child: list[str]) -> None:
    """The parent's own exception follows from it; what the parent caught in a function before does not end the child."""
    end = traceback("IndexError: list index out of range", MAIN)
    assert cause(*child, "waiting for results", *end) == ODD
    assert cause(*child, *end, "srun: error: n4: task 0: Exited with exit code 1") == ODD
    for lost in (
        "_queue.Empty",
        "TimeoutError: 9 s",
        "RuntimeError: a worker has failed",
        "TypeError: 'NoneType' object is not iterable",
    ):
        assert cause(*child, *traceback(lost, MAIN)) == ODD, lost
    for broken in (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "OSError: [Errno 5] Input/output error",
    ):
        assert cause(*child, *traceback(broken, MAIN)) == broken
    own = traceback("KeyError: 'depth'", MAIN)
    assert cause(*child, "waiting for results", *own) == own[-1], "the main program goes on without it"
    uncaught = "Process Process-2:", *traceback("RuntimeError: no labels", FORKED, WORK)
    caught = traceback("OSError: broken data stream", ("main.py", "old_format", "return read(i)"))
    assert cause(*caught, "starting workers", *uncaught) == uncaught[-1]
    assert cause(*end, "joining workers", *uncaught) == end[-1]


@every("times", [3, 30])
def test_a_sentence_at_the_end_counts_after_exceptions_that_were_handled_again_and_again(times: int) -> None:
    """Which one ended the program, no exception says; its own last words do."""
    words = "ERROR: every sample was broken"
    assert cause(*HANDLED * times, "validation begins", words) == words


def test_a_program_that_printed_thousands_of_exceptions_went_on_after_each() -> None:
    """The last one may have ended it, but nothing shows that."""
    (found,) = [f for f in reader.read(HANDLED * 1_100) if f.first_cause]
    assert found.detail.get("goes_on") is True
    few = next(f for f in reader.read(HANDLED * 9) if f.first_cause)
    assert not few.detail.get("goes_on")
