"""Logs that hold more than one run, handlers that print what they caught, and lines of several ranks in one."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every


def first(lines: list[str]) -> JobFinding | None:
    """The first cause."""
    return next((f for f in reader.read(lines) if f.first_cause), None)


def first_line(lines: list[str]) -> str | None:
    found = first(lines)
    return None if found is None else lines[found.line - 1]


def lsf(job: int, end: list[str], where: str = "is above this job summary.") -> list[str]:
    """LSF's summary of a job that ended so."""
    return [
        "Sender: LSF System <lsfadmin@hpc.example.org>",
        f"Subject: Job {job}: <train> in cluster <c> Exited",
        "",
        "Your job looked like:",
        "-" * 60,
        "# LSBATCH: User input",
        "python train.py",
        "-" * 60,
        "",
        *end,
        "",
        "Resource usage summary:",
        "    CPU time :   3.69 sec.",
        f"The output (if any) {where}",
        "",
    ]


WORK = [f"Validation Accuracy: 0.{n}" for n in range(3)]
KILLED = ["TERM_OWNER: job killed by owner.", "Exited with exit code 143."]


def test_of_several_jobs_in_one_file_of_lsf_the_last_one_counts() -> None:
    """Above or below the output, as the summaries say."""
    above = [*lsf(1, ["Exited with exit code 1."]), *WORK, *lsf(2, KILLED)]
    assert first_line(above) == KILLED[0]
    failed = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "KeyError: 'lr'"]
    below = [*lsf(1, ["Exited with exit code 1."], "follows:"), *failed, *lsf(2, KILLED, "follows:"), *WORK]
    assert first_line(below) == KILLED[0]


def test_one_summary_of_lsf_ends_no_other_job() -> None:
    """The error above it, or in what somebody appended, stays the cause."""
    failed = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "KeyError: 'lr'"]
    assert first_line([*failed, *lsf(1, ["Exited with exit code 1."])]) == failed[-1]
    assert first_line([*lsf(1, ["Exited with exit code 1."]), *failed]) == failed[-1]


CANCELLED = "slurmstepd: error: *** JOB 7220420 ON n1 CANCELLED AT 2026-09-20T14:36:04 ***"
LIMIT = "slurmstepd: error: *** JOB 7237769 ON n2 CANCELLED AT 2026-09-27T15:33:44 DUE TO TIME LIMIT ***"


def updates(n: int) -> list[str]:
    """What a simulation reports, four lines at a time."""
    return [
        line
        for i in range(1, n)
        for line in (
            "┌ Info: Update",
            f"│ simtime = {i * 1.1316843414306641:.16e}",
            f"│ runtime = {i:02d}:09:59",
            f"└ norm(Q) = {1.3e9 + 7919 * (i % 5):.16e}",
        )
    ]


def test_a_long_run_below_the_end_of_a_job_is_another_jobs() -> None:
    """Both wrote to one file. Later errors are its own; without one it went well, as far as the log shows."""
    error = "ERROR: LoadError: Some tests did not pass: 0 passed, 1 failed, 0 errored, 0 broken."
    assert first_line([CANCELLED, *updates(150), error]) == error
    assert first([CANCELLED, *updates(150)]) is None


def test_a_job_may_write_on_for_a_while_below_the_message_of_its_end() -> None:
    """It has a time of grace, and its output was buffered."""
    assert first_line([CANCELLED, *updates(60)]) == CANCELLED


def steps(first_step: int, n: int) -> list[str]:
    """Megatron's lines, a second apart."""
    return [
        f"[2026-03-02 14:02:{i % 60:02d}] iteration {i:6d}/  500000 | consumed samples: {i * 1024:12d} | elapsed time per iteration (ms): 1012.3"
        f" | learning rate: 1.5E-04 | global batch size:  1024 | lm loss: {3 - i / 1e4:.6E} | grad norm: 0.{i % 1000:03d} | number of skipped iterations:   0 |"
        for i in range(first_step, first_step + n)
    ]


@every("n", [40, 150])
def test_ranks_that_ignore_the_end_print_on_with_their_own_numbers(n: int) -> None:
    """Slurm sends SIGTERM and waits for KillWait, 30 s, before it kills."""
    assert first_line([*steps(1, 99), LIMIT, *steps(100, n)]) == LIMIT
    assert first_line([*steps(1, 99), LIMIT, *steps(1, 150)]) is None  # the run that was submitted next


def test_a_number_that_grows_and_grows_below_an_error_is_progress() -> None:
    """A second job's here, that ran beside the first; its own end is the cause."""
    failed = ["ERROR: LoadError: UndefVarError: visc not defined", "in expression starting at a.jl:186"]
    assert first_line([*failed, *updates(200), LIMIT]) == LIMIT
    assert first_line([*failed, *updates(6), LIMIT]) == failed[0]


def caught(function: str, error: str, above: str = "Error:") -> list[str]:
    """A traceback that a handler printed."""
    return [
        above,
        "Traceback (most recent call last):",
        f'  File "/home/u/evaluate.py", line 106, in {function}',
        "    action = agent(observation)",
        error,
        "Setting `pad_token_id` to `eos_token_id`: None for open-end generation.",
    ]


ERRORS = (
    "NameError: name 'Agent' is not defined",
    "TypeError: 'NoneType' object is not iterable",
    "ValueError: Action mismatch",
)


def test_what_one_function_catches_again_and_again_ends_nothing() -> None:
    """An uncaught exception is printed once, and from the program's first line on."""
    printed = [line for error in ERRORS for line in caught("run_agent", error)]
    assert first_line([*printed, LIMIT]) == LIMIT
    final = ["Traceback (most recent call last):", '  File "a.py", line 9, in <module>', "KeyError: 'best'"]
    assert first_line([*printed, *final]) == final[-1]


@pytest.mark.parametrize(
    "lines",
    [
        [line for error in ERRORS[:2] for line in caught("run_agent", error)],
        [line for _ in range(4) for line in caught("run_agent", ERRORS[0])],
        [line for i, error in enumerate(ERRORS) for line in caught(f"f{i}", error)],
        [line for error in ERRORS for line in caught("<module>", error)],
        [
            line
            for error in ERRORS
            for line in caught("main", error, "Error executing job with overrides: []")
        ],
    ],
    ids=["twice", "ranks with one error", "three functions", "uncaught", "hydra"],
)
def test_other_repeated_exceptions_stay_the_cause(lines: list[str]) -> None:
    """Ranks fail alike, and launchers leave out the frames above the program's own function."""
    assert first_line([*lines, LIMIT]) == ERRORS[0]


OF_RANKS = (
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, remote process exited or there was a network error",
    "RuntimeError: [Rank 2] Caught collective operation timeout",
)


@pytest.mark.parametrize(
    "errors", [OF_RANKS, ERRORS], ids=["a machine's and lost peers", "one below the other"]
)
def test_ranks_that_end_each_in_its_own_handler_are_a_failure(errors: Sequence[str]) -> None:
    """Every rank's `main` prints its exception, and then the job ends: nothing went on between them."""
    printed = [line for error in errors for line in caught("main", error)[1:5]]
    copied = "cp: cannot stat '/ckpt/last.pt': No such file or directory"
    assert first_line([*WORK, *printed, copied]) == errors[0]


@pytest.mark.parametrize(
    "between", [[], ["Setting a default", "Error:"]], ids=["together", "with output between"]
)
def test_lost_peers_and_machines_are_never_handled_by_repetition(between: list[str]) -> None:
    """Each rank of a gang that lost one prints another exception."""
    printed = [line for error in OF_RANKS for line in [*caught("main", error)[1:5], *between]]
    assert first_line([*WORK, *printed, "srun: error: n1: tasks 0-3: Exited with exit code 1"]) == OF_RANKS[0]


def test_exceptions_that_ranks_wrote_into_each_other_are_read() -> None:
    """A name without its colon, and names that stand alone before the message."""
    glued = "untimeError: RuntimeErrorExpected to have finished reduction in the prior iteration before starting a new one."
    assert first_line([*WORK, glued]) == glued
    nccl = "RuntimeError: RuntimeErrorRuntimeError: RuntimeErrorNCCL error in: ProcessGroupNCCL.cpp:1191, invalid usage, NCCL version 2.10.3"
    head = ["Traceback (most recent call last):", '  File "a.py", line 31, in demo', "RuntimeError", ""]
    found = first([*head, "RuntimeError: NCCL error in: a.cpp:1191, invalid usage, NCCL version 2.10.3"])
    assert found is not None
    assert found.kind == "nccl_invalid_usage"
    assert (found := first([nccl])) is not None
    assert found.kind == "nccl_invalid_usage"


HEAD = "Traceback (most recent call last):"
FRAMES = ['  File "/opt/own/run.py", line 12, in <module>', "    main()", '  File "/opt/own/run.py", line 7, in main', "    step(batch)", "    ^^^^^^^^^^^"]  # fmt: skip


def parts(name: str, text: str) -> list[str]:
    """What a rank writes one after the other: a line and its end are two parts, an exception's name and text as well."""
    return [*(part for line in [HEAD, *FRAMES] for part in (line, "\n")), name, ": ", text, "\n"]


@every(
    ("name", "text", "kind"),
    [
        ("RuntimeError", "No CUDA GPUs are available", "cuda_unavailable"),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", "cuda_illegal_access"),
        ("own.errors.ShapeError", "the batch has 3 axes, not 4", "python_exception"),
        ("OSError", "[Errno 101] Network is unreachable", "python_exception"),
        ("RuntimeError", "Connection reset by peer", "python_consequence"),
        ("OSError", "[Errno 28] No space left on device", "disk_full"),
        ("ModuleNotFoundError", "No module named 'own'", "import_error"),
    ],
)
def test_ranks_that_write_their_tracebacks_into_each_other_end_by_the_exception(
    name: str, text: str, kind: str
) -> None:
    """At whatever part one interrupts the other: the domains are those of one rank alone."""
    alone = first([*WORK, HEAD, *FRAMES, f"{name}: {text}"])
    assert alone is not None
    for seed in range(12):
        order = random.Random(seed)
        ranks = [parts(name, text) for _ in range(order.choice([2, 3, 4, 8]))]
        written = "".join(order.choice([rank for rank in ranks if rank]).pop(0) for _ in range(sum(map(len, ranks))))  # fmt: skip
        found = first([*WORK, *written.split("\n")])
        assert found is not None, written
        assert (found.kind, found.domains) == (kind, alone.domains), written


@every(
    ("lines", "line"),
    [
        ([HEAD, FRAMES[0], "    main()RuntimeError:  [!] the loss is odd", "", FRAMES[2], "    step(batch)"], 3),
        ([f"    main()  {FRAMES[2].strip()}", "RuntimeErrory = step(batch)  # forward", ": ", "Expected to have two batches before this one."], 4),
        ([f"{HEAD}{HEAD}", f"{FRAMES[0]}{FRAMES[0]}", "", "    main()RuntimeError", ": the batch is empty"], 5),
        ([HEAD, *FRAMES[:2], f"ValueError: the batch is empty{HEAD}", *FRAMES[:2], "ValueError: the batch is empty"], 4),
        ([HEAD, FRAMES[2] + "ValueError: the batch is empty"], 2),
        ([f"{HEAD}{HEAD}", FRAMES[0], "RuntimeError: ", "    main()The batch is empty"], 4),
        ([f"{HEAD}{HEAD}", FRAMES[0], "RuntimeError: ", "  [Previous line repeated 3 more times]The batch is empty"], 4),
        ([f"{HEAD}{HEAD}", FRAMES[0], "RuntimeError: ", f"{FRAMES[2]}The batch is empty"], 4),
        ([f"{HEAD}{HEAD}", FRAMES[0], "RuntimeError: ", "CUDA kernel errors might be reported late", "The batch is empty"], 5),
    ],
)  # fmt: skip
def test_an_exception_behind_anothers_line_is_read(lines: list[str], line: int) -> None:
    found = first([*WORK, *lines])
    assert found is not None
    assert (found.kind, found.line) == ("python_exception", len(WORK) + line)


@every(
    ("lines", "line"),
    [
        ([HEAD, FRAMES[0], "    raise MyValueError", "MyValueError"], 4),
        ([HEAD, FRAMES[0], "    raise errors.ValueError", "own.ValueError: 3"], 4),
        ([HEAD, FRAMES[0], "    raise _OSError", "own._OSError: [Errno 5] Input/output error"], 4),
        ([HEAD, FRAMES[0], "    return self.on_KeyError", "AttributeError: no 'on_KeyError'"], 4),
        ([HEAD, FRAMES[0], "    def go(self)->OwnError:", "    ^^^^^^", "TypeError: no call"], 5),
        ([HEAD, FRAMES[0], "    with self.catch(a)as_TypeError: pass", "KeyError: 'a'"], 4),
        ([HEAD, '  File "/opt/own/a.py", line 3, in on_KeyError', "    go()", "ValueError: bad"], 4),
        ([HEAD, FRAMES[0], '    log("seen:RuntimeError: lost")', "KeyError: 'a'"], 4),
        ([HEAD, FRAMES[0], "    except (OSError,ValueError): pass", "KeyError: 'a'"], 4),
        ([HEAD, FRAMES[0], "    go()", "RuntimeError:     four blanks before it", "done"], 4),
        ([HEAD, FRAMES[0], "    go()", "RuntimeError", ": no text of it", "done"], 4),
    ],
)
def test_the_traceback_of_one_process_is_read_as_it_is(lines: list[str], line: int) -> None:
    found = first([*WORK, *lines])
    assert found is not None
    assert (found.line, found.message) == (len(WORK) + line, lines[line - 1])


def test_below_a_traceback_that_is_over_nothing_is_taken_apart() -> None:
    """A list of tests or a worker's indented line is of no other process."""
    over = [HEAD, *FRAMES[:2], "KeyError: 'a'", "that one is left out"]
    for line in ("  tests/a.py::test_on_ValueError", "  [W1]RuntimeError: caught, once more"):
        found = list(reader.read([*WORK, *over, line, "2 rows"]))
        assert [f.line for f in found] == [len(WORK) + 4], line


MIXED = [f"{HEAD}{HEAD}", FRAMES[0], FRAMES[0], "    main()", "    main()ValueError: the batch is empty"]


@every("line", ["KeyErrors: none", "TimeoutErrors=0", "ValueErrors: 1 row", "ValueError count: 2", "TimeoutErrorHandler is set"])  # fmt: skip
def test_a_name_may_be_the_beginning_of_a_word(line: str) -> None:
    found = list(reader.read([*WORK, *MIXED, "row 1", line, "row 2"]))
    assert [f.line for f in found] == [len(WORK) + 5]


def test_an_exception_without_a_text_gets_none_of_the_line_below() -> None:
    """Neither at the log's beginning nor where a traceback of its own ends by a name that was read before."""
    found = list(reader.read([f"    main(){HEAD}", *FRAMES[:2], "AssertionError", "Killed"]))
    assert [(f.line, f.kind) for f in found] == [(4, "python_exception"), (5, "oom_kill_suspected")]
    found = list(reader.read([*MIXED, "row 1", HEAD, *FRAMES[:2], "ValueError"]))
    assert [f.line for f in found] == [5, 10]


@every("text", ["NCCL communicator was aborted on rank 1.", "Connection closed by peer"])
def test_a_bare_exception_is_the_cause_of_what_others_lost(text: str) -> None:
    """Where processes write into each other, the name and the text may be one exception."""
    lines = [*WORK, HEAD, *FRAMES[:2], "RuntimeError", f"RuntimeError: {text}"]
    assert [f.line for f in reader.read(lines) if f.first_cause] == [len(WORK) + 4]


@every("lines", [["  [W1]RuntimeError: caught, once more"], ["done: main()ValueError: it says"], [": ", "all is well"]])  # fmt: skip
def test_without_a_traceback_nothing_is_taken_apart(lines: list[str]) -> None:
    assert first([*WORK, *lines, *WORK]) is None


def test_a_handler_that_is_named_after_an_error_is_no_exception() -> None:
    """The words that follow make no sentence."""
    assert first([*WORK, "RuntimeErrorHandler registered", "done"]) is None


LOST = "n103:15819:15981 [1] include/socket.h:196 WARN Connection closed by remote peer"


def crash(host: str) -> list[str]:
    return [
        f"[{host}:36495] *** Process received signal ***",
        f"[{host}:36495] Signal: Segmentation fault (11)",
    ]


def test_the_peer_that_crashed_explains_the_lost_connection() -> None:
    """On its own host; a crash of the process that lost the peer follows from that."""
    assert first_line([LOST, *crash("n003")]) == crash("n003")[1]
    assert first_line([LOST, *crash("n103")]) == LOST


def test_conda_that_was_not_set_up_crashes_no_program() -> None:
    """It is the reason where nothing else is."""
    conda = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."
    died = (
        "/var/spool/slurm/job1/slurm_script: line 22: 261 Bus error               (core dumped) python3 a.py"
    )
    assert first_line([conda, "To initialize your shell, run", died]) == died
    assert first_line([conda]) == conda


@every(
    "text",
    [
        "INFO 08-20 11:57:51 selector.py:172] Cannot use FlashAttention-2 backend due to sliding window.",
        "unable to import 'smart_open.gcs', disabling that module",
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        "  sample: 'kernel: Out of memory: Killed process 4411 (python) total-vm:1kB' -> label=oom",
        "  sample: 'NVRM: Xid (PCI:0000:07:00): 48, pid=1211, name=python, DBE' -> label=ecc",
    ],
)
def test_what_only_sounds_like_an_error_is_none(text: str) -> None:
    """A logger's information, what a program does without, a sample of text."""
    assert first([text]) is None


KALDI = "ERROR (arpa2fst[5.5.433~1-7637d]:Read():arpa-file-parser.cc:129) line 1 []: \\data\\ section missing or empty."
KALDI_STACK = [
    "",
    "[ Stack-Trace: ]",
    "kaldi::MessageLogger::HandleMessage(kaldi::LogMessageEnvelope const&, char const*)",
    "kaldi::MessageLogger::~MessageLogger()",
    "arpa2fst(kaldi::ExpectToken(std::istream&, bool, char const*)+0x242) [0x4bc56a]",
    "main",
    "__libc_start_main",
    "",
    "kaldi::KaldiFatalError",
    "# Accounting: begin_time=1592380197",
    "# Accounting: end_time=1592380199",
    "# Finished at Wed Jun 17 10:49:59 EEST 2020 with status 255",
]


def test_an_error_of_kaldi_above_its_stack_is_read() -> None:
    """What its scripts write below is no work."""
    assert first_line([*WORK, KALDI, *KALDI_STACK]) == KALDI
    missing = "gzip: lm/kn.arpa.gz: No such file or directory"
    assert (
        first_line(
            [
                missing,
                "arpa2fst - ",
                KALDI,
                *KALDI_STACK,
                "ERROR: FstHeader::Read: Bad FST header: standard input",
            ]
        )
        == missing
    )


OOM = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=14765404.batch. Some of your processes may have been killed by the cgroup out-of-memory handler."


def test_a_kill_for_memory_explains_what_the_next_command_lacked() -> None:
    """Slurm reports it at the end; without an earlier kill the exception came first."""
    lacked = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "OSError: file signature not found",
    ]
    assert first_line(["Killed", *lacked, OOM]) == OOM
    assert first_line([*lacked, "Killed", OOM]) == lacked[-1]


@every("text", ["Status: FAILED", "The command '/bin/sh -c pip3 install a' returned a non-zero code: 1"])
def test_a_last_word_of_a_script_is_read(text: str) -> None:
    assert first_line([*WORK, text, "Task 171 completed"]) == text


@every(
    ("text", "kind"),
    [
        ("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 0.0, reducing to 0.0", "nan_loss"),
        ("/home/u/ex.jl: Test Failed at /home/u/ex.jl:250", "program_error"),
        ("EH9999: 2026-07-03-11:28:40.450.757  wait for compute device to finish failed, runtime result = 107020.[FUNC:ReportCallError]", "cuda_unknown_error"),
    ],
)  # fmt: skip
def test_these_words_are_known(text: str, kind: str) -> None:
    found = first([text])
    assert found is not None
    assert found.kind == kind


def test_an_exception_carries_the_one_that_was_raised_from_it() -> None:
    """Both are of use: the reason, and the program's own words."""
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 5, in f',
        "KeyError: 'a'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "a.py", line 8, in <module>',
        '  File "a.py", line 7, in f',
        "    raise Exhausted('shard 7 empty') from e",
        "DataExhausted: shard 7 empty",
    ]
    found = first(lines)
    assert found is not None
    assert (found.message, found.detail["raised_as"]) == ("KeyError: 'a'", "DataExhausted: shard 7 empty")
    assert "went_on" not in found.detail, "the exception that was raised from it ended the program, too"
    assert (alone := first(lines[:3])) is not None
    assert "raised_as" not in alone.detail
    another = [*lines[:3], "", *(line.replace("KeyError: 'a'", "OSError: disk") for line in lines)]
    assert (both := first(another)) is not None
    assert both.message == "KeyError: 'a'"
    assert "raised_as" not in both.detail, "the second chain began with another exception"


def test_a_line_of_marks_is_not_what_the_job_printed_last() -> None:
    """The pool of multiprocessing quotes its worker's traceback between such lines."""
    quoted = [
        '"""',
        "Traceback (most recent call last):",
        '  File "a.py", line 2, in g',
        "ZeroDivisionError: division by zero",
        '"""',
    ]
    found = first(quoted)
    assert found is not None
    assert "went_on" not in found.detail


STEPS = [f"step {n}00 loss {9 / n:.3f}" for n in range(1, 6)]
REQUEUED = "slurmstepd: error: *** JOB 77 ON g1 CANCELLED AT 2026-02-01T01:00:00 DUE TO {} ***"
FAILS = [
    "Traceback (most recent call last):",
    '  File "t.py", line 5, in <module>',
    "    f()",
    "KeyError: 'opt'",
]
CRASH = ["srun: error: g2: task 3: Segmentation fault (core dumped)"]


@pytest.mark.parametrize("why", ["PREEMPTION", "JOB REQUEUE"])
@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("resuming from step 500", True),
        ("== run 2, SLURM_RESTART_COUNT=1 ==", True),
        ("May  1 01:20:00 restored the state of step 500", True),
        ("checkpoint saved, the next run is resuming from step 500", False),
        ("Cannot restore RNG state; resuming from step 500", True),
        ("resuming from step 500, never to restart again", True),
        ("restored default signal handlers", False),
        ("Restoring terminal", False),
        ("use --resume to go on", False),
        ("killing the workers", False),
    ],
)
@pytest.mark.parametrize("fails", [FAILS, CRASH])
def test_a_run_that_was_queued_again_fails_by_itself(
    why: str, words: str, again: bool, fails: list[str]
) -> None:
    end = REQUEUED.format(why)
    assert first_line([*STEPS, end, words, *fails]) == (fails[-1] if again else end)


HIT = "slurmstepd: error: Step 88.0 hit memory+swap limit at least once during execution. This may or may not result in some failure."
SHELL_KILLED = "/var/spool/slurmd/job88/slurm_script: line 9: 1882 Killed                  ./a.out"


def test_a_limit_that_was_hit_once_explains_only_a_kill() -> None:
    assert first_line([*STEPS, SHELL_KILLED, HIT, HIT.replace("Step 88.0", "Job 88")]) == HIT
    assert first_line([*STEPS, "all done", HIT]) is None
    assert first_line([*STEPS, *FAILS, HIT]) == FAILS[-1]
    assert [f.detail.get("survived") for f in reader.read([*STEPS, HIT])] == [True], "no verdict weighs it"


@every("after", [True, False])
def test_a_note_of_a_limit_that_was_hit_outweighs_no_error_of_the_program(after: bool) -> None:
    """What was killed may be a helper that the script itself ended."""
    lines = [SHELL_KILLED, HIT, *FAILS] if after else [SHELL_KILLED, *FAILS, HIT]
    assert first_line(["+ kill -9 1882", *lines]) == FAILS[-1]
    assert [f.detail.get("survived") for f in reader.read(lines) if f.kind == "slurm_oom"] == [True]
