"""What programs do to themselves, what Slurm and people end, and what nobody can know."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.story import Story, kind
from probing_cluster.core import records

USER, NOBODY = records.Domain.USER_PROGRAM, records.Domain.UNKNOWN

_EXCEPTIONS = (
    "ValueError: Expected input batch_size (32) to match target batch_size (31).",
    "KeyError: 'attention_mask'",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x768)",
    "AssertionError: vocab size 50257 is not divisible by tp size 3",
    "TypeError: forward() got an unexpected keyword argument 'labels'",
    "AttributeError: 'NoneType' object has no attribute 'shape'",
    "IndexError: list index out of range",
    "ZeroDivisionError: division by zero",
    "omegaconf.errors.ConfigAttributeError: Key 'optm' is not in struct",
    "RuntimeError: The size of tensor a (128) must match the size of tensor b (64) at non-singleton dimension 1",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "mypackage.errors.DataError: shard 17 is empty",
    "RuntimeError: Loss is nan, stopping training",
    "FileNotFoundError: [Errno 2] No such file or directory: '/home/u/data/train.jsonl'",
    "PermissionError: [Errno 13] Permission denied: '/home/v/private.bin'",
)


def _fails(s: Story, lines: list[str], rank: int | None, *, code: int = 1, signal: str = "") -> None:
    """The lines, the peers' echo and the launcher's end."""
    rng = s.rng
    s.log += words.progress(rng, rng.randrange(1, 12)) + lines
    if s.ranks > 1 and rng.random() < 0.7:
        s.log += words.peers_gone(rng, words.others(s, rank if rank is not None else 0))
    s.log += words.srun_end(rng, s, code, signal=signal)
    s.exit_code = code


def _rank(s: Story) -> int | None:
    return s.rng.randrange(s.ranks) if s.ranks > 1 and s.rng.random() < 0.7 else None


@kind("exception", "bug")
def exception(s: Story) -> None:
    """A traceback on one rank or all of them."""
    s.is_caused(USER, "user_error")
    rank = _rank(s)
    _fails(s, words.prefixed(words.traceback(s.rng, s.rng.choice(_EXCEPTIONS)), rank), rank)


@kind("import error", "bug")
def import_error(s: Story) -> None:
    """A package that is not there."""
    s.is_caused(USER, "user_error")
    s.ran_s = s.rng.uniform(5, 90)
    error = s.rng.choice(
        [
            "ModuleNotFoundError: No module named 'flash_attn'",
            "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
        ]
    )
    _fails(s, words.traceback(s.rng, error), None)


@kind("CUDA out of memory", "bug")
def cuda_oom(s: Story) -> None:
    """The batch is too large."""
    s.is_caused(USER, "oom_gpu")
    rank = _rank(s)
    error = f"torch.{s.rng.choice(['cuda.', ''])}OutOfMemoryError: CUDA out of memory. Tried to allocate {s.rng.uniform(0.1, 40):.2f} GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is free."
    _fails(s, words.prefixed(words.traceback(s.rng, error), rank), rank)


def _oom_lines(s: Story, node: str, before_s: float) -> None:
    pid = s.rng.randrange(2000, 99999)
    group = f"/slurm/uid_1000/job_{s.job_id}/step_0"
    s.kernel(
        node, before_s,
        "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg={group},task_memcg={group},task=python3,pid={pid},uid=1000",
        f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:81237004kB, anon-rss:67108012kB, file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:131072kB oom_score_adj:0",
    )  # fmt: skip


@kind("host out of memory", "bug")
def host_oom(s: Story) -> None:
    """The cgroup's limit; Slurm's state says it or not."""
    s.is_caused(USER, "oom_host")
    node = s.node()
    _oom_lines(s, node, s.rng.uniform(0.2, 15))
    if s.rng.random() < 0.7:
        s.state = "OUT_OF_MEMORY"
        lines = [
            f"slurmstepd: error: Detected 1 oom_kill event in StepId={s.job_id}.0. Some of the step tasks have been OOM Killed."
        ]
        _fails(s, lines, None, code=0 if s.rng.random() < 0.5 else 137, signal="Out Of Memory")
    else:
        _fails(s, [], None, code=137, signal="Killed")


@kind("loader killed for memory", "bug")
def loader_oom(s: Story) -> None:
    """A data-loader worker is killed, the program fails on it."""
    s.is_caused(USER, "oom_host")
    _oom_lines(s, s.nodes[0], s.rng.uniform(0.5, 20))
    lines = words.traceback(
        s.rng,
        f"RuntimeError: DataLoader worker (pid {s.rng.randrange(999, 9999)}) is killed by signal: Killed.",
    )
    _fails(s, lines, None)


@kind("illegal memory access", "bug")
def illegal(s: Story) -> None:
    """A custom kernel reads past its buffer: Xid 31 or 13 in the same second."""
    s.is_caused(USER, "user_error")
    node, gpu = s.node(), s.gpu()
    rank = s.rank_of(node, gpu)
    at = s.rng.uniform(0.5, 12)
    if s.rng.random() < 0.8:
        for _ in range(s.rng.randrange(1, 4)):
            s.kernel(node, at, words.xid(s.rng, s.rng.choice([31, 31, 13]), gpu))
        if s.rng.random() < 0.5:
            s.kernel(node, at - 0.3, words.xid(s.rng, s.rng.choice([43, 45]), gpu))
    _fails(
        s,
        words.cuda_error(s.rng, "an illegal memory access was encountered", rank if s.ranks > 1 else None),
        rank,
    )


@kind("device assert", "bug")
def device_assert(s: Story) -> None:
    """An index out of range in a kernel."""
    s.is_caused(USER, "user_error")
    rank = _rank(s)
    block = [
        f'../aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [{i},0,0], thread: [{i + 3},0,0] Assertion `-sizes[i] <= index && index < sizes[i] && "index out of bounds"` failed.'
        for i in range(s.rng.randrange(1, 9))
    ]
    if s.rng.random() < 0.4:
        s.kernel(
            s.nodes[0],
            s.rng.uniform(0.3, 6),
            words.xid(s.rng, 13, s.held[0]),
            words.xid(s.rng, 43, s.held[0]),
        )
    _fails(s, block + words.cuda_error(s.rng, "device-side assert triggered", rank), rank)


@kind("GPU error of its own, no log", "bug")
def xid_only(s: Story) -> None:
    """Xid 31 or 13 on its GPU at the end, and a log that says nothing."""
    s.is_caused(USER, "user_error")
    node, gpu = s.node(), s.gpu()
    s.kernel(node, s.rng.uniform(0.2, 10), words.xid(s.rng, s.rng.choice([31, 13]), gpu))
    s.has_log = False


@kind("segmentation fault", "bug")
def segfault(s: Story) -> None:
    """A native extension crashes."""
    s.is_caused(USER, "user_error")
    s.kernel(
        s.nodes[0],
        1.0,
        f"python3[{s.rng.randrange(9999)}]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in mylib.so[7f7c7ac00000+d3d3000]",
    )
    _fails(
        s,
        ["Fatal Python error: Segmentation fault", ""] if s.rng.random() < 0.5 else [],
        None,
        code=139,
        signal="Segmentation fault (core dumped)",
    )


@kind("collective mismatch", "bug", least_nodes=1, whole_nodes=True)
def mismatch(s: Story) -> None:
    """Two ranks enter one collective with different sizes and wait for ever."""
    s.is_caused(USER, "collective_mismatch", "user_error")
    s.ran_s = max(s.ran_s, 2400)
    seq = s.rng.randrange(100, 9999)
    for rank, numel in ((0, 4096), (1, 4096), (2, 4064)):
        s.log.append(
            f"[rank{rank}]:[E512 07:22:21.{s.rng.randrange(10**8, 10**9)} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={numel}, NumelOut={numel}, Timeout(ms)=600000) ran for 600052 milliseconds before timing out."
        )
    s.log += words.srun_end(s.rng, s, 1, signal="Aborted")
    s.exit_code = 134


@kind("one rank failed, the others hung", "bug", whole_nodes=True)
def left_behind(s: Story) -> None:
    """One rank raises early and its launcher waits; the others time out."""
    s.is_caused(USER, "user_error")
    s.ran_s = max(s.ran_s, 2400)
    rank = s.rng.randrange(s.ranks)
    s.log += words.progress(s.rng, 3) + words.prefixed(
        words.traceback(s.rng, s.rng.choice(_EXCEPTIONS)), rank
    )
    s.log += words.watchdog(s.rng, words.others(s, rank), s.rng.choice([600, 1800])) + words.srun_end(
        s.rng, s, 1, signal="Aborted"
    )
    s.exit_code = 134


@kind("disk quota", "bug")
def quota(s: Story) -> None:
    """The user's quota is full."""
    s.is_caused(USER, "user_error")
    error = s.rng.choice(
        [
            "OSError: [Errno 122] Disk quota exceeded: '/home/u/ckpt/last.pt'",
            "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0",
            "OSError: [Errno 28] No space left on device: '/home/u/ckpt/last.pt'",
        ]
    )
    _fails(s, words.traceback(s.rng, error), None)


@kind("just an exit code", "bug")
def exit_code(s: Story) -> None:
    """No log, nothing beside it."""
    s.is_caused(USER, "user_error")
    s.exit_code = s.rng.choice([1, 2, 127, 255, 3])
    s.has_log = s.rng.random() < 0.5
    s.log += words.progress(s.rng, 3)


@kind("address in use", "bug")
def address(s: Story) -> None:
    """The rendezvous port is taken."""
    s.is_caused(USER, "user_error")
    s.ran_s = s.rng.uniform(5, 60)
    _fails(
        s,
        words.traceback(
            s.rng,
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        ),
        None,
    )


@kind("shared memory full", "bug")
def shm(s: Story) -> None:
    """/dev/shm is too small for the loaders."""
    s.is_caused(USER, "user_error")
    _fails(
        s,
        [
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            *words.traceback(
                s.rng,
                "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
            ),
        ],
        None,
    )


@kind("wrong use of NCCL", "bug")
def nccl_usage(s: Story) -> None:
    """Two ranks on one GPU."""
    s.is_caused(USER, "user_error")
    s.ran_s = s.rng.uniform(20, 120)
    _fails(
        s,
        [
            "node:1:2 [0] init.cc:943 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
            *words.traceback(
                s.rng,
                "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1331, invalid usage (run with NCCL_WARN for details), NCCL version 2.19.3",
            ),
        ],
        None,
    )


@kind("time limit", "scheduler")
def time_limit(s: Story) -> None:
    """The limit ends a healthy job."""
    s.is_caused(USER, "time_limit")
    s.state, s.exit_code, s.time_limit_s = "TIMEOUT", 0, s.ran_s
    s.log += [
        *words.progress(s.rng, 5),
        f"slurmstepd: error: *** JOB {s.job_id} ON {s.nodes[0]} CANCELLED AT 2026-05-12T10:11:12 DUE TO TIME LIMIT ***",
    ]


@kind("cancelled", "scheduler")
def cancelled(s: Story) -> None:
    """scancel by its owner."""
    s.is_caused(NOBODY, "user_cancelled")
    s.state, s.exit_code, s.exit_signal, s.cancelled_by = "CANCELLED", 0, 15, "1000"
    s.log += [
        *words.progress(s.rng, 5),
        f"slurmstepd: error: *** STEP {s.job_id}.0 ON {s.nodes[0]} CANCELLED AT 2026-05-12T10:11:12 ***",
    ]


@kind("preempted", "scheduler")
def preempted(s: Story) -> None:
    """A job of higher priority."""
    s.is_caused(NOBODY, "preempted")
    s.state, s.exit_code = "PREEMPTED", 0
    s.log += [
        *words.progress(s.rng, 5),
        f"slurmstepd: error: *** JOB {s.job_id} ON {s.nodes[0]} CANCELLED AT 2026-05-12T10:11:12 DUE TO PREEMPTION ***",
    ]


@kind("requeued by a person", "scheduler")
def requeued(s: Story) -> None:
    """scontrol requeue."""
    s.is_caused(NOBODY, "requeued_by_user")
    s.state, s.exit_code = "REQUEUED", 0
    s.log += words.progress(s.rng, 5)


@kind("hang without a trace", "silent", whole_nodes=True)
def hang(s: Story) -> None:
    """Every rank times out and no node saw anything: nobody can know."""
    s.is_caused(NOBODY, "unknown")
    s.ran_s = max(s.ran_s, 2400)
    s.log += words.progress(s.rng, 4) + words.watchdog(
        s.rng, words.others(s, -1, 8), s.rng.choice([600, 1800])
    )
    s.log += words.srun_end(s.rng, s, 1, signal="Aborted")
    s.exit_code = 134
