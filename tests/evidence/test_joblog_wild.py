"""Forms of job output found in issue trackers that an earlier grammar misread; the words are ours, the forms are of the issue named."""

from __future__ import annotations

import pytest

from probing_cluster.evidence import classify
from probing_cluster.evidence.joblog import reader

FOUND = [
    # name of the source, kind of the first cause or None, what it must say, log
    (
        "open-r1 620: a terminal wrapped inside the description of the work",
        "watchdog_timeout",
        {"op": "BROADCAST", "seq": 4, "rank": 2, "timeout_ms": 1800000},
        ("[rank2]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n"
        "pe=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
        "[rank3]:[E424 01:11:21.17 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n"),
    ),
    (
        "the same, and the rest was never written",
        "watchdog_timeout",
        {"op": None, "rank": 2},
        "[rank2]:[E424 01:11:21.16 ProcessGroupNCCL.cpp:629] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpTy\n",
    ),
    (
        "prime-rl 3186: only the dump's request is left of a rank's own timeout",
        "watchdog_timeout",
        {"rank": 1},
        "[rank1]:[E801 01:01:39.25 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 1] Received a dump signal due to a collective timeout from this local rank and we will try our best to dump the debug info. Last enqueued NCCL work: 37, last completed NCCL work: 36.",
    ),
    (
        "jax 17399: NCCL's result as XLA prints it",
        "nccl_unhandled_cuda",
        {},
        ("INTERNAL: external/xla/xla/service/gpu/nccl_utils.cc:275: NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled cuda error\n"
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable"),
    ),
    (
        "LWM 42: the same within the exception",
        "nccl_internal_error",
        {},
        ("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n"
        "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: custom call 'xla.gpu.reduce_scatter' failed: nccl_utils.cc:305: NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: internal error - please report this issue to the NCCL developers."),
    ),
    (
        "llama-2-jax 20: the processes did not all meet",
        "rendezvous_timeout",
        {},
        ("Traceback (most recent call last):\n  File \"t.py\", line 89, in main\n"
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. Timed out task names:"),
    ),
    (
        "marin 7430: a process that only hears of another's death",
        "peer_lost",
        {},
        "F0318 10:00:00.0 123 client.h:77] Terminating process because the JAX distributed service detected fatal errors. This most likely indicates that another task died; see the other task logs for more details.",
    ),
    (
        "OpenRLHF 624: Ray",
        "peer_lost",
        {"pid": None},
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker.",
    ),
    (
        "ray's own memory monitor",
        "host_oom_kill",
        {},
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
    ),
    (
        "ucx 6000: MPI over UCX",
        "net_ib_completion_error",
        {},
        ("[n1:24113:0:24113] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n"
        "mpirun noticed that process rank 3 with PID 24113 on node n1 exited on signal 6 (Aborted)."),
    ),
    ("uccl 641: verbs without NCCL", "net_ib_error", {}, "Failed to modify QP to RTR: Connection timed out\nerrno: 110"),
    (
        "pytorch 108732: gloo cannot connect",
        "gloo_connect_failed",
        {},
        "RuntimeError: [/work/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [10.0.0.1]:13195: Connection refused",
    ),
    (
        "pytorch 69197: the store of torch 1.10",
        "rendezvous_timeout",
        {"timeout_ms": 60000},
        "Traceback (most recent call last):\n  File \"a.py\", line 155, in _create_tcp_store\nRuntimeError: connect() timed out. Original timeout was 60000 ms.",
    ),
    ("ComfyUI 9529", "cuda_oom", {}, "HIP out of memory. Tried to allocate 432.00 MiB. GPU 0 has a total capacity of 15.92 GiB"),
    (
        "autotrain 737",
        "cuda_version",
        {},
        ("RuntimeError: HIP error: no kernel image is available for execution on the device\n"
        "HIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\n"
        "For debugging consider passing AMD_SERIALIZE_KERNEL=3"),
    ),
    (
        "ROCm pytorch 797",
        "cuda_illegal_access",
        {},
        "Memory access fault by GPU node-2 (Agent handle: 0x5646) on address 0x7fe55fb03000. Reason: Page not present or supervisor privilege.\nAborted (core dumped)",
    ),
    (
        "pytorch 10577: saving on a failing disk",
        "io_error",
        {},
        "Traceback (most recent call last):\n  File \"train.py\", line 250, in <module>\nRuntimeError: write(): fd 29 failed with Input/output error",
    ),
    (
        "nccl 1518: a warning without its prefix",
        "nccl_unhandled_cuda",
        {},
        "NCCL WARN Cuda failure 'invalid argument'\nNCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
    ),
    (
        "nccl 296",
        "collective_mismatch",
        {},
        "n1:100:120 [0] init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 2.",
    ),
    (
        "pytorch 78022: the mismatch of torch 1.9, which names one rank",
        "collective_mismatch",
        {"op": "BROADCAST", "rank": 0},
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[34112])",
    ),
    (
        "an exception group of Python 3.11",
        "python_exception",
        {},
        ("  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 20, in <module>\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File \"t.py\", line 12, in work\n    | ValueError: bad batch\n    +------------------------------------"),
    ),
    ("an exception without Error in its name", "python_exception", {}, "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nStopIteration"),
    (
        "a module's own exception",
        "python_exception",
        {},
        "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\ntorch._dynamo.exc.Unsupported: call_function builtin",
    ),
    (
        "trainer 2041: torchelastic's warning as it ends",
        None,
        {},
        "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n1_17_0' has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.",
    ),
    (
        "torch 2.7 and later: ranks that end a little after the one with the store",
        None,
        {},
        "[rank3]:[W1206 18:44:12.7 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=65, addr=[localhost]:37402, remote=[localhost]:29500): failed to recv, got 0 bytes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("source", "kind", "says", "text"), FOUND)
def test_forms_found_in_the_wild(source: str, kind: str | None, says: dict[str, object], text: str) -> None:
    """The one first cause, and what it names, is what an expert would say of the log."""
    first = [f for f in reader.read(text.split("\n")) if f.first_cause]
    assert [f.kind for f in first] == ([kind] if kind else []), source
    for name, value in says.items():
        assert getattr(first[0], name) == value, (source, name)


@pytest.mark.parametrize("prefix", ["", "3: ", "[default3]:", "[rank3]: ", "(RayWorkerVllm pid=14289) "])
@pytest.mark.parametrize(
    "above",
    [
        "Exception ignored in: <function Loader.__del__ at 0x7f2a>",
        "Exception ignored in: <module 'threading' from '/usr/lib/python3.10/threading.py'>",
        "Exception ignored while calling deallocator <function Loader.__del__ at 0x7f2a>:",
        "--- Logging error ---",
    ],
)
def test_a_traceback_that_python_drops_is_no_cause(above: str, prefix: str) -> None:
    """vllm 4114: what a destructor raises ends nothing; the next traceback of the same rank may."""
    dropped = [
        above,
        "Traceback (most recent call last):",
        '  File "l.py", line 3, in f',
        "AttributeError: no comm",
    ]
    fatal = ["Traceback (most recent call last):", '  File "t.py", line 9, in <module>', "KeyError: 'lr'"]
    assert list(reader.read(prefix + line for line in dropped)) == []
    (found,) = reader.read(prefix + line for line in [*dropped, *fatal])
    assert (found.line, found.first_cause, found.detail) == (7, True, {"exception": "KeyError"})
    unannounced = [above, "step 1", "step 2", *fatal]
    assert [f.line for f in reader.read(prefix + line for line in unannounced)] == [6]


def test_cut_watchdog_lines_are_counted_once_each() -> None:
    """A line whose rest never comes is one finding; one that is completed is one too."""
    (_, _, _, text), *_ = FOUND
    found = list(classify.classify_stream([line.encode() for line in text.split("\n")], "joblog"))
    assert [(f["line"], f["kind"]) for f in found] == [(1, "watchdog_timeout"), (3, "watchdog_timeout")]
