"""Messages that had no word: containers, interpreters, numbers of CUDA errors, AMD's runtime, Megatron's rerun machine."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every

WORDS: list[tuple[str, str, dict[str, Any]]] = [
    ("FATAL:   container creation failed: mount hook function failure: mount /a->/b error: no such file", "slurm_launch_failed", {}),
    ("FATAL: could not open image /i/x.sif: failed to retrieve path for /i/x.sif", "slurm_launch_failed", {}),
    ("FATAL:   While making image from oci registry: error fetching image: unauthorized", "slurm_launch_failed", {}),
    ("[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1", "slurm_launch_failed", {}),
    ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "slurm_launch_failed", {}),
    ("slurmstepd: error: pyxis: container start failed with error code: 1", "slurm_launch_failed", {}),
    ("/usr/bin/python: Error while finding module specification for 'a.b' (ModuleNotFoundError: No module named 'a')", "import_error", {}),
    ("/opt/conda/bin/python3.11: No module named a.b", "import_error", {}),
    ("python: can't open file '/w/main.py': [Errno 2] No such file or directory", "python_exception", {}),
    ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1", "process_terminated", {}),
    ("RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated.", "dataloader_crash", {"pid": 8102}),
    ("Couldn't init CUDA: Error (gpu_burn-drv.cpp:304): system not yet initialized", "cuda_unavailable", {}),
    ("CUDART Error in step.cu:17 cudaDeviceSynchronize() = 700", "cuda_illegal_access", {}),
    ("CUDART error: cudaMemcpyAsync returned 719", "cuda_launch_failure", {}),
    ("CUDA failure 77: an illegal memory access was encountered ; GPU=0 ; hostname=h", "cuda_illegal_access", {}),
    ("F1220 10:11:14.1 2341 math.cu:28] Check failed: error == cudaSuccess (77 vs. 0)  an illegal memory access was encountered", "cuda_illegal_access", {}),
    ("ERROR    Uncaught exception: /i/gpu_memory.h:601 cudaDeviceSynchronize() failed with error an illegal memory access was encountered", "cuda_illegal_access", {}),
    ("ROCk module is NOT loaded, possibly no GPU devices", "cuda_unavailable", {}),
    ("  exitcode  : -11 (pid: 3304209)", "segfault", {"pid": 3304209}),
    ("mpirun noticed that process rank 1 with PID xxxx on node n1 exited on signal 9 (Killed).", "oom_kill_suspected", {"rank": 1}),
    ("ERROR:watcher:This job has exceeded its memory quota and will be terminated", "slurm_oom", {}),
    ("[2026-03-17T20:29:32.229] error: *** JOB 824185 ON n1 CANCELLED AT 2026-03-17T20:29:32 DUE to SIGNAL Terminated ***", "slurm_cancelled", {}),
    ("submitit WARNING (2022-07-12 04:18:45,881) - Caught signal SIGHUP on n1: this job is preempted.", "slurm_preempted", {}),
    ("submitit WARNING (2022-07-12 04:18:45,881) - Caught signal SIGUSR2 on n1: this job is timed-out.", "slurm_timeout", {}),
    ("scons: Build interrupted.", "interrupted", {}),
    ("submitit WARNING (2020-02-07 09:11:01,310) - Caught signal 10 on n1: this job is timed-out.", "slurm_timeout", {}),
    ("pure virtual method called", "process_aborted", {}),
    ("Execution of replica 0 failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: cliques[0]", "rendezvous_timeout", {}),
    ("E external/xla/client.cc:96] Coordination service agent in error status: DEADLINE_EXCEEDED: Deadline Exceeded", "rendezvous_timeout", {}),
    ("[n1:6807 :0:6807] ib_mlx5_log.c:115  FATAL: Error on mlx5_3:1 QP 0xe6d7 wqe[7821]: Transport retry count exceeded (synd 0x15 vend 0x81) opcode SEND", "net_ib_completion_error", {}),
    ("RuntimeError: HIP error: hipErrorNoBinaryForGpu", "cuda_version", {}),
    ("RuntimeError: hipErrorOutOfMemory", "cuda_oom", {}),
    ("hipErrorLaunchFailure: unspecified launch failure", "cuda_launch_failure", {}),
    ("hipErrorECCNotCorrectable: uncorrectable ECC error", "cuda_ecc", {}),
    ("hipErrorNoDevice: no ROCm-capable device is detected", "cuda_unavailable", {}),
    (":0:rocdevice.cpp :3586: 92 us: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016", "cuda_launch_failure", {}),
    ("Memory access fault by GPU node-4 (Agent handle: 0x1f) on address 0x7a. Reason: Page not present or supervisor privilege.", "cuda_illegal_access", {}),
    ("n1:1:2 [0] p2p.cc:237 NCCL WARN HIP failure 'unspecified launch failure'", "cuda_launch_failure", {}),
    ("n1:1:2 [0] p2p.cc:237 RCCL WARN HIP failure 'invalid argument'", "nccl_unhandled_cuda", {}),
    ("ERROR:megatron.core.rerun_state_machine:Unexpected result nan on rank 3 at iteration #9 invocation #2 (message='found NaN')", "nan_loss", {"rank": 3}),
]  # fmt: skip


def first(*lines: str) -> JobFinding | None:
    """The first cause."""
    return next((f for f in reader.read(lines) if f.first_cause), None)


@pytest.mark.parametrize(("line", "kind", "fields"), WORDS, ids=[w[0][:40] for w in WORDS])
def test_a_message_has_its_word(line: str, kind: str, fields: dict[str, Any]) -> None:
    """Alone in a log it is the first cause."""
    found = first("starting", line)
    assert found is not None, line
    assert found.kind == kind
    assert {name: getattr(found, name) for name in fields} == fields


@every(
    "line",
    [
        "container_image: nvcr.io/nvidia/pytorch:26.01-py3",
        "building the image of the container went well",
        "INFO:    Converting SIF file to temporary sandbox...",
        "no unexpected result was found, NaN checks: off",
        "CUDART version 12040 = ok",
        "pip: No module named wheel was requested",
    ],
)
def test_what_only_resembles_it_has_none(line: str) -> None:
    """Talk of containers, numbers and modules."""
    assert not list(reader.read([line]))


def test_a_worker_that_slurm_ended_gives_way_to_why() -> None:
    """SIGTERM to a data loader is most often part of the job's end."""
    worker = "RuntimeError: DataLoader worker (pid 8102) is killed by signal: Terminated."
    limit = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
    found = first(worker, limit)
    assert found is not None
    assert found.kind == "slurm_timeout"


def _waits(rank: int, op: str, seq: int = 57, *, own: int | None = None) -> str:
    return (
        f"[rank{rank}]:[E218 04:54:22.864467604 ProcessGroupNCCL.cpp:616] [Rank {rank if own is None else own}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=32, NumelOut=32, Timeout(ms)=600000) ran for 600045 milliseconds before timing out."
    )


@every("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)])
def test_an_operation_of_its_own_on_one_rank_is_a_mismatch(order: tuple[int, ...]) -> None:
    """The rank in the minority is named, whoever is printed first."""
    found = first(*(_waits(r, "ALLREDUCE" if r == 2 else "BROADCAST") for r in order))
    assert found is not None
    assert (found.kind, found.rank, found.op, found.domains) == (
        "collective_mismatch",
        2,
        "ALLREDUCE",
        ("user_program",),
    )


def test_groups_have_numbers_of_their_own() -> None:
    """Other numbers, the same operation, or ranks that count within a smaller group: no mismatch."""
    for log in (
        (_waits(0, "ALLREDUCE"), _waits(1, "BROADCAST", 58)),
        (_waits(0, "ALLREDUCE"), _waits(1, "ALLREDUCE")),
        (_waits(13, "ALLREDUCE", own=1), _waits(15, "BROADCAST", own=1)),
    ):
        found = first(*log)
        assert found is not None
        assert (found.kind, "ops" in found.detail) == ("watchdog_timeout", False)


def test_pytorchs_own_report_names_the_rank_that_did_not_join() -> None:
    """Over several lines, as it prints it."""
    report = [
        "[rank0]:[E515 18:36:47.3 ProcessGroupNCCL.cpp:1937] Rank 0",
        "\t - [0] Timeout at collective: ALLREDUCE, #315",
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:",
        "\t   [7, 9] finished collective #182, but didn't join collective #183 (count from 1)",
        "\t   #315 started ranks:",
        "\t     [0, 1, 2] started ALLREDUCE",
    ]
    found = first(_waits(0, "ALLREDUCE"), *report)
    assert found is not None
    assert (found.kind, found.rank, found.detail["culprit_ranks"]) == ("watchdog_timeout", 0, [7, 9])
    assert "names rank 7, 9" in found.meaning


@every(
    "noise",
    [
        "n1:1:2 [5] transport/net_ib.cc:1694 NCCL WARN NET/IBP:Got completion from peer 7.6.13.83<36315> with status=12 opcode=3 len=3 vendor err 129 (Send)",
        "[rank5]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, unhandled system error, NCCL version 2.21.5",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.3]:12345",
        "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
    ],
)
def test_what_a_peers_death_looks_like_gives_way_to_its_reason(noise: str) -> None:
    """However late and by whatever rank the reason is printed; alone the noise stays."""
    own = [
        "[rank2]: Traceback (most recent call last):",
        '[rank2]:   File "t.py", line 1, in <module>',
        "[rank2]: KeyError: 'x'",
    ]
    found, alone = first(noise, *["..."] * 50, *own), first(noise)
    assert found is not None
    assert (found.kind, found.rank) == ("python_exception", 2)
    assert alone is not None
    assert alone.kind != "python_exception"


def test_a_rank_that_died_explains_the_timeout_of_the_others() -> None:
    """Its traceback may stand behind what they print; an exception of the rank that waited does not count."""
    timeout = _waits(0, "ALLREDUCE")
    own = ["Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "KeyError: 'x'"]
    other, same = (
        first(timeout, *(f"[rank2]: {t}" for t in own)),
        first(timeout, *(f"[rank0]: {t}" for t in own)),
    )
    assert other is not None
    assert same is not None
    assert (other.kind, same.kind) == ("python_exception", "watchdog_timeout")


def test_what_a_launcher_could_not_import_comes_before_what_followed() -> None:
    """The plugin says that its helper failed, at what, and that Slurm's stack of plugins failed with it."""
    found = first(
        "slurmstepd: error: pyxis: child 10028 failed with error code: 1",
        "slurmstepd: error: pyxis: failed to import docker image",
        "slurmstepd: error: pyxis: printing enroot log file:",
        "slurmstepd: error: pyxis:     [INFO] Querying registry for permission grant",
        "slurmstepd: error: spank: required plugin spank_pyxis.so: task_init() failed with rc=-1",
    )
    assert found is not None
    assert (found.kind, found.line) == ("slurm_launch_failed", 2)


def test_the_last_error_below_an_exception_says_what_the_system_error_was() -> None:
    """NCCL's own words stand a line below its result's name; elsewhere they are somebody's sentence."""
    head = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled system error, NCCL version 2.18.6"
    words = "socketStartConnect: Connect to 192.0.2.14<52822> failed : No route to host"
    found = first(head, "ncclSystemError: System call failed or device error.", "Last error:", words)
    assert found is not None
    assert (found.kind, found.line) == ("nccl_system_error", 4)
    assert first("starting", words) is None


def test_a_taken_port_is_told_by_the_warning_that_names_it() -> None:
    """What fails two lines later has no number."""
    found = first(
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "[W socket.cpp:426] [c10d] The server socket has failed to bind to 0.0.0.0:29500 (errno: 98 - Address already in use).",
        "[E socket.cpp:462] [c10d] The server socket has failed to listen on any local network address.",
    )
    assert found is not None
    assert (found.kind, found.line) == ("address_in_use", 1)
    assert "29500" in found.message


OOM = "CUDA out of memory. Tried to allocate 422.00 MiB (GPU 0; 15.78 GiB total capacity; 13.10 GiB already allocated)"


@every(
    ("line", "found"),
    [
        (f"2021-06-02 15:51:03 host root[14429] DEBUG {OOM}", False),
        (f"2021-06-02 15:51:03 host root[14429] ERROR {OOM}", True),
        (f"ERROR [DEBUG build] {OOM}", True),
        (f"NCCL_DEBUG=WARN run: {OOM}", True),
    ],
)
def test_what_a_logger_calls_debug_ended_nothing(line: str, found: bool) -> None:
    """A caught error that is written down for whoever looks for it."""
    assert (first("starting", line) is not None) is found


def test_a_shells_word_about_input_is_no_announcement_of_recovery() -> None:
    """`nohup` begins the next start in the same file."""
    found = first(OOM, "nohup: ignoring input", "INFO configuration 0/12", "INFO batch 64/128")
    assert found is not None
    assert found.kind == "cuda_oom"


@every("line", [
    "0: [cgpu17:53890] pml_ucx.c:775  Error: ucx send failed: Input/output error",
    "0: [1580511823.09] [n:1:1]  rcache.c:545  UCX  DEBUG failed to register region 0x2a: Input/output error",
])  # fmt: skip
def test_what_a_network_library_calls_input_and_output_blames_no_file_server(line: str) -> None:
    """UCX has one word for every failure."""
    assert "io_error" not in {f.kind for f in reader.read(["starting", line])}


def test_a_transport_that_a_network_library_leaves_for_another_ends_nothing() -> None:
    """Unless the program ends right behind it."""
    line = "1: [1580413046.362194] [n1:56774:2]  cuda_ipc_md.c:102  UCX  ERROR cuIpcGetMemHandle(&(key->ph), (CUdeviceptr) addr) is failed. ret:invalid device context"
    assert (
        first(line, *(f"{n}: broadcast result: tensor(37.1494, device='cuda:0')" for n in range(8))) is None
    )
    assert first(line, "srun: error: n1: task 1: Segmentation fault") is not None


def test_an_old_warning_of_a_taken_port_hides_no_later_one() -> None:
    """An earlier start met the same port and went on; the line that failed belongs to the warning right before it. Rank 0 stays rank 0."""
    bind = "[rank0]: [W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:{} (errno: 98 - Address already in use)."
    listen = "[rank1]: [E socket.cpp:462] [c10d] The server socket has failed to listen on any local network address."
    found = first(bind.format(29400), *["loading"] * 60, bind.format(29500), listen)
    assert found is not None
    assert (found.kind, found.line, found.rank) == ("address_in_use", 62, 0)
