"""What a script tries again, uses instead or does without caused nothing, once a good end or a result follows; the same failure without that did."""

from __future__ import annotations

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader
from tests.every_case import every

RAISED = ["Traceback (most recent call last):", '  File "grow.py", line 7, in grow', "    go()"]
DIVIDED = [*RAISED, "ZeroDivisionError: division by zero"]
NOT_SENT = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
NO_LAUNCH = [
    "srun: error: Task launch for StepId=31.0 failed on node n4: Socket timed out on send/recv operation",
    "srun: error: Application launch failed: Socket timed out on send/recv operation",
]
NO_IMAGE = (
    "FATAL:   While making image from oci registry: toomanyrequests: You have reached your pull rate limit."
)
PREEMPTED = "slurmstepd: error: *** JOB 31 ON n4 CANCELLED AT 2031-07-02T08:00:00 DUE TO PREEMPTION ***"
OVER_TIME = PREEMPTED.replace("PREEMPTION", "TIME LIMIT")
NODE_LOST = PREEMPTED.replace("PREEMPTION", "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
TASK_EXIT = "srun: error: n4: task 0: Exited with exit code 1"
LATER_END = PREEMPTED.replace("08:", "09:")
FULL = "Lic.TokenError: no token is free -> waiting 30 s (1/9)"
KILLED = "./all.sh: line 8:  4410 Killed                  ./viewer --hidden"
CRASHED = "./all.sh: line 9:  4411 Illegal instruction     (core dumped) ./ask_amx"
NO_SCREEN = ["sketch.cpp: cannot open display", CRASHED.replace("./ask_amx", "sketch out.nc")]
REFUSED = '10.0.0.9:51 - "POST /v1/completions HTTP/1.1" 400 Bad Request'
SERVED = REFUSED.replace("400 Bad Request", "200 OK")
LONG = "ValueError: the prompt has too many tokens"
WORKER = "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 2 (pid: 51) of binary: python"
AGAIN = "torch.distributed.elastic.agent.server.api: [INFO] [default] Worker group FAILED. 3/3 attempts left; will restart worker group"
WELL = "torch.distributed.elastic.agent.server.api: [INFO] [default] worker group successfully finished."
TAR = ["tar: ./a.log: file changed as we read it", "tar: Exiting with failure status due to previous errors"]
TESTS = ["The following tests FAILED:", "\t 31 - grape_sum (Failed)", "Errors while running CTest"]
NO_FIT = "Error in fit(x, start = long, tol = last,  : "
NO_ROOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)"
LOST = [*RAISED, "ConnectionResetError: [Errno 104] Connection reset by peer"]
NOT_LOADED = [
    "08:00 [ERROR] #7 - Download aborted. URI=https://a.example.org/vines.tar.gz",
    "Exception: [A.cc:3] errorCode=3 URI=https://a.example.org/vines.tar.gz",
]
CLOSED = "tornado.iostream.StreamClosedError: Stream is closed"
NO_DAEMON = "[n2:79] PMIX ERROR: PMIX_ERR_LOST_CONNECTION in file client/c.c at line 2"
STEP = "slurmstepd: error: *** STEP 31.1 ON n4 CANCELLED AT 2031-07-02T08:00:00 ***"

NO_DEVICE = "E0702 08:00:00.1 31 cuda_driver.cc:152] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected"
SUBMITIT_WARNS = (
    "submitit WARNING (2031-07-02 08:00:01,004) - Caught signal SIGUSR2 on n4: this job is timed-out."
)
SUBMITIT_ENDS = "submitit INFO (2031-07-02 08:00:10,104) - Job completed successfully"
INTERRUPTED = [*RAISED, "KeyboardInterrupt"]

SURVIVED: dict[str, list[str]] = {
    "a step": [*NO_LAUNCH, "go.sh: step failed, trying again without n4", "z = 0", "go.sh: second step exit code 0"],
    "an optimisation": ["[go] attempt 1", " Error termination via Lnk1e in /opt/g16/l9999.exe", "[go] g16 returned 1, attempt 2: calcall", " Normal termination of Gaussian 16."],
    "twice": [NO_IMAGE, "pull failed, retry in 9 s", NO_IMAGE, "pull failed, retry in 9 s", "INFO:    Creating SIF file...", "bye"],
    "a token": [FULL, FULL, "grapes sorted", "plan written to plan.csv"],
    "workers": [WORKER, AGAIN, "[rank0] loaded", WELL],
    "a preempted start": ["[start 1] anew", "E=-1", PREEMPTED, "[start 2] from rst.1", "E=-2", "bye"],
    "another build": [CRASHED, "AMX not available here, using build avx2", "written grapes/out.star", "exit code 0"],
    "a drawing": [*NO_SCREEN, "sketching skipped (no display)", "wrote out.nc (4 MB)"],
    "a tolerated code": [*TAR, "tar returned 1 (tolerated)", "sent to tape: OK"],
    "known failures": [*TESTS, "1 failure, all in known_failures -> accepted", "status GREEN"],
    "the script's own kill": ["viewer idle, stopping it (kill -9 4410)", KILLED, "grapes: 40 of 40 bunches", "exit 0"],
    "a bad request": [SERVED, LONG, REFUSED, SERVED, "bye"],
    "R goes on": ["> fits <- lapply(f, function(x) try(fit(x)))", NO_FIT, "  no step helps", "> sum(ok)", "[1] 7", "> saveRDS(ok, 'ok.rds')", "> cat('bye')", "bye", "> proc.time()"],
    "R goes on behind other output": ["R is free software", "> a <- try(fit(x))", NO_FIT, "  no step helps", "> sum(ok)", "[1] 7", "> saveRDS(ok, 'ok.rds')", "> cat('bye')", "bye", "> proc.time()"],
    "a search": ["[size] trying batch 8 ... ok", f"[size] trying batch 16 ... {NO_ROOM}", "[size] largest batch: 8", "Results saved to out/grow7"],
    "another reader": ["08:00:01 ERROR grow quick reader failed for field 7, using slow reader", *DIVIDED, "08:00:09 INFO grow index written, exit 0"],
    "a thread's upload": ["Exception in thread Thread-7:", *LOST, "Retrying upload from byte 81 after exception: Resumable", "Operation completed over 1 objects/8 GiB."],
    "another mirror": [*NOT_LOADED, "08:01 [NOTICE] Download complete: /db/vines.tar.gz", "bye"],
    "a closed connection": ["grown.zarr in 8 s", "net.core - INFO - Connection to tcp://10.0.0.7:8 has been closed.", CLOSED, "net.batched - INFO - closed"],
    "a lost daemon": [" total wall time 8 s", NO_DAEMON, " all ranks finalized, exit status 0"],
    "a script's sum": ["expr: syntax error: unexpected argument '0'", "field 7: a=1", "field 7: written f7.txt, ok"],
    "tests": ["  * Installing grape (7.1): Failed", "  * Installing grape (7.1)", "OK"],
    "the CPU, as wanted": [NO_DEVICE, "no GPU, pressing on CPU as requested", "vine 7"],
    "the CPU with hidden GPUs, as wanted": [NO_DEVICE, 'cuda_diagnostics: env: CUDA_VISIBLE_DEVICES=""', NO_DEVICE, "no GPU, pressing on CPU as requested", "vine 7"],
    "the CPU with hidden GPUs": [NO_DEVICE, 'cuda_diagnostics: env: CUDA_VISIBLE_DEVICES=""', "grapes written to must.npz"],
    "all shards": [NO_DEVICE, "pressing on CPU only", "all 31 grapes written"],
    "an interruption": ["step 7", "KeyboardInterrupt caught, keeping the must", *INTERRUPTED, "kept must.7", "clean end, exit code 0"],
    "an interruption below": ["step 7", *INTERRUPTED, "caught KeyboardInterrupt in step 8", "clean exit, code 0"],
    "the time that was up for one of several tasks": ["1: step 7", f"1: {SUBMITIT_WARNS}", "2: step 7", f"1: {SUBMITIT_ENDS}"],
    "the time that was up": ["step 7", SUBMITIT_WARNS, *INTERRUPTED, "interrupted at step 7", "submitit INFO (2031-07-02 08:00:09,3) - must kept", SUBMITIT_ENDS],
    "a numbered run": ["[run 1] on n4", PREEMPTED, "[run 2] on n5", "E=-2", PREEMPTED.replace("08:", "09:"), "[run 3] on n6", "E=-3", "bye"],
    "a lost node": ["== attempt 1 ==", PREEMPTED.replace("PREEMPTION", "NODE FAILURE, SEE SLURMCTLD LOG"), "== attempt 2 ==", "E=-2"],
    "a traced kill": ["must: 0.7 l/s", "+ kill -TERM 4410", "+ wait 4410", KILLED.replace("Killed    ", "Terminated"), "+ exit 0"],
    "a traced SIGKILL": ["must: 0.7 l/s", "+ kill -9 4410", KILLED, "+ exit 0"],
    "a server's step": ["[cli] grapes -> must.json", "trap: stopping it", "srun: forcing job termination", f"[srv] {STEP.replace('31.1', '31.0')}", *(f"[srv] {line}" for line in RAISED[:2]), "[srv] asyncio.exceptions.CancelledError", "trap: gone, exit 0"],
    "a watcher's step": ["[mon] watcher stopping", STEP, "[all.sh] step 31.1 cancelled as planned", "[grow] must pressed ... ok", "[all.sh] exit 0"],
    "an announced helper": ["starting viewer on port 7 (pid 4400), a clock (pid 4410)", "must 7 l", "grape run finished", KILLED, "all.sh: line 9:  4402 Killed                  viewer --port 8", "copying the must", "ok"],
    "a start counted from 0": ["launch #0 on n4", "E=-1", PREEMPTED, "launch #1 on n5", "E=-2"],
    "Slurm's own count": ["E=-1", PREEMPTED.replace("PREEMPTION", "NODE FAILURE, SEE SLURMCTLD LOG"), "again on n5 (SLURM_RESTART_COUNT=1)", "E=-2"],
    "a helper's step": ["grow: done", "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", STEP, "srun: error: n4: task 0: Terminated", "helper stopped, job complete"],
}  # fmt: skip

NAMED: dict[str, tuple[list[str], str]] = {
    "the step failed again": ([*NO_LAUNCH, "go.sh: step failed, trying again", "go.sh: second step exit code 9"], NO_LAUNCH[0]),
    "it gave up": ([NO_IMAGE, "pull failed, retry in 9 s", NO_IMAGE, "job ended with 255"], NO_IMAGE),
    "other work was tried again": ([*DIVIDED, "upload failed, retry 1/3", "sent to tape: OK"], DIVIDED[-1]),
    "only others' workers ended well": ([WORKER, WELL], WORKER),
    "the workers failed again": ([WORKER, AGAIN, WORKER], WORKER),
    "no next start": (["[start 1] anew", "E=-1", PREEMPTED], PREEMPTED),
    "the next start ran out of time": (["[start 1] anew", PREEMPTED, "[start 2] anew", "E=-2", OVER_TIME], OVER_TIME),
    "the next start failed": ([*NO_LAUNCH, "--- start 2 on n5", *DIVIDED], DIVIDED[-1]),
    "the batch job was sent at last": ([NOT_SENT, "go: sbatch failed, retry 1/9", "Submitted batch job 32", *DIVIDED], DIVIDED[-1]),
    "the image was pulled at last": ([NO_IMAGE, "pull failed, retry in 9 s", "INFO:    Creating SIF file...", 'FATAL:   "grape": executable file not found in $PATH'], 'FATAL:   "grape": executable file not found in $PATH'),
    "no token at all": ([FULL, FULL.partition(" ->")[0]], FULL),
    "no other build worked": ([CRASHED, "AMX not available here, using build avx2", "all.sh: build avx2 failed, too"], CRASHED),
    "another part was left out": ([CRASHED, "drawing skipped (no output)", "exit code 132"], CRASHED),
    "another code": ([*TAR, "tar returned 2 (fatal)"], TAR[-1]),
    "one is not known": ([*TESTS, "2 failures, one in known_failures", "status RED"], TESTS[1]),
    "a watchdog's kill": (["no progress, stopping it (kill -9 4410)", KILLED, "exit code 137"], KILLED),
    "the server failed": ([SERVED, LONG, REFUSED.replace("400 Bad Request", "500 Internal Server Error"), "bye"], LONG),
    "R ended": (["> a <- fit(x)", NO_FIT, "  no step helps", "Calls: fit", "Execution halted"], "  no step helps"),
    "R says no more": (["> a <- 1", "> b <- fit(x)", NO_FIT, "  no step helps"], "  no step helps"),
    "the first size": ([f"[size] trying batch 8 ... {NO_ROOM}", "bye"], f"[size] trying batch 8 ... {NO_ROOM}"),
    "the size that was found": (["[size] trying batch 8 ... ok", "[size] trying batch 16 ... ok", NO_ROOM], NO_ROOM),
    "the other reader failed": (["08:00:01 ERROR grow quick reader failed for field 7, using slow reader", *DIVIDED, "08:00:09 ERROR grow slow reader failed"], DIVIDED[-1]),
    "another failure": (["08:00:01 ERROR grow quick reader failed for field 7, using slow reader", "08:00:09 INFO field 7 read", *DIVIDED], DIVIDED[-1]),
    "another file": ([*NOT_LOADED, "08:01 [NOTICE] Download complete: /db/roses.tar.gz", "wrote names to db.txt"], NOT_LOADED[1]),
    "no other mirror": (NOT_LOADED, NOT_LOADED[1]),
    "an open connection": (["net.core - INFO - Connection to tcp://10.0.0.7:8 is open.", CLOSED], CLOSED),
    "a daemon lost in the work": ([NO_DAEMON, "some ranks lost, exit status 1"], NO_DAEMON),
    "the GPU was lost": (["CUDA error: an illegal memory access was encountered", "+ export CUDA_VISIBLE_DEVICES=-1", "grapes written to must.npz"], "CUDA error: an illegal memory access was encountered"),
    "the CPU was not wanted": ([NO_DEVICE, "trying on CPU", "press.py: cannot press on CPU"], NO_DEVICE),
    "the work failed on the CPU": ([NO_DEVICE, "pressing on CPU as requested", *DIVIDED], DIVIDED[-1]),
    "the work failed on the CPU by a signal": ([NO_DEVICE, "running on CPU as requested", CRASHED], CRASHED),
    "an interruption without an end": (["step 7", "KeyboardInterrupt caught, keeping the must", "kept must.7"], "KeyboardInterrupt caught, keeping the must"),
    "an interruption and a bad end": (["step 7", *INTERRUPTED, "caught KeyboardInterrupt", "must written to must.7", "exit code 130"], "KeyboardInterrupt"),
    "no end after the time that was up": (["step 7", SUBMITIT_WARNS, *INTERRUPTED, "must kept"], SUBMITIT_WARNS),
    "a script's words after the time that was up": (["step 7", SUBMITIT_WARNS, *INTERRUPTED, "Job completed successfully"], SUBMITIT_WARNS),
    "another task's good end after the time that was up": (["1: step 7", f"1: {SUBMITIT_WARNS}", f"11: {SUBMITIT_ENDS}", f"2: {SUBMITIT_ENDS}"], f"1: {SUBMITIT_WARNS}"),
    "an error after the time that was up": (["step 7", SUBMITIT_WARNS, "ValueError: no must is kept", SUBMITIT_ENDS], SUBMITIT_WARNS),
    "Slurm's end after all": (["step 7", SUBMITIT_WARNS, *INTERRUPTED, SUBMITIT_ENDS, OVER_TIME], OVER_TIME),
    "a node lost after the time that was up": (["step 7", SUBMITIT_WARNS, SUBMITIT_ENDS, NODE_LOST], NODE_LOST),
    "a failing GPU before the time was up": ([*RAISED, ECC, SUBMITIT_WARNS, SUBMITIT_ENDS], ECC),
    "runs of one job": (["run 1: 0.8", "run 2: 0.7", PREEMPTED, "run 3: 0.9"], PREEMPTED),
    "the last numbered run": (["[run 1] on n4", PREEMPTED, "[run 2] on n5", "E=-2", LATER_END], LATER_END),
    "a check that a helper lives": (["+ kill -0 4410", KILLED, "exit code 137"], KILLED),
    "a step and a bad code": (["[cli] grapes -> must.json", "stopping it", STEP, "exit 137"], STEP),
    "a step that nobody ended": (["grow: vine 4", STEP, "exit 0"], STEP),
    "a server that failed": (["[srv] up", *DIVIDED, "stopping it", STEP, "exit 0"], DIVIDED[-1]),
    "no helper": (["starting viewer (pid 4400)", "must 7 l", "grape run finished", KILLED.replace("viewer --hidden", "sell.py"), "ok"], KILLED.replace("viewer --hidden", "sell.py")),
    "the work in the background": (["launched train.py (pid 4410)", "must 7 l", "grape run finished", KILLED, "ok"], KILLED),
    "a helper in the work": (["starting a viewer (pid 4410)", "step 3 of 9", KILLED, "ok"], KILLED),
    "results counted from 0": (["run 0: 0.8", PREEMPTED, "run 1: 0.9"], PREEMPTED),
    "the first start of several": (["launch #1 on n4", PREEMPTED, "launch #1 of the press"], PREEMPTED),
    "the next start ran out of time, too": (["launch #0 on n4", PREEMPTED, "launch #1 on n5", "E=-2", OVER_TIME], OVER_TIME),
    "a failing GPU above a wanted CPU": ([NO_DEVICE, ECC, "running on CPU as requested"], ECC),
    "a lost GPU and a part on the CPU": ([NO_DEVICE, "Saving vines on CPU as requested", TASK_EXIT], NO_DEVICE),
    "another's SIGKILL": (["+ kill 4410", KILLED, "All 10 vines pressed"], KILLED),
    "a part that ended well after an interruption": (["^C", *INTERRUPTED, "caught KeyboardInterrupt, stopping workers", "worker 1 exited with code 0", TASK_EXIT], "KeyboardInterrupt"),
    "numbered results behind a lost node": (["Segment 1: T=300 K", NODE_LOST, "Segment 2: T=301 K", "Segment 3: T=301 K"], NODE_LOST),
    "what else is numbered": ([PREEMPTED, "Launch 1 ranks done", "Launch 2 ranks done", "bye"], PREEMPTED),
    "a failing GPU that is tolerated": ([ECC, "ECC error: tolerated", "exit code 0"], ECC),
    "the work's step": (["grow: step 4 of 9", STEP, "job complete"], STEP),
    "the whole job": (["grow: done", STEP, STEP.replace("STEP 31.1", "JOB 31")], STEP),
}  # fmt: skip


def first(lines: list[str]) -> str:
    """The text of the first cause; empty without one."""
    whole = list(classify.classify_stream([line.encode() for line in lines], "joblog"))
    assert whole == [classify.joblog_json(f) for f in reader.read(lines)], "the sieve hides nothing"
    return next((lines[f["line"] - 1] for f in whole if f["first_cause"]), "")


@every("name", SURVIVED)
def test_what_the_script_made_up_for_is_no_cause(name: str) -> None:
    """It names the work that failed, and a good end or a result follows."""
    assert first(SURVIVED[name]) == ""


@every("name", NAMED)
def test_a_failure_that_nothing_made_up_for_stays_the_cause(name: str) -> None:
    """The second try failed, other work was tried again, or the second try leaves another failure to name."""
    lines, cause = NAMED[name]
    assert first(lines) == cause


def test_a_programs_own_marks_are_no_prompts_of_r() -> None:
    """Megatron marks its lines so; only a command behind the mark shows a session of R."""
    raised = ["Traceback (most recent call last):", '  File "a.py", line 3, in f', "KeyError: 'lr'"]
    lines = ["> setting up the model ...", *raised, "> compiling the index ...", "> loading the kernels ..."]
    assert [f.message for f in reader.read(lines) if f.first_cause] == ["KeyError: 'lr'"]
