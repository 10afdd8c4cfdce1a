"""Errors by a logger's level, in other languages, behind text without a newline, and in the words of many small programs."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import dates
from probing_cluster.evidence.joblog import labels
from probing_cluster.evidence.joblog import reader as joblog
from tests.every_case import every


def first(*lines: str) -> list[tuple[str, int]]:
    return [(f.kind, f.line) for f in joblog.read(lines) if f.first_cause]


@every(
    "line",
    [
        "2031-05-06 07:08:09 - ERROR - the shard is gone",
        "2031-05-06 07:08:09,123 - loader - ERROR - the shard is gone",
        "2031-05-06 07:08:09,123 net.loader ERROR The shard is gone",
        "2031-05-06 07:08:09,123 net.loader [ERROR] The shard is gone",
        "05/06/2031 07:08:09 - ERROR - __main__ -   The shard is gone",
        "31/05/06 07:08:09 ERROR BlockStore: The shard is gone",
        "06.05.2031 07:08:09 FATAL The shard is gone",
        "2031.05.06 07:08:09 ERROR The shard is gone",
        "20310506-07:08:09 ERROR The shard is gone",
        "6 May 2031 07:08:09 ERROR The shard is gone",
        "Tue May  6 07:08:09 AM CEST 2031: ERROR: the shard is gone",
        "[07:08:09] ERROR    The shard is gone            loader.py:7",
        "[2031-05-06 07:08:09,123: ERROR/MainProcess] The shard is gone",
        "2031/05/06 07:08:09 [emerg] 1#1: the shard is gone",
        "2031/05/06 07:08:09 [crit] 1#1: the shard is gone",
        "[ERROR|loader.py:7] 2031-05-06 07:08:09,123 >> The shard is gone",
        "[E 2031-05-06 07:08:09,123 loader] The shard is gone",
        "[ ERROR ] The shard is gone",
        "(ERROR) The shard is gone",
        "Error   : the shard is gone",
        "ERROR>> the shard is gone",
        "Loader (ERROR): the shard is gone",
        "loader : Error : the shard is gone",
        "ERR: the shard is gone",
        "SHARD_ERROR: it is gone",
        "CRITICAL:root:the shard is gone",
        "E: Unable to locate package shard",
        "-E- The port is gone",
        "ncls: ERROR the shard is gone",
        "*** Shard exception: it is gone",
        "SHARDS EXCEPTION: it is gone",
        "[main_shard] fail to read the header",
        "gzip: stdin: unexpected end of file",
        "kinit: Preauthentication failed while getting initial credentials",
        "setenv: Too many arguments.",
        "% Variable is undefined: SHARD.",
        " ** On entry to DGETRF parameter number  4 had an illegal value",
        "BLACS ERROR 'Illegal grid (2 x 2), #procs=2'",
        "Error in the solver: info =   7",
        "(shr_drv) : ERROR bad calendar",
        " *** OCEAN MODEL FAILED at step 7",
        "NaN detected in the velocity at step 7",
        "The step is too large, aborting",
        "[n7:4711] [[40538,0],0] ORTE_ERROR_LOG: Out of resource in file ras_base.c at line 7",
        " exiting with an error ...",
    ],
)  # fmt: skip
def test_the_last_line_calls_itself_an_error(line: str) -> None:
    """It is the cause at the end of a log, and none if work follows."""
    assert first("reading shards", line) == [("program_error", 2)]
    assert first(line, *(f"step {n} loss 0.{n}" for n in range(40))) == []


@every(
    "line",
    [
        "2031-05-06 07:08:09 INFO eval Validation ERROR 0.123",
        "2031-05-06 07:08:09 eval ERROR: 0.123",
        "2031-05-06 07:08:09 - INFO - ERROR counts follow",
        "2031-05-06 07:08:09 we saw ERROR lines in the log of it",
        "2031-05-06 07:08:09,123 - WARNING - ERROR in the last line",
        "VAL_ERROR: 0.123",
        "checking for NaN: none found",
        "sudo: unable to resolve host n7: Name or service not known",
        "2031-05-06 07:08:09.000100: W tensorflow/core/press.cc:107] Error occurred when closing the press: no vines are left",
        "[1]<stderr>:2031-05-06 07:08:09.000100: W tensorflow/core/press.cc:107] Error occurred when closing the press: no vines are left",
        "lspci: Unable to load libkmod resources: error -2",
    ],
)
def test_what_is_no_error_by_its_level(line: str) -> None:
    """Numbers, other levels and mentions."""
    assert first("reading shards", line) == []


def test_the_exception_below_a_loggers_line_is_the_cause() -> None:
    """It says more than the line that reports it."""
    lines = ("31/05/06 07:08:09 ERROR Executor: Exception in task 7", "java.lang.OutOfMemoryError: Java heap space", "\tat x.Y.z(Y.java:7)")  # fmt: skip
    assert first(*lines) == [("host_memory_error", 2)]


@every(
    ("error", "halted"),
    [
        ("Fehler in lade(x) : Objekt 'x' nicht gefunden", "Ausführung angehalten"),
        ("Erreur dans lire(x) : objet 'x' introuvable", "Exécution arrêtée"),
        ("Error en leer(x) : objeto 'x' no encontrado", "Ejecución interrumpida"),
        ("Erro em ler(x) : objeto 'x' não encontrado", "Execução interrompida"),
        ("Błąd w poleceniu 'czytaj(x)':nie znaleziono obiektu", "Wykonywanie wstrzymane"),
        ("Ошибка в f(x) :объект не найден", "Выполнение остановлено"),
        ("错误于f(x): 找不到对象'x'", "停止执行"),
        (" f(x) でエラー:  オブジェクト 'x' がありません ", " 実行が停止されました "),
        ("Fehler: Objekt 'x' nicht gefunden", "Ausführung angehalten"),
    ],
)
def test_r_in_another_language(error: str, halted: str) -> None:
    """The error counts as in English, and its end is no error of its own."""
    assert first("lade", error, halted) == [("program_error", 2)]
    assert first("lade", "Fehler in diesem Programm sind selten") == []


@every(
    ("line", "kind"),
    [
        ("step 7forrtl: severe (24): end-of-file during read, unit 5", "program_error"),
        ("0.7 0.8Fortran runtime error: End of file", "program_error"),
        ("step 7terminate called after throwing an instance of 'std::out_of_range'", "program_error"),
        ("step 7Abort(1) on node 3 (rank 3 in comm 0): application called MPI_Abort(comm=0x84, 1) - process 3", "process_aborted"),
        ("Loading... Segmentation fault (core dumped)", "segfault"),
        ("[####    ] 40%Bus error", "bus_error"),
    ],
)  # fmt: skip
def test_a_message_behind_text_without_a_newline(line: str, kind: str) -> None:
    """Another stream left its line open; a name that ends so is none."""
    assert [k for k, _ in first("start", line)] == [kind]
    assert first("the flag isKilled", 'grep "forrtl: severe (24)" log') == []


@every(("times", "kinds"), [(2, ["cuda_oom"]), (3, [])])
def test_an_error_that_the_program_skips_again_and_again(times: int, kinds: list[str]) -> None:
    """It skips the last one as well."""
    skipped = ["| WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 1.5 GiB", "Skipping batch"]  # fmt: skip
    assert [k for k, _ in first(*skipped * times)] == kinds
    assert [k for k, _ in first(*skipped * times, "torch.OutOfMemoryError: CUDA out of memory.")] == ["cuda_oom"]  # fmt: skip


def test_a_label_of_host_and_rank() -> None:
    """PALS writes them in front of a line; the line is a task's."""
    record = labels.strip(1, "x3004c0s7b1n0.hsn.lab.example 12: Program received signal SIGSEGV")
    assert (record.host, record.rank, record.labelled) == ("x3004c0s7b1n0.hsn.lab.example", 12, True)
    lines = [f"n7 3: {text}" for text in ("a", "b", "c", "d", "forrtl: severe (24): end-of-file")]
    assert first(*lines) == [("program_error", 5)]


@every(
    ("lines", "cause"),
    [
        (("MPICH ERROR [Rank 7] [job id 1.0] [Tue May  6 07:08:09 2031] [nid7] - Abort(1) (rank 7 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 7",), ("process_aborted", 1)),
        (("Rank 7 [Tue May  6 07:08:09 2031] [c7-0c0s7n7] application called MPI_Abort(MPI_COMM_WORLD, 7) - process 7", "srun: error: nid7: tasks 1-6: Killed"), ("process_aborted", 1)),
        (("Error: illegal instruction, illegal opcode", "rax 0000000000000007, rbx 0000000000000007", "srun: error: n7: task 0: Exited with exit code 1"), ("process_crashed", 1)),
        (("../src/kernels/gather.h:77: device-side assert triggered",), ("cuda_device_assert", 1)),
        (("Error : .onLoad failed in loadNamespace() for 'x', details:", "  error: unable to load shared object '/r/x/libs/x.so':", "  libx.so.7: cannot open shared object file: No such file or directory"), ("program_error", 2)),
        (("libfabric:77:1701985650::cxi:mr:cxip_do_map():90<warn> nid7: cxil_map() failed: -22", "srun: error: nid7: task 1: Terminated"), ("program_error", 1)),
        (("An MPI communication peer process has unexpectedly disconnected.  This", "usually indicates a failure in the peer process"), ("peer_lost", 1)),
        (("[W6 07:08:09.1 TCPStore.cpp:7] [c10d] TCP client failed to connect/validate to host n7:7 - retrying (try=0, timeout=7000ms, delay=77ms): The client socket has timed out after 7000ms while trying to connect to (n7, 7).", "Exception raised from throwTimeoutError at socket.cpp:7 (most recent call first):", *(f"frame #{n}: f + 0x7 (0x7 in /l/libc10.so)" for n in range(7))), ("rendezvous_timeout", 1)),
        (("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded",), ("rendezvous_timeout", 1)),
        (("Root Cause (first observed failure):", "[0]:", "  time      : 2031-05-06_07:08:09", "  rank      : 7 (local_rank: 7)", "  exitcode  : 1 (pid: 7)", "  traceback : Traceback (most recent call last):", '    File "t.py", line 7, in run', "      gather()", "  RuntimeError: NCCL Error 3: internal error"), ("nccl_internal_error", 9)),
        (("RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers", "2031-05-06 07:08:09,389 ERROR worker.py:7 -- Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ray::W.f() (pid=7)", '  File "w.py", line 7, in f'), ("nccl_internal_error", 1)),
        (("joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated.", "", "The exit codes of the workers are {SIGBUS(-7)}"), ("bus_error", 3)),
        (("7:MPT ERROR: Rank 7(g:7) is aborting with error code 1.", "7:\tProcess ID: 1"), ("task_exit", 1)),
        (("ERROR:", "ERROR in shards.F90 at line                     77", "", "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"), ("program_error", 2)),
        (("-------- Processor 7 Exiting: Caught Signal --------", "Reason: Segmentation fault", "[7] Stack Traceback:"), ("segfault", 2)),
        (("[7] --> FOAM FATAL ERROR:", "[7]", "FOAM parallel run aborting", "[7] #0  Foam::error::printStack(Foam::Ostream&)"), ("program_error", 1)),
        (("[1] #1  Foam::sigFpe::sigHandler(int)[2] #1  Foam::sigFpe::sigHandler(int)",), ("process_crashed", 1)),
        (("unknown flag: --shard",), ("program_error", 1)),
        (("flag provided but not defined: -shard",), ("program_error", 1)),
        (("Command terminated by signal 9", '\tCommand being timed: "./a"'), ("oom_kill_suspected", 1)),
        (("Command exited with non-zero status 3", '\tCommand being timed: "./a"'), ("task_exit", 1)),
        (("0: ALLOCATE: 8589934592 bytes requested; not enough memory",), ("host_memory_error", 1)),
        (("distributed.nanny - WARNING - Worker exceeded 95% memory budget.  Restarting",), ("host_oom_kill", 1)),
        (("     from  read_namelists  : error #         1", "     bad line in namelist &system"), ("program_error", 2)),
        (("╭─ Parsing error ─────────╮", "│ Required options: --a   │"), ("program_error", 2)),
    ],
)  # fmt: skip
def test_words_of_single_programs(lines: tuple[str, ...], cause: tuple[str, int]) -> None:
    """Launchers, solvers and tools."""
    assert first("start", *lines) == [(cause[0], cause[1] + 1)]


def test_a_number_that_is_no_signal_ended_nothing() -> None:
    """Linux has 64."""
    assert first("start", "Command terminated by signal 99") == []


def test_mpichs_own_line_on_a_call_of_mpi_abort_names_the_rank() -> None:
    """It stands alone where the launcher is srun."""
    (found,) = joblog.read(["application called MPI_Abort(MPI_COMM_WORLD, 13) - process 1"])
    assert (found.kind, found.rank, found.detail["called_abort"]) == ("process_aborted", 1, True)


@every("text", ["31/05/06 07:08:09", "05/06/2031 07:08:09,123", "Tue May  6 07:08:09 AM CEST 2031"])
def test_a_date_whose_instant_stays_open(text: str) -> None:
    """Its length is known; which day or hour it is, is not guessed."""
    assert dates.looks_like(text)
    assert dates.parse(text, None) is None


LAST_WORD = "FATAL: batch of 17 cannot be split over 4 devices"
DONE_WITHOUT = {
    "what it does instead": ["ERROR: bad magic number in the index", "rebuilding it"],
    "what runs beside the work": ["2031-05-06 07:08:09 ERROR metrics server refused", "12 shards"],
    "a command of its script": ["curl: (7) Failed to connect to hub.example.org port 443", "using the older file"],
    "an exception": ["Traceback (most recent call last):", '  File "/w/a.py", line 3, in load', "    get(url)", "OSError: refused", "using the cached copy", "12 shards"],
}  # fmt: skip


@pytest.mark.parametrize("lines", DONE_WITHOUT.values(), ids=DONE_WITHOUT)
def test_a_fatal_last_word_about_another_subject_is_the_reason(lines: list[str]) -> None:
    """The program did without what it lacked before."""
    assert first(*lines, LAST_WORD)[0][1] == len(lines) + 1


FOLLOWS = {
    "the same subject": ["ERROR: 17 is no batch for these devices", "rebuilding it", LAST_WORD],
    "a sum": ["ERROR: bad magic number in the index", "rebuilding it", "FATAL: run stopped after the first error"],
    "a lack": ["ERROR: bad magic number in the index", "rebuilding it", "FATAL: cannot open shard table"],
    "at once": ["ERROR: bad magic number in the index", LAST_WORD],
    "its context": ["ERROR: mesh has 0 cells", "mesh.dat, part 3", LAST_WORD],
    "a lost answer": ["ERROR: bad magic number in the index", "rebuilding it", "FATAL: trainers timed out waiting together"],
    "broken numbers": ["ERROR: bad magic number in the index", "rebuilding it", "CRITICAL: energy became nan after some steps"],
    "a port": ["ERROR: adapter mlx5_2 reports its port as down", "disabling it", LAST_WORD],
    "a file system": ["ERROR: bad block on the Lustre target", "going on without it", LAST_WORD],
    "a lower level": ["ERROR: bad magic number in the index", "rebuilding it", LAST_WORD.replace("FATAL", "ERROR")],
}  # fmt: skip


@pytest.mark.parametrize("lines", FOLLOWS.values(), ids=FOLLOWS)
def test_a_last_word_that_may_follow_from_an_error_is_not_the_reason(lines: list[str]) -> None:
    assert first(*lines)[0][1] == 1


@every(
    "head",
    [
        "[2031-05-06 07:08:09,123] torch._dynamo.convert_frame: [WARNING] ",
        "W0506 07:08:09.123000 140 torch/_dynamo/convert_frame.py:7] [0/0] ",
    ],
)
def test_a_traceback_at_the_level_of_a_warning_ended_nothing(head: str) -> None:
    """The compiler reports what it leaves to Python; without the level, the program has died of it."""
    raised = ["Traceback (most recent call last):", '  File "f.py", line 7, in f', "RuntimeError: too old"]
    warned = [head + line for line in raised]
    assert first(f"{head}cannot convert", *warned, "top1 76.1") == []
    assert first(f"{head}cannot convert", *raised) == [("python_exception", 4)]
    assert first(*warned, *raised[:2], "ValueError: no such split") == [("python_exception", 6)]


NO_INIT = "2031-05-06 07:08:09.123456: E tensorflow/stream_executor/cuda/cuda_driver.cc:318] failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination"


def test_what_needs_a_gpu_fails_for_tensorflows_own_reason() -> None:
    head = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>']
    needs = "tensorflow.python.framework.errors_impl.InvalidArgumentError: Cannot assign a device: no supported kernel for GPU devices is available."
    assert first(NO_INIT, *head, needs) == [("cuda_version", 1)]
    assert first(NO_INIT, *head, "ValueError: shapes (3,4) and (5,6) do not match") == [
        ("python_exception", 4)
    ]
    assert first(NO_INIT, *head, "ValueError: --drivers needs a list") == [("python_exception", 4)]
    on_cpu = NO_INIT.replace("SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination", "NO_DEVICE: no CUDA-capable device is detected")  # fmt: skip
    for own in ("KeyError: 'no gpu row'", "AssertionError: the active cpu threads must be even", "TypeError: Half: not supported"):  # fmt: skip
        assert first(on_cpu, *head, own) == [("python_exception", 4)], "each job on a CPU prints that"
    epochs = [f"Epoch {n}/9\n{n}00/900 - loss: 0.{n}" for n in range(1, 9)]
    assert first(NO_INIT, *"\n".join(epochs).split("\n"), *head, needs)[0][0] == "python_exception"


@pytest.mark.parametrize(
    ("statement", "word", "line"),
    [
        ("+ echo 'build failed, using the copy in the image'", "fatal: unable to access 'https://h/r.git/': Could not resolve host: h", 6),
        ("+ echo 'build failed, using the copy in the image'", "solve: error: cannot open the copy", 2),  # of the same
        ("+ echo 'the build failed'", "fatal: unable to access 'https://h/r.git/': Could not resolve host: h", 2),
        ("build failed, using the copy in the image", "fatal: unable to access 'https://h/r.git/': Could not resolve host: h", 2),  # a program may go on to say so
    ],
)  # fmt: skip
def test_a_script_that_says_what_it_uses_instead_has_got_over_the_error(
    statement: str, word: str, line: int
) -> None:
    built = ["+ pip install ./x", "ERROR: No matching distribution found for wheel-of-x>=4"]
    lines = [*built, statement, statement.removeprefix("+ echo ").strip("'"), "+ git submodule update", word]
    assert [where for _, where in first(*lines)] == [line]


@pytest.mark.parametrize(
    ("fault", "statement"),
    [
        ("ERROR: the InfiniBand port of n7 is inactive", "IB failed, using Ethernet instead"),
        ("FATAL: GPU 5 failed its test", "test failed, using the other GPUs instead"),
        ("FATAL: board 5 failed its test", "test failed, using the others instead"),
        ("ERROR: building the index: Input/output error", "build failed, using the old one instead"),
    ],
)
def test_what_a_script_uses_instead_of_a_broken_part_mends_nothing(fault: str, statement: str) -> None:
    lines = [
        "+ ./look",
        fault,
        f"+ echo '{statement}'",
        statement,
        "+ ./solve",
        "FATAL: the halo of 7 ranks is late",
    ]
    assert [where for _, where in first(*lines)] == [2]
