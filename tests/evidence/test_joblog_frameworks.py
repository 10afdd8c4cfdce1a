"""Fatal messages of training and serving frameworks as their own loggers print them, and their notes."""

from __future__ import annotations

import io

import pytest

from probing_cluster.evidence import classify
from tests.every_case import every

BEFORE = [f"epoch 0 | step {n} | loss {4.9 - n / 90:.4f} | 3.12 it/s" for n in range(10, 60, 10)]
AFTER = [f"epoch 0 | step {n} | loss {4.9 - n / 90:.4f} | 3.12 it/s" for n in range(60, 90, 10)]
ALL = ["user_program", "system_software", "hardware"]
NETWORK = ["hardware", "system_software"]


def first(lines: list[str]) -> tuple[str, str, list[str]] | None:
    """Kind, line and domains of the first cause, read as files are."""
    text = [*BEFORE, *lines]
    found = classify.classify_stream(io.BytesIO("\n".join(text).encode()), "joblog")
    causes = ((str(f["kind"]), text[int(f["line"]) - 1], f["domains"]) for f in found if f["first_cause"])
    return next(causes, None)


LEVELLED = [
    "ERROR 11-29 09:00:17 [manager.py:340] KV tiers disagree on the block size",
    "(EngineCore_0 pid=41231) ERROR 11-29 09:00:17 [core.py:1584] the grammar is at odds with the tokens",
    "E1129 09:00:17.123000 41231 torch/_inductor/compile_worker/subproc_pool.py:294] unpickle trouble in the pool",
    "[rank3]:[E1129 09:00:17.123456789 TCPStore.cpp:88] [c10d] the number of keys is odd",
    "[NeMo E 2025-11-29 09:00:17 data_explorer:275] the manifest has no field with name: text",
    "[2025-11-29 09:00:17,123 C 41231 41231] (raylet) node_manager.cc:88: Value of the label is odd",
    "[2025-11-29 09:00:17.123456: E /tmp/pip/horovod/common/operations.cc:681] Horovod is at odds with its launcher",
    "[rank0]:[titan] 2025-11-29 09:00:17,123 - root - ERROR - training diverged",
]


@every("line", LEVELLED)
def test_the_level_of_a_frameworks_logger_makes_its_last_line_the_cause(line: str) -> None:
    found = first([line])
    assert found is not None
    assert found[:2] == ("program_error", line)


@every("line", LEVELLED)
def test_work_behind_such_a_line_shows_that_it_ended_nothing(line: str) -> None:
    assert first([line, *AFTER]) is None


@every(
    "line",
    [
        "ERROR 11-29 09:00:17 [base_worker.py:4096] handle is busy at shutdown.",
        "INFO 11-29 09:00:17 [manager.py:340] KV tiers disagree on the block size",
        "[rank3]:[W1129 09:00:17.123456789 TCPStore.cpp:88] [c10d] the number of keys is odd",
        "[NeMo W 2025-11-29 09:00:17 data_explorer:275] the manifest has no field with name: text",
        "(EngineCore_0 pid=41231) WARNING 11-29 09:00:17 [fi.py:424] All Reduce is off: it is not supported for world_size=12.",
        "WARNING 11-29 09:00:17 [cuda.py:969] Failed to get NUMA nodes for GPUs: Broken pipe",
        "[rank3]:[I1129 09:00:17.123456789 TCPStore.cpp:88] Unsupported memory format. Supports only Contiguous",
        '[NeMo W 2025-11-29 09:00:17 a2t_dataset:349] "max_utts" parameter is not supported for tarred data',
        "[2025-11-29 09:00:17,123 I 41231 41300] (raylet) node_manager.cc:88: Not enough memory to create the object",
        "[NeMo E 2025-11-29 09:00:17 exp_manager:870] You run without SLURM. Please note that this is not tested in NeMo.",
        "[2025-11-29 09:00:17,123 E 41231 41231] (raylet) file_system_monitor.cc:116: /tmp/ray/s is over 95% full",
        "[2025-11-29 09:00:17,123 E 41231 41231] core_worker.cc:9: No exporter agent: metrics will not be exported",
        "E0000 00:00:1732900000.123456   41231 cuda_dnn.cc:8310] a factory of plugin cuDNN is there already",
        "E1129 09:00:17.123456 41231 runtime/pjrt_odd.cc:1228] the version of the driver is odd",
        "2025-11-29 09:00:17.123456: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] a factory is there already",
    ],
)
def test_notes_below_that_level_and_words_about_the_end_are_no_cause(line: str) -> None:
    assert first([line]) is None


@every(
    ("line", "kind", "domains"),
    [
        ("/src/modules/transport/ibgda/ibgda.cpp:2502: non-zero status: 7 ibv_modify_qp init2rtr for dct failed.", "net_ib_error", NETWORK),
        ("/src/modules/transport/common/transport_ib_common.cpp:94: NULL value mem registration failed.", "net_ib_error", NETWORK),
        ("/src/modules/transport/libfabric/libfabric.cpp:1451: NULL value Unable to allocate EPs.", "program_error", ALL[:2]),
        ("/src/host/init/init.cu:929: non-zero status: 7 bootstrap barrier failed", "rendezvous_failed", ALL),
        ("/src/host/mem/mem_heap.cpp:1896: non-zero status: 7 Non-zero flags", "program_error", ALL[:2]),
        ("/build/nvshmem/src/host/init/init.cu:nvshmemi_setup:528: the device at index 3 is not valid.", "program_error", ALL[:2]),
        ("F1129 09:00:17.1 31 client.h:80] Terminating process because the coordinator detected missing heartbeats.", "peer_lost", ALL),
        ("jaxlib._jax.XlaRuntimeError: ABORTED: The following tasks have disconnected: /job:jax_worker/task:3", "peer_lost", ALL),
        ("(raylet) The node with node id: ab and address: 10.1.4.7 has been marked dead because the detector has missed too many heartbeats from it.", "peer_lost", ALL),
        ("[2025-11-29 09:00:17,123 E 31 31] (raylet) node_manager.cc:88: Killing leased worker because its owner's node died.", "peer_lost", ALL),
        ("[2025-11-29 09:00:17,123 C 31 31] rpc_client.h:540: Failed to connect to GCS within 60 seconds. GCS may have been killed.", "peer_lost", ALL),
        ("2025-11-29 09:00:17 | ERROR | fairseq.distributed | Killing job for not making progress in 1800 seconds.", "watchdog_timeout", ALL),
        ("[2025-11-29 09:00:17 TP3] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)", "watchdog_timeout", ALL),
        ("E1129 09:00:17.1 31 torch/distributed/elastic/agent.py:55] [default] Worker pid=81 stuck in uninterruptible sleep (D-state) for 620.0s", "watchdog_timeout", NETWORK),
        ("2025-11-29 09:00:17 | ERROR | fairseq.trainer | OOM during optimization, irrecoverable", "cuda_oom", ALL[:1]),
        ("RuntimeError: You requested to find 8 devices but only 6 are currently available.", "cuda_unavailable", ALL),
        ("MisconfigurationException: You requested gpu: [0, 1, 2, 3]", "cuda_unavailable", ALL),
        ("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.", "cuda_unavailable", ALL),
        ("ValueError: kernel=cutlass requires a CUDA device, but none is available.", "cuda_unavailable", ALL),
        ("RuntimeError: No GPU or Intel XPU found. A GPU or Intel XPU is needed.", "cuda_unavailable", ALL),
        ("RuntimeError: FSDP needs a non-CPU accelerator device, but no accelerator device is detected.", "cuda_unavailable", ALL),
        ("ValueError: Cuda is not available.", "cuda_unavailable", ALL),
        ("RuntimeError: Not enough GPU memory for the hybrid state cache. 9 GB remain.", "cuda_oom", ALL[:1]),
        ("ValueError: Not enough host memory for the paged pool. Requesting 12.5 GB but only have 8.1 GB free.", "host_memory_error", ALL[:1]),
        ("RuntimeError: Train loss contains a NaN.", "nan_loss", [ALL[0], ALL[2]]),
        ("FloatingPointError: gradients are Nan/Inf", "nan_loss", [ALL[0], ALL[2]]),
        ("ValueError: (check_for_nan_in_grad=True) Detected NaN or Inf in wgrad: w", "nan_loss", [ALL[0], ALL[2]]),
        ("RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.", "nan_loss", [ALL[0], ALL[2]]),
        ("RuntimeError: Process loader (pid 1024) has exited unexpectedly.", "python_consequence", ALL),
        ("RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated.", "python_consequence", ALL),
        ("RuntimeError: Fault detected in all2all: one or more ranks timed out during dispatch.", "python_consequence", ALL),
        ("wandb: ERROR Control-C detected -- Run data was not synced", "interrupted", ALL),
        ("ray.exceptions.OutOfDiskError: Local disk is full", "disk_full", ALL[:2]),
        ("RuntimeError: Abort event was set. So someone died and we should end this madness.", "python_consequence", ALL),
        ("The metadata file names no iteration: unable to load the state, exiting", "program_error", ALL[:1]),
    ],
)  # fmt: skip
def test_the_kind_and_the_domains_are_those_of_what_failed(line: str, kind: str, domains: list[str]) -> None:
    found = first([line])
    assert found is not None
    assert (found[0], found[1], found[2]) == (kind, line, domains)


@every(
    "line",
    [
        "/src/host/topo.cpp:182: non-zero status: 7 fabric info failed... Detection will not be attempted",
        "WARN: GPU cannot map UAR of device mlx5_0. Skipping...",
        "Reached the limit of 30 minutes, exiting",
        "Training is done, exiting.",
        "Nothing wrong with the data, model saved, exiting.",
        "INFO:data: no GPU found, the CPU does the work",
        "WARNING: loss scale reached its minimum; NaNs are masked",
        "Skipping the batch: NaN detected in gradients",
    ],
)
def test_what_goes_on_or_ends_on_purpose_is_no_cause(line: str) -> None:
    assert first([line]) is None


@every(
    "line",
    [
        "WARNING 11-29 09:00:17 [cuda.py:969] Failed to get NUMA nodes for GPUs: Broken pipe",
        "[rank3]:[W1129 09:00:17.123456789 TCPStore.cpp:88] [c10d] recvValue failed: Connection was closed",
    ],
)
def test_a_note_that_names_an_error_is_the_last_word_before_a_bad_exit(line: str) -> None:
    """Some frameworks warn of what then ends them."""
    found = first([line, "srun: error: n1: task 0: Exited with exit code 1"])
    assert found is not None
    assert found[:2] == ("program_error", line)


def test_a_heading_of_that_level_leaves_the_cause_to_the_line_below_it() -> None:
    head = "[NeMo E 2025-11-29 09:00:17 perf:110] The packed data is at odds with its index. What was found:"
    reason = "    invalid value 7 for field width"
    assert first([head, reason]) == ("program_error", reason, ["user_program"])


RAISED = ["Traceback (most recent call last):", '  File "t.py", line 3, in <module>']


@every(
    "line",
    [
        "RuntimeError: ninja process exited with non-zero status 1",
        "RuntimeError: ffmpeg process exited with non-zero status 1: moov atom not found",
        "RuntimeError: the ffmpeg process died",
        "RuntimeError: database server is dead",
        "RuntimeError: docker daemon is dead",
        "ValueError: Found NaN in column 'price' of /data/x.csv",
        "ValueError: NaN detected in column 'price' of /data/x.csv",
        "ValueError: read_csv returned nan values",
    ],
)
def test_a_tool_of_the_program_and_its_data_are_the_programs_own(line: str) -> None:
    """Neither is a lost peer or a value that a GPU computed."""
    assert first([*RAISED, line]) == ("python_exception", line, ALL[:1])


@every(
    ("line", "kind"),
    [
        (
            "ValueError: (InvalidArgument) TCP receive error. Details: Resource temporarily unavailable.",
            "python_consequence",
        ),
        ("RuntimeError: Engine core process died unexpectedly", "python_consequence"),
        ("RuntimeError: Worker process exited with non-zero status 1", "python_consequence"),
        ("RuntimeError: vllm server process exited unexpectedly", "python_consequence"),
        ("RuntimeError: Scheduler or detokenizer is dead", "python_consequence"),
        ("RuntimeError: NaN detected", "nan_loss"),
        ("RuntimeError: inf/nan detected in logits", "nan_loss"),
        ("ValueError: found NaN in the gradients of layer 3", "nan_loss"),
    ],
)
def test_a_process_of_the_program_itself_and_what_it_computes_are_not(line: str, kind: str) -> None:
    found = first([*RAISED, line])
    assert found is not None
    assert found[:2] == (kind, line)


NODE_DEAD = "(raylet) The node with node id: ab and address: 10.1.4.7 has been marked dead because the detector has missed too many heartbeats from it."
RETRIED = "(raylet) Task f failed because its node died. The task will be retried."
FINISHED = "all 100 tasks finished, 0 failed"


@every(
    "lines",
    [
        [RETRIED, FINISHED],
        [RETRIED, RETRIED, FINISHED],
        [NODE_DEAD, "autoscaler: removed idle node", FINISHED],
    ],
)
def test_a_lost_node_whose_work_ray_begins_anew_is_no_cause_of_a_good_end(lines: list[str]) -> None:
    assert first(lines) is None


@pytest.mark.parametrize("line", [RETRIED, NODE_DEAD])
@pytest.mark.parametrize(
    "end",
    [
        [],
        ["(autoscaler) Resized to 8 CPUs."],
        ["waiting", "srun: error: n1: task 0: Exited with exit code 1"],
        [
            "waiting",
            *RAISED,
            "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        ],
        ["ERROR utils.py:42 -- The actor died unexpectedly", "class_name: W"],
    ],
)
def test_a_lost_node_is_the_cause_where_the_job_ends_with_it_or_badly(line: str, end: list[str]) -> None:
    assert first([line, *end]) == ("peer_lost", line, ALL)


def test_a_programs_own_last_error_behind_a_retried_task_is_the_cause() -> None:
    own = "solver: cannot open mesh.msh"
    assert first([RETRIED, "working", own]) == ("program_error", own, ALL[:1])


@every(
    "line",
    [
        "/opt/nvshmem/src/host/init.cu:33:5: warning: unused variable 'x'",
        "/opt/nvshmem/src/host/init.cu:33: warning: unused variable 'x'",
        "/opt/nvshmem/src/host/init.cu:33:5: note: declared here",
        "/x/nvshmem_src/src/topo.cpp:nvshmemi_topo:470: NVSHMEM WARN IB HCA and GPU are not on the same NUMA",
        "/x/nvshmem_src/src/topo.cpp:nvshmemi_topo:470: NVSHMEM INFO using mlx5_0",
    ],
)
def test_a_compilers_warning_and_nvshmems_own_notes_are_no_failure_of_it(line: str) -> None:
    text = f"building\n{line}\n[2/3] linking\nbuild finished\n"
    assert not list(classify.classify_stream(io.BytesIO(text.encode()), "joblog"))
