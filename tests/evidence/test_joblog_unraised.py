"""Exceptions under whose headings Python goes on: they end nothing, and what comes after them is read as ever."""

from __future__ import annotations

import itertools

import pytest

from probing_cluster.evidence.joblog import grammar, labels, reader
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every

STEPS = [f"Epoch {n}/400: loss=2.{n} acc=0.{n} some more words to fill the line" for n in range(1, 401)]
BROKEN = "BrokenPipeError: [Errno 32] Broken pipe"
EXCEPTIONS = [
    "ValueError: I/O operation on closed file",
    "RuntimeError: CUDA error: driver shutting down",
    "pycuda._driver.LogicError: cuModuleUnload failed: context is destroyed",
    "RuntimeError: DataLoader worker (pid 3) is killed by signal: Terminated.",
    "OSError: [Errno 28] No space left on device",
]
HEADINGS = [
    ["Exception ignored in: <function Pool.__del__ at 0x7f>"],
    ["--- Logging error ---"],
    ["Error in atexit._run_exitfuncs:"],
    ["Exception in Tkinter callback"],
    ["Task exception was never retrieved", "future: <Task finished name='Task-1' coro=<f() done>>"],
    ["ERROR:asyncio:Future exception was never retrieved", "future: <Future finished exception=OSError()>"],
]
EXITED = "srun: error: n4: task 0: Exited with exit code 1"
THREAD = "Exception in thread Thread-3 (_monitor):"


def traceback(exception: str, function: str = "close", file: str = "/opt/pool.py") -> list[str]:
    head = "Traceback (most recent call last):"
    return [head, f'  File "{file}", line 7, in {function}', "    self.stop()", exception]


def first_cause(*lines: str) -> JobFinding | None:
    return next((found for found in reader.read(lines) if found.first_cause), None)


def message(*lines: str) -> str | None:
    found = first_cause(*lines)
    return found.message if found else None


@every("exception, heading", itertools.product(EXCEPTIONS, [[], *HEADINGS]))
def test_what_python_goes_on_after_is_no_cause(heading: list[str], exception: str) -> None:
    """Whichever family knows the exception; without the heading it is one."""
    assert message(*STEPS, *heading, *traceback(exception)) == (None if heading else exception)


@every("exception", [BROKEN, "OSError: [Errno 28] No space left on device"])
def test_an_output_that_nobody_reads_ends_nothing(exception: str) -> None:
    """Python prints the exception without a traceback, right below its heading."""
    stdout = "Exception ignored in: <_io.TextIOWrapper name='<stdout>' mode='w' encoding='utf-8'>"
    for heading in (stdout, "Exception ignored on flushing sys.stdout:"):
        assert message("done", heading, exception) is None


def test_an_error_below_what_was_ignored_is_the_cause() -> None:
    """The heading covers one exception, with or without frames."""
    ignored = ["Exception ignored on flushing sys.stdout:", BROKEN]
    bad = "ValueError: bad settings"
    assert message(*ignored, *traceback(bad)) == bad
    assert message(*HEADINGS[0], *traceback(EXCEPTIONS[1]), *traceback(bad)) == bad


def test_an_ignored_error_of_the_hardware_stays() -> None:
    """A GPU that meets one has failed, whoever noticed it."""
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert message(*STEPS, *HEADINGS[0], *traceback(ecc)) == ecc


@every("exception", EXCEPTIONS)
def test_a_process_outlives_the_exception_of_its_thread(exception: str) -> None:
    """It is the cause until the program reports success, and after that only of a bad exit."""
    lines = [*STEPS, THREAD, *traceback(exception, "_monitor")]
    well = "Training completed successfully."
    assert message(*lines) == exception
    assert message(*lines, well) is None
    assert message(*lines, well, EXITED) == exception
    assert message(*STEPS, *traceback(exception), well) == exception


@every(
    "last",
    [
        "Job completed at Mon",
        "Job completed successfully at Mon",
        "[rank1] epoch 3 completed",
        "[rank1]: Training finished successfully",
        "epoch 3 finished successfully",
        "checkpoint saved successfully",
        "Training completed",
        "validation completed in 12 s",
        "validation completed successfully",
    ],
)
def test_only_an_unmistakable_success_outlives_the_exception_of_a_thread(last: str) -> None:
    """Scripts print their end after a failure, too; parts of the work, and other ranks, succeed before one."""
    bad = "ValueError: shard 12 is corrupt"
    assert message(*STEPS, THREAD, *traceback(bad, "_monitor"), last) == bad


@every("last", ["INFO trainer: training finished successfully", "all tests passed"])
def test_the_success_of_the_whole_program_outlives_it(last: str) -> None:
    assert message(*STEPS, THREAD, *traceback("ValueError: bad", "_monitor"), last) is None


def test_what_slurm_ended_did_not_end_well() -> None:
    ended = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***"
    bad = "ValueError: shard 12 is corrupt"
    lines = [*STEPS, THREAD, *traceback(bad, "_monitor"), "Training completed successfully."]
    assert message(*lines, ended) == bad


@pytest.mark.parametrize("heading", HEADINGS[-2:])
@pytest.mark.parametrize(
    "exited",
    [
        EXITED,
        "E0501 10:00:00.123000 12 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 12) of binary: /usr/bin/python",
    ],
)
def test_a_dead_task_of_asyncio_is_the_last_resort_at_a_bad_exit(heading: list[str], exited: str) -> None:
    """A server dies of one; its client's exception is as much as nothing while it runs on."""
    dead, own = [*heading, *traceback("KeyError: 'loss'")], traceback("ValueError: bad settings")
    assert message(*dead) is None
    assert message(*dead, *STEPS) is None
    assert message(*dead, exited) == "KeyError: 'loss'"
    assert message(*dead, *own, exited) == "ValueError: bad settings"
    for other in ([*dead, *STEPS], [*HEADINGS[0], *traceback("KeyError: 'loss'")]):
        found = first_cause(*other, exited)
        assert found
        assert found.kind == "task_exit", "too far above it, or another heading"


def test_a_task_that_only_lost_its_peer_explains_no_exit() -> None:
    """It died of whatever ended the other process."""
    for lost in (BROKEN, "ConnectionResetError: [Errno 104] Connection reset by peer"):
        found = first_cause(*STEPS, *HEADINGS[-2], *traceback(lost), EXITED)
        assert found
        assert found.kind == "task_exit"


def test_what_was_ignored_explains_no_exit_far_below_it() -> None:
    """Right above it, it is all that is known."""
    ignored = [*STEPS, *HEADINGS[0], *traceback(EXCEPTIONS[1])]
    assert message(*ignored, *["reading a part"] * 3, EXITED) == EXCEPTIONS[1]
    assert message(*ignored, *["reading a part"] * 100, EXITED) == EXITED


def test_what_was_ignored_and_is_printed_again_gives_way_to_an_error() -> None:
    """A logger repeats the exception without its heading."""
    bad = "ValueError: bad settings"
    for again in (EXCEPTIONS[1], EXCEPTIONS[4]):
        assert message(*STEPS, *HEADINGS[0], *traceback(again), again, *traceback(bad)) == bad


def test_the_thread_that_feeds_a_queue_prints_without_a_heading() -> None:
    lines = traceback(BROKEN, "_feed", "/usr/lib/python3.10/multiprocessing/queues.py")
    assert message(*STEPS, *lines, "all done") is None
    assert message(*STEPS, *traceback(BROKEN, "_feed", "/opt/queues.py"), "all done") == BROKEN
    bad = "TypeError: cannot pickle 'module' object"
    lines = traceback(bad, "_feed", "/usr/lib/python3.10/multiprocessing/queues.py")
    assert message(*STEPS, *lines) == bad
    assert message(*STEPS, *lines, "Training completed successfully.") is None


@every("function", ["_run_finalizers", "_exit_function", "_python_exit", "_shutdown"])
def test_what_python_calls_after_the_end_is_no_cause(function: str) -> None:
    """The interruption above it ended the program; the lost manager follows from that."""
    head = "Traceback (most recent call last):"
    interrupted = [head, '  File "run.py", line 190, in <module>', "    pool.join()", "KeyboardInterrupt"]
    late = [head, f'  File "/usr/lib/python3.6/multiprocessing/util.py", line 262, in {function}', "    finalizer()", "FileNotFoundError: [Errno 2] No such file or directory"]  # fmt: skip
    first = next(f for f in reader.read([*interrupted, *late]) if f.first_cause)
    assert (first.line, first.kind) == (4, "interrupted")
    own = [line.replace("/usr/lib/python3.6/multiprocessing", "/home/u") for line in late]
    assert [f.line for f in reader.read(["start", *own]) if f.first_cause] == [5]


_PEER = "nb:30:31 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer na<41>"
_STORE = "[rank3]:[E304 12:11:12.112 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=3, addr=[nb]:4): Broken pipe"
_LAST = [f"step {n}/40 loss=0.{n}" for n in range(1, 41)]


@every("over", ["Training finished", "INFO trainer: run completed in 3 h", "Done. Best score 0.9", "all done!"])  # fmt: skip
def test_processes_that_lose_each_other_after_the_work_explain_nothing(over: str) -> None:
    """Until a process ends badly, or Slurm ends the job."""
    assert message(*_LAST, over, _PEER, _STORE, "uploaded the model") is None
    assert message(*_LAST, over, _PEER, _STORE, EXITED) == _PEER
    ended = "slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***"
    assert message(*_LAST, over, _PEER, ended) == ended


@every("line", ["Done loading the shards", "Training data loaded, done", "epoch 3 completed", "run the job again when all is done", "step 41/90 loss=0.1", "Training over 8 nodes", "training on 4 nodes", "Run over all subjects", "work is to be done by 4 tasks", "training done 30 %", "training half done", "run 3 of 10 done", "The first run is done.", "run finished reading"])  # fmt: skip
def test_a_loss_with_work_before_it_stays(line: str) -> None:
    assert message(*_LAST, line, _PEER, "uploaded the model") == _PEER
    assert message(*_LAST, "Training finished", line if "step" in line else "step 1/9", _PEER) == _PEER


def test_a_line_above_many_losses_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of ranks may lose each other, and each loss asks for the same lines above it."""
    n_read, bare = 0, labels.bare

    def counted(line: int, text: str) -> grammar.Record:
        nonlocal n_read
        n_read += 1
        return bare(line, text)

    monkeypatch.setattr(labels, "bare", counted)
    lost = [f"[rank{n}]: {_PEER} ({n})" for n in range(300)]
    assert message(*lost) == lost[0].partition(": ")[2]
    assert n_read < 3 * len(lost)


def test_the_thread_that_pins_memory_may_lose_its_worker_after_the_last_step() -> None:
    """The main thread reports it if it still needs the thread."""
    reset = "ConnectionResetError: [Errno 104] Connection reset by peer"
    lines = ["Exception in thread Thread-2 (_pin_memory_loop):", *traceback(reset, "get")]
    assert message(*_LAST, "best model saved", *lines) is None
    assert message(*_LAST, *lines, EXITED) == reset
    assert message(*_LAST[:-1], "best model saved", *lines) == reset
    assert message(*_LAST, *traceback(reset, "get")) == reset


@every(
    "heading",
    [
        ['Exception in thread "shutdown-hook-0" java.lang.IllegalStateException: closed'],
        ["26/01/01 10:00:00 ERROR Utils: Uncaught exception in thread shutdown-hook-0", "java.lang.InterruptedException"],
        ["26/01/01 10:00:00 ERROR ShutdownHookManager: Exception while deleting /tmp/x", "java.io.IOException: Failed to delete: /tmp/x"],
    ],
)  # fmt: skip
def test_what_a_jvm_calls_after_the_end_is_no_cause(heading: list[str]) -> None:
    trace = ["\tat a.b.C.d(C.java:1)", "Caused by: java.io.IOException: closed", "\tat a.b.C.e(C.java:2)"]
    assert message("wrote 3 files", *heading, *trace, "bye") is None
    main = [
        line.replace("shutdown-hook-0", "main").replace("ShutdownHookManager", "Main") for line in heading
    ]
    assert message("wrote 3 files", *main, *trace) is not None


@pytest.mark.parametrize(
    "raised",
    [
        "java.lang.IllegalStateException: sink is closed",
        "java.lang.RuntimeException: failure in shutdown-hook",
        "java.io.IOException: record 3 skipped, the table is broken",
    ],
)
@pytest.mark.parametrize(
    "above", [["Accuracy: 0.93", "saved out/m.bin"], ["Training finished.", "All done!"]]
)
@pytest.mark.parametrize(
    "below",
    [
        "26/01/01 10:05:00 INFO DAGScheduler: Job 1 finished: collect at A.java:3, took 300.5 s",
        "INFO SparkContext: Successfully stopped SparkContext",
        "wrote out/summary.txt",
    ],
)
def test_an_exception_of_a_jvms_main_thread_is_a_bad_end(raised: str, above: list[str], below: str) -> None:
    """Whatever it says, and however well the last result looks."""
    error = f'Exception in thread "main" {raised}'
    found = first_cause(*above, error, "\tat a.b.C.main(C.java:1)", below)
    assert found
    assert (found.message, found.detail.get("goes_on")) == (error, None)


def test_an_uncaught_exceptions_own_words_do_not_show_that_it_was_caught() -> None:
    error = "ValueError: 3 rows were skipped, nothing is left"
    assert message("reading", *traceback(error), "wrote out/summary.txt") == error


def test_an_executor_that_spark_replaced_is_no_cause() -> None:
    """The job that Spark ran finished, so its task was run again; a bad exit right below makes it one."""
    lost = "26/01/01 10:00:00 ERROR TaskSchedulerImpl: Lost executor 2 on n1: Command exited with code 137"
    job = "26/01/01 10:05:00 INFO DAGScheduler: Job 1 finished: collect at A.java:3, took 300.5 s"
    assert message(lost, job, "wrote 3 files") is None
    assert "Lost executor" in str(message(lost, "wrote 3 files"))
    assert message(lost, job, EXITED) is not None


@every("line", ["26/01/01 10:05:00 INFO DAGScheduler: Job 1 finished: collect at A.java:3, took 300.5 s", "Job 3 finished", "run #4 done"])  # fmt: skip
def test_the_end_of_one_unit_is_not_that_of_the_whole_work(line: str) -> None:
    """An error of the program before it stays, as does the loss of a peer below it."""
    bad = "ValueError: shard 12 is corrupt"
    assert message(*traceback(bad), line, "closing") == bad
    assert message(THREAD, *traceback(bad, "_monitor"), line) == bad
    assert message(*_LAST, line, _PEER) == _PEER


LINKS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("heading", HEADINGS[:4])
def test_python_ignores_the_whole_chain_below_its_heading(heading: list[str], link: str) -> None:
    """Only the first traceback stands right below the heading; a later chain is of another exception."""
    chain = [*heading, *traceback("KeyError: 'a'"), "", link, "", *traceback("RuntimeError: b")]
    assert message(*STEPS[:9], *chain) is None
    assert message(*STEPS[:9], *chain, "", link, "", *traceback("ValueError: c")) is None
    assert message(*STEPS[:9], *chain, EXITED) == EXITED
    assert message(*STEPS[:9], *chain, *traceback("ValueError: c")) == "ValueError: c"
    own = [*traceback("ValueError: c"), "", link, "", *traceback("RuntimeError: d")]
    assert message(*STEPS[:9], *chain, "closing", *own) == "ValueError: c"
    assert message("", link, "", *traceback("RuntimeError: d")) == "RuntimeError: d"


def test_a_good_end_of_another_process_does_not_outlive_an_exit() -> None:
    """What Python ignored is all that is known of the exit right below it: another worker's success does not undo that."""
    ignored = [*HEADINGS[0], *traceback("RuntimeError: CUDA error: an illegal memory access was encountered")]
    other = "[2026-01-02 10:00:00,123] [INFO] [launch.py:349:main] Process 4242 exits successfully."
    assert message(*STEPS[:9], *ignored, EXITED, other) == ignored[-1]
    assert message(*STEPS[:9], *ignored, other) is None


def test_a_data_race_counts_at_the_end_of_the_log_only() -> None:
    """ThreadSanitizer lets the program go on; at its end it gives it a bad code, or ends it at the race if told to."""
    race = "SUMMARY: ThreadSanitizer: data race /x/main.cpp:12 in worker()"
    last = "ThreadSanitizer: reported 1 warnings"
    work = [f"reading part {c}" for c in "abcdef"]
    found = first_cause(*work, race)
    assert found is not None
    assert (found.message, found.detail["goes_on"]) == (race, True)
    assert message(race, *work, last) == last
    assert message(race, *work) is None
    assert message(race, last) == race
    for own in ("ERROR: mesh is broken", "ValueError: mesh is broken", "mesh.dat: No such file or directory"):
        assert message(race, own) == message(race, "closing", own) == message(race, last, own) == own
        assert message(own, race) == own
    assert message(race, "Segmentation fault (core dumped)") == "Segmentation fault (core dumped)"


RAISED_BY_LAUNCHER = ["Traceback (most recent call last):", '  File "press.py", line 3, in <module>', "OSError: [Errno 5] Input/output error"]  # fmt: skip
CHILD_LOST = [
    "Process SpawnProcess-7:",
    "Traceback (most recent call last):",
    '  File "/env/lib/python3.10/multiprocessing/managers.py", line 81, in _callmethod',
    "ConnectionResetError: [Errno 104] Connection reset by peer",
]


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["step 10/80", *CHILD_LOST, "saved 4 of 4 shards to /must/step10"], 5),  # for the next run
        ([*CHILD_LOST, "4 of 4 settings written to /must", "step 1/80", "step 2/80"], 4),
        ([*CHILD_LOST, "3 of 3 shards converted", "waiting for shard 4 of node n2"], 4),
        ([*CHILD_LOST[:3], "ValueError: no grapes", *RAISED_BY_LAUNCHER], 4),
    ],
)
def test_a_sum_of_pieces_is_not_the_whole_work_of_a_program_that_lost_a_child(
    lines: list[str], line: int
) -> None:
    assert [f.line for f in reader.read(lines) if f.first_cause] == [line]
