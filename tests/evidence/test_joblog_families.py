"""What jobs, launchers and Slurm print, version by version, and which line began the failure."""

from __future__ import annotations

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every


def read(text: str) -> list[JobFinding]:
    """All findings of a log."""
    return list(reader.read(text.split("\n")))


def first(text: str) -> JobFinding:
    """The one first cause of a log."""
    (found,) = [f for f in read(text) if f.first_cause]
    return found


WATCHDOGS = [
    # torch 1.9: no sequence number
    (
        "[E ProcessGroupNCCL.cpp:566] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1808499 milliseconds before timing out.",
        "watchdog_timeout",
        "ALLREDUCE",
        None,
        5,
        1800000,
    ),
    # 1.9 with shapes
    (
        "[E ProcessGroupNCCL.cpp:587] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLGATHER, TensorShape=[12, 3], Timeout(ms)=60000) ran for 60499 milliseconds before timing out.",
        "watchdog_timeout",
        "ALLGATHER",
        None,
        5,
        60000,
    ),
    # 1.13
    (
        "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out.",
        "watchdog_timeout",
        "ALLREDUCE",
        469508,
        1,
        1800000,
    ),
    # 2.x
    (
        "[rank4]:[E318 07:39:53.792630246 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=610, OpType=COALESCED, NumelIn=56320, NumelOut=450560, Timeout(ms)=600000) ran for 600086 milliseconds before timing out.",
        "watchdog_timeout",
        "COALESCED",
        610,
        4,
        600000,
    ),
    # first collective
    (
        "[rank0]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
        "watchdog_timeout_init",
        "BROADCAST",
        1,
        0,
        600000,
    ),
    # 2.4 to 2.6, without the work's description
    (
        "[rank3]:[E909 09:55:46.9 ProcessGroupNCCL.cpp:1709] [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 2070, last enqueued NCCL work: 2082, last completed NCCL work: 2069.",
        "watchdog_timeout",
        None,
        2070,
        3,
        None,
    ),
    # 2.6 and later
    (
        "[rank1]:[E1218 20:27:21.4 ProcessGroupNCCL.cpp:2168] [PG ID 1 PG GUID 1 Rank 1]  failure detected by watchdog at work sequence id: 7 PG status: last enqueued work: 547, last completed work: 6",
        "watchdog_timeout",
        None,
        7,
        1,
        None,
    ),
    # as a Python exception
    (
        "RuntimeError: NCCL communicator was aborted on rank 5.  Original reason for failure was: [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1808499 milliseconds before timing out.",
        "watchdog_timeout",
        "ALLREDUCE",
        None,
        5,
        1800000,
    ),
]


@every(("line", "kind", "op", "seq", "rank", "timeout_ms"), WATCHDOGS)
def test_watchdog_of_every_version(
    line: str, kind: str, op: str | None, seq: int | None, rank: int, timeout_ms: int | None
) -> None:
    """Collective, number, rank and timeout come out of each release's wording."""
    found = first(line)
    assert (found.kind, found.op, found.seq, found.rank, found.timeout_ms) == (
        kind,
        op,
        seq,
        rank,
        timeout_ms,
    )


def test_the_group_is_named_by_its_description() -> None:
    """A process group is called by its description, else by its id."""
    line = "[rank3]:[E909 x ProcessGroupNCCL.cpp:1709] [PG {} Rank 3] Timeout at NCCL work: 2070, last enqueued NCCL work: 2082, last completed NCCL work: 2069."
    assert first(line.format("0 (default_pg)")).group == "default_pg"
    assert first(line.format("ID 2 PG GUID 9(mesh_tp)")).group == "mesh_tp"
    assert first(line.format("ID 2 PG GUID 9")).group == "9"


def test_heartbeat_timeouts_default_by_release() -> None:
    """A heartbeat line that prints no seconds means 600 s before torch 2.4 and 480 s since; printed ones win."""
    text = "Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=103"
    old = f"[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] {text}"
    new = f"[rank1]:[E429 13:55:49.384372190 ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] {text}"
    line = "[rank1]:[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 77 seconds without making progress"
    assert (first(old).timeout_ms, first(new).timeout_ms) == (600_000, 480_000)
    assert first(f"{old}\n{line}").timeout_ms == 77_000


def test_a_message_cut_by_the_terminal_is_joined() -> None:
    """A hard wrap in the middle of a word does not hide the message; its line is where it began."""
    text = "[rank6]:[E429 13:55:49.3 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 6] ProcessGroupNCCL'\ns watchdog got stuck for 480 seconds without making progress"
    found = first(text)
    assert (found.line, found.kind, found.rank, found.timeout_ms) == (1, "heartbeat_monitor", 6, 480_000)


KINDS = [
    (
        "RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        "address_in_use",
    ),
    (
        "[E ProcessGroupGloo.cpp:138] Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 1. Please check rank 1 logs for faulty rank.",
        "monitored_barrier_timeout",
    ),
    (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\nray.exceptions.RayTaskError(ValueError): ray::f() (pid=1, ip=10.0.0.1)',
        "python_exception",
    ),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "cuda_ecc"),
    ("RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at x.cpp:265", "cuda_ecc"),
    ("CUDA error: uncorrectable NVLink error detected during the execution", "cuda_nvlink"),
    ("RuntimeError: CUDA error: unspecified launch failure", "cuda_launch_failure"),
    ("RuntimeError: CUDA error: an illegal memory access was encountered", "cuda_illegal_access"),
    ("RuntimeError: CUDA error: misaligned address", "cuda_misaligned_address"),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda_device_assert"),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB",
        "cuda_oom",
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.80 GiB total capacity)",
        "cuda_oom",
    ),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.", "cuda_oom"),
    ("RuntimeError: No CUDA GPUs are available", "cuda_unavailable"),
    (
        "Unable to determine the device handle for GPU0000:65:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "cuda_device_lost",
    ),
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( handle)`",
        "cuda_library_error",
    ),
    (
        "n1:10:20 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.2.3.6<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)",
        "net_ib_completion_error",
    ),
    (
        "n1:10:20 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n2<57557>",
        "nccl_remote_error",
    ),
    (
        "n1:10:20 [0] misc/socket.cc:456 NCCL WARN Net : Connect to 10.0.0.2<40537> failed : No route to host",
        "nccl_system_error",
    ),
    (
        "n1:10:20 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000",
        "nccl_invalid_usage",
    ),
    ("n1:10:20 [0] x.cc:1 NCCL WARN Cuda failure 'out of memory'", "cuda_oom"),
    (
        "n1:10:20 [0] x.cc:1 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
        "shm_full",
    ),
    (
        "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:1333, internal error - please report this issue, NCCL version 2.18.1",
        "nccl_internal_error",
    ),
    ("RuntimeError: NCCL Error 2: unhandled system error", "nccl_system_error"),
    (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "rendezvous_timeout",
    ),
    (
        "RuntimeError: The server socket has failed to listen on any local network address. error: Address already in use",
        "address_in_use",
    ),
    (
        "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete",
        "gloo_timeout",
    ),
    (
        "RuntimeError: [/x/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:26345: Connection reset by peer.",
        "gloo_connection_reset",
    ),
    (
        "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4. Received data size doesn't match expected size.",
        "collective_mismatch",
    ),
    (
        "slurmstepd: error: *** JOB 1 ON n12 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "slurm_timeout",
    ),
    (
        "slurmstepd: error: *** STEP 1.0 ON n12 CANCELLED AT 2024-01-01T00:00:00 DUE TO PREEMPTION ***",
        "slurm_preempted",
    ),
    (
        "slurmstepd: error: *** JOB 1 ON n12 CANCELLED AT 2024-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "slurm_node_fail",
    ),
    (
        "slurmstepd: error: *** JOB 1 ON n12 CANCELLED AT 2024-01-01T00:00:00 DUE TO JOB REQUEUE ***",
        "slurm_requeued",
    ),
    ("slurmstepd: error: *** JOB 1 ON n12 CANCELLED AT 2024-01-01T00:00:00 ***", "slurm_cancelled"),
    (
        "slurmstepd: error: *** JOB 1 STEPD TERMINATED ON n12 AT 2024-01-01T00:00:00 DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "slurm_unkillable",
    ),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed.",
        "slurm_oom",
    ),
    ("slurmstepd: error: Exceeded step memory limit at some point.", "slurm_oom"),
    ("srun: error: sdumont6156: task 0: Out Of Memory", "slurm_oom"),
    ("srun: error: Node failure on n17", "slurm_node_fail"),
    ("srun: error: n1: tasks 0-7: Segmentation fault (core dumped)", "segfault"),
    (
        "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x03.",
        "slurm_launch_failed",
    ),
    ("salloc: Prolog failure on node n12", "slurm_launch_failed"),
    (
        "[2026-05-22T15:40:21.638] error: run_command: slurm task_prolog can not be executed (/opt/x.sh) No such file or directory",
        "slurm_launch_failed",
    ),
    ("[2026-05-22T15:40:21.638] error: TaskProlog failed status=1", "slurm_launch_failed"),
    ("slurmstepd: error: execve(): python9: No such file or directory", "slurm_launch_failed"),
    ("RuntimeError: DataLoader worker (pid 2972) is killed by signal: Killed.", "dataloader_oom"),
    (
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
        "shm_full",
    ),
    ("RuntimeError: DataLoader worker (pid(s) 3, 4) exited unexpectedly", "dataloader_crash"),
    ("OSError: [Errno 28] No space left on device", "disk_full"),
    ("OSError: [Errno 122] Disk quota exceeded: '/home/x'", "disk_full"),
    ("No space left on device", "disk_full"),
    (
        'safetensors_rust.SafetensorError: IoError(Os { code: 122, kind: X, message: "Disk quota exceeded" })',
        "disk_full",
    ),
    ('pyo3_runtime.PanicException: Os { code: 5, kind: X, message: "Input/output error" }', "io_error"),
    ("RuntimeError: shard-3: Too many open files (os error 24)", "too_many_open_files"),
    ("OSError: [Errno 116] Stale file handle", "stale_file_handle"),
    ("OSError: [Errno 5] Input/output error", "io_error"),
    ("OSError: [Errno 107] Transport endpoint is not connected", "filesystem_unreachable"),
    (
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 4096 vs 3990",
        "checkpoint_failed",
    ),
    (
        "[n1:1 :0:100] Caught signal 11 (Segmentation fault: address not mapped to object at address (nil))",
        "segfault",
    ),
    ("Fatal Python error: Segmentation fault", "segfault"),
    ("run.sh: line 28:  8156 Killed                  python3 main.py", "oom_kill_suspected"),
    ("Killed", "oom_kill_suspected"),
    (
        "Primary job terminated: process rank 3 with PID 1234 on node n1 exited on signal 9 (Killed).",
        "oom_kill_suspected",
    ),
    ("free(): invalid pointer", "memory_corruption"),
]


@every(("line", "kind"), KINDS)
def test_kind(line: str, kind: str) -> None:
    """This line alone is the first cause, of this kind."""
    assert first(line).kind == kind


HARMLESS = [
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "n1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA",
    "UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`",
    "WARNING: retrying after OSError: [Errno 5] Input/output error",
    "invalid argument names were ignored",
    "dhclient: DHCPREQUEST (xid=0x1234)",
    "the user cancelled the previous experiment, see notes",
    "srun: job 12 has been allocated resources",
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
    "srun: Terminating StepId=123.0",
    "Killing subprocess 4946",
    "[2024-01-01 00:00:00,000] [INFO] [launch.py:351:main] Process 12 exits successfully.",
    "python3 main.py exited with code 0",
    "Saving checkpoint at iteration 100 to /x/y",
    "Loss: 3.2, no errors so far, 0 failures",
    "frame #3: c10d::ProcessGroupNCCL::WorkNCCL::finishedGPUExecutionInternal() const + 0x56",
]


@every("line", HARMLESS)
def test_harmless_lines_begin_nothing(line: str) -> None:
    """Advice, clean-up, noise and prose are never the first cause."""
    assert [f for f in read(line) if f.first_cause] == []


STORIES = [
    # the failure before the time limit
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered\nslurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "cuda_illegal_access",
    ),
    # what the signal of the time limit breaks is its consequence
    (
        'slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***\nRuntimeError: [/x/gloo/pair.cc:1] Connection closed by peer [10.0.0.1]:1\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: x',
        "slurm_timeout",
    ),
    # memory reported at the end of the step
    (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds\nslurmstepd: error: Detected 1 oom_kill event in StepId=11.0.",
        "slurm_oom",
    ),
    # a peer's end gives way to its reason, printed later
    (
        "RuntimeError: [/x/gloo/pair.cc:1] Connection closed by peer [10.0.0.1]:1\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "cuda_oom",
    ),
    # a timeout is not replaced by what the program raises after it
    (
        '[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds\nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: x',
        "watchdog_timeout",
    ),
    # hardware speaks even late
    (
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds\nRuntimeError: CUDA error: uncorrectable ECC error encountered",
        "cuda_ecc",
    ),
    # a traceback and what srun says of it
    (
        "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    main()\nKeyError: 'x'\nsrun: error: n1: task 3: Exited with exit code 1\nslurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-01T00:00:00 ***",
        "python_exception",
    ),
    # the killed task, confirmed
    (
        "srun: error: n1: task 3: Killed\nslurmstepd: error: Detected 1 oom_kill event in StepId=11.0.",
        "slurm_oom",
    ),
    # a node lost takes the connections with it
    (
        "n1:10:20 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n2<57557>\nsrun: error: Node failure on n2",
        "slurm_node_fail",
    ),
    # preemption behind a lost connection
    (
        "RuntimeError: [/x/gloo/pair.cc:1] Connection closed by peer [10.0.0.1]:1\nslurmstepd: error: *** STEP 1.0 ON n12 CANCELLED AT 2024-01-01T00:00:00 DUE TO PREEMPTION ***",
        "slurm_preempted",
    ),
]


@every(("text", "kind"), STORIES)
def test_first_cause(text: str, kind: str) -> None:
    """Of several findings, the one that began the failure is marked, and only that one."""
    assert first(text).kind == kind


def test_fields_of_the_first_cause_are_completed() -> None:
    """Rank, timeout and collective come from whichever line about the same thing has them."""
    text = (
        "n1:110:697 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer n2<55912>\n"
        "[rank0]:[E724 06:56:39.4 ProcessGroupNCCL.cpp:542] [Rank 0] Collective WorkNCCL(SeqNum=89, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=90000) "
        "raised the following async exception: NCCL error: remote process exited or there was a network error, NCCL version 2.22.3"
    )
    found = first(text)
    assert (found.line, found.kind, found.op, found.seq, found.rank, found.timeout_ms, found.host) == (
        1,
        "nccl_remote_error",
        "ALLREDUCE",
        89,
        0,
        90000,
        "n1",
    )


def test_sizes_that_differ_between_ranks_are_the_programs() -> None:
    """Two ranks in one collective with different sizes leave only the program to blame."""
    line = "[rank{r}]:[E318 x ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=610, OpType=ALLREDUCE, NumelIn={n}, NumelOut={n}, Timeout(ms)=600000) ran for 600086 milliseconds before timing out."
    assert first(line.format(r=4, n=56320) + "\n" + line.format(r=6, n=76800)).domains == ("user_program",)
    assert len(first(line.format(r=4, n=56320) + "\n" + line.format(r=6, n=56320)).domains) == 3


def test_torchelastic_names_rank_host_and_pid() -> None:
    """The first child that failed is told over several lines; they become one finding."""
    text = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause (first observed failure):\n[0]:\n"
        "  time      : 2025-05-21_15:43:03\n  host      : n17\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 14750)\n  error_file: <N/A>"
    )
    found = [f for f in read(text) if f.kind == "oom_kill_suspected"]
    assert [(f.rank, f.host, f.pid) for f in found] == [(3, "n17", 14750)]


@every(
    "prefix",
    [
        "[rank3]: ",
        "3: ",
        "[1,3]<stderr>:",
        "Fri Aug 11 12:31:45 2023[1,3]<stdout>:",
        "2024-05-01T10:00:00.123456789Z stderr F [rank3]: ",
        "stderr: [rank3]: ",
    ],
)
def test_launchers_prefixes_name_the_rank(prefix: str) -> None:
    """srun -l, mpirun --tag-output, torch's own and containers' prefixes all give the rank, also inside tracebacks."""
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "    main()",
        "KeyError: 'x'",
    ]
    found = first("\n".join(prefix + line for line in lines))
    assert (found.kind, found.rank, found.line) == ("python_exception", 3, 4)


def test_ranks_tracebacks_may_interleave() -> None:
    """Two ranks' tracebacks, line by line in turn, give two exceptions with their ranks."""
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in <module>',
        "    main()",
        "KeyError: 'x'",
    ]
    text = "\n".join(f"[rank{r}]: {line}" for line in lines for r in (0, 1))
    assert [(f.kind, f.rank) for f in read(text)] == [("python_exception", 0), ("python_exception", 1)]


def test_a_progress_bar_hides_nothing() -> None:
    """A line that overwrites itself a thousand times still shows the failure glued to its end, and its colours are off."""
    bar = "\r".join(f"\x1b[32mEpoch 0: {n}%|█| {n}/100 [00:01<00:02]\x1b[0m" for n in range(1000))
    failure = "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 25624887 milliseconds before timing out."
    found = first(bar + failure)
    assert (found.line, found.kind, found.seq) == (1, "watchdog_timeout", 96120)


PROGRESS = [f"iteration {n} | loss 2.{n} | " + "x" * 80 for n in range(200)]
CAUGHT = [
    "Traceback (most recent call last):",
    '  File "hub.py", line 3, in get',
    "ConnectionError: try again",
]


def test_a_traceback_behind_which_the_training_went_on_is_no_cause() -> None:
    """Hundreds of steps later it is certain that the error was handled; what comes then is the cause."""
    found = list(
        reader.read(
            [*CAUGHT, *PROGRESS, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]
        )
    )
    assert [(f.kind, f.first_cause, f.detail.get("survived")) for f in found] == [
        ("python_exception", False, True),
        ("cuda_oom", True, None),
    ]
    (alone,) = reader.read([*CAUGHT, *PROGRESS])
    assert (alone.first_cause, alone.detail["survived"]) == (False, True)


def test_steps_that_were_only_buffered_do_not_acquit_a_traceback() -> None:
    """Standard output of before the failure may stand some KiB behind it."""
    (found,) = reader.read([*CAUGHT, *PROGRESS[:40]])
    assert found.first_cause
    assert "survived" not in found.detail


@every(
    "text",
    [
        "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? Error 802: system not yet initialized",
    ],
)
def test_cuda_that_does_not_start_is_not_the_programs_exception(text: str) -> None:
    """PyTorch's own words for a driver or fabric that is not ready."""
    assert [f.kind for f in reader.read([*CAUGHT[:2], text])] == ["cuda_unavailable"]


@every(
    ("how", "kind", "code"),
    [("Exited with exit code 137", "task_exit", 137), ("Killed", "oom_kill_suspected", None)],
)
def test_the_tasks_of_a_line_and_what_they_returned(how: str, kind: str, code: int | None) -> None:
    """Several tasks of a node are one line; a shell says by its exit code that a signal ended what it ran."""
    (found,) = read(f"srun: error: n3: tasks 4-5: {how}")
    assert (found.kind, found.rank, found.detail["tasks"], found.detail.get("exit_code")) == (
        kind,
        4,
        "4-5",
        code,
    )


@every(("whose", "domains"), [("slurm", ("system_software",)), ("user", ("user_program",))])
def test_whose_task_prolog_could_not_be_run(whose: str, domains: tuple[str, ...]) -> None:
    """The site's stands in slurm.conf; the user's own is an option of srun's."""
    line = f"[2026-05-22T15:40:21.638] error: run_command: {whose} task_prolog can not be executed (/opt/x.sh) No such file or directory"
    (found,) = [f for f in read(line) if f.first_cause]
    assert (found.kind, found.domains) == ("slurm_launch_failed", domains)


def test_an_open_connection_that_times_out_was_waited_for() -> None:
    """As long as TCP repeats; one that is reset, or could not be opened, was not."""
    form = (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [10.8.0.13]:20115: {}"
    )
    waited = {}
    for how in ("Connection timed out", "Connection reset by peer"):
        (found,) = read(form.format(how))
        assert found.kind == "gloo_connection_reset"
        waited[how] = found.detail.get("unanswered_ms")
    assert waited == {"Connection timed out": 924_600, "Connection reset by peer": None}
