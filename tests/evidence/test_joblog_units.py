"""A harness that goes on with the next unit of work has survived the last one's error; a farewell proves nothing."""

from __future__ import annotations

import itertools

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader, units
from tests.every_case import every

RAISED = [
    "Traceback (most recent call last):",
    '  File "fit.py", line 7, in fit',
    "ValueError: negative width",
]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB."
LATER = ["Traceback (most recent call last):", '  File "plot.py", line 9, in <module>', "KeyError: 'colour'"]


def first(lines: list[str]) -> int:
    """The line of the first cause; 0 without one."""
    whole = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert whole == [classify.joblog_json(f) for f in reader.read(lines)], "the sieve hides nothing"
    return next((f["line"] for f in whole if f["first_cause"]), 0)


def at(minute: int, level: str, text: str) -> str:
    """A record of a logger that writes one letter for the level."""
    return f"[{level} 2031-07-02 08:{minute:02d}:15,004] {text}"


CAUGHT: dict[str, tuple[list[str], list[str]]] = {
    # the lines up to the error, the lines that show that the harness went on
    "trials": (
        [at(1, "I", "Trial 4 finished with value: 0.5."), at(2, "W", "Trial 5 failed because of the following error: ValueError('negative width')"), *RAISED],
        [at(2, "W", "Trial 5 failed with value None."), at(3, "I", "Trial 6 finished with value: 0.7.")],
    ),
    "runs of an agent": (
        ["sweep: Starting run: k3v9 with config", *RAISED[:2], OOM, "sweep: ERROR Run k3v9 errored: OutOfMemoryError('CUDA')"],
        ["sweep: Starting run: p8a2 with config", "epoch 1 loss 4.5", "epoch 2 loss 4.1", "epoch 3 loss 3.9"],
    ),
    "a tuner's failed trial": (
        ["2031-07-02 08:01:15,004 ERROR tuner.py:88 -- Trial task failed for trial grid_7c_00002", *RAISED],
        ["2031-07-02 08:31:15,004 INFO tuner.py:99 -- Total run time: 81.5 seconds", "Best config found: {'depth': 3}"],
    ),
    "batch sizes": (
        ["Trying batch size: 96", OOM, "Trying batch size: 48", OOM],
        ["Trying batch size: 24", "epoch 1/3 loss 4.5", "epoch 2/3 loss 4.1", "epoch 3/3 loss 3.9"],
    ),
    "a warning's text": (
        ["/env/lib/grid.py:51: FitFailedWarning: ", "3 fits failed out of a total of 9.", *RAISED, ""],
        ["  warnings.warn(some_fits_failed, FitFailedWarning)", "Chosen depth: 4"],
    ),
    "a warning's text of two errors": (
        ["/env/lib/grid.py:51: FitFailedWarning: ", "6 fits failed out of a total of 9.", *RAISED, "", "-" * 20, *RAISED[:2], "KeyError: 'depth'", ""],
        ["  warnings.warn(some_fits_failed, FitFailedWarning)", "Chosen depth: 4"],
    ),
    "subjects": (
        ["--- subject sub-03 ---", "smoothed", "--- subject sub-04 ---", *RAISED],
        ["--- subject sub-05 ---", "smoothed", "correlation table of 2 of 3 subjects"],
    ),
    "R's try": (
        ["Loading required package: survival", "Error in coxph(f, data = d) : infinite hazard"],
        ["stratum north", "fitted 7 of 8 strata"],
    ),
    "a retried licence": (
        ["[queue] attempt 1/4 for comsol", "License checkout failed.", "[queue] attempt 1 failed (rc=3), sleeping 60 s"],
        ["[queue] attempt 2/4 for comsol", "volume fraction = 0.25", "saved field.vtu"],
    ),
    "a restarted worker of Dask": (
        ["2031-07-02 08:01:15,004 - distributed.nanny.memory - WARNING - Worker tcp://10.2.0.9:4312 (pid=88) exceeded 95% memory budget.  Restarting..."],
        ["saved yearly.zarr"],
    ),
    "a logged stack of Java": (
        ["08:01:15.004 [pool-3] ERROR Crawl - cannot read k.xml, skipped", "java.io.IOException: premature end", "\tat Crawl.read(Crawl.java:19)"],
        ["08:09:15.004 [main] INFO  Crawl - read 44 of 45 pages, 1 error"],
    ),
    "a scene left out": (
        ["ERROR 1: N4_B7.TIF: read error at row 9; got 0 bytes, expected 41"],
        ["[2031-07-02 08:01:15] -> quarantined N4", "[2031-07-02 08:31:15] 58 scenes ok, 1 quarantined"],
    ),
    "a record left out": (RAISED, ["row 811 -> discarded", "sum: 1 discarded of 9,811 rows; 0 files failed"]),
    "a kept traceback": (
        ["cell 8: ValueError('negative width') -> stored as NaN", "Traceback of cell 8 (for reference):", *(f"  {line}" for line in RAISED)],
        ["398 valid, 1 NaN", "grid written to cells.npz"],
    ),
    "glog's attempts": (
        ["I0702 08:01:15.004120 88 relax.py:40] Relaxing, attempt 1 of 9.", "I0702 08:01:16.004120 88 relax.py:48] Error opening file for reading CUDA kernel: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)"],
        ["I0702 08:01:17.004120 88 relax.py:40] Relaxing, attempt 2 of 9.", "I0702 08:01:19.004120 88 relax.py:50] Iteration completed: E -12.5"],
    ),
    "an optional file": (["sort: cannot read: extra.csv: No such file or directory"], ["(no extra file, ignored)", "wrote out/merged.csv"]),
}  # fmt: skip


@every("name", sorted(CAUGHT))
def test_the_next_unit_of_work_shows_that_the_error_was_caught(name: str) -> None:
    """Another unit and a result behind the error, or a caught error and a result."""
    error, later = CAUGHT[name]
    assert first([*error, *later]) == 0
    assert first([*error, *later, "finished at Wed Jul  2 09:00:00 2031"]) == 0


@every("name", sorted(CAUGHT))
def test_a_farewell_behind_the_error_leaves_it_the_cause(name: str) -> None:
    """What a batch script prints at its end comes after a failure, too."""
    error, _ = CAUGHT[name]
    lines = [*error, "cleaning up", "finished at Wed Jul  2 09:00:00 2031"]
    assert first(lines) > 0


@every("name", ["trials", "runs of an agent", "batch sizes", "R's try", "a retried licence"])
def test_a_later_error_is_the_cause_once_the_next_unit_began(name: str) -> None:
    """The first error was survived, whether or not the next unit came to a result."""
    error, later = CAUGHT[name]
    assert first([*error, *later, *LATER]) == len(error) + len(later) + 3
    if name != "R's try":
        assert first([*error, later[0] if "failed" not in later[0] else later[1], *LATER]) == len(error) + 4


@every(
    ("line", "is_result"),
    [
        ("I0702 keeper.py:7] all 31 grapes written, leaving", True),
        ("all 9 vines were uploaded", True),
        ("[########] | 100% Completed | 41m 12s", True),
        ("sum: 3 dropped of 81,221,112 grapes; 0 files failed", True),
        ("pressed 81 grapes, 0 errors", True),
        ("pressed 81 grapes, 2 lost, 0 errors", False),
        ("0 errors", False),
        ("all 9 ranks finished", False),
        ("all 9 grapes failed, none written", False),
        ("[####    ] | 50% Completed | 20m", False),
    ],
)
def test_a_result_tells_that_all_was_done(line: str, *, is_result: bool) -> None:
    """Parts that end side by side end after a failure, too."""
    assert units.is_result(line) == is_result


def test_a_harness_that_gave_up_has_not_caught_the_error() -> None:
    """What it prints as done below that is its script's."""
    lines = ["ERROR: part 7: refused", "retrying part 7", "ERROR: part 7: refused"]
    assert first([*lines, "giving up after 2 attempts", "all done"]) == 1
    assert first([*RAISED, "retrying", *RAISED, "maximum number of retries reached", "all done"]) == 3
    assert first([*CAUGHT["a scene left out"][0], "-> N4 could not be quarantined", "58 scenes ok"]) == 1


def test_a_lost_connection_is_no_record_left_out() -> None:
    assert first([*RAISED, "link to the keeper: dropped", "kept must in out/must.7"]) == 3


def test_the_same_error_in_each_unit_stays_the_cause() -> None:
    """The next unit began and failed alike; only its number differs."""
    lines = [line for n in (1, 2, 3) for line in (f"[queue] attempt {n}/3", "License checkout failed.")]
    assert first(lines) == 2
    assert first([*lines, "[queue] giving up"]) == 2


def test_a_unit_that_only_began_is_no_result() -> None:
    """Nothing shows that the next attempt went better."""
    assert first(["[queue] attempt 1/3", *RAISED, "[queue] attempt 2/3", "loading the model ... done"]) == 4


@every(
    "line",
    [
        "rank {n} saved out.{n}.pt",
        "gpu power {n}00 W",
        "waiting for chunk {n}",
        "port 29{n}00 done",
        "layer {n} ok",
    ],
)
def test_what_comes_by_itself_or_from_other_ranks_is_no_unit(line: str) -> None:
    """Such lines stand above and below a failure that ended the job."""
    assert first([line.format(n=1), *RAISED, *(line.format(n=n) for n in (2, 3, 4))]) == 4


@every(
    "line, before",
    itertools.product(
        [
            "task {n} done",
            "[INFO] MPI task {n}: completed in 3 s",
            "finished task-{n}",
            "Process {n} finished in 3 s",
            "my_rank {n} done",
            "instance {n}: done",
            "Instance {n} saved part{n}.h5",
            "processor {n} done",
            "subdomain {n} done",
            "PE {n} ok",
        ],
        [1, 6],
    ),
)
def test_a_part_of_a_parallel_job_that_ends_shows_nothing_of_another(line: str, before: int) -> None:
    """They work side by side and end in any order."""
    above = [line.format(n=n) for n in range(before)]
    below = [line.format(n=before + n) for n in range(4)]
    assert first([*above, *RAISED, *below]) == before + 3


@every("line", ["Smoothing domain {n}", "task {n}/30 done", "Finished tile_{n}", "fitting instance {n}"])
def test_many_parts_in_order_are_the_work_of_one_process(line: str) -> None:
    """Whatever they are called: side by side they would end in any order."""
    above, below = ([line.format(n=n) for n in span] for span in (range(1, 4), range(4, 12)))
    assert first([*above, *RAISED, *below]) == 0
    assert first([*above[:-1], *RAISED, *below]) == 0, "the one that failed has no line"
    assert first([*above, *RAISED, *below, *LATER]) == 17
    assert first([*above, *RAISED, *below, "OSError: [Errno 5] Input/output error"]) == 15
    assert first([*above, *RAISED, *below[:-1]]) == 6
    assert first([*above, *RAISED, *below[1:4], below[0], *below[4:], *below]) == 6, "in any order"
    assert first([*reversed(above), *RAISED, *below]) == 6


@every("line", ["rank {n} done", "Launching task {n}", "stopped replica {n}"])
def test_parts_that_one_process_starts_or_ends_in_order_show_nothing_of_their_work(line: str) -> None:
    above, below = ([line.format(n=n) for n in span] for span in (range(1, 4), range(4, 16)))
    assert first([*above, *RAISED, *below]) == 6


def test_a_bad_exit_behind_the_next_unit_brings_the_error_back() -> None:
    """A harness works through all its units and then reports that one failed."""
    error, later = CAUGHT["trials"]
    for end in (
        "srun: error: n1: task 0: Exited with exit code 1",
        "Error: 1 of 3 trials failed",
        "job finished with exit code 2",
    ):
        assert first([*error, *later, end]) == len(error)


def test_the_complaint_of_a_tool_about_one_sample_stays_the_cause() -> None:
    """The script goes through the other samples and then sums up."""
    complaint = "[E::main_mem] failed to open file `x.fq`"
    others = [f"Processing sample {n}" for n in (8, 9)]
    assert first(["Processing sample 7", complaint, *others, "Error: 1 of 3 samples failed"]) == 2


def test_what_a_unit_lacks_or_a_broken_machine_leaves_the_first_error_the_cause() -> None:
    """The next unit fails otherwise, in consequence."""
    lost = ["Traceback (most recent call last):", '  File "fit.py", line 2, in load']
    missing = [*lost, "FileNotFoundError: [Errno 2] No such file or directory: 'k.pt'"]
    assert first(["run 1 of grid", *RAISED, "run 2 of grid", *missing]) == 4
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    busy = "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"
    assert first(["seed 1", *lost, ecc, "seed 2", *lost, busy]) == 4


@pytest.mark.parametrize(
    "fault",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "OSError: [Errno 28] No space left on device: '/must/7.h5'",
        "OSError: [Errno 116] Stale file handle: '/must/7.h5'",
        "OSError: [Errno 5] Input/output error: '/must/7.h5'",
    ],
)
def test_no_other_units_good_end_mends_a_machine(fault: str) -> None:
    """Only further work of the same process shows that it got over such a fault."""
    lines = [
        *CAUGHT["trials"][0][:2],
        *RAISED[:2],
        fault,
        *CAUGHT["trials"][1],
        "Best config found: {'depth': 3}",
    ]
    assert first(lines) == lines.index(fault) + 1
    assert first([*lines[:4], "ValueError: negative width", *lines[5:]]) == 0


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("OSError: [Errno 28] No space left on device: '/must/scratch'", 6),
        ("OSError: [Errno 5] Input/output error: '/must/scratch'", 6),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", 2),
    ],
)
def test_several_further_units_show_that_files_can_be_used_again(fault: str, line: int) -> None:
    """A unit on another GPU shows nothing of the failed one."""
    folds = [f"Fold {n} finished, score 0.7" for n in range(1, 5)]
    died = "srun: error: n4: task 0: Segmentation fault (core dumped)"
    assert first([folds[0], fault, *folds[1:], died]) == line
    assert first([folds[0], fault, *folds[1:]]) == (2 if line == 2 else 0)
    assert first([folds[0], fault, folds[1], died]) == 2, "one alone"


def test_what_a_script_skips_after_a_bad_exit_is_a_consequence() -> None:
    """The script reports what it leaves out, and where its files are."""
    exited = "srun: error: n1: task 0: Exited with exit code 1"
    assert first([*RAISED, exited, "tests failed; skipping the training", "wrote out/summary.txt"]) == 3


def test_a_run_that_reports_its_own_end_has_not_caught_the_error() -> None:
    """There is no other run; the line above the error is none about it."""
    farewell = ["Run 20310702_9 failed", "Best accuracy: 0.8", "saved out/m.json"]
    assert first(["Resuming from out/ck_9.pt", *RAISED, *farewell]) == 4
    assert first(["saved checkpoint 8", "saved checkpoint 9", *RAISED, "saved checkpoint 10"]) == 5


def test_what_r_prints_when_it_halts_leaves_its_error_the_cause() -> None:
    """A message of several lines, and R's own last word."""
    error = [
        "Error in readGrid(f) : bad grid",
        "the grid has 3 columns",
        "Calls: main -> readGrid",
        "Execution halted",
    ]
    assert first([*error, "saved 2 of 3 grids"]) == 1


PASSED: dict[str, list[str]] = {
    "Maven": ["[INFO] Running org.y.GridTest", "java.io.IOException: on purpose", "\tat org.y.GridTest.go(GridTest.java:9)", "[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0", "[INFO] BUILD SUCCESS", "[INFO] Total time: 4 s"],
    "Gradle": [*RAISED, "", "BUILD SUCCESSFUL in 8s", "5 actionable tasks: 5 executed"],
    "TAP": ["./suite.sh: line 3: 4711 Segmentation fault      (core dumped) ./no_input", "ok 1 - no input crashes", "ok 2 - one input", "1..2"],
    "CTest": [*RAISED, "100% tests passed, 0 tests failed out of 6", "Total Test time (real) = 2.5 sec"],
    "Catch": [*RAISED, "All tests passed (31 assertions in 6 test cases)"],
}  # fmt: skip


@every("name", sorted(PASSED))
def test_tests_that_pass_expected_their_errors(name: str) -> None:
    """The runner's own report that the test, or all of them, passed."""
    assert first(PASSED[name]) == 0


def test_the_error_of_a_test_that_failed_is_the_cause() -> None:
    """The tests around it passed."""
    crash = "./suite.sh: line 3: 4711 Segmentation fault      (core dumped) ./one_input"
    assert first(["ok 1 - no input", crash, "not ok 2 - one input", "ok 3 - two inputs", "1..3"]) == 2


REQUEUED = "slurmstepd: error: *** JOB 812 ON n4 CANCELLED AT 2031-07-02T08:01:15 DUE TO JOB REQUEUE ***"


def test_a_requeued_attempt_that_resumed_in_the_same_log_ended_nothing() -> None:
    """Its end was the requeue only while nothing resumed below it."""
    steps = [f"update {n} loss {9 - n}.5" for n in range(1, 5)]
    more = [f"update {n} loss 1.{n}" for n in range(5, 9)]
    assert first([*steps, REQUEUED]) == 5
    assert first([*steps, REQUEUED, *more]) == 5
    assert first([*steps, REQUEUED, "resuming from ck4.pt", *more, "done, 8 updates"]) == 0
    assert first([*steps, REQUEUED, "resuming from ck4.pt", *more, *RAISED]) == 13
    for word in ("SLURM_RESTART_COUNT=1", "SLURM_RESTART_COUNT: 12", "restart count = 2"):
        assert first([*steps, REQUEUED, word, *more, "done, 8 updates"]) == 0, word
    assert first([*steps, REQUEUED, "SLURM_RESTART_COUNT=0", *more, "done, 8 updates"]) == 5


def test_advice_to_continue_is_no_report_that_the_program_goes_on() -> None:
    """It is for who reads the log."""
    assert units.reports_recovery("could not read s7, skipping it")
    assert not units.reports_recovery("could not read s7; please skip it, or retry with --force")


@every(
    "line",
    [
        "tee: standard output: Broken pipe",
        "sort: write failed: standard output: Broken pipe",
        "./run.sh: line 8: 4711 Killed                  nvidia-smi dmon > gpu.txt",
    ],
)
def test_the_end_of_a_pipe_or_of_a_monitor_is_no_cause(line: str) -> None:
    """The work was done; the script goes on."""
    assert first(["epoch 3/3 loss 3.9", "training complete", line, "job ok"]) == 0


@every("command", ["./watch.py --all", "top-down --train", "bin/tail.sh", "sleep_study x.in"])
def test_a_program_called_like_a_monitor_is_none(command: str) -> None:
    assert first(["epoch 3/3 loss 3.9", f"./run.sh: line 8: 4711 Killed                  {command}"]) == 2


def test_what_a_tagged_chat_quotes_is_no_error() -> None:
    """A traceback that a user asks about, line by line."""
    question = [f"[bot] user> {line}" for line in ("What does this mean?", *RAISED)]
    assert first([*question, "[bot] answer> The width must be positive.", "[bot] scored 1/1"]) == 0
    assert first(["[bot] task 1/1", *(f"[bot] {line}" for line in RAISED)]) == 4


def test_dasks_heartbeat_that_failed_at_the_end_is_no_cause() -> None:
    """The scheduler ended before its worker."""
    head = "2031-07-02 08:01:15,004 - distributed.worker - ERROR - Failed to communicate with scheduler during heartbeat."
    closed = [
        "Traceback (most recent call last):",
        '  File "tcp.py", line 5, in read',
        "tornado.iostream.StreamClosedError: Stream is closed",
    ]
    link = ["", "The above exception was the direct cause of the following exception:", ""]
    lost = [*closed[:2], "distributed.comm.core.CommClosedError: in <TCP (closed)>: Stream is closed"]
    assert first(["saved yearly.zarr", head, *closed, *link, *lost, "runtime 81 s"]) == 0


def _named(name: str, lines: list[str]) -> list[str]:
    return [f"{name} {line}" for line in lines]


def _steps(first_step: int, last: int) -> list[str]:
    return [f"2031-07-02 08:{n:02d}:00 part {n}00/9000 loss=4.{n}" for n in range(first_step, last)]


@every("names", [("[one]", "[two]"), ("left:", "right:"), ("a|", "b|")])
def test_the_steps_of_one_program_say_nothing_of_another(names: tuple[str, str]) -> None:
    """A name in front of the frames of a traceback is a launcher's, and stands in front of every line of its program."""
    this, other = names
    lines = [*_named(this, _steps(1, 5)), *_named(other, RAISED), *_named(this, _steps(5, 40))]
    assert first([*lines, f"{other} rc=1", "failed: 1 of 2"]) == 7
    assert first([*lines, *_named(other, _steps(1, 5)), *_named(this, _steps(40, 59))]) == 0, "it works on"


def test_the_name_of_a_logger_is_no_programs() -> None:
    error = "[data] ERROR: cannot open 7.png: No such file or directory"
    assert first([*_named("[fit]", _steps(1, 5)), error, *_named("[fit]", _steps(5, 40))]) == 0
    assert first([*_named("[fit]", _steps(1, 5)), *RAISED, *_named("[fit]", _steps(5, 40))]) == 0


@pytest.mark.parametrize("heading", ["== window {} ==", "--- lambda {} ---", "## fold {} ##"])
@pytest.mark.parametrize(
    "failed",
    [
        ["", "  Unit   30 Error on OPEN: w{}.rst7"],
        ["Error: Cannot open file w{}.gro: No such file or directory"],
        [*RAISED[:2], "FileNotFoundError: [Errno 2] No such file or directory: 'w{}.pt'"],
    ],
)
def test_a_heading_is_no_sign_of_work_where_its_unit_fails_at_once(heading: str, failed: list[str]) -> None:
    """Each unit lacks what the one before it did not make."""
    begun = [heading.format(n) for n in range(4)]
    lacking = [line.format(n) for n in range(4, 15) for line in (heading, *failed)]
    assert first([*begun, *RAISED[:2], OOM, *lacking, "collecting", "done"]) == 7
    working = [line for n in range(4, 15) for line in (heading.format(n), "energy -12.5", "converged")]
    assert first([*begun, *RAISED[:2], OOM, *working, "done"]) == 0


def test_units_that_each_fail_at_once_are_no_progress() -> None:
    """The first one failed by itself, and the next ones lack what it should have written."""
    failed = [
        "an illegal memory access was encountered in kernel f: CUDA error: an illegal memory access was encountered"
    ]
    lacks = [[f"| Running md {n} of 90  Thu Feb  8 05:02:4{n} 2024", "", f"  Unit    5 Error on OPEN: md.{n - 1}.rst"] for n in range(3, 8)]  # fmt: skip
    begun = [
        "| Running md 1 of 90  Thu Feb  8 03:12:22 2024",
        "| Running md 2 of 90  Thu Feb  8 04:55:01 2024",
    ]
    assert first([*begun, *failed, *(line for unit in lacks for line in unit)]) == 3
    well = [f"| Running md {n} of 90  Thu Feb  8 05:02:4{n} 2024" for n in range(3, 8)]
    assert first([*begun, *failed, *well]) == 0, "these worked"
    assert first([*begun, *failed, *lacks[0], *well[1:]]) == 0, "only one of them failed"
    caught = ["step 1 of 9 finished", "step 2 of 9 finished"]
    for n in (3, 4, 5):
        caught += ["RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", f"step {n} of 9 finished"]
    caught.append("step 6 of 9 finished")
    broken = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert first([*caught, broken]) == len(caught) + 1, "each unit was over when the next error came"
    caught = [line.replace("step", "| Running md").replace(" finished", "") for line in caught]
    assert first([*caught, broken]) == len(caught) + 1, "an error of a known kind may have been caught"
    measured = [[f"step {n} of 90, loss 0.5", "  Unit    5 Error on OPEN: aux.rst"] for n in range(3, 8)]
    assert (
        first(
            [
                "step 1 of 90, loss 0.5",
                "step 2 of 90, loss 0.5",
                *failed,
                *(line for unit in measured for line in unit),
            ]
        )
        > 3
    )


RESTARTED = "2031-07-02 08:01:15,004 - distributed.nanny.memory - WARNING - Worker tcp://10.2.0.9:4312 (pid={}) exceeded 95% memory budget. Restarting..."
GIVEN_UP = "2031-07-02 08:09:15,004 - distributed.scheduler - ERROR - Task ('sum', 3) marked as failed because 4 workers died while trying to run it"


def test_dask_gives_up_a_task_whose_workers_it_had_ended_for_their_memory() -> None:
    ends = [RESTARTED.format(pid) for pid in (70, 71, 72)]
    killed = ["Traceback (most recent call last):", '  File "sum.py", line 7, in <module>', "distributed.scheduler.KilledWorker: Attempted to run task ('sum', 3) on 4 different workers, but all those workers died while running it."]  # fmt: skip
    assert first([*ends, GIVEN_UP, *killed]) == 1
    assert first([ends[0], "worker 71 was lost", GIVEN_UP, *killed]) == 3, "one alone is no series"
    assert first([*ends, *(f"chunk {n}" for n in range(60)), GIVEN_UP, *killed]) == 64, "too far above"
    crashes = [f"distributed.nanny - INFO - Worker process {pid} was killed by signal 7" for pid in (73, 74)]
    assert first([*ends, *crashes, GIVEN_UP]) == 4, "its own workers crashed"
