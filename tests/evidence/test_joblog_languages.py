"""Programs that are not Python's say why they end: found as the first cause, and never where they only speak of it."""

from __future__ import annotations

import io

from probing_cluster.evidence import classify
from tests.every_case import every

STOPS = (
    "Fortran runtime error: Cannot open file 'restart.000120': No such file or directory",
    "terminate called after throwing an instance of 'std::out_of_range'",
    "thread 'main' panicked at src/main.rs:14:22:",
    "panic: runtime error: index out of range [8] with length 8",
    'Exception in thread "main" java.lang.IllegalStateException: no mesh',
    "ERROR: LoadError: DimensionMismatch: arrays could not be broadcast to a common size",
    "Error in solve.default(t(X) %*% X) : ",
    "{Error using horzcat",
    "./solver: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./solver)",
    "/var/spool/slurmd/job119/slurm_script: line 22: SLURM_JOB_NUM_NODE: unbound variable",
    "/var/spool/slurm/d/job01359/slurm_script: line 32: train.py --size ${NODES*GPUS} --steps 30: bad substitution",
    "train.py: error: argument --fp16: invalid choice: 's'",
    "ERROR on proc 71: step300299-ran out of space on angle_list: top=1052 (../reaxc_valence_angles.cpp:414)",
    "Fatal error:",
    "     Error in routine readpp (1):",
    "[0]PETSC ERROR: Argument out of range",
    "--> FOAM FATAL IO ERROR: ",
    "EnvironmentNameNotFound: Could not find conda environment: pytorch29",
)
STEPS = [f"step {n} loss {9 / n:.3f}" for n in range(1, 9)]
CARRIERS = ('{{"prompt": "{}"}}', "  text: {}", "> {}", "print('{}')", "# {}", 'sample 3: "{}"')
EXIT = "srun: error: n1: task 0: Exited with exit code 1"


def _first(lines):
    text = "\n".join(lines) + "\n"
    found = classify.classify_stream(io.BytesIO(text.encode()), "joblog")
    return next((f for f in found if f["first_cause"]), None)


@every("line", STOPS)
def test_the_line_that_says_why_is_the_first_cause(line):
    """Whether or not Slurm tells of the exit behind it; what the program lived on after, or only speaks of, is none."""
    for end in ([], [EXIT]):
        found = _first([*STEPS, line, *end])
        assert (found["kind"], found["line"]) == ("program_error", len(STEPS) + 1)
    assert _first([*STEPS, line, *[f"step {n} loss {1 / n:.3f}" for n in range(9, 40)]]) is None
    for carrier in CARRIERS:
        assert _first([*STEPS, carrier.format(line.strip())]) is None


@every(
    "how",
    [
        "MPI_ABORT was invoked on rank 71 in communicator MPI_COMM_WORLD",
        "Error in rule align:",
        "make: *** [Makefile:104: run] Error 1",
    ],
)
def test_how_it_was_ended_gives_way_to_why(how):
    """MPI's abort and a workflow's summary say less than the program itself."""
    assert _first([*STEPS, how, "Fortran runtime error: End of file"])["line"] == len(STEPS) + 2


def test_a_line_that_calls_itself_an_error_counts_as_the_last_word_only():
    """As long as hardly anything follows."""
    word = "ERROR: no space for the halo of domain 3"
    assert _first([*STEPS, word])["kind"] == "program_error"
    assert _first([*STEPS, word, *[f"writing part {c}" for c in "abcdef"]]) is None
    assert _first([*STEPS, "ERROR: pip's dependency resolver does not take into account all"]) is None


def test_an_error_that_a_worker_passed_on_is_the_workers():
    """`Caught X in replica` stands in front of the traceback that explains it."""
    found = _first(
        [
            "Traceback (most recent call last):",
            '  File "train.py", line 188, in <module>',
            "torch.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.",
            "Original Traceback (most recent call last):",
            '  File "parallel_apply.py", line 96, in _worker',
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 63.42 GiB",
        ]
    )
    assert (found["kind"], found["line"]) == ("cuda_oom", 6)


@every(
    "line",
    [
        "Cannot open: No such file or directory at -e line 1.",
        "Cannot open: Permission denied at run line 12, <STDIN> line 3.",
        "Died at run line 1.",
        "bad cutoff -3 at /home/a/bin/filter line 44.",
        "bad cutoff -3 at filter.pl line 44, <IN> chunk 7.",
        "Can't locate JSON.pm in @INC (you may need to install the JSON module) at run line 3.",
    ],
)
def test_perls_last_word_stands_above_what_stdout_held_back(line: str) -> None:
    """It is written at once; what the program printed before comes when its buffer is emptied at the end."""
    first = _first([line, "hello", "read 12 of 12 files"])
    assert first is not None
    assert (first["kind"], first["line"]) == ("program_error", 1)


@every(
    "line",
    [
        "Use of uninitialized value $x in addition (+) at run.pl line 3.",
        'Argument "abc" isn\'t numeric in addition (+) at /home/a/run line 3.',
        "print() on closed filehandle OUT at -e line 2.",
        "We met at the red line 3.",
        "the curve bends at low line 3.",
    ],
)
def test_perls_warnings_and_prose_are_no_last_word(line: str) -> None:
    """The program went on."""
    assert _first([line, "hello"]) is None


@every(("n_lines", "is_cause"), [(12, True), (40, False)])
def test_a_virtual_machines_exception_stands_above_the_lines_of_its_shutdown(
    n_lines: int, is_cause: bool
) -> None:
    """Threads and pools report their end behind it; a program that goes on prints more."""
    lines = ["DemoException: bad settings", "\tat demo.Main.run(Main.java:7)"]
    first = _first(["hello", *lines, *(f"closing the pool {n}" for n in range(n_lines))])
    assert (first is not None) is is_cause


NO_HEAP = "java.lang.OutOfMemoryError: GC overhead limit exceeded"
OF_JAVA, OF_NODE = "\tat demo.Main.run(Main.java:7)", "    at run (/opt/demo.js:3:7)"


@every(
    ("lines", "kind"),
    [
        ([NO_HEAP, OF_JAVA], "host_memory_error"),
        ([f'Exception in thread "main" {NO_HEAP}', OF_JAVA], "host_memory_error"),
        (["FATAL ERROR: Allocation failed - JavaScript heap out of memory"], "host_memory_error"),
        (["org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed"], "program_error"),
        (["DemoException: bad settings", OF_JAVA, OF_JAVA], "program_error"),
        (["TypeError: Cannot read properties of undefined", OF_NODE, "", "Node.js v18.1.0"], "program_error"),
        (["TypeError: Cannot read properties of undefined", "    at file:///opt/demo.mjs:3:7"], "program_error"),
        (["TypeError: Cannot read properties of undefined"], "python_exception"),
        (["ValueError: bad settings", "  at the end of the run"], "python_exception"),
    ],
)  # fmt: skip
def test_an_exception_belongs_to_the_language_that_its_package_or_its_frames_show(
    lines: list[str], kind: str
) -> None:
    """And a full heap is one fact, whoever ran out of it."""
    first = _first(["hello", *lines])
    assert first is not None
    assert (first["kind"], first["line"]) == (kind, 2)


def test_the_log_of_a_service_goes_on_below_its_exception() -> None:
    """As far as below one of Python's."""
    after = [f"INFO ShutdownHookManager: deleting directory {letter}" for letter in "abcdefgh"]
    first = _first(["hello", NO_HEAP, OF_JAVA, *after])
    assert first is not None
    assert first["kind"] == "host_memory_error"


@every(
    ("below", "line"),
    [
        (["", "    nested task error: ArgumentError: no such cell"], 8),
        (["in expression starting at /opt/run.jl:4"], 2),
    ],
)
def test_a_task_of_julia_failed_by_its_own_error(below: list[str], line: int) -> None:
    stack = ["Stacktrace:", " [1] wait", "   @ ./task.jl:352 [inlined]", " [2] top-level scope"]
    first = _first(["hello", "ERROR: LoadError: TaskFailedException", *stack, *below])
    assert first is not None
    assert first["line"] == line


@every(
    ("below", "line"),
    [(["Caused by:", "    Error using load", "    Unable to open file 'b.mat'."], 6), ([], 2)],
)
def test_a_worker_of_matlab_failed_by_its_own_error(below: list[str], line: int) -> None:
    first = _first(["hello", "Error using run_all (line 2)", "Error detected on workers 7 9.", *below])
    assert first is not None
    assert first["line"] == line


IMPORTS = ["Traceback (most recent call last):", '  File "run.py", line 2, in <module>', "    import fused"]
UNFIT = "/lib64/libstdc++.so.6: version `CXXABI_1.3.13' not found (required by /e/fused.so)"


@every(
    ("lines", "kind"),
    [
        ([*IMPORTS, f"ImportError: {UNFIT}"], "import_error"),
        ([f"[rank3]: {line}" for line in [*IMPORTS, f"ImportError: {UNFIT}"]], "import_error"),
        ([f"./solver: {UNFIT}"], "program_error"),
        ([*IMPORTS, "OSError: /e/fused.so: undefined symbol: _Z3foov"], "import_error"),
        ([*IMPORTS, "RuntimeError: no fused kernels: ImportError: /e/fused.so: undefined symbol: _Z3foov"], "import_error"),
        ([*IMPORTS, "RuntimeError: Failed to import lib.models.fused because of the following error (look up to see its traceback):", "/e/fused.so: undefined symbol: _Z3foov"], "import_error"),
        ([*IMPORTS, "RuntimeError: Failed to import the table because of the following error:", "row 17 has 3 columns"], "python_exception"),
        ([*IMPORTS, "RuntimeError: Failed to import lib.fused because of the following error (look up to see its traceback): CUDA error: uncorrectable ECC error encountered"], "cuda_ecc"),
        ([*IMPORTS, "RuntimeError: Failed to import lib.fused because of the following error (look up to see its traceback): uncorrectable NVLink error detected during the execution"], "cuda_nvlink"),
        ([*IMPORTS, "RuntimeError: no fused kernels: ImportError: /e/fused.so raised CUDA_ERROR_ECC_UNCORRECTABLE"], "cuda_ecc"),
        ([*IMPORTS, "RuntimeError: Failed to import lib.fused because of the following error: the table is empty"], "python_exception"),
        ([*IMPORTS, "AssertionError: stderr should hold 'ImportError: no vines'"], "python_exception"),
        ([*IMPORTS, "AssertionError: stderr should hold: ImportError: no vines"], "python_exception"),
        ([*IMPORTS, "ValueError: line 3: undefined symbol 'alpha' in the formula"], "python_exception"),
    ],
)  # fmt: skip
def test_a_failed_import_is_one_whatever_exception_quotes_it(lines: list[str], kind: str) -> None:
    first = _first(["hello", *lines, EXIT])
    assert first is not None
    assert first["kind"] == kind


def test_a_python_client_that_lost_its_jvm_is_the_consequence_of_what_that_printed() -> None:
    raised = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "    df.collect()"]
    lost = "py4j.protocol.Py4JNetworkError: Answer from Java side is empty"
    first = _first(["hello", NO_HEAP, "\tat java.base/java.util.Arrays.copyOf(Arrays.java:35)", *raised, lost, "shutdown hook called"])  # fmt: skip
    assert first is not None
    assert (first["kind"], first["line"]) == ("host_memory_error", 2)
    alone = _first(["hello", *raised, lost, EXIT])
    assert alone is not None
    assert alone["line"] == 5
