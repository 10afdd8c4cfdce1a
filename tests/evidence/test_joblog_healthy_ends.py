"""Last lines of runs that went well, and ordinary lines that no family needs to see."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import blocks
from probing_cluster.evidence.joblog import families, reader
from tests.every_case import every

ABOVE = (
    ["loading the data", "epoch 1 loss 0.5", "epoch 2 loss 0.4", "epoch 3 loss 0.35"],
    ["Running on 32 processors", "Reading input file run.in"],
)


def is_cause(*lines: str) -> bool:
    return any(found.first_cause for found in reader.read(list(lines)))


@every(
    "line",
    [
        "[trainer] No improvement for 10 epochs: stopping early",
        "[train] no more batches",
        "[loader] no further shards, leaving the loop",
        "[tune] Failed trials so far: 0",
        "FATAL errors: none",
        "Critical errors: nil",
        "[eval] error 0.031 on the held-out part",
        "[opt] Abort criterion was not met, the full budget was used",
        "2031-05-06 07:08:09,123 - root - INFO - ERROR counter reset",
        "2031-05-06 07:08:09,123 | trainer:run:12 | INFO | ERROR counter reset",
        "2031-05-06 07:08:09,123 main INFO: CRITICAL path takes half of the time",
        "2031-05-06 07:08:09 INFO monitor: ALERT thresholds loaded",
        "12:00:00 main: ALERT level normal",
        "2031-05-06 07:08:09 CRITICAL path length is 12 tasks",
        "3 rows contain NaN and were imputed",
        "NaN detected in gradients, loss scale reduced",
        "column age contains NaN, rows removed",
        "Non-finite values found in 2 cells and masked",
        "Maximum number of function evaluations has been exceeded.",
        "Maximum number of restarts exceeded",
        "=== NUMBER OF STEPS FAILED = 0 ===",
        "*** JOBS ABORTED 0",
        "*** ALL PREVIOUS FAILED runs are listed below",
        "=== TRAINING STOPPED EARLY ===",
        "Validation error: see figures/val.png",
        "Max error: within tolerance",
        "Mesh error: below 1e-6 everywhere",
        "Error checking enabled",
        "Error reporting to stdout",
        "Error logging at /scratch/log.txt",
        "Error decreasing steadily over the last epochs",
        "prog: Error correction active",
        "lmp: ERROR log goes to file",
        "solve.c: Error handling enabled",
        "cudnn not found in the environment",
        "Some values cannot be plotted.",
        "E: Energy is -15.2",
        "Failed trials so far, info: 3",
        "Error estimates: stat = 12",
        "Error norms info = 5",
        "libfabric:7:1701985650::core:core:fi_getinfo_():100<warn> no provider with the highest priority, unable to use efa",
        "CRITICAL:optuna:best trial is 5",
        "exception: none raised",
        "Custom exception: handled by retry",
        "The model has not been saved",
        "The checkpoint was not written because the run is a test",
        "No checkpoint specified, starting from scratch",
        "No seed given",
        "This run does not use mixed precision",
        "These numbers should not be compared with those of release 2",
        "The results are not normalised",
        "The best model must be copied by hand",
        "Your results may not be final",
        "Number of failed trials: 0",
        "All tests passed, none failed",
        "None failed.",
        "Errors: 0",
        "Errors 0, warnings 2",
        "Failures: none",
        "Fatal errors: none",
        "Done. 3 files were skipped because they could not be read.",
        "Missing values were imputed",
        "Missing keys: []",
        "Unexpected keys in the state dict: none",
        "Invalid samples dropped: 4",
        "Failed to improve for 10 epochs, stopping early",
        "Duplicate rows were merged",
        "Not enough improvement, so training stops here",
        "Expected improvement found at x = 0.3",
        "Expected run time was 3 h but it took 2 h",
        "Time to failure",
        "The run ended without failure",
        "iteration 50: tolerance reached, aborting.",
        "Target accuracy not reached in epoch 30, best 0.91",
        "gzip: stdin: decompression OK, trailing garbage ignored",
        "xz: out.xz: 500 MiB in 3 s",
        "zstd: processed 5 files",
        "7z: Everything is Ok",
        "kinit: credentials renewed",
        "umount: /mnt/x unmounted",
        "mount: /scratch is already mounted",
        "config.yaml: line 5: key learning_rate overrides the one above",
        "mesh: 12 x 12 x 12",
        "INFO: optional settings in /etc/tool.conf: No such file or directory",
        "Summary: failed runs are listed in failed.txt",
        "Unable to improve the bound any further",
        "Aborted trials will be repeated by the next job",
        "3 of 100 fits were rejected. Their numbers are in rejected.txt",
        "That is not a problem",
        "This is not the final version of the table",
        "[info] failed checks: none",
        "Failed samples are stored in failed.jsonl",
        "Failed: 0 of 100",
        "2 of 200 tasks failed, the others are fine",
        "Missing data: 3.2 percent of all rows",
        "Invalid reads fraction 0.02",
        "Error after correction 0.31",
        "Error for the test set: 0.2",
        "Error, mean and median, are in table 2",
        "Failure analysis written to report.md",
        " Run terminated.",
        "PROGRAM TERMINATED NORMALLY",
        "The simulation stopped normally",
        "Job terminated",
        "Run terminated after 400 histories",
        "Execution stopped",
        "The calculation was terminated at step 12",
        "Stopping ...",
        "Error: none",
        "ERROR: []",
        "Failure modes are clustered in 5 groups",
        "Exception list written",
        "Exceptions: 0",
        "Unexpected events: 12",
        "Unsupported ops run on the CPU",
        "Undefined symbols: none",
        "Cannot find a better solution, returning the best one",
        "Cannot improve further",
        "Aborting early since the target loss is reached",
        "Fatal flaws: none",
        "Panic mode off",
        "Unrecognized tokens were mapped to UNK",
        "The job is not part of an array",
        "All nodes are healthy, none is missing",
        "All pairs were compared; 3 do not match",
        "The parameters are not shared between layers",
        "The file is not compressed",
        "An early stop was not triggered",
        "Only rank 0 writes, others do not",
        "Number of invalid entries: 0",
        "Number of reads not found: 12",
        "Model has no bias, that is not an error",
        "Checking for missing files: none missing",
        "Total failed: 0",
        "WER error: 3.1",
        "Test error: 0.12",
        "Segmentation error: low",
        "Loss does not improve any more",
        "Peak memory was not exceeded",
        "Wall time limit not reached",
        "Solver: error below tolerance",
        "Solver: failed steps 3",
        "max residual: error small",
        "Duplicates removed: 12",
        "Too few samples in class 3: merged with class 2",
        "Wrong predictions: 12",
        "Incorrect answers are in wrong.json",
        "Unexpected improvement at the end",
        "Simulated annealing: no better state found",
        "No GPU found, running on CPU",
        "No errors found.",
        "No files found to delete",
        "No new data found",
        "nothing failed",
        "Some tests were skipped; none failed",
    ],
)  # fmt: skip
def test_the_last_line_of_a_run_that_went_well_is_no_cause(line: str) -> None:
    assert [is_cause(*above, line) for above in ABOVE] == [False, False]


@every(
    "line",
    [
        "[train] No such checkpoint in the folder",
        "[train] failed to bind the port",
        "2031-05-06 07:08:09,123 - root - ERROR - counter store is gone",
        "the loss became NaN",
        "=== OCEAN MODEL FAILED ===",
        "Parser error: line ends in a comment",
        "Validation error: the field rate is required",
        "lmp: ERROR log file is not writable",
        "E: Unable to locate package tool",
        "Failed to invert the matrix, info = 3",
        "Program terminated abnormally",
        "Run stopped with errors",
        "Simulation stopped due to bad density",
        "The job terminated unexpectedly",
        "xz: a.tar.xz: File format not recognized",
        "CRITICAL:pool:worker has crashed",
        "The tag DP is not defined in the header",
        "Unexpected end of file",
        "No reference genome given!",
        "./run: line 3: SHARDS: unbound variable",
    ],
)
def test_an_error_in_the_place_of_an_error_is_one(line: str) -> None:
    assert [is_cause(*above, line) for above in ABOVE] == [True, True]


ORDINARY = (
    "INFO:trainer:step {} loss 0.{} lr 0.0001 grad norm 1.{}",
    "2031-05-06 07:08:09,{} INFO: step {} of {} done",
    "2031-05-06 07:08:09 DEBUG: stat: {} err: 0.{} info: {}",
    "[data] node {} has infinite samples: {} of {}",
    "step {} err=0.{} loss NaN grad NaN lr 0.{}",
    '{{"step": {}, "loss": {{"a": 0.{}}}, "n": {}}}{{}}',
    "LICENSE: Tokenizer {} of part {} at {}",
    "mesh: {} x {} x {}",
    "hash: ab{}cd{} refresh: {}",
    "[trainer] now at iteration {} of {}, no further epochs before {}",
)


def test_ordinary_lines_reach_no_family() -> None:
    lines = [form.format(n, n + 1, n + 2).encode() for n in range(40) for form in ORDINARY]
    hits = blocks.TriggerSieve(families.TRIGGERS).hits(lines)
    assert [lines[hit] for hit in hits] == []


def test_a_neutral_end_below_a_refusal_has_it_as_its_reason() -> None:
    """Without one it says only that the run is over."""
    lines = ["reading the mesh", "cell 3 does not have a valid volume", "The program was stopped."]
    assert [(f.line, f.kind) for f in reader.read(lines) if f.first_cause] == [(2, "program_error")]


@every(("code", "cause"), [("0", []), ("3", [2])])
def test_a_neutral_end_with_a_bad_exit_code_has_a_reason_above_it(code: str, cause: list[int]) -> None:
    lines = ["reading", "[E::hdr_read] the header is not valid", "[10:00:00] the pipeline stopped", "mail sent", "the log is kept", "mail read", f"exit {code}"]  # fmt: skip
    assert [f.line for f in reader.read(lines) if f.first_cause] == cause
    harmless = ["this run does not use a mask", "all fine", f"+ exit {code}"]
    assert not is_cause(*harmless)


@every(
    ("lines", "well"),
    [
        (["step 7", "Detected KeyboardInterrupt, leaving in good order ...", "kept must.7", "exit status: 0"], True),
        (["step 7", "Detected KeyboardInterrupt, leaving in good order ...", "kept must.7", "exit status: 130"], False),
        (["(Press pid=81) *** SIGTERM received at time=1759219301 on cpu 7 ***", "must in out/must.7", "rc=0"], True),
        (["(Press pid=81) *** SIGTERM received at time=1759219301 on cpu 7 ***", "must in out/must.7"], False),
        (["Received SIGTERM, keeping the must", "slurmstepd: error: *** JOB 81 ON n4 CANCELLED AT 2031-07-02T08:00:00 DUE TO PREEMPTION ***", "exit 0"], False),
    ],
)  # fmt: skip
def test_an_end_with_code_0_makes_up_for_a_signal(lines: list[str], *, well: bool) -> None:
    """Slurm's own report of the end stays."""
    assert is_cause("step 6", *lines) != well


def test_a_count_of_no_errors_is_no_reason_of_a_bad_end() -> None:
    lines = ["step 7", "FATAL errors: none", "srun: error: n4: task 0: Exited with exit code 1"]
    assert [found.line for found in reader.read(lines) if found.first_cause] == [3]


CLOSED = [
    "2031-05-06 07:08:09,123 - distributed.batched - INFO - Batched Comm Closed <TCP (closed)>",
    "Traceback (most recent call last):",
    '  File "comm.py", line 9, in write',
    "distributed.comm.core.CommClosedError",
]
UNSUPPORTED = "n1:22:23 [0] misc/nvmlwrap.cc:1 NCCL WARN nvmlDeviceGetP2PStatus(0,1) failed: Not Supported"
ERROR_OF_PART = "[2031-05-06 07:08:09,123] ERROR [Reader id=r1] Commit failed at 9: wrong coordinator."


def test_a_note_of_a_closed_connection_is_no_error() -> None:
    """Dask logs it so at its end; the same exception as an error, or another one below it, counts."""
    assert not is_cause("wrote zones.zarr", *CLOSED, "job finished OK")
    assert is_cause("wrote zones.zarr", CLOSED[0].replace("INFO", "ERROR"), *CLOSED[1:])
    assert is_cause(*CLOSED, *CLOSED[1:3], "MemoryError: no room")


def test_a_communicator_that_is_complete_did_not_need_what_was_not_supported() -> None:
    """Only that of the same process shows it."""
    complete = "[0] NCCL INFO comm 0x5 rank 0 nranks 2 - Init COMPLETE"
    assert not is_cause(UNSUPPORTED, f"n1:22:23 {complete}", "# Avg bus bandwidth    : 71.2")
    assert is_cause(UNSUPPORTED, f"n2:33:34 {complete}")


@every(
    ("lines", "is_cause"),
    [
        (["40 grapes pressed", "rm: cannot remove '/nfs/k/.nfs01': Device or resource busy", "cleaning up was incomplete (ignored)"], False),
        (["40 grapes pressed", "umount: /mnt/k: target is busy.", "left mounted, ignoring"], False),
        (["+ rm -r /dev/shm/k", "rm: cannot remove '/dev/shm/k': Operation not permitted", "+ exit 0"], False),
        (["+ ./press", "[Must] ** Error when pressing grape 7: too dry", "+ exit 0"], True),
        (["40 grapes pressed", "rm: cannot remove '/k': Permission denied", "exit 1"], True),
        (["[E 2031-07-02 08:00:00.123 ServerApp] Uncaught exception in press", "[I 2031-07-02 09:00:00.123 ServerApp] Saving file at /k.ipynb", "[C 2031-07-02 10:00:00.123 ServerApp] received shutdown request via API, stopping", "[I 2031-07-02 10:00:00.223 ServerApp] Kernel shutdown: 7a"], False),
        (["[E 08:00:00.123 NotebookApp] Uncaught exception in press", "[C 10:00:00.123 NotebookApp] received signal 15, stopping"], True),
        (["[E 08:00:00.123 NotebookApp] Uncaught exception in press"], True),
    ],
)  # fmt: skip
def test_what_a_script_or_a_notebook_ended_in_spite_of_is_no_cause(
    lines: list[str], *, is_cause: bool
) -> None:
    """A script ignores what it could not clean up; a notebook's server works until its user ends it."""
    assert any(f.first_cause for f in reader.read(lines)) == is_cause


def test_a_file_command_behind_an_exception_is_no_cause_in_its_place() -> None:
    raised = [
        "Traceback (most recent call last):",
        '  File "press.py", line 3, in <module>',
        "KeyError: 'must'",
    ]
    lines = [
        *raised,
        "rm: cannot remove '/nfs/k/.nfs01': Device or resource busy",
        "cleaning up failed (ignored)",
    ]
    assert [f.line for f in reader.read(lines) if f.first_cause] == [3]


NCCL_WARNS = "n1:22:33 [0] misc/x.cc:7 NCCL WARN"
WARNED_OF = "n1:22:33 [0] graph/xml.cc:7 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found"
BROKEN = "n1:22:33 [0] init.cc:7 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'"
TEST_BEGINS, TEST_RIGHT = "# nThread 1 nGpus 1 minBytes 8", "# Out of bounds values : 0 OK"
TASK_EXIT = "srun: error: n1: task 0: Exited with exit code 1"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        ([TEST_BEGINS, WARNED_OF, "   8   2   float   sum   -1   31.2", TEST_RIGHT], 0),
        ([TEST_BEGINS, WARNED_OF, "   8   2   float   sum   -1   31.2"], 2),
        ([TEST_BEGINS, WARNED_OF, WARNED_OF, TEST_RIGHT], 0),
        ([TEST_BEGINS, WARNED_OF, TEST_BEGINS, TEST_RIGHT], 2),
        ([TEST_BEGINS, WARNED_OF, TEST_RIGHT, TASK_EXIT], 2),
        ([TEST_BEGINS, WARNED_OF, TASK_EXIT, TEST_RIGHT], 2),
        ([TEST_RIGHT, WARNED_OF], 2),
        ([TEST_BEGINS, BROKEN, TEST_RIGHT], 2),
        ([TEST_BEGINS, WARNED_OF.replace("Not Found", "GPU is lost"), TEST_RIGHT], 2),
        (
            [
                TEST_BEGINS,
                f"{NCCL_WARNS} NET/IB : Got completion from peer 10.2.0.4 with status=12 opcode=0 len=0 vendor err 129",
                TEST_RIGHT,
            ],
            2,
        ),
        (
            [
                TEST_BEGINS,
                f"{NCCL_WARNS} Call to ibv_modify_qp failed with error Connection timed out",
                TEST_RIGHT,
            ],
            2,
        ),
        (
            [
                TEST_BEGINS,
                f"{NCCL_WARNS} socketProgress: Call to recv from 10.2.0.4<4312> failed : Connection timed out",
                TEST_RIGHT,
            ],
            2,
        ),
        (
            [
                TEST_BEGINS,
                f"{NCCL_WARNS} NET/OFI Request 0x31 completed with error. RC: 5. Error: Input/output error",
                TEST_RIGHT,
            ],
            2,
        ),
        ([TEST_BEGINS, f"{NCCL_WARNS} HIP failure 'unspecified launch failure'", TEST_RIGHT], 2),
        ([TEST_BEGINS, WARNED_OF, "n1: Test NCCL failure common.cu:31 'internal error'", TEST_RIGHT], 2),
    ],
)
def test_a_test_of_nccl_with_right_values_did_without_what_was_not_found(lines: list[str], line: int) -> None:
    """Not another test, none that ended badly, and no part of the machine that failed."""
    assert [f.line for f in reader.read(lines) if f.first_cause] == ([line] if line else [])


@pytest.mark.parametrize(
    "line",
    [
        "press.py exited with code 3, falling back to nothing",
        "mpiexec: process 3 exited with code 3, ignored",
        "press failed with exit code 3, using older vines instead is impossible",
    ],
)
def test_a_bad_exit_counts_whatever_its_own_line_adds(line: str) -> None:
    """Only later work shows that the program does without it."""
    assert [f.line for f in reader.read(["epoch 1/3", line]) if f.first_cause] == [2]
    assert [f.line for f in reader.read([line, "RuntimeError: no vines"]) if f.first_cause] == [2]


NANNY = "distributed.nanny - {} - Worker process 4312 was killed by unknown signal"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["must pressed", "Training complete", "saved must to a.pt", NANNY.format("INFO")], 0),
        (["step 1 loss 2.0", NANNY.format("WARNING"), "distributed.nanny - WARNING - Restarting worker", *(f"step {n} loss 1.{n}" for n in (2, 3, 4))], 0),
        ([NANNY.format("WARNING"), "distributed.nanny - INFO - Starting worker", "bye"], 1),
        (["step 1/3 done", NANNY.format("WARNING"), NANNY.format("WARNING")], 2),
        (["test_kill ... press process was killed by unknown signal ... ok", "5 passed in 3 s"], 0),
        (["test_kill ... process was killed by unknown signal"], 0),
    ],
)  # fmt: skip
def test_dask_outlives_a_worker_that_ended(lines: list[str], line: int) -> None:
    """Its nannies say so of each worker, also when the work is over."""
    assert [f.line for f in reader.read(lines) if f.first_cause] == ([line] if line else [])


def test_a_part_that_has_again_what_it_lacked_is_no_cause() -> None:
    """Its own report counts, not that of another part, and not if it fails afterwards."""
    back = "[2031-05-06 07:08:10,123] INFO [Reader id=r1] Discovered coordinator n1:9092"
    fatal = "[2031-05-06 07:08:11,123] ERROR [Reader id=r1] Fenced, cannot go on"
    done = "[2031-05-06 07:08:11,123] INFO stop completed"
    assert not is_cause(ERROR_OF_PART, back, done)
    assert is_cause(ERROR_OF_PART, back.replace("r1", "r2"), done)
    assert is_cause(ERROR_OF_PART, back, fatal)
