"""Errors of launchers and MPI's runtimes about themselves, in the formats of their sources."""

from __future__ import annotations

import pytest

from probing_cluster.core import vocabulary
from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every

_WORK = [
    "Reading input from /scratch/u1/input.dat",
    "step 1 loss 2.31",
    "step 2 loss 2.20",
    "step 3 loss 2.12",
]
_RULE = "-" * 74
_FORTH = ["step 4 loss 2.04", "step 5 loss 2.01", "step 6 loss 1.98", "step 7 loss 1.95", "Done."]


def _first(*lines: str) -> JobFinding | None:
    return next((f for f in reader.read(lines) if f.first_cause), None)


def _cause(*lines: str) -> JobFinding:
    found = _first(*lines)
    assert found is not None
    return found


@every(
    ("line", "domains"),
    [
        ("srun: error: SLURM job 14309532 has expired", ("user_program", "system_software")),
        (
            "srun: error: Unable to confirm allocation for job 60564: Unable to contact slurm controller (connect failure)",
            ("system_software",),
        ),
        ("srun: error: Cannot communicate with node 3.  Aborting job.", ("hardware", "system_software")),
        ("srun: error: pyxis: --container-image: argument required", ("user_program",)),
        ("srun: error: pyxis: mount target must be a relative path or an absolute path", ("user_program",)),
        ("srun: error: Line 3 of configuration file multi.conf is invalid", ("user_program",)),
        ("srun: error: Invalid MPI type 'pmix_v7', --mpi=list for acceptable types", ("user_program",)),
        (
            "slurmstepd: error: Could not open stdout file /home/u1/logs/out.txt: No such file or directory",
            ("user_program",),
        ),
        ("slurmstepd: fatal: failed to initialize credential plugin", ("system_software",)),
        ("sbatch: fatal: Invalid value for --gpus-per-task", ("user_program",)),
    ],
)
def test_an_error_by_which_slurms_commands_end_is_the_cause(line: str, domains: tuple[str, ...]) -> None:
    found = _cause(*_WORK, line)
    assert (found.kind, found.message) == ("slurm_launch_failed", line)
    assert found.domains == domains


@every(
    "line",
    [
        "srun: error: poll: Interrupted system call. Continuing...",
        "srun: error: Timed out waiting for job step to complete",
        "srun: error: eio_handle_mainloop: Abandoning IO 60 secs after job shutdown initiated",
        "srun: error: Ignoring --x11 option for a job step within an existing job. Set x11 options at job allocation time.",
        "srun: warning: can't run 1 processes on 2 nodes, setting nnodes to 1",
        "srun: Step created for StepId=60564.0",
        "srun: debug:  Unable to get file system: Connection refused",
        "slurmstepd: error: couldn't chdir to `/workspace': No such file or directory: going to /tmp instead",
        "slurmstepd: error: TMPDIR [/tmp] is not writeable",
        "slurmstepd: error: Unable to create TMPDIR [/scratch/12]: Permission denied",
        "slurmstepd: error: Setting TMPDIR to /tmp",
        "slurmstepd: error: Failed to send MESSAGE_TASK_EXIT: Connection refused",
        "slurmstepd: error: slurm_send_node_msg: [socket:[2086313]] slurm_bufs_sendto(msg_type=REQUEST_COMPLETE_BATCH_SCRIPT) failed: Unexpected missing socket error",
        "slurmstepd: error: TaskEpilog failed status=1",
        "slurmstepd: error: Unable to rmdir(/sys/fs/cgroup/x), unexpected error: Device or resource busy",
        "slurmstepd: debug2: killing process 12345 (inherited_task) with signal 9",
        "slurmstepd: debug:  unkillable after 60 sec, calling the program",
    ],
)
def test_a_note_of_slurms_commands_is_none(line: str) -> None:
    assert _first(*_WORK, line) is None


def test_a_directory_that_slurm_replaced_is_the_cause_only_of_what_is_missing_there() -> None:
    """The job went on in /tmp; an error of another kind is its own."""
    line = "slurmstepd-n1: error: couldn't chdir to `/work/it's here/run': No such file or directory: going to /tmp instead"
    missed = "python3: can't open file '/tmp/train.py': [Errno 2] No such file or directory"
    found = reader.read([line, missed])
    (moved,) = [f for f in found if f.kind == "directory_replaced"]
    assert (moved.first_cause, moved.host) == (True, "n1")
    assert moved.detail["directory"] == "/work/it's here/run"
    assert moved.detail["why"] == "No such file or directory"
    assert _cause(line, "ValueError: no such mode").message == "ValueError: no such mode"
    assert _first(line, "done") is None


def test_a_complaint_gives_way_to_a_task_that_ran_and_died() -> None:
    found = _cause(
        "slurmstepd: error: task_g_set_affinity: Invalid argument",
        *_WORK[:1],
        "srun: error: n1: task 0: Segmentation fault (core dumped)",
    )
    assert found.kind == "segfault"


def test_a_complaint_after_which_the_job_goes_on_is_none() -> None:
    assert (
        _first("srun: error: Unable to accept new connection: Too many open files", *_WORK, *_FORTH) is None
    )


def test_mpirun_that_lost_its_daemons_gives_way_to_the_reason_that_srun_gives() -> None:
    line = "srun: error: SLURM job 14309532 has expired"
    found = _cause(
        line,
        _RULE,
        "An ORTE daemon has unexpectedly failed after launch and before",
        "communicating back to mpirun. This could be caused by a number",
        "of factors, including an inability to create a connection back",
        _RULE,
    )
    assert found.message == line


@every(
    ("lines", "kind", "domains"),
    [
        (
            [
                "PRTE was unable to open the hostfile:",
                "",
                "    hosts.txt",
                "",
                "Check to make sure the path and filename are correct.",
            ],
            "slurm_launch_failed",
            ("user_program",),
        ),
        (
            [
                "Open MPI has detected that this process has attempted to initialize",
                "MPI (via MPI_INIT or MPI_INIT_THREAD) more than once.  This is",
                "erroneous.",
            ],
            "program_error",
            ("user_program",),
        ),
        (
            [
                "The call to cuMemcpyAsync failed. This is a unrecoverable error and will",
                "cause the program to abort.",
                "  cuMemcpyAsync(0x7f3a1c002e30, 0x7f3a1c002e40, 4096) returned value 700",
                "Check the cuda.h file for what the return value means.",
            ],
            "cuda_error",
            ("user_program", "system_software", "hardware"),
        ),
        (
            [
                "At least one pair of MPI processes are unable to reach each other for",
                "MPI communications.  This means that no Open MPI device has indicated",
                "that it can be used to communicate between these processes.",
            ],
            "rendezvous_failed",
            ("user_program", "system_software", "hardware"),
        ),
        (
            [
                "Some of the requested hosts are not included in the current",
                "allocation.",
                "",
                "The requested hosts could not be found in this hostfile:",
                "      hosts.txt",
            ],
            "slurm_launch_failed",
            ("user_program",),
        ),
    ],
)
def test_a_message_between_two_rules_is_the_cause(
    lines: list[str], kind: str, domains: tuple[str, ...]
) -> None:
    found = _cause(*_WORK, _RULE, *lines, _RULE)
    assert (found.kind, found.line, found.domains) == (kind, len(_WORK) + 2, domains)
    assert found.message.startswith(lines[0])


@every(
    "lines",
    [
        ["WARNING: An invalid value was given for btl_tcp_if_exclude.  This", "value will be ignored."],
        [
            "A system call failed during shared memory initialization that should",
            "not have.  It is likely that your MPI job will now either abort or",
            "experience performance degradation.",
            "  Local host:  n1",
        ],
        [
            "Open MPI was inserting a signal handler for signal 11 but noticed",
            "that there is already a non-default handler installed.  Open MPI's",
            "handler was therefore not installed; your job will continue.",
        ],
        ["Max number of seconds to wait for data to become available"],
        ["epoch      loss     missing    failed to converge"],
    ],
)
def test_a_note_between_two_rules_is_none(lines: list[str]) -> None:
    assert _first(*_WORK, _RULE, *lines, _RULE) is None


def test_a_message_of_the_program_between_two_rules_is_the_programs() -> None:
    """Nothing in it is about processes, hosts or MPI."""
    found = _cause(*_WORK, _RULE, "The input mesh has a cell without volume, the run cannot go on.", _RULE)
    assert (found.kind, found.domains) == ("program_error", ("user_program",))


def test_a_message_between_two_rules_gives_way_to_the_programs_own_error() -> None:
    found = _cause(
        "Traceback (most recent call last):",
        '  File "train.py", line 3, in <module>',
        "ValueError: no such model",
        _RULE,
        "The user-provided time limit for job execution could not be kept; the job is aborted.",
        _RULE,
    )
    assert found.kind == "python_exception"


def test_hydras_own_stack_is_the_cause_if_nothing_else_is() -> None:
    stack = [
        "[mpiexec@n1] HYDU_sock_connect (./lib/utils/sock.c:145): unable to connect from n1 to n2 (Connection refused)",
        "[mpiexec@n1] main (./ui/mpich/mpiexec.c:325): process manager error waiting for completion",
    ]
    found = _cause(*_WORK, *stack)
    assert (found.kind, found.message) == ("slurm_launch_failed", stack[0])
    wrong = "[mpiexec@n1] match_arg (./lib/arg/hydra_arg.c:91): unrecognized argument x"
    found = _cause(wrong, stack[1])
    assert (found.kind, found.domains) == ("program_error", ("user_program",))
    end = "=   KILLED BY SIGNAL: 9 (Killed)"
    assert _cause(*_WORK, *stack, end).kind == "oom_kill_suspected"


_NCCL = "n1:12345:12401 [3] misc/x.cc:123 NCCL WARN "


@every(
    ("text", "kind"),
    [
        ("Internal error : tree already has 3 children (1 2 4)", "nccl_internal_error"),
        ("Error : ring 3 does not contain rank 12", "nccl_internal_error"),
        ("Failed to determine intra proc ranks rank 3 hostHash 1f pidHash 2f", "nccl_internal_error"),
        ("AllReduce : invalid root 9 (root should be in the 0..7 range)", "nccl_invalid_usage"),
        ("Broadcast : buffer allocated on device 3 mismatchs with NCCL device 1", "nccl_invalid_usage"),
    ],
)
def test_a_warning_of_nccl_with_which_a_log_ends_is_the_cause(text: str, kind: str) -> None:
    assert _cause(*_WORK, _NCCL + text).kind == kind
    assert _first(_NCCL + text, *_WORK, *_FORTH) is None


@every(
    "line",
    [
        _NCCL + "NCCL_WORK_FIFO_BYTES=3 is being ignored because it is not a power of 2.",
        _NCCL + "NCCL_NET_MERGE_POLICY: unknown value 'x', defaulting to ALL",
        _NCCL + "Cannot initialize CollNet, using point-to-point network instead",
        _NCCL + "commReclaim: cleanup comm 0x7f rank 3 failed in destroy/abort, error 3",
        "n1:12345:12401 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM failed over",
        "[1764400000.123456] [n1:12345:0]   wireup.c:123  UCX  DIAG  ep 0x7f: failed to send ack: Timed out",
        "[1764400000.123456] [n1:12345:0]   ib_md.c:123  UCX  WARN  ibv_dealloc_pd() failed: Invalid argument",
        "VERBOSE: Could not set lock on squash section 3, underlying filesystem seems to not support lock",
    ],
)
def test_a_note_of_nccl_ucx_and_apptainer_is_none(line: str) -> None:
    assert _first(*_WORK, line) is None


@every(
    ("lines", "kind"),
    [
        (
            [
                "Fatal CUDA Error at hybrid-api.cu:450.",
                "Return value 46 from 'cudaStreamCreate(&s)'.  Exiting.",
            ],
            "cuda_error",
        ),
        (
            [
                "Fatal CUDA Error out of memory at hybrid-api.cu:790.",
                "Return value 2 from 'cudaMallocHost(&p, n)'.  Exiting.",
                "[0] Stack Traceback:",
                "  [0:2] cudaErrorDie+0x5f  [0x61e300]",
            ],
            "cuda_oom",
        ),
        (
            ["(GTL DEBUG: 1) cuIpcOpenMemHandle: invalid argument, CUDA_ERROR_INVALID_VALUE, line no 272"],
            "cuda_error",
        ),
        (["# SWAN : FATAL : Cuda driver error 700 : CUDA_ERROR_ILLEGAL_ADDRESS"], "cuda_illegal_access"),
    ],
)
def test_a_cuda_error_in_the_words_of_charm_cray_mpi_and_acemd_is_the_cause(
    lines: list[str], kind: str
) -> None:
    found = _cause(*_WORK, *lines)
    assert (found.kind, found.message) == (kind, lines[0])


@every(
    "lines",
    [
        ["------- Partition 0 Processor 3 Exiting: Called CmiAbort ------", "Reason: Sent to a dead chare"],
        ["API error (bug):", "Identical or decreasing frame times"],
    ],
)
def test_a_heading_and_its_sentence_are_the_cause(lines: list[str]) -> None:
    found = _cause(*_WORK, *lines)
    assert found.kind == "program_error"
    assert found.message.endswith(lines[1])


_WAITS = "srun: Job {job}step creation temporarily disabled, retrying{why}"
_LIMIT = "slurmstepd: error: *** JOB 4242 ON n1 CANCELLED AT 2024-05-02T10:11:12 DUE TO TIME LIMIT ***"


@pytest.mark.parametrize(
    ("job", "why", "created"),
    [
        ("4242 ", " (Requested nodes are busy)", "srun: Step created for StepId=4242.4"),
        ("", "", "srun: Job step created"),
    ],
)
@pytest.mark.parametrize("n_between", [0, 60])
def test_a_step_that_waits_after_another_that_waited_began_is_one_of_a_turn(
    job: str, why: str, created: str, n_between: int
) -> None:
    """The line of the step that still waits is the one to quote; without `created` above it, no turn is shown."""
    waits = _WAITS.format(job=job, why=why)
    found = _cause("sample 1 done", waits, created, *["sample done"] * n_between, waits, _LIMIT)
    assert (found.kind, found.line) == ("slurm_launch_failed", 4 + n_between)
    assert found.detail[vocabulary.STEPS_TOOK_TURNS] is True
    bare = _cause("sample 1 done", waits, waits, _LIMIT)
    assert (bare.line, vocabulary.STEPS_TOOK_TURNS in bare.detail) == (2, False)
    mentioned = _cause("sample 1 done", waits, f"waiting for '{created}'", waits, _LIMIT)
    assert vocabulary.STEPS_TOOK_TURNS not in mentioned.detail


_LOST = (
    "nb: [1700000000.5] [nb:70:0]  wireup.c:99  UCX  ERROR Error Endpoint timeout was not handled for ep 0x7f"
)


@every(
    ("first", "kind"),
    [
        (["na: wave: grid.c:4: step: Assertion `n > 0' failed.", "na: [na:60] Signal: Aborted (6)"], "program_error"),
        (["na: [na:60] Signal: Aborted (6)"], "process_aborted"),
    ],
)  # fmt: skip
def test_a_host_that_loses_its_peer_explains_no_end_on_another(first: list[str], kind: str) -> None:
    """UCX's own prefix names the host; on one host, the process reports the loss below its abort."""
    found = _cause(*first, _LOST, "nb: [nb:70] Signal: Aborted (6)")
    assert (found.line, found.kind) == (1, kind)
    here = _LOST.replace("nb", "na")
    assert _cause("na: [na:60] Signal: Aborted (6)", here).kind == "peer_lost"


@every(
    ("reason", "domains"),
    [
        ("Bad file descriptor", ("user_program",)),
        ("Broken pipe", ("user_program", "system_software")),
    ],
)
def test_a_pmi_descriptor_that_the_process_does_not_have_is_the_jobs_own_fault(
    reason: str, domains: tuple[str, ...]
) -> None:
    lines = ["[cli_7]: write_line error; fd=9 buf=:cmd=get_appnum", ":", f"system msg for write_line failure : {reason}"]  # fmt: skip
    assert _cause(*_WORK, *lines).domains == domains


@every("command", ["cmd=abort exitcode=1", "cmd=finalize", "cmd=barrier_in", ""])
def test_a_launcher_that_has_gone_at_a_programs_end_is_not_the_jobs_own_fault(command: str) -> None:
    lines = [f"write_line error; fd=12 buf=:{command}", ":", "system msg for write_line failure : Bad file descriptor"]  # fmt: skip
    assert _cause(*_WORK, *lines).domains == ("user_program", "system_software")


def test_open_mpi_without_a_way_between_two_processes_is_named_where_its_message_is_cut() -> None:
    lines = [_RULE, "At least one pair of MPI processes are unable to reach each other for", "MPI communic"]
    assert _cause(*_WORK, *lines).line == len(_WORK) + 2


_BOX = ["=" * 40, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   PID 77 RUNNING AT n4", "=   EXIT CODE: 3", "=" * 40]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "line", "kind"),
    [
        ([], 4, "task_exit"),
        (["Fatal error: no cells in region solid"], 1, "program_error"),
        (["[mpiexec@n4] Sending Ctrl-C to processes as requested", "[mpiexec@n4] Press Ctrl-C again to force abort"], 1, "interrupted"),
    ],
    ids=["alone", "the program's words", "Ctrl-C"],
)  # fmt: skip
def test_the_box_of_mpiexec_about_an_exit_gives_no_reason(before: list[str], line: int, kind: str) -> None:
    found = _cause(*_WORK, *before, *_BOX)
    assert (found.line - len(_WORK), found.kind) == (line, kind)


def test_a_persons_interruption_of_srun_is_found() -> None:
    found = list(reader.read([*_WORK, "^Csrun: sending Ctrl-C to StepId=91.0"]))
    assert [f.kind for f in found] == ["interrupted"]


def test_a_communicator_used_too_early_is_the_cause_whatever_nccl_prints_below() -> None:
    early = "n2:40:40 [2] init.cc:310 NCCL WARN Attempt to use communicator before the previous operation returned ncclSuccess"
    below = [f"n2:40:41 [{n}] NCCL INFO [Service thread] Connection closed by localRank {n}" for n in range(6)]  # fmt: skip
    found = _cause(early, *below)
    assert (found.kind, found.line) == ("nccl_invalid_usage", 1)


def test_a_death_whose_words_a_page_set_bold_is_one() -> None:
    found = _cause(*_WORK, "/var/spool/job7/slurm_script: line 9: 413 **Bus error**   (core dumped) ./solve")
    assert found.kind == "bus_error"


@every(
    "head", ["WARNING: No fast path was found on this node", "Primary job  terminated normally, but one process left"]
)  # fmt: skip
def test_the_rule_that_closes_a_message_opens_no_other(head: str) -> None:
    box = [_RULE, head, "because the kernel does not allow it.", _RULE]
    found = _cause(
        *_WORK, *box, "cycle 12 dt 1e-9 time 3e-6", "rank 7: FATAL: cell 12 has failed", _RULE, "bye"
    )
    assert found.line == len(_WORK) + len(box) + 2


_RESET = "[n1][[331,1],1][btl_tcp_frag.c:241:mca_btl_tcp_frag_recv] mca_btl_tcp_frag_recv: readv failed: Connection reset by peer (104)"
_RECEIVED = "[n1:331] pml_ucx.c:424 Error: Failed to receive: Endpoint timeout"


@pytest.mark.parametrize(
    ("peer", "death", "line"),
    [
        (_RESET, "mpirun noticed that process rank 3 with PID 51 on node n1 exited on signal 9 (Killed).", 2),
        (_RESET, "prterun noticed that process rank 3 with PID 51 on node n1 exited on\nsignal 9 (Killed).", 3),
        (_RESET, "mpirun noticed that process rank 1 with PID 51 on node n1 exited on signal 9 (Killed).", 1),
        (_RESET, "mpirun noticed that process rank 3 with PID 51 on node n1 exited on signal 15 (Terminated).", 1),
        (_RECEIVED, "[n2:51:0:51] Caught signal 7 (Bus error: nonexistent physical address)", 2),
        (_RECEIVED, "[n1:331:0:331] Caught signal 7 (Bus error: nonexistent physical address)", 1),
    ],
    ids=["killed", "killed, on two lines", "the peer itself", "ended in order", "crashed", "crashed after it"],
)  # fmt: skip
def test_a_peer_that_lost_a_connection_gives_way_to_another_that_died(
    peer: str, death: str, line: int
) -> None:
    assert _cause(peer, *death.split("\n")).line == line


def test_a_rank_without_a_device_is_the_cause_of_the_others_wait() -> None:
    waits = "1: jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: Start"
    own = "RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices."
    assert _cause(waits, f"2: {own}").line == 2
    assert _cause(waits, f"1: {own}").line == 1


def test_the_queue_pair_of_ucx_is_no_error_of_its_own() -> None:
    at = "[1700000000.100000] [n1:40:0]    ib_mlx5_log.c:171  UCX  ERROR "
    retry = f"{at}Transport retry count exceeded on mlx5_1:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)"
    pair = f"{at}RC QP 0x1a wqe[8]: SEND s-e [inl len 18]"
    assert _cause(retry, pair).line == 1
    assert _first(*_WORK, pair) is None


def _child(entry: int, rank: int, second: int, code: int = -11) -> list[str]:
    signal = f"Signal {-code} (SIGSEGV) received by PID {500 + rank}" if code < 0 else "<N/A>"
    return [
        f"[{entry}]:",
        f"  time      : 2026-06-21_21:36:{second:02}",
        "  host      : n1",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: {500 + rank})",
        "  error_file: <N/A>",
        f"  traceback : {signal}",
    ]


@pytest.mark.parametrize(("second", "rank"), [(52, 0), (51, 0), (53, 1)])
@pytest.mark.parametrize("code", [-11, 1])
def test_of_two_ends_in_one_second_torchelastics_choice_is_the_first(
    second: int, rank: int, code: int
) -> None:
    root = "Root Cause (first observed failure):"
    lines = ["a.py FAILED", "Failures:", *_child(1, 1, 52, code), root, *_child(0, 0, second, code)]
    assert _cause(*lines).rank == rank


@every(("codes", "kind"), [((-11, -6), "segfault"), ((-6, -11), "process_aborted")])
def test_two_launchers_choices_in_one_second_do_not_compare(codes: tuple[int, int], kind: str) -> None:
    root = "Root Cause (first observed failure):"
    lines = [line for n, code in enumerate(codes) for line in ("a.py FAILED", root, *_child(n, n, 52, code))]
    assert _cause(*lines).kind == kind


def test_a_blank_that_fortran_prints_first_hides_no_label() -> None:
    """A rank that srun labels once ends by the signal that another rank's abort brings."""
    lines = [
        *(f" 0:  Time step: {n}, mean {n * 7}.5" for n in range(1, 6)),
        "17:  FINISH PE: 17 MAXVAL of NAN in w field",
        "17:  ==========================",
        "17:  MPI_ABORT was invoked on rank 17 in communicator MPI COMMUNICATOR 3 DUP FROM 0",
        "17:  with errorcode 1.",
        "16:  forrtl: error (78): process killed (SIGTERM)",
        "16:  Image              PC                Routine            Line        Source",
        "16:  model.exe          00000000011DD0BA  Unknown               Unknown  Unknown",
        "srun: error: n1: tasks 0-16: Terminated",
        "srun: error: n2: task 17: Exited with exit code 1",
    ]
    assert "MAXVAL of NAN" in _cause(*lines).message
    del lines[5]
    assert _cause(*lines).rank == 17


def test_a_program_that_lost_a_peer_ran_without_the_module() -> None:
    module = 'Lmod has detected the following error: The following module(s) are unknown: "htop"'
    exited = "srun: error: n1: task 0: Exited with exit code 3"
    peer = "n2:298:302 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n1<45074>"
    assert _cause(module, "", exited, peer).kind == "nccl_remote_error"
    assert _cause(module, "", peer, exited).kind == "nccl_remote_error"
    assert _cause(module, "", exited).message == module


def test_a_rank_that_had_waited_itself_is_no_reason_of_a_ports_error() -> None:
    port = (
        "8: n2:812:911 [0] transport/net_ib.cc:108 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
    )
    waited = "1: [rank1]:[E118 03:23:32.551448217 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600031 milliseconds before timing out."
    failed = "{0}: [rank{0}]: RuntimeError: CUDA error: unspecified launch failure"
    assert _cause(port, waited, failed.format(1)).kind == "net_ib_async_event"
    assert _cause(port, waited, failed.format(3)).kind == "cuda_launch_failure"
    assert _cause(port, failed.format(1)).kind == "cuda_launch_failure"
    own = {
        "cuda_ecc": "CUDA error: uncorrectable ECC error encountered",
        "python_exception": "the grid has no cells",
    }
    for kind, words in own.items():  # what no abort brings
        assert _cause(port, waited, f"1: [rank1]: RuntimeError: {words}").kind == kind


def _box(rank: int, end: str) -> list[str]:
    """What Intel MPI's launcher prints of a rank's end."""
    about = f"=   RANK {rank} PID {rank + 70} RUNNING AT n4"
    return ["=" * 83, "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", about, f"=   KILLED BY SIGNAL: {end}", "=" * 83, ""]  # fmt: skip


_ENDED = "9 (Killed)"


@pytest.mark.parametrize(
    ("crash", "kind"),
    [
        ("11 (Segmentation fault)", "segfault"),
        ("8 (Floating point exception)", "process_crashed"),
        ("7 (Bus error)", "bus_error"),
        ("6 (Aborted)", "oom_kill_suspected"),  # a lost peer may order that
        (_ENDED, "oom_kill_suspected"),
        ("15 (Terminated)", "oom_kill_suspected"),
    ],
)
def test_the_crash_counts_in_a_list_by_rank_of_ends(crash: str, kind: str) -> None:
    """The launcher kills all others."""
    boxes = [*_box(0, _ENDED), *_box(1, _ENDED), *_box(2, crash), *_box(3, _ENDED)]
    assert _cause(*_WORK, *boxes).kind == kind
    oom = "slurmstepd: error: Detected 1 oom_kill event in StepId=31.0. Some of the step tasks have been OOM Killed."
    assert _cause(*_WORK, *boxes, oom).kind == "slurm_oom", "Slurm knows it better"


def test_the_lists_of_two_runs_stay_apart() -> None:
    crash = _box(1, "11 (Segmentation fault)")
    for rank in (0, 2):  # the same rank again, and one behind another that did not end badly
        again = _box(rank, "7 (Bus error)")
        assert _cause(*_box(0, _ENDED), *again).kind == "oom_kill_suspected"
        assert _cause(*_box(0, _ENDED)[2:4], "killed, so smoothing what there is", *again[2:]).kind == "oom_kill_suspected"  # fmt: skip
    assert _cause(*_box(0, _ENDED), *_WORK, *crash).kind == "oom_kill_suspected"
    bare = "x.sh: line 12: 123 Killed ./a"
    assert _cause(bare, *crash).kind == "oom_kill_suspected"
