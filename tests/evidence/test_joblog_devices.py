"""Errors of devices and networks in words or numbers that no vendor owns: lost accelerators, CUDA's numbers, transfers, file servers."""

from __future__ import annotations

import pytest

from probing_cluster.evidence.joblog import reader
from probing_cluster.evidence.joblog.grammar import ALL_DOMAINS, JobFinding, LineRole
from tests.every_case import every

ABOVE = ["Reading input file run.in", "starting the run"]
RAISED = ["Traceback (most recent call last):", '  File "/opt/run.py", line 3, in step', "    go()"]
HSA = (
    ":0:rocdevice.cpp :2724: 1 us: [pid:1 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: "
    "The runtime failed to allocate the necessary resources. Code: 0x1008"
)


def first_cause(*lines: str) -> JobFinding | None:
    return next((found for found in reader.read(lines) if found.first_cause), None)


def kind(*lines: str) -> str | None:
    found = first_cause(*ABOVE, *lines)
    return found.kind if found else None


@every(
    "lines",
    [
        [*RAISED, "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"],
        ["ZE_RESULT_ERROR_DEVICE_LOST"],
        ["terminate called after throwing an instance of 'vk::DeviceLostError'", "  what():  vk::Queue::submit: ErrorDeviceLost"],
        [*RAISED, "RuntimeError: synStatus 26 [Generic failure]. Device hl0 heartbeat failed, device is not operational"],
        [*RAISED, "RuntimeError: ACL stream synchronize failed, error code:507899"],
        [*RAISED, "RuntimeError: synStatus=3 [Busy] Device acquire failed."],
        [*RAISED, "XlaRuntimeError: UNKNOWN: TPU initialization failed: open(/dev/accel1): Operation not permitted"],
        ["terminate called after throwing an instance of 'sycl::_V1::runtime_error'", "  what():  Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)"],
        [*RAISED, "XlaRuntimeError: INTERNAL: Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely"],
    ],
)  # fmt: skip
def test_a_lost_accelerator_is_not_only_the_programs_fault(lines: list[str]) -> None:
    """Whoever made it; the words of their runtimes are alike."""
    found = first_cause(*ABOVE, *lines)
    assert found is not None
    assert (found.kind, found.domains) == ("cuda_unknown_error", ALL_DOMAINS)
    assert found.message.strip() == lines[-1].strip()


@every(
    "line",
    [
        "We now handle VK_ERROR_DEVICE_LOST by making a new device",
        '    case VK_ERROR_DEVICE_LOST: return "lost";',
        "Fixed a bug where the device is not operational after a reset",
        "I0512 xla_bridge.py:863] Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: no TPU",
    ],
)
def test_a_lost_device_that_is_only_mentioned_is_none(line: str) -> None:
    assert kind(line) is None


@every(
    ("free", "expected"),
    [
        ("", "cuda_error"),
        (" Available Free mem : 60000 MB", "cuda_error"),
        (" Available Free mem : 0 MB", "cuda_oom"),
    ],
)
def test_rocms_missing_resources_are_memory_only_if_none_was_free(free: str, expected: str) -> None:
    """The code also stands for threads and events of the system."""
    found = first_cause(*ABOVE, HSA + free, "Aborted")
    assert found is not None
    assert found.kind == expected
    assert (found.domains == ALL_DOMAINS) is (expected == "cuda_error")


@every(
    ("line", "expected"),
    [
        ("Cuda driver error 700 in call at file '/opt/geryon/nvd_timer.h' in line 99.", "cuda_illegal_access"),
        ("Cuda driver error 719 in call at file '/opt/geryon/nvd_timer.h' in line 99.", "cuda_launch_failure"),
        ("Accelerator Fatal Error: call to cuStreamSynchronize returned error 700: Illegal address during kernel execution", "cuda_illegal_access"),
        ("cudaDeviceSynchronize failed with error 719", "cuda_launch_failure"),
        ("cuCtxSynchronize ended with status 719", "cuda_launch_failure"),
        ("Error: Illegal address in CUDA queue synchronize", "cuda_illegal_access"),
        ("Error: Illegal address in HIP queue synchronize", "cuda_illegal_access"),
        ("Illegal address in OptiX queue synchronize (integrator_init)", "cuda_illegal_access"),
        ("Error: Launch failed in HIP queue copy_from_device (integrator_reset)", "cuda_launch_failure"),
        ("Error: Launch exceeded timeout in CUDA queue synchronize", "cuda_launch_timeout"),
        ("Error: Out of memory in HIP queue enqueue", "cuda_oom"),
        ("Out of memory in OptiX build", "cuda_oom"),
    ],
)  # fmt: skip
def test_the_number_of_an_error_names_its_kind(line: str, expected: str) -> None:
    """Also where MPI then aborts."""
    assert kind(line) == expected
    assert kind(line, "application called MPI_Abort(MPI_COMM_WORLD, -1) - process 0") == expected


@every(
    "line",
    [
        "CUDA max error 700",
        "CUDA vs CPU: max error 2",
        "cuda kernel error 0.002",
        "CUDA kernels: 12, error 3 of 5",
        "cudaMalloc tested with code 100 lines",
    ],
)
def test_a_number_that_is_no_error_of_cudas_is_none(line: str) -> None:
    assert kind(line) is None


UCX = "[1700000000.1] [n1:1:0] ib_mlx5_log.c:179 UCX  {} {} on mlx5_0:1/IB (synd 0x2 vend 0x0 hw_synd 0/0)"


@every(
    "line",
    [
        UCX.format("ERROR", "Local QP operation"),
        UCX.format("ERROR", "Remote operation"),
        "*** FATAL ERROR (proc 0): in gasnetc_poll() at /opt/x.c:3: CQ error status=12 (IBV_WC_RETRY_EXC_ERR)",
        "poll_cq: completion with status IBV_WC_GENERAL_ERR",
    ],
)
def test_a_transfer_that_ended_with_an_error_is_the_networks(line: str) -> None:
    """Whichever library sent it, and whatever its status."""
    found = first_cause(*ABOVE, line)
    assert found is not None
    assert (found.kind, found.role) == ("net_ib_completion_error", LineRole.SYMPTOM)
    assert ("ended with error 12" in found.meaning) is ("RETRY_EXC" in line)


def test_transfers_flushed_after_an_error_are_a_lost_peers() -> None:
    flushed = UCX.format("ERROR", "WR flushed because QP in error state")
    for line in (flushed, "CQ error status (IBV_WC_WR_FLUSH_ERR)"):
        found = first_cause(*ABOVE, line)
        assert found is not None
        assert found.role is LineRole.REMOTE


def test_a_status_that_is_noted_or_quoted_is_none() -> None:
    assert kind(UCX.format("DIAG ", "Remote operation")) is None
    assert kind("Here the status 'IBV_WC_RETRY_EXC_ERR' means a lost peer") is None


@every(
    "line",
    [
        "cp: cannot create regular file '/beegfs/x': Communication error on send",
        "ls: cannot access '/lustre/a/b': Host is down",
        "mv: cannot stat '/nfs/a b': Connection timed out",
        "h5 fopen: Communication error on send",
        "OSError: [Errno 70] Communication error on send: '/beegfs/x'",
    ],
)
def test_a_path_that_cannot_be_reached_is_a_file_servers(line: str) -> None:
    """In the words of tools and of C as in Python's."""
    assert kind(line) == "filesystem_unreachable"


@every(
    "line",
    [
        "solver: error opening socket file '/run/agent.ctl': Connection timed out",
        "cat: '/run/agent.sock': Connection refused",
        "tool: could not open '/run/agent.sock': Connection timed out",
    ],
)
def test_a_file_that_is_a_socket_is_no_file_servers(line: str) -> None:
    """A service listens there, on the node itself."""
    assert kind(line) != "filesystem_unreachable"


def test_a_socket_that_refuses_is_no_file_server() -> None:
    assert kind("docker: cannot connect to socket '/run/docker.sock': Connection refused") == "program_error"


@every(
    "line",
    [
        "mv: cannot move '/nfs/a b' to '/nfs/c': Connection timed out",
        "ls: cannot access '/nfs/a': Connection refused",
        "solver: could not open file '/nfs/mesh.msh': Host is down",
        "error reading '/nfs/a': No route to host",
    ],
)
def test_a_file_tool_or_the_verb_of_a_file_makes_the_path_a_files(line: str) -> None:
    assert kind(line) == "filesystem_unreachable"


@every(
    ("lines", "expected"),
    [
        (["readiness probe '/healthz': Connection refused", "server is up", "served 1 request"], None),
        ([*RAISED, "RuntimeError: request to '/v1/models': Connection refused"], "python_consequence"),
        ([*RAISED, "RuntimeError: request to '/v1/models': Connection timed out"], "python_exception"),
        ([*RAISED, "OSError: dial unix '/run/agent/ctl': Connection refused"], "python_consequence"),
        ([*RAISED, "RuntimeError: could not read '/v1/models': Connection refused"], "python_consequence"),
    ],
)
def test_a_request_that_names_a_path_is_no_file_server(lines: list[str], expected: str | None) -> None:
    """What looks like a path is a URL's, or a socket's."""
    assert kind(*lines) == expected


@every(
    "line",
    [
        "failed completions by status: IBV_WC_RETRY_EXC_ERR 0",
        "failed completions by status: IBV_WC_RETRY_EXC_ERR=0",
        "failed completions by status: IBV_WC_RETRY_EXC_ERR 0, IBV_WC_RNR_RETRY_EXC_ERR 0",
        "completion errors by status: 0 IBV_WC_RETRY_EXC_ERR",
    ],
)
def test_a_count_of_no_failed_transfers_is_no_error(line: str) -> None:
    """Neither as a transfer nor as the log's last complaint."""
    assert not [
        found for found in reader.read([*ABOVE, line, "ok"]) if found.kind == "net_ib_completion_error"
    ]
    assert kind(line, "ok") is None


@every("line", ["Failed to start the solver: rank 0", "Failed to read the mesh: errno 0"])
def test_a_zero_that_counts_nothing_makes_no_statistic(line: str) -> None:
    assert kind(line) == "program_error"


def test_a_count_of_some_failed_transfers_is_one() -> None:
    line = "failed completions by status: IBV_WC_RETRY_EXC_ERR 3, IBV_WC_RNR_RETRY_EXC_ERR 0"
    assert kind(line, "ok") == "net_ib_completion_error"


@every(
    ("line", "domains"),
    [
        ("ssh: connect to host n3 port 22: No route to host", ALL_DOMAINS),
        ("fatal: unable to access 'https://example.org/a.git/': Could not resolve host: example.org", ("user_program", "system_software")),
        ("ssh: connect to host n3 port 22: Connection refused", ("user_program",)),
    ],
)  # fmt: skip
def test_a_host_that_was_not_reached_is_not_only_the_programs_fault(
    line: str, domains: tuple[str, ...]
) -> None:
    found = first_cause(line)
    assert found is not None
    assert found.domains == domains


ASSERTION = ["Program:     gmx mdrun, version 2024.1", "Source file: src/a/stream.cu (line 100)", "", "Assertion failed:", "Condition: stat == cudaSuccess"]  # fmt: skip


@every(
    ("line", "expected"),
    [
        ("cudaStreamSynchronize failed. CUDA error #700 (cudaErrorIllegalAddress): an illegal memory access was encountered.", "cuda_illegal_access"),
        ("Allocation failed. CUDA error #2 (cudaErrorMemoryAllocation): out of memory.", "cuda_oom"),
        ("Atom numbers do not match the topology, expected 312 found 310.", "program_error"),
    ],
)  # fmt: skip
def test_what_failed_stands_below_the_condition(line: str, expected: str) -> None:
    found = first_cause(*ABOVE, *ASSERTION, line)
    assert found is not None
    assert (found.line, found.kind) == (len(ABOVE) + len(ASSERTION) + 1, expected)


def test_a_driver_that_does_not_fit_its_library_is_not_the_programs_error_alone() -> None:
    words = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? Error 803: system has unsupported display driver / cuda driver combination"
    found = first_cause(*ABOVE, *RAISED, words)
    assert found is not None
    assert (found.kind, found.detail["unavailable"]) == ("cuda_unavailable", "mismatch")
    assert found.domains == ("user_program", "system_software"), "a container may bring its own libcuda"


@every("call", ["DoRnnBackward", "ThenRnnForward"])
def test_a_call_of_cudnns_network_that_failed_is_read_without_its_traceback(call: str) -> None:
    failed = f"Failed to call {call} with model config: [rnn_mode]: 2, 0, 0 , [num_layers]: [1, 300]"
    later = ["NameError                    Traceback (most recent call last)", "----> 1 f(scores)", "", "NameError: name 'scores' is not defined"]  # fmt: skip
    assert kind(failed, "", *later) == "cuda_library_error"
    assert kind("Failed to load model config: using the default", "", *later) == "python_exception"


NO_GPU = [
    "/v/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before? Error 802: system not yet initialized (Triggered internally at ../c10/cuda/CUDAFunctions.cpp:109.)",
    "  return torch._C._cuda_getDeviceCount() > 0",
    *(f"packing shard {n}/20" for n in range(20)),
]


@every(
    ("error", "is_consequence"),
    [
        ("RuntimeError: Expected k.is_cuda() to be true, but got false.", True),
        ("ValueError: Your setup doesn't support bf16/gpu.", True),
        ("RuntimeError: \"conv_depthwise2d_cpu\" not implemented for 'Half'", True),
        ("RuntimeError: 0 active drivers ([]). There should only be one.", True),
        ("ValueError: micro_batch_per_gpu must divide 96", False),
        ("ValueError: the tokenizer does not support this vocabulary", False),
    ],
)
def test_what_a_cpu_cannot_do_follows_from_the_gpus_that_were_not_found(
    error: str, is_consequence: bool
) -> None:
    assert kind(*NO_GPU, *RAISED, error) == ("cuda_unavailable" if is_consequence else "python_exception")
    assert kind("device: cpu", *RAISED, error) == "python_exception"


@pytest.mark.parametrize("label", ["", "job: "])
@pytest.mark.parametrize(
    ("error", "is_confirmed"),
    [
        ("RuntimeError: CUDA error: unknown error", True),
        ("RuntimeError: CUDA error: unspecified launch failure", True),
        (None, False),
    ],
)
def test_a_lost_gpu_in_a_monitors_words_is_confirmed_by_the_programs_own_error(
    error: str | None, is_confirmed: bool, label: str
) -> None:
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.  Reboot the system to recover this GPU"
    again = ["", "During handling of the above exception, another exception occurred:", ""]
    raised = [*RAISED, error, *again] if error else []
    lines = [f"{label}{line}" for line in [*raised, *RAISED, "KeyError: 'mail'"]]
    assert kind(lost, *lines) == ("cuda_device_lost" if is_confirmed else "python_exception")


def test_who_launches_a_kernel_reports_cudas_errors() -> None:
    words = "an illegal memory access was encountered launching kernel kClearForces"
    assert kind(f"Error: {words}", "STOP") == "cuda_illegal_access"


@every(
    ("words", "expected"),
    [
        ("an illegal memory access was encountered", "cuda_illegal_access"),
        ("out of memory", "cuda_oom"),
        ("invalid configuration argument", "cuda_error"),
        ("unspecified launch failureTraceback (most recent call last):", "cuda_launch_failure"),
    ],
)
def test_a_check_of_cuda_calls_prints_its_file_and_below_it_the_error(words: str, expected: str) -> None:
    below = ["the forward pass failed", *RAISED[:2]]
    assert kind("[CUDA ERROR] in cuda/raster.cu", f"Line 77: {words}", *below) == expected
    assert kind("Line 77: invalid configuration argument", "done") is None


@every("raised", ["MemoryError", "distributed.utils - ERROR -", "RuntimeError"])
def test_the_memory_that_rmm_lacks_is_the_gpus(raised: str) -> None:
    error = "std::bad_alloc: out_of_memory: RMM failure at:/opt/rmm/pool.hpp:7: Maximum pool size exceeded"
    assert kind(*RAISED, f"{raised}: {error}" if raised[-1] != "-" else f"{raised} {error}") == "cuda_oom"
    assert kind(*RAISED, "MemoryError: std::bad_alloc") == "host_memory_error"
