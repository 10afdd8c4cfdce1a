"""What explains an error is none: help, tables, patterns, pages and announced examples; what only looks like them still is one."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import sifted
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

TRACE = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 10, in <module>'


def first(text: str) -> str | None:
    return next((f.message for f in reader.read(text.split("\n")) if f.first_cause), None)


@pytest.mark.parametrize(
    "text",
    [
        "usage: again [-h] CMD\n\noptions:\n  --signature RE   default: NCCL WARN Call to recv failed : Connection reset by peer\n                   CUDA error: device lost, Bus error",
        r"default: (NCCL WARN Call to recv from .* failed : Connection reset by peer|Signal 9 \(SIGKILL\) received)",
        "what the exit codes mean\n   1   ValueError: shapes (3,4) and (5,6) not aligned\n   9   Killed\n  66   srun: error: Unable to create step for job 1: Requested node configuration is not available\n 139   Segmentation fault (core dumped)\npi ~ 3.14",
        "  - `undefined symbol: util_b` at runtime, despite the function existing, is frequently caused by another version",
        "**Error**: `torch.OutOfMemoryError: CUDA out of memory`\n\n**Solutions**:\n- use less",
        "The following command fails with an error:\n`CMake Error: The source directory \"/app\" does not appear to contain CMakeLists.txt`\n\nmore",
        "motif                                      jobs     %\n  torch.cuda.OutOfMemoryError: CUDA out of memory.             2118  11.5\n  Segmentation fault (core dumped)                              118   0.6",
        "<!DOCTYPE html>\n<html><body><pre>\nRuntimeError: CUDA error: uncorrectable ECC error encountered\nsrun: error: g0213: task 2: Exited with exit code 1\n</pre></body></html>\ndone",
        "03:20  Erste Meldung eines Benutzers:\n           OSError: [Errno 5] Input/output error: '/scratch/ckpt.pt'\n05:47  Verbindung wieder da",
        f"Q: Why?\nA: You probably forgot to move the target. A minimal example that fails:\n\n{TRACE}\n{FRAME}\nRuntimeError: Expected all tensors to be on the same device\n\nMove it.\n--- judge: 5/5",
        f"### prompt 0: What does an error look like?\n### answer 0:\nA typical one reads\n\n{TRACE}\n{FRAME}\nKeyError: 'lr'\n\nand that is all.\n### prompt 1: Say two.\n### answer 1:\nTwo.\n### prompt 2: Say three.\n### answer 2:\nThree.\n### prompt 3: Done?\n### answer 3:\nDone.",
        "*** JOB N ON h CANCELLED AT .. DUE TO TIME LIMIT ***                 1873  10.2",
        "inject: Input/output error\ninject: Stale file handle\nparser recognised both",
        "The kernel stops what takes too much. Then you will find an error such as this:\n\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.0\n\nAsk for more.",
        "Your nodes train well on their own, but together you hit:\nRuntimeError: NCCL communicator was aborted on rank 3.\nWatchdog caught collective operation timeout",
    ],
    ids=["help", "a pattern", "codes", "a page's entry", "a label", "code alone", "counts", "html", "a report", "a chat", "answers", "a sum", "injected", "such as", "you hit"],
)  # fmt: skip
def test_what_explains_an_error_is_none(text):
    assert first(text) is None


@every(
    ("text", "message"),
    [
        (f"Running example:\n{TRACE}\n{FRAME}\nKeyError: 'lr'", "KeyError: 'lr'"),
        (f"loading weights from C:\\data\\new\n{TRACE}\n{FRAME}\nKeyError: 'lr'", "KeyError: 'lr'"),
        ("error:\n            ValueError: no such axis", "            ValueError: no such axis"),
        ("ERROR: no file matches the pattern: .*", "ERROR: no file matches the pattern: .*"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        (f"Of the kernels that were made for you the slow ones you see:\n{TRACE}\n{FRAME}\nKeyError: 'lr'", "KeyError: 'lr'"),
        ("Of the nodes in your list there are some like this:\nn1 n2\n\nRuntimeError: no node left", "RuntimeError: no node left"),
        ("The settings file you gave us makes an error like this:\n\nlr = 'x'\n\nRuntimeError: wrong rate", "RuntimeError: wrong rate"),
        ("If a node of yours has lost its fabric, you may see:\nfit.py: begins\n[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("While the data is read you are going to get:\nstep 1\nstep 2\nRuntimeError: no data", "RuntimeError: no data"),
        ("While the data is read you are going to get:\n1\n2\n3\nRuntimeError: no data", "RuntimeError: no data"),
        ("While the data is read you are going to get:\n2031-07-02 08:01:15 reading\nRuntimeError: no data", "RuntimeError: no data"),
        ("While the data is read you are going to get:\nreading\nsrun: error: n2: task 1: Segmentation fault", "srun: error: n2: task 1: Segmentation fault"),
        ("The linker has stopped with the following errors like these:\nRuntimeError: no data", "RuntimeError: no data"),
        ("The linker has stopped at a file with output like this:\nRuntimeError: no data", "RuntimeError: no data"),
        ("train.py: error: unrecognized arguments: --lr", "train.py: error: unrecognized arguments: --lr"),
    ],
)  # fmt: skip
def test_what_only_looks_so_is_an_error(text, message):
    assert first(text) == message


@every(
    ("heading", "doubtful"),
    [
        ("last log of the previous job:", True),
        ("[resume] Output of the last run (job 881):", True),
        ("=== tail of the previous attempt's log ===", True),
        ("==> old.log <==", True),
        ("==> logs/blast.log <==", False),
        ("==> saved/old.log <==", True),
        ("log of the last, restarted run:", False),
        ("Last log of the restarted job:", True),
        ("=== Restarted: last lines of the previous run's log ===", True),
        ("Restart 2, output of the previous run:", True),
        ("reading the end of the last run's log:", True),
        ("tail of train.log:", False),
        ("rm: removing old.log", False),
        ("removing the old log:", False),
        ("copying the previous job's log:", False),
        ("[setup] rotated the last log ---", False),
        ("resuming from the output of the previous run:", False),
        ("resuming from previous run checkpoint:", False),
        ("Found previous run output:", False),
        ("no previous log:", False),
        ("Loading the weights of the last run:", False),
        ("==> old.log <==\n==> train.log <==", False),
        ("Output of the last run:\n=== new attempt ===", False),
    ],
)
def test_an_error_below_the_heading_of_an_older_log_may_be_another_runs(heading, doubtful):
    lines = f"starting\n{heading}\n{TRACE}\n{FRAME}\nKeyError: 'lr'".split("\n")
    (found,) = [f for f in reader.read(lines) if f.first_cause]
    assert (found.message, found.detail.get("goes_on") is True) == ("KeyError: 'lr'", doubtful)


BROKEN = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.mark.parametrize(
    "output", [("  2: step 7", f"  6: {BROKEN}", " 12: step 8"), ("  step 7", f"  {BROKEN}")]
)
def test_indented_lines_below_the_heading_of_an_empty_older_log_are_the_jobs_own(output):
    """srun's labels and Fortran's output begin with blanks."""
    lines = ["== tail of the previous log (slurm-8812.out):", *output]
    assert [f.line for f in reader.read(lines) if f.first_cause] == [3]


def test_an_error_below_an_older_log_comes_before_it():
    old = f"Log of the previous run:\n{TRACE}\n{FRAME}\nKeyError: 'old'\n=== new attempt ==="
    text = f"{old}\n{TRACE}\n{FRAME}\nKeyError: 'own'"
    assert first(text) == "KeyError: 'own'"


def test_the_heading_that_ends_an_older_log_is_read_where_ordinary_lines_are_skipped():
    text = f"Log of the previous run:\nepoch 1\n=== new attempt ===\n{TRACE}\n{FRAME}\nKeyError: 'own'"
    engine = reader.JobLogReader()
    found = [*sifted.Sieve().feed(engine, 1, text.encode().split(b"\n")), *engine.close()]
    assert [(f.line, "goes_on" in f.detail) for f in found if f.first_cause] == [(6, False)]


def test_the_marks_of_a_quoted_log_come_off_where_its_first_line_has_no_words_of_an_error():
    text = "> step 1\n> step 2\n> [mpiexec@n1] HYDT_poll (tools/poll.c:7): tm_poll(event) failed with TM error 17"
    engine = reader.JobLogReader()
    found = [*sifted.Sieve().feed(engine, 1, text.encode().split(b"\n")), *engine.close()]
    assert [(f.line, f.kind) for f in found if f.first_cause] == [(3, "slurm_launch_failed")]


def test_the_stars_around_the_last_line_of_a_quoted_log_come_off():
    words = "AttributeError: module 'numpy' has no attribute 'float'"
    assert first(f"> {TRACE}\n> {FRAME}\n>     f()\n> **{words}**") == words
    assert first(f"{TRACE}\n{FRAME}\n    f()\n> **{words}**") != words
