"""What a batch script outlived is no first cause; workflow managers, TensorFlow, Rust and MPI say why in their own words."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from tests.every_case import every

HELPER = (
    'Traceback (most recent call last):\n  File "/sw/site/bin/pick_tree.py", line 8, in <module>\n    name = os.uname_release()\n'
    "AttributeError: module 'os' has no attribute 'uname_release'\n"
)
WENT_ON = HELPER + "cp: cannot stat 'old.chk': No such file or directory\n"
JOB_CANCELLED = "slurmstepd: error: *** JOB 77 ON n4 CANCELLED AT 2026-01-02T03:04:05 ***"
STEP_CANCELLED = "slurmstepd: error: *** STEP 77.0 ON n4 CANCELLED AT 2026-01-02T03:04:05 ***"
EXITED = "srun: error: n4: task 0: Exited with exit code 1"
LOADER = "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Terminated. "
PMI = "Abort(1615247) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\nMPIR_Init_thread(178): \nMPID_Init(1400)......: \n"
DEAD_ACTOR = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR\n"

PIP = (
    "  error: subprocess-exited-with-error\n  × python setup.py egg_info did not run successfully.\n  │ exit code: 1\n  ╰─> [4 lines of output]\n"
    '      Traceback (most recent call last):\n        File "<string>", line 2, in <module>\n        File "setup.py", line 9, in <module>\n'
    "      ModuleNotFoundError: No module named 'wheelbarrow'\n      [end of output]\n"
)
WORK = "".join(f"evaluating split {chr(97 + n)}\n" for n in range(9))

FIRST: list[tuple[str, int, str]] = [
    # text, line of the first cause (0: none), its kind
    (WENT_ON + STEP_CANCELLED + "\n" + JOB_CANCELLED, 7, "slurm_cancelled"),
    (WENT_ON + JOB_CANCELLED, 6, "slurm_cancelled"),
    (WENT_ON + "slurmstepd: error: *** JOB 77 ON n4 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***", 6, "slurm_timeout"),
    (WENT_ON + "ERROR: LoadError: BoundsError: attempt to access 4-element Vector{Float64} at index [5]", 6, "program_error"),
    (WENT_ON + "forrtl: severe (174): SIGSEGV, segmentation fault occurred", 4, "python_exception"),
    (WENT_ON + 'ERROR: LoadError: SystemError: opening file "old.chk": No such file or directory', 4, "python_exception"),
    (WENT_ON + EXITED + "\n" + STEP_CANCELLED, 4, "python_exception"),
    (WENT_ON + EXITED + "\n" + JOB_CANCELLED, 4, "python_exception"),
    (WENT_ON, 4, "python_exception"),
    (HELPER + STEP_CANCELLED + "\n" + JOB_CANCELLED, 4, "python_exception"),
    ("".join(f"loading part {chr(97 + n % 26)}\n" for n in range(60)) + WENT_ON + JOB_CANCELLED, 64, "python_exception"),
    ("UnknownError (see above for traceback): Failed to get convolution algorithm. This is probably because cuDNN failed to initialize", 1, "cuda_library_error"),
    ("tensorflow.python.framework.errors_impl.InternalError: Blas xGEMM launch failed : a.shape=[1,2,3]", 1, "cuda_library_error"),
    ("InvalidArgumentError (see above for traceback): Incompatible shapes: [8,4] vs. [8,5]", 1, "python_exception"),
    ("UnavailableError (see above for traceback): OS Error", 0, ""),
    ("2 root error(s) found.\n  (0) INVALID_ARGUMENT:  logits and labels must be broadcastable\n  (1) INVALID_ARGUMENT:  the same", 2, "python_exception"),
    ("  (3) INTERNAL:  NCCL: unhandled system error. Set NCCL_DEBUG=WARN for detail.", 1, "nccl_system_error"),
    ("  (3) INTERNAL:  NCCL: unhandled cuda error. Set NCCL_DEBUG=WARN for detail.", 1, "nccl_unhandled_cuda"),
    ("# FROM IOTK LIBRARY, VERSION 1.2.0\n# UNRECOVERABLE ERROR (ierr=3)\n# ERROR IN: iotk_scan_end (iotk_scan.f90:241)", 2, "program_error"),
    (" internal error in subroutine IBZKPT:\n Tetrahedron method fails", 1, "program_error"),
    ("MissingInputException in line 12 of /w/Snakefile:\nMissing input files for rule map:\nreads/a.fq", 1, "program_error"),
    ("MissingInputException in rule map in file /w/workflow/Snakefile, line 12:\nMissing input files", 1, "program_error"),
    ("WildcardError in line 4 of /w/rules/call.smk:\nWildcards in input files cannot be determined", 1, "program_error"),
    ("NameError in file /w/Snakefile, line 3:\nname 'configg' is not defined", 1, "program_error"),
    ("RuleException:\nCalledProcessError in line 9 of /w/Snakefile:\nsamtools: line 2: ref: unbound variable", 3, "program_error"),
    ("A ValueError in line 3 of the file is what the manual speaks of", 0, ""),
    ("ERROR ~ Error executing process > 'CALL (s1)'\n\nCaused by:\n  Process exceeded running time limit (4h)", 4, "program_error"),
    ("ERROR ~ Error executing process > 'CALL (s1)'\n\nCaused by:\n  Process requirement exceeds available memory -- req: 72 GB; avail: 64 GB", 4, "program_error"),
    ("thread 'worker-3' panicked at src/job.rs:7:9:\nno such column\nError: Custom { kind: Other, error: \"row 8 has no weight\" }", 3, "program_error"),
    ("thread 'worker-3' panicked at src/job.rs:7:9:\nindex out of bounds\nthread 'main' panicked at src/main.rs:3:5:\ncalled `Result::unwrap()` on an `Err` value: Any { .. }", 2, "program_error"),
    ("thread 'worker-3' panicked at src/job.rs:7:9:\nindex out of bounds\nError: JoinError::Panic(Id(4))", 2, "program_error"),
    ("Epoch 0:  9%| 19/214 [00:16<02:46, 1.4it/s][rank: 1] Received SIGTERM: 15\n" + LOADER, 1, "process_terminated"),
    ("[rank: 1] Received SIGTERM: 15\n" + LOADER + "\n" + JOB_CANCELLED, 3, "slurm_cancelled"),
    ("Caught SIGTERM, writing a checkpoint\nsrun: error: n4: task 0: Exited with exit code 143", 1, "process_terminated"),
    ("[rank: 1] Received SIGTERM: 15\nTraceback (most recent call last):\n  File \"t.py\", line 3, in f\n    g()\nKeyError: 'loss'\n" + LOADER, 5, "python_exception"),
    ("server: Received SIGTERM, shutting down", 0, ""),
    (PMI + "MPIR_pmi_init(161)...: PMI2_Job_GetId returned 14", 1, "slurm_launch_failed"),
    (PMI + "MPIDI_OFI_mpi_init_hook(1547): OFI addrinfo() failed", 1, "rendezvous_failed"),
    (DEAD_ACTOR + "what(): thread: Resource temporarily unavailable [system:11]", 2, "program_error"),
    (DEAD_ACTOR + "/bin/sh: fork: Resource temporarily unavailable", 2, "program_error"),
    ("bash: fork: retry: Resource temporarily unavailable\nstep 1 loss 2.5\nstep 2 loss 2.4\nstep 3 loss 2.3", 0, ""),
    (PIP + WORK, 0, ""),
    (PIP + EXITED, 8, "import_error"),
    (PIP + "ERROR: Failed building wheel for barrow", 8, "import_error"),
    (PIP + WORK + "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    g()\nKeyError: 'loss'", 22, "python_exception"),
    ("ERROR: Failed building wheel for barrow\n" + WORK, 0, ""),
    ("ERROR: Failed building wheel for barrow\n" + EXITED, 1, "program_error"),
    ("ls: cannot access out/net.*: No such file or directory\nrm: cannot remove 'out/*': No such file or directory", 0, ""),
    ("mkdir: cannot create directory 'out': File exists", 0, ""),
]  # fmt: skip
FAULTS = (
    "OSError: [Errno 122] Disk quota exceeded",
    "Bus error (core dumped)",
    "CUDA error: uncorrectable ECC error encountered",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0",
    "double free or corruption (!prev)",
)
SETTINGS = (
    '  - match: "{}"',
    "    pattern: {}",
    "  - '{}'",
    'retry_on: ["{}"]',
    '  retry_if = "{}"',
    "  regex: {}",
)


def _first(text):
    return next((f for f in reader.read(text.split("\n")) if f.first_cause), None)


@every(("text", "line", "kind"), FIRST)
def test_the_first_cause(text, line, kind):
    """The line that says why, among what the job outlived before it and what followed from it."""
    found = _first(text)
    assert (found.line, found.kind) == (line, kind) if found else not line


@every("fault", FAULTS)
def test_a_printed_policy_is_no_failure(fault):
    """What a launcher prints of its settings names faults that have not come; the same line alone is one."""
    assert _first(fault) is not None
    for setting in SETTINGS:
        assert (
            _first(f"retry_policy:\n{setting.format(fault)}\n    action: requeue\nall tasks complete") is None
        )


def test_an_mpi_without_its_pmi_is_no_machine():
    """The stack behind the message names the launcher's interface, so the network and the nodes are out of it."""
    assert _first(PMI + "MPIR_pmi_init(112)...: ").domains == ("user_program",)


EPOCHS = [f"Epoch {n}/400: loss=2.{n} acc=0.{n} some more words to fill the line of output" for n in range(1, 401)]  # fmt: skip
ELASTIC = "E0102 10:10:10.1 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 12) of binary: /usr/bin/python"
RESTART = "I0102 10:10:11.1 1 torch/distributed/elastic/agent/server/api.py:877] [default] Worker group FAILED. 3/3 attempts left; will restart worker group"
SHELL = "./run.sh: line 3: 123 Killed                  ./optional"
OWN_WORDS = "validation failed: loss is too high"
EVALUATION = [f"batch {n}/9 accuracy 0.{n}" for n in range(1, 10)]
GLOO = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>', "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.2]:3333"]  # fmt: skip
BUFFERED = EPOCHS[:128]
"""As many steps as a buffer may have held back, and few more."""


@every("exits", [[ELASTIC, RESTART], [SHELL], [SHELL.replace("Killed", "Segmentation fault")]])  # fmt: skip
def test_an_exit_that_others_worked_on_after_is_no_cause(exits):
    """A restarted group of workers, and a script whose helper died: what comes later is the end."""
    over = "slurmstepd: error: *** JOB 77 ON n4 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***"
    assert _first("\n".join([*exits, *EPOCHS, "Training complete"])) is None
    assert _first("\n".join([*exits, *EPOCHS, over])).kind == "slurm_timeout"


@every(
    ("lines", "kind"),
    [
        ([ELASTIC], "task_exit"),
        ([ELASTIC, RESTART, *EPOCHS[:60]], "task_exit"),
        ([ELASTIC, *BUFFERED], "task_exit"),
        ([*EPOCHS[:3], SHELL, *EPOCHS[3:128]], "oom_kill_suspected"),
        ([*EPOCHS[:3], SHELL, *EVALUATION, OWN_WORDS], "oom_kill_suspected"),
        ([SHELL, *EPOCHS[:2], "done"], "oom_kill_suspected"),
        ([SHELL, *EPOCHS[:5], *GLOO], "oom_kill_suspected"),
        ([SHELL, "training failed"], "oom_kill_suspected"),
        (["srun: error: n4: task 0: Exited with exit code 1", *EPOCHS], "task_exit"),
        (["Killed", *EPOCHS], "oom_kill_suspected"),
    ],
)
def test_an_exit_stays_where_little_work_or_other_tasks_followed(lines, kind):
    """Buffers hold back steps from before it, and the tasks of a step need not wait for each other."""
    assert _first("\n".join(lines)).kind == kind


def test_a_restart_of_the_workers_needs_few_steps_as_proof():
    """The launcher itself says that they begin again."""
    assert _first("\n".join([ELASTIC, RESTART, *BUFFERED])) is None


def test_a_cache_that_miopen_does_without_is_no_cause():
    """What MIOpen cannot do without fails the call that follows."""
    cache = (
        "MIOpen Error: /x/sqlite_db.cpp:9: Internal error while accessing SQLite database: database is locked"
    )
    steps = [f"iteration {n}/9 | loss 0.{n}" for n in range(1, 10)]
    raised = "RuntimeError: miopenStatusInternalError"
    frames = ["Traceback (most recent call last):", '  File "a.py", line 5, in <module>', "    f(x)", raised]
    assert _first("\n".join([cache, *steps, "saved"])) is None
    assert _first("\n".join([cache, *frames])).message == raised
    assert _first(cache).kind == "cuda_library_error"


@pytest.mark.parametrize("how", ["Killed", "Terminated", "Segmentation fault"])
@pytest.mark.parametrize("end", ["", "srun: error: n1: task 0: Exited with exit code 1"])
def test_a_helper_that_died_before_the_work_began_is_no_cause(how, end):
    """The script went on: the work that began behind it, and its own last words, are other processes'."""
    helper = SHELL.replace("Killed", how)
    found = _first("\n".join([helper, *EPOCHS[:5], OWN_WORDS, end]))
    assert (found.line, found.kind) == (7, "program_error")


@pytest.mark.parametrize(
    "end",
    ["", "done", "srun: error: n1: task 0: Exited with exit code 3", "cp: cannot stat 'x': No such file or directory", "plot.py: cannot open sim.out: No such file or directory",
     "ERROR: sim.out: no such file"],
)  # fmt: skip
@pytest.mark.parametrize(
    "how",
    ["Killed                  ./simulate > sim.log", "Segmentation fault      (core dumped) ./simulate"],
)
def test_a_step_behind_a_killed_program_takes_no_cause_from_it(how, end):
    """The program wrote to a file of its own, so its work is not in this log."""
    killed = f"slurm_script: line 12: 12345 {how}"
    frames = [f"plotting frame {n}/6" for n in range(1, 7)]
    found = _first("\n".join([killed, *frames, end]))
    assert found is not None
    assert found.line == 1
