"""Workflow engines, other batch systems, codes of science and headings: the line that says why is the first cause, wherever it stands."""

from __future__ import annotations

import io

import pytest

from probing_cluster.evidence import classify
from tests.every_case import every

STEPS = [f"step {n} loss {9 / n:.3f}" for n in range(1, 9)]
MORE = [f"step {n} loss {9 / n:.3f}" for n in range(9, 40)]
CARRIERS = ('{{"prompt": "{}"}}', "  text: {}", "> {}", "print('{}')", "# {}", 'sample 3: "{}"')
STAMP = "Mar-03 09:12:40.123 [Task monitor] "


def _first(text):
    found = classify.classify_stream(io.BytesIO(f"{text}\n".encode()), "joblog")
    return next((f for f in found if f["first_cause"]), None)


def _nextflow(reason, *errors, head=STAMP + "ERROR nextflow.processor.TaskProcessor - "):
    block = ["", "Command error:", *(f"  {line}" for line in errors)] if errors else []
    return "\n".join([
        f"{head}Error executing process > 'ALIGN (s1)'", "", "Caused by:", f"  {reason}", "", "Command executed:", "", "  align.py s1.fq", "",
        "Command exit status:", "  1", "", "Command output:", "  Iteration 1, logL: -2.1", "  Iteration 2, logL: -1.9", "  Iteration 3, logL: -1.8",
        *block, "", "Work dir:", "  /scratch/work/ab/12", "", "Tip: look into `.command.err`", *(f"{STAMP}DEBUG nextflow.Session - barrier {c}" for c in "abcdef"),
    ])  # fmt: skip


ENDED = "Process `ALIGN (s1)` terminated with an error exit status (1)"


@pytest.mark.parametrize("head", [STAMP + "ERROR nextflow.processor.TaskProcessor - ", "ERROR ~ "])
@pytest.mark.parametrize(
    ("reason", "errors", "words", "kind"),
    [
        (ENDED, [".command.sh: line 2: align.py: command not found"], "align.py: command", "command_not_found"),
        (ENDED, ['  File "align.py", line 3', "    print x", "          ^", "SyntaxError: invalid syntax"], "SyntaxError", "python_exception"),
        (ENDED, ["Traceback (most recent call last):", '  File "align.py", line 3, in <module>', "    f(x)", "KeyError: 's1'"], "KeyError", "python_exception"),
        (ENDED, ["Error in library(DESeq2) : there is no package called 'DESeq2'", "Execution halted"], "DESeq2", "program_error"),
        ("Missing output file(s) `s1.bam` expected by process `ALIGN (s1)`", [], "Missing output", "program_error"),
        ("No such variable: genome", [], "No such variable", "program_error"),
        ("Failed to submit process to grid scheduler for execution", [], "Failed to submit", "program_error"),
        (ENDED.replace("(1)", "(137)").replace("ALIGN (137)", "ALIGN (s1)"), [], "exit status (137)", "oom_kill_suspected"),
    ],
)  # fmt: skip
def test_what_the_step_printed_comes_before_what_nextflow_says(head, reason, errors, words, kind):
    """The reason is the step's own error where Nextflow repeats it, else its `Caused by:`."""
    text = _nextflow(reason, *errors, head=head)
    found = _first(text)
    assert words in text.split("\n")[found["line"] - 1]
    if kind != "oom_kill_suspected":
        assert found["kind"] == kind


def test_a_step_that_nextflow_tries_again_is_no_cause():
    """It notes the failure and goes on."""
    note = (
        f"{STAMP}INFO  nextflow.processor.TaskProcessor - [ab/12] NOTE: {ENDED} -- Execution is retried (1)"
    )
    assert _first("\n".join([note, f"{STAMP}INFO  nextflow.Session - all done"])) is None


HEADINGS = [
    ("Fatal error:", "There are 3 atoms outside the box"),
    ("--- !ERROR", "src_file: m_geo.F90\nsrc_line: 17\nmpi_rank: 0\nmessage: |\n    `natom` must be positive"),
    ("-------------- FATAL CALLED ---------------", "FATAL CALLED FROM FILE:  <stdin>  LINE:   88\n namelist time_control not found"),
    ("************ FATAL ERROR ************", "*** The mesh has no cells"),
    ("ERROR:", "\nthe k-point grid does not match"),
    ("Charm++ fatal error:", "Reason: patches do not fit"),
    (STAMP + "ERROR nextflow.cli.Launcher - @unknown", "groovy.lang.MissingMethodException: No signature of method: Foo.bar()"),
    ("* What went wrong:", "Execution failed for task ':compile'."),
]  # fmt: skip


@every(("head", "rest"), HEADINGS)
def test_the_sentence_below_a_heading_is_the_cause(head, rest):
    """A heading alone on its line says nothing; where it happened is passed over."""
    lines = rest.split("\n")
    found = _first("\n".join([*STEPS, head, *lines]))
    assert (found["kind"], found["line"]) == ("program_error", len(STEPS) + 1 + len(lines))
    assert _first("\n".join([*STEPS, head, *lines, *MORE])) is None


CRASHES = [
    ("Program received signal 11 (SIGSEGV): Segmentation fault.", "segfault"),
    ("*** SIGSEGV (@0x18) received by PID 77 (TID 0x7f1) from PID 24; stack trace: ***", "segfault"),
    ("W1212 04:02:33.403934 24044 init.cc:205] *** SIGSEGV (@0x18) received by PID 77 (TID 0x7f1) from PID 24; stack trace: ***", "segfault"),
    ("*** SIGABRT received at time=1700000000 on cpu 3 ***", "process_aborted"),
    ("*** Break *** segmentation violation", "segfault"),
    ("SIGSEGV: segmentation violation", "segfault"),
    ("forrtl: error (78): process killed (SIGTERM)", "process_terminated"),
    ("SIGFPE signal (floating point exception) intercepted!", "process_crashed"),
    ("_pmiu_daemon(SIGCHLD): [NID 00017] [c0-0c0s4n1] [Mon Mar  3 09:12:40 2025] PE RANK 12 exit signal Segmentation fault", "segfault"),
    ("x1002c0s3b0n1.hsn.cm: rank 3 died from signal 9", "oom_kill_suspected"),
    ("ERROR:  One or more process (first noticed rank 5) terminated with signal 7", "bus_error"),
    ("Exited with exit code 139.", "segfault"),
    ("[NID 00017] 2025-03-03 09:12:40 Apid 99: OOM killer terminated this process.", "host_oom_kill"),
    ("Error: Remote JSM server is not responding on host n17", "peer_lost"),
    ("Terminated", "process_terminated"),
    ("reading frames:  20% (117/558) [##      ] eta 1:02:03 |Terminated", "process_terminated"),
]  # fmt: skip


@every(("line", "kind"), CRASHES)
def test_how_a_process_ended_in_the_words_of_others(line, kind):
    """Crash handlers, other batch systems and their launchers."""
    found = _first("\n".join([*STEPS, line]))
    assert (found["kind"], found["line"]) == (kind, len(STEPS) + 1)


STOPS = [
    "FATAL from PE    12: mpp_domains: no compute domain",
    "EXITING because of FATAL INPUT ERROR: unknown parameter --foo",
    "A USER ERROR has occurred: Couldn't read file s1.bam",
    "Error EDDDAV: Call to ZHEGV failed. Returncode = 8",
    "LAPACK: Routine ZPOTRF failed! 1",
    "BLAST Database error: No alias or index file found for nucleotide database [nt]",
    "Unrecognized function or variable 'foo'.",
    "run.rb:12:in `load': undefined method `size' for nil:NilClass (NoMethodError)",
    "PHP Fatal error:  Uncaught Error: Call to undefined function f()",
    "Fatal error: exception Not_found",
    "configure: error: no acceptable C compiler found in $PATH",
    "ORA-12541: TNS:no listener",
    "Fatal error in PMPI_Recv: Message truncated, error stack:",
    "Invalid tag, error stack:",
    "MPICH ERROR [Rank 3] [job id 7.0] [Mon Mar  3 09:12:40 2025] [n17] - Abort(1) (rank 3 in comm 0): Fatal error in PMPI_Send: Invalid rank, error stack:",
    "Process `A:B` declares 3 input channels but 2 were specified",
    "MissingInputException in rule all in file /w/Snakefile, line 3:",
    "Broken DAG: [/dags/a.py] invalid syntax",
]


@every("line", STOPS)
def test_codes_and_engines_say_why_they_stop(line):
    """With or without an exit behind it; what was survived, or is only spoken of, is none."""
    for end in ([], ["srun: error: n1: task 0: Exited with exit code 1"]):
        found = _first("\n".join([*STEPS, line, *end]))
        assert (found["kind"], found["line"]) == ("program_error", len(STEPS) + 1)
    assert _first("\n".join([*STEPS, line, *MORE])) is None
    for carrier in CARRIERS:
        assert _first("\n".join([*STEPS, carrier.format(line)])) is None


@every(
    ("text", "line", "kind"),
    [
        ("ssh: connect to host n17 port 22: No route to host\n------\nORTE was unable to reliably start one or more daemons.", 1, "program_error"),
        ("mpiexec was unable to launch the specified application as it could not access\nor execute an executable:", 1, "slurm_launch_failed"),
        ("Error allocating 1024 bytes of device memory (out of memory). Driver report 7 bytes free", 1, "cuda_oom"),
        ("mtl_ofi.h:101: Error returned from fi_cq_readerr: Resource temporarily unavailable(-11).", 1, "net_ib_error"),
        ("MPICH ERROR [Rank 3] [job id 7.0] [Mon Mar  3 09:12:40 2025] [n17] - Abort(1) (rank 3 in comm 0): Fatal error in PMPI_Wait: Other MPI error, error stack:", 1, "process_aborted"),
        ("/e/torch/cuda/__init__.py:182: UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nNotImplementedError: this needs a GPU", 1, "cuda_unknown_error"),
        ("[n3:7] *** An error occurred in MPI_Reduce\n[n3:7] *** MPI_ERR_OTHER: known error not in list\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2025-01-02T03:04:05 ***\nsrun: error: n1: tasks 0-9: Killed", 1, "process_aborted"),
        ("[n3:7] *** An error occurred in MPI_Recv\n[n3:7] *** MPI_ERR_TRUNCATE: message truncated", 2, "program_error"),
        ("[n3][[0,0],1108][btl_tcp_endpoint.c:730:mca_btl_tcp_endpoint_start_connect] bind on local address (10.6.4.3:0) failed: Address already in use (98)\n[n3:7] *** An error occurred in MPI_Isend", 1, "program_error"),
        ("terminate called after throwing an instance of 'std::runtime_error'\n" * 3 + "  what():  [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1800907 milliseconds before timing out.", 4, "watchdog_timeout"),
        ("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  St9bad_alloc", 1, "host_memory_error"),
        ("run.sh: line 3:    12 Aborted                 (core dumped) ./a\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL error: unhandled system error, NCCL version 2.10.3", 1, "process_aborted"),
        ("free(): invalid pointer\nterminate called after throwing an instance of 'std::runtime_error'\n  what():  NCCL error: unhandled system error, NCCL version 2.10.3", 1, "memory_corruption"),
        ("[[41,1],7][btl_openib_component.c:3540:poll_device] error polling HP CQ with -2 errno says Device or resource busy", 1, "net_ib_error"),
        ("The InfiniBand retry count between two MPI processes has been\nexceeded.  \"Retry count\" is defined in the InfiniBand spec 1.2", 1, "net_ib_error"),
        ("[0,1,6][btl_openib_component.c:1375]\nfrom n14 to: n40 error polling HP CQ with status\nRETRY EXCEEDED ERROR status number 12 for wr_id 136 opcode 1", 3, "net_ib_error"),
        ("MPIDI_OFI_handle_cq_error(1133): OFI poll failed (ofi_events.c:1133:MPIDI_OFI_handle_cq_error:Transport endpoint is not connected)", 1, "peer_lost"),
        ("MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD\nwith errorcode -1.\n--------\nPMI_Abort: (0) N/A\nnumber of blocks does not match the number of processors", 5, "program_error"),
        ("NODE 0: no room for lattice\ntermination: Tue Apr 27 23:41:44 2010\n\nTermination: node 0, status = 1\n--------\nMPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD", 1, "program_error"),
        ("srun: error: fwd_tree_thread: can't find address for host n7, check slurm.conf\nsrun: error: Task launch for 7.0 failed on node n7: Can't find an address, check slurm.conf", 1, "slurm_launch_failed"),
        ("[lib]backend.cpp:801: Server::Connect:\n  Assertion `h.type == Kind::Endpoint' failed.\nRuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer", 2, "program_error"),
        ("Fatal Python error: PyThreadState_Get: the function must be called with the GIL held\nTraceback (most recent call last):\n  File \"u.py\", line 9, in f\n    g()\nRuntimeError: [/p/third_party/gloo/gloo/transport/tcp/pair.cc:534]\nConnection closed by peer [127.0.0.1]:58054", 1, "process_crashed"),
        ("m.f90:20:8:\n\n   20 |   X = 3\n      |   1\nError: Cannot assign to a named constant at (1)\nmake: *** [m.o] Error 1", 5, "program_error"),
        ("libtool: linking\n//opt/bin/x86_64-ar: illegal option -- n\nusage:  ar -d [-TL] archive\nmake: *** [l.a] Error 1", 2, "program_error"),
        ("Read 9 rows\nError in { : task 3 failed - \"object 'variable' not found\"\nCalls: %dopar% -> <Anonymous>\nExecution halted", 2, "program_error"),
        ("Traceback (most recent call last):\n  File \"i.py\", line 9, in f\n    g()\nRuntimeError:\n" + "  #define X 1\n" * 20 + "\nnvrtc: error: invalid value for --gpu-architecture (-arch)", 26, "program_error"),
        ("ray.exceptions.RayTaskError(ValueError): ^[[36mray::Worker.run()^[[39m (pid=9, ip=x)^M\n  File \"w.py\", line 6, in run^M\n    return f()^M\nValueError: not enough values to unpack (expected 22, got 21)^M", 4, "python_exception"),
        ("papermill.exceptions.PapermillExecutionError: \n---------\nKeyError                  Traceback (most recent call last)\nCell In[4], line 5\n----> 5 f()\n\nKeyError: 'lr'", 7, "python_exception"),
    ],
)  # fmt: skip
def test_the_line_that_explains_the_others(text, line, kind):
    """Launchers, device memory, network libraries, notebooks, a GPU that PyTorch warned of."""
    found = _first(text)
    assert (found["line"], found["kind"]) == (line, kind)


def test_a_warning_about_gpus_alone_is_no_cause():
    """Many programs go on without one, or end of something else."""
    warned = "/e/torch/cuda/__init__.py:182: UserWarning: CUDA initialization: CUDA unknown error - this may be due to"
    own = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    f()\nKeyError: 'lr'"
    assert _first("\n".join([warned, *STEPS])) is None
    assert _first("\n".join([warned, *STEPS, own]))["kind"] == "python_exception"


LAST = [
    "frobnicate: cannot place cell (2, 3)",
    "Aborting: negative density in cell (3, 4)",
    "solver(3): invalid boundary patch 'inlet'",
    "Illegal value for parameter NPX in the namelist",
    "the restart file is corrupt",
]


@every("line", LAST)
def test_an_error_shaped_end_is_the_last_resort(line):
    """Where no family knows a line, and only at the very end; no log that went on or ended well has one."""
    before = ["setting up the grid", "reading the mesh"]
    found = _first("\n".join([*before, line, "", "-----"]))
    assert (found["kind"], found["line"], found["domains"]) == ("program_error", 3, ["user_program"])
    for behind in (["Run completed successfully."], MORE, [f"writing part {c}" for c in "abcdef"]):
        assert _first("\n".join([*before, line, *behind])) is None
    for carrier in CARRIERS:
        assert _first("\n".join([*before, carrier.format(line)])) is None


@every("line", ["error: 0.0123", "Failed tests: 0", "Error rate 0.3 on dev", "no errors found", "validation error = 0.1"])  # fmt: skip
def test_numbers_called_errors_end_no_log(line):
    """A metric, a count of none."""
    assert _first(f"setting up the grid\n{line}") is None


def test_a_workers_label_is_taken_off_and_its_rank_kept():
    """vLLM's, in front of its logger's date: the engine's own word of the end only points back at it."""
    worker = "(VllmWorker rank=1 pid=213) ERROR 07-09 00:57:28 [executor.py:487] "
    words = ["Traceback (most recent call last):", '  File "/x/executor.py", line 461, in main', "    f()", "RuntimeError: The size of tensor a (1280) must match the size of tensor b (2560)"]  # fmt: skip
    engine = "ERROR 07-09 00:57:30 [core.py:586] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause."
    found = _first("\n".join([*(worker + line for line in words), engine]))
    assert (found["kind"], found["line"], found["rank"]) == ("python_exception", 4, 1)


def test_a_limit_on_watches_is_no_full_disk():
    """inotify counts them: UCX says so in every rank of runs that end well."""
    words = "[1724685304.167173] [n1:102320:f]  vfs_fuse.c:281  UCX  ERROR inotify_add_watch(/tmp) failed: No space left on device"
    assert _first("\n".join([*STEPS, words, *MORE])) is None
    assert _first("\n".join([*STEPS, "OSError: [Errno 28] No space left on device"]))["kind"] == "disk_full"


@every("end", ["make: *** [all] Error 1", "ninja: build stopped: subcommand failed.", "Execution halted"])
def test_what_runs_other_programs_is_ended_by_what_they_say(end):
    """In words that no family knows, right in front of it; of a step that said nothing the runner's own word stays."""
    words = "frob: the mesh of part 7 is not allowed to overlap"
    found = _first("\n".join([*STEPS, words, "usage: frob MESH", "\t-x  do not", end]))
    assert (found["kind"], found["line"]) == ("program_error", len(STEPS) + 1)
    assert _first("\n".join([*STEPS, "reading part 7", end]))["line"] == len(STEPS) + 2


@every("label", ["(worker-3@gpu07) ", "(Rank 3 of 8): ", "(trainer 12, node n4) "])
def test_a_label_in_parentheses_is_learned(label):
    """Whatever it says: it stands in front of every line, and forms begin where a message begins."""
    for line in STOPS[-4:]:
        found = _first("\n".join(label + text for text in [*STEPS, line, "bye"]))
        assert (found["kind"], found["line"]) == ("program_error", len(STEPS) + 1)


SPARK = "24/05/01 10:00:00 ERROR Executor: Exception in task 3.0 in stage 1.0 (TID 4)"
LOST = ": org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 3.0 (TID 4): org.apache.spark.api.python.PythonException: Traceback (most recent call last):"


@every(
    ("lines", "line"),
    [
        ([SPARK, "py4j.protocol.Py4JJavaError: An error occurred while calling o8.collect.", LOST, '  File "a.py", line 3, in f', "KeyError: 'x'"], 5),
        ([SPARK, "java.io.IOException: No space left on device"], 2),
        (["npm ERR! code 1", "npm ERR! path /srv/x", "npm ERR! make: cc: Command not found", "sh: 1: app: not found"], 3),
        (["npm ERR! code 1", "npm ERR! path /srv/x"], 1),
        (["part 3: ORA-01653: unable to extend table A.B by 8 in tablespace T", 'ORA-06512: at "A.LOAD", line 2'], 1),
        (["2025-01-01 10:00:00.001 wdl.w:g.t:call-a.stderr [E::open] no index", '2025-01-01 10:00:01.001 wdl.w:g.t:call-a ERROR task a failed :: error: "CommandFailed"'], 1),
        (['2025-01-01 10:00:01.001 wdl.w:g.t:call-a ERROR task a failed :: error: "CommandFailed"'], 1),
        (["ERROR ~ Error executing process > 'A'", "", "Caused by:", "  Missing output file(s) `*.b` expected by process `A`", "", "Command error:", "  .command.sh: line 2: prog: command not found"], 7),
        (["ERROR ~ Error executing process > 'A'", "", "Caused by:", "  Missing output file(s) `*.b` expected by process `A`"], 4),
        (["PLANTE: PROGRAM STOPPED AFTER AN ERROR", "Traceback (most recent call last):", '  File "t.py", line 3, in f', "utils.TelemacException: ", "Fail to run", "/usr/bin/mpiexec ./out"], 1),
        (["Traceback (most recent call last):", '  File "a.py", line 3, in f', "errors.InvalidArgumentError: Graph execution error:", "", "Detected at node d/MatMul", "INVALID_ARGUMENT: sizes differ"], 6),
        (["sha256sum: WARNING: 1 computed checksum did NOT match", "stopping"], 1),
    ],
)  # fmt: skip
def test_what_only_passes_an_error_on_gives_way_to_it(lines, line):
    assert _first("\n".join([*STEPS, *lines]))["line"] == len(STEPS) + line


@every(
    "lines",
    [
        [SPARK, "24/05/01 10:00:01 INFO TaskSetManager: Finished task 3.1 in stage 1.0 (TID 5)"],
        ["part 3: ORA-00060: deadlock detected, retry 1", "part 3: ok"],
        ["ERROR1: 0.034", "ERROR2: 0.021"],
    ],
)
def test_what_is_tried_again_or_measured_is_no_cause(lines):
    assert _first("\n".join([*STEPS, *lines])) is None
