"""Logs that begin behind the head of a traceback, end within a sentence, or were wrapped in the middle of one; the forms are those of the issues named, the words ours."""

from __future__ import annotations

import io
from typing import Any

import pytest

from probing_cluster.evidence import classify
from tests.every_case import every

_PG = "[PG ID 0 PG GUID 0(default_pg) Rank 1]"
_E = "[rank1]:[E424 01:17:25.03 ProcessGroupNCCL.cpp:1895]"
_DIED = f"{_E} {_PG} Process group watchdog thread terminated with exception: [Rank 1] "
_FRAME = '  File "/opt/train.py", line 42, in main\n    run(args)\n'

CASES: list[tuple[str, str | None, dict[str, Any], str]] = [
    # name, kind of the first cause or None, what it must say, log
    (
        "LlamaFactory 8261: the file ends within the watchdog's sentence",
        "watchdog_timeout",
        {"rank": 1, "group": "default_pg"},
        f"[1833] {_DIED}Watchdog",
    ),
    (
        "UniWorld 46: a little later in it",
        "watchdog_timeout",
        {"rank": 1, "group": "default_pg"},
        f"{_DIED}Watchdog caught co",
    ),
    (
        "litData 340: the prefix of a log collector, and the end of the excerpt",
        "watchdog_timeout",
        {"rank": 6},
        "  | 2024-08-23T22:22:50.870Z | [rank6]:[E ProcessGroupNCCL.cpp:563] [Rank 6] Watchdog caught collective",
    ),
    (
        "nccl 1610: the end of the line may have cut the last field, not those before it",
        "watchdog_timeout",
        {"seq": 66, "op": "ALLREDUCE", "rank": 9, "timeout_ms": None},
        "[rank9]:[E218 04:54:22.06 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=66, OpType=ALLREDUCE, Nume",
    ),
    (
        "a number at the end of a line may go on",
        "watchdog_timeout",
        {"seq": None, "rank": 9},
        "[rank9]:[E218 04:54:22.06 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=66",
    ),
    (
        "open-r1 620: wrapped between the rank and the sentence",
        "watchdog_timeout",
        {"op": "BROADCAST", "seq": 4, "rank": 1, "group": "default_pg", "timeout_ms": 1800000},
        f"{_DIED[:-1]}\n Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran f\nor 1800010 milliseconds before timing out.",
    ),
    (
        "open-r1 620: wrapped twice, before the sentence and within it",
        "watchdog_timeout",
        {"op": "BROADCAST", "seq": 4, "rank": 1, "group": "default_pg", "timeout_ms": 1800000},
        f"{_E} {_PG} Process group watchdog thread terminat\ned with exception: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112,\n Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.",
    ),
    (
        "py4cast 116: wrapped within the name of the work",
        "watchdog_timeout",
        {"op": "ALLGATHER", "seq": 1890, "rank": 1, "timeout_ms": 1800000},
        f"{_DIED}Watchdog caught collective operation timeout: Work\nNCCL(SeqNum=1890, OpType=ALLGATHER, NumelIn=1, NumelOut=4, Timeout(ms)=1800000) ran for 1800022 milliseconds before timing out.",
    ),
    (
        "pytorch 122850: wrapped between words, the blanks gone",
        "watchdog_timeout",
        {"op": "ALLREDUCE", "seq": 2, "rank": 0, "timeout_ms": 1000},
        "[rank0]:[E327 17:04:16.986381360 ProcessGroupNCCL.cpp:565] [Rank 0]\nWatchdog caught collective operation timeout: WorkNCCL(SeqNum=2,\nOpType=ALLREDUCE, NumelIn=12, NumelOut=12, Timeout(ms)=1000) ran for\n1099 milliseconds before timing out.",
    ),
    (
        "pytorch 123023: wrapped within the sentence, the blanks gone",
        "watchdog_timeout",
        {"op": "ALLREDUCE", "seq": 2, "rank": 0, "timeout_ms": 10000},
        "[E329 19:15:11.775879730 ProcessGroupNCCL.cpp:565] [Rank 0] Watchdog\ncaught collective operation timeout: WorkNCCL(SeqNum=2,\nOpType=ALLREDUCE, NumelIn=10, NumelOut=10, Timeout(ms)=10000) ran for\n10028 milliseconds before timing out.",
    ),
    (
        "a work that names its fields in another order",
        "watchdog_timeout",
        {"op": "ALLREDUCE", "seq": 17, "rank": 3, "timeout_ms": 600000},
        "[rank3]:[E101 01:00:00.1 ProcessGroupNCCL.cpp:700] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=600000, SeqNum=17) ran for 600001 milliseconds before timing out.",
    ),
    (
        "what stands behind a sentence cut short is no part of it",
        "watchdog_timeout",
        {"rank": 1, "line": 1},
        f"{_DIED}Watchdog\nframe #0: c10::Error::Error(c10::SourceLocation) + 0x96\n",
    ),
    (
        "DeepSpeed 3645: the log begins within the traceback and does not end behind it",
        "python_exception",
        {"line": 3},
        _FRAME + "NameError: free variable 'x' referenced before assignment\n" + "waiting for the others\n" * 60,
    ),
    (
        "medgemma 12: nothing but the last line",
        "python_exception",
        {"line": 1},
        "ValueError: Expected input batch_size (1324) to match target batch_size (0).",
    ),
    (
        "the same of a rank, and the launcher's summary behind it",
        "python_exception",
        {"line": 1, "rank": 3},
        "[rank3]: AssertionError\nE0101 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: 1) local_rank: 3 (pid: 119) of binary: python",
    ),
    (
        "Megatron's rank stands within the exception's text",
        "nan_loss",
        {"rank": 11},
        "AssertionError: Rank 11: found NaN in local grad norm in backward pass",
    ),
    (
        "manylatents 134: another exception while it was handled",
        "python_exception",
        {"line": 2},
        "    raise TimeoutError(\nTimeoutError: waited for the service\n\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n" + _FRAME + "wandb.errors.errors.CommError: Run initialization has timed out",
    ),
    (
        "the training goes on behind it",
        None,
        {},
        "ValueError: bad sample\n" + "\n".join(f"iteration {n} | loss 1.2" for n in range(5)),
    ),
    (
        "much else is written behind it",
        None,
        {},
        "ValueError: bad sample\n" + "writing shard\n" * 50,
    ),
    (
        "a warning that only quotes one",
        None,
        {},
        "RuntimeError: bad sample, skipping it",
    ),
    (
        "frames that nobody gets to catch",
        None,
        {},
        "Exception ignored in: <function Loader.__del__ at 0x7f>\nTraceback (most recent call last):\n" + _FRAME + "AttributeError: 'NoneType' object has no attribute 'x'",
    ),
    (
        "frames of a stack that is only shown",
        None,
        {},
        _FRAME + "resuming from step 100\n" + "\n".join(f"iteration {n} | loss 1.2" for n in range(5)),
    ),
    (
        "vllm-ascend 780: the prefix of vLLM's logger",
        "python_exception",
        {"line": 1},
        'ERROR 05-07 05:58:46 core.py:291] AssertionError: Torch not compiled\nCRITICAL 05-07 05:58:46 core_client.py:191] Got fatal signal from worker processes, shutting down.\nKilled',
    ),
    (
        "vllm-ascend 486: HCCL's reason stands below the call",
        "watchdog_timeout_init",
        {"line": 1, "rank": 1, "op": "Allreduce"},
        ("[rank1]: RuntimeError: InnerRunOpApi:OpParamMaker.cpp:281 OPS function error: HcclAllreduce, error code is 6\n"
        "[rank1]: [ERROR] 2025-04-08-18:07:20 (PID:1, Device:1, RankID:1) ERR01100 OPS call acl api failed.\n"
        "[rank1]: EI0006: [PID: 1] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank did not send the data in time."),
    ),
    (
        "vllm-ascend 1443: a collective's notification that never came; the rank of its own line",
        "watchdog_timeout",
        {"line": 1, "rank": 8, "op": "AllReduce"},
        ("RuntimeError: npuSynchronizeDevice:NPUStream.cpp:390 NPU function error: AclrtSynchronizeDeviceWithTimeout, error code is 507048\n"
        "[ERROR] 2025-06-25-10:45:23 (PID:13075, Device:0, RankID:8) ERR00100 PTA call acl api failed\n"
        "EI0002: [PID: 13075] 2025-06-25-10:45:23.586.187 The wait execution of the Notify register times out. base information: [streamID:[1], tag[AllReduce_group_name_710]]"),
    ),
    (
        "vllm-ascend 516: a call of HCCL that names no reason",
        "nccl_internal_error",
        {},
        "RuntimeError: create_config:x.ts:102 HCCL function error: hcclCommInitRootInfoConfig(numRanks, &rootInfo, rank), error code is 19\n",
    ),
    (
        "NeMo 14399: how long the rank waited for NCCL's id, and in which collective",
        "rendezvous_timeout",
        {"rank": 1, "timeout_ms": 600000, "op": "broadcast"},
        ("[rank1]:     work = group.broadcast([tensor], opts)\n"
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"),
    ),
    (
        "accelerate 2246: why no address could be listened on stands in the warnings",
        "address_in_use",
        {"line": 1},
        ("[W socket.cpp:436] [c10d] The server socket has failed to bind to 0.0.0.0:12211 (errno: 98 - Address already in use).\n"
        "[E socket.cpp:472] [c10d] The server socket has failed to listen on any local network address."),
    ),
    (
        "Time-LLM 158: another reason is another kind",
        "rendezvous_failed",
        {},
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:98 (errno: 13 - Permission denied).",
    ),
    (
        "pytorch 148976: a fingerprint without a comma",
        "collective_mismatch",
        {"seq": 1, "op": "BARRIER", "rank": 2},
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1OpType=BARRIER), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=BARRIER).",
    ),
    (
        "ParlAI 3084: of many tasks that ended none is the one",
        "nccl_invalid_usage",
        {"rank": None},
        ("RuntimeError: NCCL error in: NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8\n"
        "srun: error: node-0: tasks 2-7: Exited with exit code 1\nsrun: error: node-1: task 14: Exited with exit code 1"),
    ),
    (
        "ROCm 4021: an AMD GPU that hangs",
        "gpu_hang",
        {"line": 1},
        "HW Exception by GPU node-9 (Agent handle: 0x631351bb5a20) reason :GPU Hang\nAborted (core dumped)",
    ),
    (
        "Chinese-LLaMA-Alpaca 534: an exception that is no more than one, between the frames of several ranks",
        "python_exception",
        {"line": 6},
        _FRAME + "self.scaler.update()\n" + _FRAME + "Exception: Current loss scale already at minimum\n" + _FRAME + "self.scaler.update()\n" * 60,
    ),
    (
        "Falcon 12: what the C library says of a damaged heap",
        "memory_corruption",
        {"line": 1},
        "malloc_consolidate(): unaligned fastbin chunk detected\nAborted (core dumped)",
    ),
    (
        "Horovod 2365: the CUDA call stands in front of its error",
        "cuda_illegal_access",
        {"line": 1, "rank": 25},
        "[1,25]<stderr>:  what():  cudaEventQuery failed: an illegal memory access was encountered\n[1,25]<stderr>:[c102:70259] *** Process received signal ***\n[1,25]<stderr>:[c102:70259] Signal: Aborted (6)",
    ),
    (
        "nccl 1514: the log begins behind NCCL's error with the name of its result",
        "nccl_internal_error",
        {"line": 1},
        "ncclInternalError: Internal check failed.\nLast error:\nNet : Connection closed by remote peer node<43236>",
    ),
    (
        "parameter-golf's baseline: NCCL goes on without a device that it cannot open",
        None,
        {},
        ("[2026-03-18 14:38:12] n:871784:871848 [5] ibvwrap.c:94 NCCL WARN Call to ibv_open_device failed\n\n"
        "[2026-03-18 14:38:12] n:871784:871848 [5] p2p_plugin.c:565 NCCL WARN NET/IB : Unable to open device mlx5_an0\nstep:1 loss:1.2"),
    ),
    (
        "a link flaps and the training goes on",
        None,
        {},
        "n:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n" + "".join(f"iteration {n} | loss 1.2 {'x' * 200}\n" for n in range(80)),
    ),
    (
        "a link flaps and nothing goes on",
        "net_ib_async_event",
        {"line": 3},
        "iteration 1 | loss 1.2\niteration 2 | loss 1.1\nn:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n",
    ),
    (
        "a link flapped long before the program failed for itself",
        "cuda_oom",
        {},
        "n:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n" + "".join(f"iteration {n} | loss 1.2\n" for n in range(9))
        + "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
    ),
    (
        "a rank that asks for NCCL's id; the paste ends within the reason",
        "rendezvous_failed",
        {"line": 3, "rank": 5, "op": "barrier"},
        "Traceback (most recent call last):\n    work = default_pg.barrier(opts=opts)\nRuntimeError: [5] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Soc",
    ),
    (
        "DeepSpeed: the line ends within the command",
        "task_exit",
        {"line": 2, "domains": ["user_program", "system_software", "hardware"]},
        "[2026-05-15 00:12:57,785] [INFO] [launch.py:178:sigkill_handler] Killing subprocess 2211\n[2026-05-15 00:12:57,786] [ERROR] [launch.py:184:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_ra",
    ),
    (
        "DeepSpeed: a page broke the line within the command",
        "oom_kill_suspected",
        {"line": 3},
        "[2026-05-15 00:12:57,785] [INFO] [launch.py:178:sigkill_handler] Killing subprocess 2211\n[2026-05-15 00:12:57,786] [ERROR] [launch.py:184:sigkill_handler] ['/usr/bin/python3', '-u', 'train.py', '--local_ra\nnk=1', '--lr', '0.1'] exits with return code = -9",
    ),
    (
        "Paddle: the line ends within the command",
        "task_exit",
        {"line": 2, "rank": 3},
        "LAUNCH INFO 2026-11-21 02:35:54,384 Pod failed\nContainer rank 3 status failed cmd ['/usr/bin/python3', '-u', 'tools/train.py'",
    ),
    (
        "Paddle: a worker that was ended from outside",
        "process_terminated",
        {"line": 2},
        "Container rank 0 status failed cmd ['/usr/bin/python3', '-u', 'train.py'] code -15 log log/workerlog.0\nLAUNCH INFO 2026-11-21 02:35:54,796 Exit code -15",
    ),
    (
        "Paddle: the code of the failed worker",
        "segfault",
        {"line": 2},
        "LAUNCH ERROR 2026-11-21 02:35:54,385 Container failed !!!\nContainer rank 0 status failed cmd ['/usr/bin/python3', '-u', 'train.py'] code -11 log log/workerlog.0",
    ),
    (
        "torchelastic passes a hang-up on; the end of its traceback is cut off",
        "process_terminated",
        {"line": 1, "domains": ["user_program"]},
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 411 closing signal SIGHUP\nTraceback (most recent call last):\n  File \"/opt/torch/distributed/run.py\", line 7, in run\n    elastic_la",
    ),
    (
        "torchelastic ends the others after one failed",
        "python_exception",
        {"line": 4},
        "Traceback (most recent call last):\n" + _FRAME + "KeyError: 'lr'\nWARNING:torch.distributed.elastic.multiprocessing.api:Sending process 411 closing signal SIGTERM",
    ),
    (
        "Ascend: the form with the function's name",
        "watchdog_timeout_init",
        {"line": 1},
        "[PID: 81] 2026-12-29-03:16:15.787.356 Get_Socket_Timeout(EI0006): Getting socket times out. Reason: 1. The remote does not initia",
    ),
    (
        "Ascend: a task of HCCL, without the lines above",
        "watchdog_timeout",
        {"line": 2, "timeout_ms": 1836000},
        "        TraceBack (most recent call last):\n        The error from device(chipId:2, dieId:0), serial number is 9, hccl fftsplus task timeout occurred during task execution, stream_id:7, sq_id:7, task_id:5, stuck notify num:3, timeout:1836.[FUNC:Pro",
    ),
    (
        "a logger announces the traceback below it",
        "python_exception",
        {"line": 5, "domains": ["user_program"]},
        "[2026-03-27 08:57:41] ERROR: Uncaught exception:\nTraceback (most recent call last):\n" + _FRAME + "OSError: Caught OSError in DataLoader worker process 5.\nOriginal Traceback (most recent call last):\n  File \"/opt/wor",
    ),
    (
        "a logger announces the loss of a peer",
        "python_consequence",
        {"line": 5},
        "2026-03-27 08:57:41 - ERROR - Training failed:\nTraceback (most recent call last):\n" + _FRAME + "ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    (
        "a logger announces a traceback that is cut off: nothing shows whether of this error",
        "program_error",
        {"line": 1},
        "2026-03-27 08:57:41 - ERROR - Training failed:\nTraceback (most recent call last):\n" + _FRAME,
    ),
    (
        "an error that does not announce the traceback below it",
        "program_error",
        {"line": 1},
        "2026-03-27 08:57:41 - ERROR - shard 17 holds no samples\nTraceback (most recent call last):\n" + _FRAME + "ConnectionResetError: [Errno 104] Connection reset by peer",
    ),
    (
        "a logger without the label that PyTorch's traceback has",
        "python_consequence",
        {"line": 5, "rank": 0},
        '2026-03-27 08:57:41 - ERROR - Training failed:\n[rank0]: Traceback (most recent call last):\n[rank0]:   File "/opt/train.py", line 42, in main\n[rank0]:     run(args)\n[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer',
    ),
    (
        "a page's mark for code in front of the first line",
        "python_exception",
        {"line": 4},
        "`Traceback (most recent call last):\n" + _FRAME + "KeyError: 'lr'",
    ),
    (
        "a logger announces more than the traceback below it, of which nothing is there",
        "program_error",
        {"line": 2},
        "step 1\nFATAL: card 3 failed its self test, results:\nTraceback (most recent call last):",
    ),
    (
        "PhysX passes on an error that names its reason",
        "cuda_ecc",
        {"line": 1},
        "/b/source/gpusolver/src/PxgCudaSolverCore.cpp (148) : internal error : CUDA error: uncorrectable ECC error encountered\nstep 1\nstep 2\n",
    ),
    (
        "PhysX finds a leak at a good end",
        None,
        {},
        "Training finished\n/b/source/gpucommon/src/PxgCudaMemoryAllocator.cpp (48) : internal error : Memory leak of 12 bytes",
    ),
    (
        "a port of an adapter that NCCL cannot initialise",
        "net_ib_error",
        {"line": 1},
        "n1:123:456 [0] net_ib.cc:30 NCCL WARN NET/IB : mlx5_0:1 port failed to initialize",
    ),
    (
        "anybody's message in the form of glibc's",
        "program_error",
        {"line": 1},
        "*** Error in 'hive.yaml': unknown key 'wax_rate'",
    ),
    (
        "an error of glog's whose word stands in the file's name",
        "program_error",
        {"line": 2},
        "start\nF0501 10:00:00.123456  1234 solver_error.cc:33] rank 3 gives up",
    ),
    (
        "RPC agents that lose each other between calls, as they do at every end",
        None,
        {},
        "epoch 1 loss 2.1\nepoch 2 loss 2.0\n[W tensorpipe_agent.cpp:725] RPC agent for worker1 encountered error when reading incoming request from worker0: eof (this error originated at tensorpipe/transport/shm/connection_impl.cc:259)",
    ),
    (
        "the same with an answer that nobody waits for any more",
        None,
        {},
        "epoch 1 loss 2.1\nepoch 2 loss 2.0\nTraining finished successfully.\n[W tensorpipe_agent.cpp:939] RPC agent for worker1 encountered error when reading incoming response from worker0: eof (this error originated at tensorpipe/transport/uv/connection_impl.cc:132)",
    ),
    (
        "PyTorch/XLA: the mesh's master is gone",
        "store_lost",
        {"line": 1},
        "Exception in device=TPU:6: tensorflow/compiler/xla/xla_client/mesh_service.cc:294 : Failed to meet rendezvous 'loss_sum': Socket closed (14)\nTraceback (most recent call last):\n" + _FRAME,
    ),
    (
        "PyTorch/XLA: not all came",
        "rendezvous_timeout",
        {"line": 1},
        "RuntimeError: tensorflow/compiler/xla/xla_client/mesh_service.cc:243 : Failed to meet rendezvous 'torch_xla.core.xla_model.save': Deadline Exceeded (4)",
    ),
]  # fmt: skip


def _read(text: str) -> list[dict[str, Any]]:
    return list(classify.classify_stream([line.encode() for line in text.split("\n")], "joblog"))


@pytest.mark.parametrize(("name", "kind", "fields", "text"), CASES, ids=[c[0] for c in CASES])
def test_cut_log(name: str, kind: str | None, fields: dict[str, Any], text: str) -> None:
    """The first cause of a log of which only a part is there."""
    found = _read(text)
    first = [f for f in found if f["first_cause"]]
    assert [f["kind"] for f in first] == ([kind] if kind else []), (name, found)
    for field, value in fields.items():
        assert first[0][field] == value, (name, field)
    assert [f["line"] for f in found] == sorted(f["line"] for f in found)


def test_result_belongs_to_its_error() -> None:
    """The name of NCCL's result behind the error is no second finding."""
    found = _read(
        "RuntimeError: NCCL error in: x.cpp:784, unhandled cuda error, NCCL version 2.7.8\nncclUnhandledCudaError: Call to CUDA function failed."
    )
    assert [(f["line"], f["kind"]) for f in found] == [(1, "nccl_unhandled_cuda")]


@pytest.mark.parametrize("n_chars", [9_000, 70_000, 3_000_000])
@pytest.mark.parametrize("as_file", [True, False], ids=["file", "lines"])
@pytest.mark.parametrize("newline", ["", "\n"])
def test_error_at_the_end_of_a_very_long_line(n_chars: int, as_file: bool, newline: str) -> None:
    """Dots or numbers without a newline, and the error behind them, whichever way the log is read."""
    data = f"start\n{'x' * n_chars} RuntimeError: tokenizer exploded{newline}".encode()
    lines = io.BytesIO(data) if as_file else data.splitlines(keepends=True)
    (found,) = classify.classify_stream(lines, "joblog")
    assert (found["line"], found["kind"], found["first_cause"]) == (2, "python_exception", True)


@pytest.mark.parametrize(
    "end",
    ['{"error": "RuntimeError: no"}', "RuntimeError: no. Epoch 2", "error: 0.25 error: 0.5", "x_Error: a"],
    ids=["json", "goes-on", "figures", "name"],
)
def test_end_of_a_very_long_line_without_an_error(end: str) -> None:
    """Data of a long line, or a line after which the program went on."""
    steps = "".join(f"\nepoch {n} loss 0.5" for n in range(9))
    data = f"{'x' * 9_000} {end}{steps if 'Epoch' in end else ''}".encode()
    assert not [f for f in classify.classify_stream([*data.splitlines()], "joblog") if f["first_cause"]]


_LOST = "ModuleNotFoundError: No module named 'bees'"
_ENDED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-02T10:00:00 ***"


@every(
    ("lines", "kind"),
    [
        ([_LOST, _ENDED], "slurm_cancelled"),
        (["", _LOST, "row 1", _ENDED], "slurm_cancelled"),
        ([_LOST, *(f"row {n} of wax" for n in range(4)), _ENDED], "slurm_cancelled"),
        (["reading wax", _LOST, _ENDED], "slurm_cancelled"),
        ([_LOST, _ENDED.replace(" ***", " DUE TO NODE FAILURE ***")], "slurm_node_fail"),
        ([_LOST, _ENDED.replace(" ***", " DUE TO TIME LIMIT ***")], "slurm_timeout"),
    ],
)
def test_an_exception_with_which_the_log_begins_is_not_why_slurm_ended_the_job(
    lines: list[str], kind: str
) -> None:
    """Programs print one and go on without what they lack; nothing shows that a traceback was cut off."""
    found = classify.classify_stream(io.BytesIO("\n".join(lines).encode()), "joblog")
    assert next(f["kind"] for f in found if f["first_cause"]) == kind


def test_a_log_with_the_blanks_of_a_page_says_what_it_said() -> None:
    """Pages keep the blanks of a log by those at which no line may be broken."""
    log = 'reading wax 1\nException in thread "main" java.lang.IllegalStateException: no comb\n\tat a.B.c(B.java:3)\n'
    page = log.replace(" ", "\N{NO-BREAK SPACE}")
    found = [list(classify.classify_stream(io.BytesIO(text.encode()), "joblog")) for text in (log, page)]
    assert [(f["line"], f["kind"], f["first_cause"]) for f in found[1]] == [(2, "program_error", True)]
    assert found[0] == found[1]


_END = "slurmstepd: error: *** JOB 4711 ON gpu-node07 CANCELLED AT 2026-03-14T09:26:53 DUE TO TIME LIMIT ***"
_ANYBODY = ["user_program", "system_software", "hardware"]


@every(
    ("n_chars", "kind"),
    [
        *((n, "process_terminated") for n in (45, 55, 63, 76, 82, 85, 87)),
        *((n, "slurm_timeout") for n in (89, 92, 97, len(_END))),
    ],
)
def test_an_end_by_slurm_whose_reason_is_cut_off(n_chars: int, kind: str) -> None:
    """Slurm ended the job, and nobody knows why until the first letters of the reason are there."""
    (found,) = _read(f"epoch 1 loss 2.1\n{_END[:n_chars]}")
    assert (found["kind"], found["line"], found["first_cause"]) == (kind, 2, True)
    assert found["domains"] == (_ANYBODY if kind == "process_terminated" else ["user_program"])


@every(
    ("line", "kind"),
    [
        ("srun: error: gpu-node07: t", "task_exit"),
        ("srun: error: gpu-node07: task", "task_exit"),
        ("srun: error: gpu-node07: tasks 0-3,", "task_exit"),
        ("srun: error: gpu-node07: task 3: Exi", "task_exit"),
        ("srun: error: gpu-node07: task 3: Segmentati", "segfault"),
        ("srun: error: gpu-node07: task 3: K", "oom_kill_suspected"),
        ("srun: error: gpu-node07: task 3: Exited with exit code 2", "task_exit"),
    ],
)
def test_an_end_of_tasks_that_is_cut_off(line: str, kind: str | None) -> None:
    found = [f for f in _read(f"epoch 1 loss 2.1\n{line}") if f["first_cause"]]
    assert [f["kind"] for f in found if f["kind"] != "slurm_launch_failed"] == ([kind] if kind else [])


@every(
    "line",
    [
        "RuntimeError: No CUDA GP",
        "OSError: [Errno 101] Netw",
        "RuntimeError: NCCL error in: /opt/conda/torch/lib/c10d/ProcessGroupNCCL.cpp:825, unhandled",
        "RuntimeError: DataLoader worker (pid 146",
        "RuntimeError: DataLoader worker (pid 1469) is killed by sig",
        "RuntimeError: Connectio",
        "OSError: [Errno 28",
        "lightning.fabric.utilities.exceptions.MisconfigurationException: No suppor",
        "RuntimeError: One or more background workers are no longe",
        "pygpu.gpuarray.GpuArrayException: b'cuDevicePrimary",
        "ValueError: host not found: Na",
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: run time error: custom call 'xla.gpu.reduce_scatter' failed: external/xla/xla/servi",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (e",
        "RuntimeError: CUDA error:",
        "RuntimeError: DataLoader worke",
        "ERROR:composer.cli.launc",
        "Exception in device=TPU:6: tensorflow/compiler/xla/xla_client/mesh_service.cc:294 : F",
        "RuntimeError: [enforce fail at inline_container.cc",
        "RuntimeError: Rank 5, node n27, device 5, iter",
        "RuntimeError: Rank 5, node n27, device 5, iteration 8123: Unexpected result nan (message='found NaN in lo",
        "forrtl: severe (174): S",
        "RuntimeError: CUDNN_STATUS_NOT_IN",
        "FatalError: `Termination signal` is detec",
        "forrtl: error (78): process killed",
        "/opt/bin/solve: line 17: echo: write erro",
        "RuntimeError: [enforce fail at inline_container.cc:764] . PytorchStreamWrit",
        "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/a/main.c', '-O3'",
        "MPICH ERROR [Rank 7] [job id 65.0] [Mon Jan 11 16:15:34 2026] [unknown] [nid001] - Abort(1115279) (rank 7 in comm 0): Fatal error in PMPI",
    ],
)  # fmt: skip
def test_an_error_that_is_cut_off_before_it_shows_whose_fault_it_is_accuses_nobody(line: str) -> None:
    """What the whole line says may be a machine's or another process's fault."""
    (found,) = [f for f in _read(f"epoch 1 loss 2.1\n{_FRAME}{line}") if f["first_cause"]]
    assert found["domains"] == _ANYBODY


@every(
    "line",
    [
        "RuntimeError: No CUDAtrix in the batch",
        "ValueError: no such mode",
        "RuntimeError: Input/output shapes differ",
        "ERROR:trainer:bad config",
        "ERROR:bad_config",
        "RuntimeError: Rank 5, node n27, device 5, iteration 8123: the batch has no tokens",
        "ValueError: case foo unhandled",
        "Aborted (by user)",
        "KeyError: 'Broken'",
        "FileNotFoundError: [Errno 2] No su",
        "ValueError: unknown backend: Connection",
        "ValueError: unsupported layer type: Transport",
        "RuntimeError: job of rank 4 crashed",
        "AttributeError: module has no attribute CUDNN_STATUS",
        "RuntimeError: Rank 0 crashed with an empty batch",
    ],
)
def test_an_error_that_only_begins_alike_is_the_programs(line: str) -> None:
    (found,) = [f for f in _read(f"epoch 1 loss 2.1\n{_FRAME}{line}") if f["first_cause"]]
    assert found["domains"] == ["user_program"]


@every(
    ("line", "kind"),
    [
        ("nk0]: ValueError: min() arg is an empty sequence", "python_exception"),
        ("rmine the device handle for GPU0000:4E:00.0: GPU is lost.  Reboot the system to recover this GPU", "cuda_device_lost"),
        ("Python error: Segmentation fault", "segfault"),
        (": severe (174): SIGSEGV, segmentation fault occurred", "segfault"),
        ("access fault by GPU node-2 (Agent handle: 0x1191a00) on address (nil). Reason: Page not present", "cuda_illegal_access"),
    ],
)  # fmt: skip
def test_a_log_that_begins_within_the_line_of_its_cause(line: str, kind: str) -> None:
    found = _read(f"{line}\nsrun: error: n1: task 0: Exited with exit code 1")
    assert [(f["kind"], f["line"]) for f in found if f["first_cause"]] == [(kind, 1)]


def test_rusts_number_of_an_error_is_the_systems() -> None:
    """The system's words stand behind it, where the line goes so far."""
    (found,) = _read(
        "safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: Stor"
    )
    assert found["kind"] == "disk_full"
