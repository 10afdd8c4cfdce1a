"""A unit that was tried again with success refutes the error of its first attempt; the same words without that success refute nothing."""

from __future__ import annotations

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

RAISED = ["Traceback (most recent call last):", '  File "pull.py", line 7, in pull', "    go()"]
LOST = [*RAISED, "ConnectionError: no way to the archive"]
DIVIDED = [*RAISED, "ZeroDivisionError: division by zero"]
OOM_STEP = "slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed."
SANITIZER = "==77==ERROR: AddressSanitizer: heap-use-after-free on address 0x6020 at pc 0x55"
QUEUED_AGAIN = "slurmstepd: error: *** JOB 31 ON n4 CANCELLED AT 2031-07-02T08:00:00 DUE TO JOB REQUEUE ***"
STEP_ENDED = "slurmstepd: error: *** STEP 31.2 ON n4 CANCELLED AT 2031-07-02T08:00:00 ***"
DIED = "srun: error: n4: task 3: Segmentation fault (core dumped)"
OTHERS_END = "slurmstepd: error: *** JOB 32 ON n7 CANCELLED AT 2031-07-02T08:00:00 ***"
ACTOR = [
    "grape.errors.ActorError: no answer",
    "\tpid: 31",
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR",
]
NOT_KEPT = "keeper.errors.KeepError: 409 Conflict: the vineyard has changed"
NO_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."
NO_SPACE = "OSError: [Errno 28] No space left on device: '/vine/must.h5'"
REFUSED = "PermissionError: [Errno 13] Permission denied: '/vine/must'"
BAD_READ = "RuntimeError: [Errno 5] Input/output error: '/vine/must'"
LOST_GPU = "RuntimeError: CUDA error: GPU requires reset, uncorrectable ECC error encountered"
NO_KERNEL = "RuntimeError: CUDA error: unspecified launch failure"
NO_PEER = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
TASK_EXIT = "srun: error: n4: task 3: Exited with exit code 1"
NO_DRIVER = "CUDA driver version is insufficient for CUDA runtime version"
NO_INDEX = "[E::open_index] no such index: grape.idx"
RULE = ["rule sort:", "    jobid: 4", NO_INDEX, "Error in rule sort:", "    jobid: 4"]
BUILD = [
    "gyp ERR! build error",
    "gyp ERR! stack Error: `make` failed with exit code: 2",
    "gyp ERR! not ok",
]
WARNED = [
    "31/07/02 08:00:03 WARN Channel: trouble with /10.0.0.7:9",
    "java.io.IOException: Connection reset by peer",
    "\tat a.B.read(B.java:3)",
]


def first(lines: list[str]) -> str:
    """The text of the first cause; empty without one."""
    whole = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert whole == [classify.joblog_json(f) for f in reader.read(lines)], "the sieve hides nothing"
    return next((lines[f["line"] - 1] for f in whole if f["first_cause"]), "")


MENDED: dict[str, list[str]] = {
    "a rule": [*RULE, "Trying to restart job 4.", "Select jobs to execute...", "Finished job 4.", "9 of 9 steps (100%) done"],
    "a queue's task": ["[08:00: INFO/Pool-1] Task mail.send[7a1] retry: Retry in 9s: Lost()", *LOST, "[08:01: INFO/Pool-2] Task mail.send[7a1] succeeded in 2s: None", "bye"],
    "a flow's task": ["08:00 | ERROR | Task run 'pull-0' - Encountered exception:", *LOST, "08:01 | INFO | Task run 'pull-0' - 'AwaitingRetry', will attempt to run again", "08:02 | INFO | Task run 'pull-0' - Finished in state Completed()"],
    "a named step": ['STEP_UP_FOR_RETRY - Execution of step "pull" failed and has requested a retry in 5 seconds.', *LOST, 'STEP_SUCCESS - Finished execution of step "pull" in 2s.', "bye"],
    "an attempt": ["attempt 1", *LOST, "attempt 1 failed, retrying in 5 s", "attempt 2 succeeded", "bye"],
    "after so many attempts": [*LOST, "retrying in 5 s", "copy succeeded after 2 attempts", "bye"],
    "a smaller run": ["trying nx=64", OOM_STEP, "nx=64 does not fit (rc=137), falling back to nx=32", "nx=32 rc=0", "done"],
    "a task of Spark": ["31/07/02 08:00:02 WARN TaskSetManager: Lost task 7.0 in stage 4.0 (TID 3)", *LOST, "31/07/02 08:00:04 INFO TaskSetManager: Starting task 7.1 in stage 4.0", "31/07/02 08:00:05 INFO TaskSetManager: Finished task 7.1 in stage 4.0", "bye"],
    "a traced command": ["+ for i in 1 2", "+ ./pull.sh", *LOST, "+ sleep 60", "+ for i in 1 2", "+ ./pull.sh", "pulled", "+ break", "+ exit 0"],
    "an optional package": [*BUILD, "npm WARN optional SKIPPING OPTIONAL DEPENDENCY: watcher@1 (node_modules/watcher):", "added 3 packages"],
    "the script's own step": ["+ srun ./server &", "+ ./ask", "+ scancel 31.2", STEP_ENDED, "srun: error: n4: task 0: Terminated", "+ wait", "+ ./sum answers/", "7 answers", "+ exit 0"],
    "the job's own wish": ["step 40", "scontrol requeue 31", QUEUED_AGAIN, "== restart count 1 ==", "step 41", "bye"],
    "a model's answer": ["### Prompt 1", "What is this?", "### Completion 1", "It means", *DIVIDED, "that it is zero.", "### Prompt 2", "Why?", "### Completion 2", "Perhaps of", DIED, "### 2 prompts, 2 completions", "saved answers.json"],
    "a pipeline": ["ERROR: [pid 7] Worker Worker(salt=4, host=n4) failed    Sort(part=3)", *DIVIDED, "This progress looks :) because there were failed tasks but they all succeeded in a retry"],
    "a fuzzer": ["INFO: -fork=2: fuzzing in separate process(s)", SANITIZER, "#99: cov: 4", "INFO: exiting: 0 time: 9s", "bye"],
    "a crawler": ["2031-07-02 08:00:00 [scrapy.core.scraper] ERROR: Spider error processing <GET https://a.org/7>", *DIVIDED, "2031-07-02 08:00:01 [scrapy.core.engine] INFO: Spider closed (finished)"],
    "a test left out": ["[ RUN      ] Io.Gpu", NO_DRIVER, "[  SKIPPED ] Io.Gpu (0 ms)", "[  PASSED  ] 3 tests."],
    "a test left out by Go": ["=== RUN   TestGpu", NO_DRIVER, "--- SKIP: TestGpu (0.00s)", "PASS"],
    "a chaos test": ["WARN [2031-07-02 08:00:00] worker 3 - crashed", *WARNED[1:], "Everything looks good! :)"],
    "an action": ["fitted", NOT_KEPT, "retrying the upload of vines", "vines uploaded (part 7)", "bye"],
    "an action by another name": ["fitted", *LOST, "retrying commit with parent 7a1", "pushed to org/vines (commit 8b2)", "bye"],
    "an action for a unit": ["fitted", NOT_KEPT, "retrying update of run 31 in 9 s", "run 31 updated", "bye"],
    "a trial that was restarted": ["08:00 ERROR -- task failed for trial vine_7", *ACTOR, "08:00 INFO -- Trial vine_7 will be restarted from step 9 (attempt 1 of 3)", "Trial vine_7 completed after 9 steps", "bye"],
    "a trial that was restored": ["Trial vine_7 errored after 3 steps.", "grape.TaskError(OutOfMemoryError): fit() (pid=31)", NO_MEMORY, "08:00 INFO tune.py:3 -- Restoring trial vine_7 (attempt 1/3)", "Trial vine_7 completed after 9 steps", "bye"],
    "a JVM's warning": [*WARNED, "31/07/02 08:00:04 INFO Main: written"],
}  # fmt: skip

FAILED: dict[str, tuple[list[str], str]] = {
    "the rule failed again": ([*RULE, "Trying to restart job 4.", "Finished job 3.", *RULE, "Exiting because a job execution failed."], NO_INDEX),
    "another task succeeded": (["[08:00: INFO/Pool-1] Task mail.send[7a1] retry: Retry in 9s: Lost()", *LOST, "[08:01: INFO/Pool-2] Task mail.send[8b2] succeeded in 2s: None"], LOST[-1]),
    "the flow's task failed": (["08:00 | ERROR | Task run 'pull-0' - Encountered exception:", *LOST, "08:01 | INFO | Task run 'pull-0' - 'AwaitingRetry', will attempt to run again", "08:02 | ERROR | Task run 'pull-0' - Finished in state Failed('x')"], LOST[-1]),
    "a later task failed": ([*LOST, "task 'pull' failed, retrying", "task 'pull' finished", *DIVIDED], DIVIDED[-1]),
    "it gave up": (["ERROR: part 7: Connection refused", "retrying part 7 (attempt 2/2)", "ERROR: part 7: Connection refused", "giving up after 2 attempts", "all done"], "ERROR: part 7: Connection refused"),
    "the smaller run failed, too": (["trying nx=64", OOM_STEP, "nx=64 does not fit (rc=137), falling back to nx=32", "nx=32 rc=137", "done"], OOM_STEP),
    "the end of the whole job": ([*LOST, "retrying pull of run 7", *LOST, "Job completed successfully"], LOST[-1]),
    "the traced command failed again": (["+ ./pull.sh", *LOST, "+ sleep 60", "+ ./pull.sh", *LOST, "+ sleep 60", "+ ./use.sh", "+ exit 1"], LOST[-1]),
    "the traced command is the next one of a list": (["+ for s in 1 2 3", "+ ./fit", *DIVIDED, "+ for s in 1 2 3", "+ ./fit", "loss 0.3", "+ for s in 1 2 3", "+ ./fit", "loss 0.2", "+ exit 0"], DIVIDED[-1]),
    "an error above the unit": ([*DIVIDED, *(f"prepared grid {n * n}" for n in range(12)), *RULE, "Trying to restart job 4.", "Finished job 4.", "bye"], DIVIDED[-1]),
    "several shells trace alike": (["+ ./solve", "+ ./solve", *DIVIDED, "+ ./plot", "plotted"], DIVIDED[-1]),
    "an error above an optional package": ([*DIVIDED, "> watcher@1 install", *BUILD, "npm WARN optional SKIPPING OPTIONAL DEPENDENCY: watcher@1", "added 3 packages"], DIVIDED[-1]),
    "the last attempt only ended": (["attempt 1", *LOST, "attempt 1 failed, retrying in 5 s", "attempt 2 finished", "no attempt worked"], LOST[-1]),
    "the package is needed": ([*BUILD, "npm ERR! code ELIFECYCLE"], "npm ERR! code ELIFECYCLE"),
    "a script that watches its step": (["+ srun ./solve &", "+ scancel 31.2", STEP_ENDED, "+ echo stalled", "stalled", "+ exit 1"], STEP_ENDED),
    "another step was ended": (["+ scancel 31.1", STEP_ENDED, "+ exit 1"], STEP_ENDED),
    "queued again by someone else": (["step 40", QUEUED_AGAIN, "== restart count 1 ==", "bye"], QUEUED_AGAIN),
    "queued again and failed": (["step 40", "scontrol requeue 31", QUEUED_AGAIN, "== restart count 1 ==", *DIVIDED], DIVIDED[-1]),
    "the program died in the answer": (["### Prompt 1", "What?", "### Completion 1", "It means", *DIVIDED], DIVIDED[-1]),
    "the program died after it": (["### Prompt 1", "What?", "### Completion 1", "Much.", "### Prompt 2", "Why?", *DIVIDED], DIVIDED[-1]),
    "the fuzzer found an end": (["INFO: -fork=2: fuzzing in separate process(s)", SANITIZER, "INFO: exiting: 77 time: 9s"], SANITIZER),
    "the crawler was ended": ([*DIVIDED, "2031-07-02 08:00:01 [scrapy.core.engine] INFO: Spider closed (shutdown)"], DIVIDED[-1]),
    "the test failed": (["[ RUN      ] Io.Gpu", NO_DRIVER, "[  FAILED  ] Io.Gpu (0 ms)", "[  SKIPPED ] 1 test, listed below:"], NO_DRIVER),
    "the action failed again": (["fitted", NOT_KEPT, "retrying the upload", NOT_KEPT, "giving up"], NOT_KEPT),
    "the action was done for something else": (["fitted", NOT_KEPT, "retrying upload of vines", "roses uploaded"], NOT_KEPT),
    "an error above the action": ([*DIVIDED, "keeper: busy", "retrying upload of vines", "vines uploaded"], DIVIDED[-1]),
    "an error of other work": ([*DIVIDED, "retrying upload of vines", "vines uploaded"], DIVIDED[-1]),
    "the restarted trial failed": (["08:00 ERROR -- task failed for trial vine_7", *ACTOR, "Trial vine_7 will be restarted from step 9", "Trial vine_7 failed again"], ACTOR[0]),
    "another trial was restored": (["Trial vine_7 errored after 3 steps.", NO_MEMORY, "Restoring trial vine_8 from /ckpt", "Trial vine_8 completed"], NO_MEMORY),
    "the restored trial did not end": (["Trial vine_7 errored after 3 steps.", NO_MEMORY, "08:00 INFO tune.py:3 -- Restoring trial vine_7 (attempt 1/3)", "bye"], NO_MEMORY),
    "a trial was restored on a failed GPU": (["Trial vine_7 errored after 3 steps.", "grape.TaskError: fit() (pid=31)", LOST_GPU, "08:00 INFO tune.py:3 -- Restoring trial vine_7 (attempt 1/3)", "Trial vine_7 completed after 9 steps"], LOST_GPU),
    "a trial was restored on a full disk": (["Trial vine_7 errored after 3 steps.", "grape.TaskError: fit() (pid=31)", NO_SPACE, "08:00 INFO tune.py:3 -- Restoring trial vine_7 (attempt 1/3)", "Trial vine_7 completed after 9 steps"], NO_SPACE),
    "the node of the restored trial was lost": (["Trial vine_7 errored after 3 steps.", NO_MEMORY, "08:00 INFO tune.py:3 -- Restoring trial vine_7 (attempt 1/3)", "Trial vine_7 completed after 9 steps", f"{OTHERS_END[:-4]} DUE TO NODE FAILURE ***"], f"{OTHERS_END[:-4]} DUE TO NODE FAILURE ***"),
    "weights were restored": ([*DIVIDED, "Restoring weights 7", "weights 7 completed"], DIVIDED[-1]),
    "another end, for which the mended error is no reason": (["fitted", "KeepError: failed to upload, HTTP 409", "retrying the upload", "uploaded", TASK_EXIT], TASK_EXIT),
    "a full disk above an upload": ([NO_SPACE, "keeper: retrying upload", "keeper: uploaded 3 vines"], NO_SPACE),
    "a right that is missing": ([REFUSED, "keeper: retrying upload", "keeper: uploaded 3 vines"], REFUSED),
    "a GPU that fails while loading": ([LOST_GPU, "retrying load", "must loaded", TASK_EXIT], LOST_GPU),
    "a file system that fails while loading": ([BAD_READ, "retrying load", "must loaded", TASK_EXIT], BAD_READ),
    "a kernel, by the name of an action": ([NO_KERNEL, "keeper: retrying launch", "launched 8 presses", TASK_EXIT], NO_KERNEL),
    "a peer above an upload": ([NO_PEER, "keeper: retrying upload of vines", "keeper: uploaded vines", TASK_EXIT], NO_PEER),
    "a lost node of a job that the script names": (["grape: scancel 32", f"grape: {OTHERS_END[:-4]} DUE TO NODE FAILURE ***", "grape: cleaning"], f"grape: {OTHERS_END[:-4]} DUE TO NODE FAILURE ***"),
    "a bar above a lost node": (["grape: scancel 32", f" 5%|# | 5/99{OTHERS_END[:-4]} DUE TO NODE FAILURE ***", "grape: cleaning"], f" 5%|# | 5/99{OTHERS_END[:-4]} DUE TO NODE FAILURE ***"),
    "a piece that is measured": (["write failed: /vine/7.tar: [Errno 5] Input/output error", "write: /vine/7.tar 0 MB/s"], "write failed: /vine/7.tar: [Errno 5] Input/output error"),
    "a JVM's error": (["2031-07-02 08:00:00 ERROR [main] App - no start", *WARNED[1:]], WARNED[1]),
}  # fmt: skip


@every("name", MENDED)
def test_a_unit_that_was_tried_again_with_success_failed_nothing(name: str) -> None:
    """And what a harness, a fuzzer or a model prints of errors is its work."""
    assert first(MENDED[name]) == ""


@every("name", FAILED)
def test_an_error_that_nothing_refutes_stays_the_cause(name: str) -> None:
    """Its unit failed again, another unit succeeded, or only the script's last words are good."""
    lines, cause = FAILED[name]
    assert first(lines) == cause
