"""Errors that stand in a list, a table, a test's line or an experiment: told of, and worked off; none of them ended the job.

Each error is put into every carrier with numbers that are drawn; the same error where errors stand is found all the same.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence.joblog import reader
from tests.every_case import every

ERRORS = (
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "torch.distributed.DistBackendError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600003 milliseconds before timing out.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
    "OSError: [Errno 116] Stale file handle: '/data/x'",
    "Fatal Python error: Bus error",
    "NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",
)
LISTS = {
    "a translation's hypotheses": ("H-{n}\t-0.2\t{text}", "a dog runs"),
    "a table's rows": ("{n}   {n}1  stderr      {text}   hw", "nothing to see"),
    "an autotuner's configurations": ("[autotune] cfg {n} BLOCK=64x64   {text}", "1.4 ms"),
    "questions of an evaluation": ("[{n}/900] Q: {text}", "What is a GPU?"),
    "samples": ("Sample {n}: {text}", "an apple"),
    "entries with a mark": ("| {n} | stderr | {text} | 0.3 |", "fine"),
    "rows of a search": ("doc#{n} score=0.71: {text}", "a page"),
}  # fmt: skip
TABLES = ("a table's rows", "entries with a mark")
"""Whose other rows may tell of errors, too."""
END = 'Traceback (most recent call last):\n  File "score.py", line 40, in <module>\n    main()\nValueError: references and hypotheses must have the same length'


def first_cause(text: str) -> str | None:
    """The line of the first cause."""
    lines = text.split("\n")
    found = [f for f in reader.read(lines) if f.first_cause]
    return lines[found[0].line - 1] if found else None


def rows(carrier: str, texts: list[str], begin: int) -> str:
    """The list with these texts, its numbers from `begin`."""
    return "\n".join(carrier.replace("{n}", str(begin + i)).replace("{text}", t) for i, t in enumerate(texts))


@pytest.mark.parametrize("name", LISTS)
@given(begin=st.integers(1, 800), error=st.sampled_from(ERRORS), at=st.integers(0, 3))
def test_an_entry_of_a_list_that_goes_on_ended_nothing(name: str, begin: int, error: str, at: int) -> None:
    """Whatever it tells of, behind it comes the next entry; the program's own end is the first cause, or there is none."""
    carrier, plain = LISTS[name]
    if name in TABLES:
        plain = "mlx5_core 0000:33:00.0: Port module event[error]: Cable error"
    texts = [plain] * at + [error] + [plain] * 2
    log = rows(carrier, texts, begin)
    assert first_cause(log) is None
    assert first_cause(f"{log}\n{END}") == END.rsplit("\n", 1)[1]


@every("error", ERRORS)
def test_the_same_error_where_errors_stand_is_the_first_cause(error: str) -> None:
    """Lists before it change nothing."""
    for name, (carrier, plain) in LISTS.items():
        log = f"{rows(carrier, [plain] * 3, 7)}\n{error}"
        assert first_cause(log) == error, name


@every("prefix", ["[rank{n}]: ", "rank {n}: ", "node-{n}: ", "GPU {n}: ", "worker {n} ", "task {n}: ", "attempt {n}: ", "Thread-{n} ", "frame #{n}: "])  # fmt: skip
def test_ranks_and_attempts_are_no_list(prefix: str) -> None:
    """The next rank, node or attempt that prints something does not say that this one lived on."""
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    log = "\n".join(
        prefix.replace("{n}", str(n)) + (error if n == 2 else "waiting for the others") for n in range(6)
    )
    assert error in (first_cause(log) or "")


def test_a_list_in_which_every_further_entry_fails_is_not_survived() -> None:
    """What goes wrong again and again is not over."""
    log = "\n".join(
        f"Sample {n} failed: RuntimeError: CUDA error: an illegal memory access was encountered"
        for n in range(5)
    )
    assert first_cause(log) is not None


@every("error", ERRORS)
def test_an_error_that_a_test_or_an_experiment_makes_is_none(error: str) -> None:
    """unittest and pytest tell below how the test ended; who injects a fault says so."""
    assert first_cause(f"test_abort (ft.tests.TestAbort) ... {error}\nok\n\nRan 1 test in 0.1s\n\nOK") is None
    assert first_cause(f"[scenario] rank 2 raised: {error}  (injected)\n[scenario] resumed ... OK") is None


def test_what_made_a_test_fail_is_the_first_cause() -> None:
    """pytest marks the exception with an E, whatever the exception is."""
    for error in ("AssertionError: assert 'reboot' == 'drain'", ERRORS[0]):
        log = f'    def test_a():\n        line = "{ERRORS[0]}"\n>       assert classify(line)\nE       {error}\n\ntests/test_a.py:57: AssertionError\n== 1 failed ==\nsrun: error: n1: task 0: Exited with exit code 1'
        assert first_cause(log) == f"E       {error}"


@every(
    "line",
    ["awk: cmd. line:1: { n[$4]++ } END { print }", "sed: -e expression #1, char 3: unterminated `s' command", "cp: cannot stat 'model.pt': No such file or directory"],
)  # fmt: skip
def test_a_tool_of_the_shell_that_stops_the_script(line: str) -> None:
    """Its own word is the first cause where hardly anything follows."""
    assert first_cause(f"step one\n{line}\nsrun: error: login-2: task 0: Exited with exit code 1") == line


def test_a_tool_that_complains_early_ended_nothing() -> None:
    """Scripts go on behind a `cp` that found nothing."""
    log = "cp: cannot stat 'a': No such file or directory\n" + "\n".join(
        f"step {n} loss 0.{n}" for n in range(9)
    )
    assert first_cause(log) is None


@pytest.mark.parametrize("error", ERRORS[:4])
@pytest.mark.parametrize(
    "words", ["halving the batch", "falling back", "skipping", "retrying with a smaller batch"]
)
def test_an_error_that_says_itself_that_it_goes_on_was_survived(error: str, words: str) -> None:
    """Two steps behind it prove it; without any it stands."""
    log = f"[warn] batch 64: {error}; {words}"
    steps = "\n".join(f"Epoch [{n}/200] - loss: 3.{n}" for n in range(1, 4))
    assert first_cause(f"{log}\n{steps}") is None
    limit = "slurmstepd: error: *** JOB 77 ON n13 CANCELLED AT 2026-02-11T22:00:20 DUE TO TIME LIMIT ***"
    assert first_cause(f"{log}\n{steps}\n{limit}") == limit


@every("error", ERRORS)
def test_what_a_test_prints_that_passed_is_its_own_doing(error: str) -> None:
    """GoogleTest tells of each test whether it passed; of one that did not, the error stands."""
    log = f"[ RUN      ] A.Dies\n{error}\n"
    assert first_cause(f"{log}[       OK ] A.Dies (3 ms)\n[  PASSED  ] 1 test.") is None
    assert first_cause(f"{log}[  FAILED  ] A.Dies (3 ms)") == error
    assert first_cause(f"[ RUN      ] A.Lives\n[       OK ] A.Lives (1 ms)\n{error}") == error


def test_conda_that_was_not_set_up_gives_way_to_what_ended_the_script() -> None:
    """A script goes on behind it; alone it is the last word."""
    conda, missing = (
        "CondaError: Run 'conda init' before 'conda activate'",
        "ModuleNotFoundError: No module named 'torch'",
    )
    trace = 'Traceback (most recent call last):\n  File "a.py", line 5, in <module>\n    import torch'
    assert first_cause(f"{conda}\n{trace}\n{missing}") == missing
    assert first_cause(conda) == conda
