"""How kernels, drivers, PyTorch, NCCL and Slurm word what happened; wording varies by version as it does in the field."""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.campaign.story import Story, pci

_XID = {
    8: ["", "Channel 0000000c"],
    13: [
        "Graphics SM Warp Exception on (GPC {a}, TPC {b}, SM 1): Illegal Instruction Parameter",
        "Graphics Exception: ESR 0x50{c}730=0x107000e 0x50{c}734=0x20 0x50{c}728=0xf81eb60 0x50{c}72c=0x1174",
        "Graphics SM Global Exception on (GPC {a}, TPC {b}, SM 0): Multiple Warp Errors",
    ],
    31: [
        "Ch 000000{c}, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_{a} faulted @ 0x7f{c}_{c}000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
        "Ch 000000{c}, intr 00000000. MMU Fault: ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x7e{c}_{c}200000. Fault is of type FAULT_PTE ACCESS_TYPE_VIRT_WRITE",
    ],
    43: ["Ch 000000{c}", "channel 0x000000{c}", "Ch 000000{c}, engmask 00000101, intr 10000000"],
    45: ["Ch 000000{c}", "Ch 000000{c}, intr 00000000"],
    48: [
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x18f3{c}d80 partition {a}, subpartition {b}.",
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition {a}, subpartition {b}.",
    ],
    54: ["GPU {c} external power connector error", ""],
    61: ["Internal micro-controller breakpoint/warning"],
    62: ["2027 0f{c} 0000 0000 0000 0000 0000 0000", "203c(3090) 85020c09 ffffbd{c}"],
    63: ["Row Remapper: New row (0x0000000018f{c}d80) marked for remapping, reset gpu to activate."],
    64: [
        "Row Remapper Error: (0x00000002eeb{c}100) - All reserved rows for bank are remapped",
        "Row Remapper: Remapping of row failed, no spare rows left in the bank.",
    ],
    74: ["NVLink: fatal error detected on link {b}(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"],
    79: ["GPU has fallen off the bus."],
    94: ["Contained: SM (0x{a}). RST: No, D-RST: No", "Contained: CE User Channel (0x9). RST: No, D-RST: No", "Contained ECC error."],
    95: ["Uncontained: LTC TAG (0x{a},0x{b}). RST: Yes, D-RST: No"],
    109: ["Ch 000000{c}, errorString CTX SWITCH TIMEOUT, Info 0x{c}005"],
    119: ["Timeout after {a}s of waiting for RPC response from GPU{b} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."],
    120: ["GSP task exception: watchdog timeout (task {b})", "GSP Error: Task {b} raised error code 0x{c}"],
    140: ["An uncorrectable ECC error detected (possible action is to reset) DRAM:1, LTC:0, MMU:0, PCIE:0"],
    143: ["GPU Initialization Error", "GPU initialization failure"],
    145: ["RLW_REMAP Fatal XC1 i0 Link {b} (0x000000{c} 0x00000040 0x00000000 0x00000000 0x00000000 0x00000000)"],
    149: ["NETIR_LINK_EVT  Fatal   XC0 i0 Link {b} (0x0255{c}c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"],
}  # fmt: skip


def xid(rng: random.Random, code: int, gpu: int, *, pid: int | None = None) -> str:
    """One Xid line of a GPU, in one of the forms drivers 470 to 580 use."""
    body = rng.choice(_XID[code]).format(
        a=rng.randrange(1, 9), b=rng.randrange(1, 16), c=f"{rng.randrange(16, 255):02x}"
    )
    process = rng.choice(
        [f"pid={pid or rng.randrange(2000, 99999)}, name={rng.choice(['python', 'python3', 'pt_main_thread'])}", "pid='<unknown>', name=<unknown>"]
    )  # fmt: skip
    rest = ", ".join(t for t in (process if rng.random() < 0.85 else "", body) if t)
    return f"NVRM: Xid (PCI:{pci(gpu)}): {code}{', ' + rest if rest else ''}"


_STYLES = (
    " iteration {step:8d}/  500000 | consumed samples: {samples:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 3.000E-04 | lm loss: {loss:.6E} |",
    "step={step} loss={loss:.4f} lr=3.0e-04 tokens/s={samples} grad_norm={part:.4f} mfu=0.41 mem=61.2GiB",
    "{{'loss': {loss:.4f}, 'grad_norm': {part:.4f}, 'learning_rate': 0.0003, 'epoch': {epoch:.4f}}}",
    " {percent:2d}%|███████   | {step}/50000 [1:03:12<2:33:10,  1.{percent:02d}s/it, loss={loss:.3f}]",
)


def progress(rng: random.Random, steps: int) -> list[str]:
    """What a healthy training prints."""
    style, first = rng.choice(_STYLES), rng.randrange(100, 40_000)
    made = []
    for step in range(first, first + steps):
        part = rng.random()
        made.append(
            style.format(
                step=step,
                samples=512 * step,
                ms=400 + 8000 * part,
                loss=2 + part,
                part=part,
                epoch=step / 5000,
                percent=10 + step * 89 // 50_000,
            )
        )
    return made


def chatter(rng: random.Random) -> list[str]:
    """Warnings every healthy job prints, some of which look grave."""
    every = [
        "/opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:429: UserWarning: torch.utils.checkpoint: please pass in use_reentrant=True or use_reentrant=False explicitly.",
        "NCCL version 2.21.5+cuda12.4",
        "node-0:4012:4012 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.12<0>",
        "node-0:4012:4460 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.12<0>",
        "W0512 10:22:01.456000 140312 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "WARNING: failed to fetch robots.txt from hub: HTTP Error 429, retrying in 5 s",
        "Token indices sequence length is longer than the specified maximum sequence length for this model (4211 > 4096).",
        "wandb: WARNING Unable to verify login in 10 seconds. Retrying.",
        "[W socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
    ]
    return rng.sample(every, rng.randrange(0, 5))


def traceback(
    rng: random.Random, last: str, *, where: str = "train.py", rank: int | None = None
) -> list[str]:
    """A Python traceback."""
    lines = [
        "Traceback (most recent call last):",
        f'  File "/home/u/proj/{where}", line {rng.randrange(20, 900)}, in <module>',
        "    main()",
        f'  File "/home/u/proj/{where}", line {rng.randrange(20, 900)}, in main',
        "    loss = step(model, batch)",
        last,
    ]
    return prefixed(lines, rank)


def prefixed(lines: Sequence[str], rank: int | None) -> list[str]:
    """With the prefix recent PyTorch gives a rank's stderr."""
    return [f"[rank{rank}]: {line}" for line in lines] if rank is not None else list(lines)


def watchdog(rng: random.Random, ranks: Sequence[int], timeout_s: int) -> list[str]:
    """A collective that timed out on some ranks."""
    seq, op = (
        rng.randrange(30, 90_000),
        rng.choice(["ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLREDUCE_COALESCED"]),
    )
    numel, ms = rng.choice([1, 4096, 131072000]), timeout_s * 1000
    made = []
    modern = rng.random() < 0.7
    for rank in ranks:
        head = (
            f"[rank{rank}]:[E{rng.randrange(101, 1230):04d} 07:{rng.randrange(60):02d}:21.{rng.randrange(10**8, 10**9)} ProcessGroupNCCL.cpp:629] [Rank {rank}]"
            if modern
            else f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}]"
        )
        made.append(
            f"{head} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, Timeout(ms)={ms}) ran for {ms + rng.randrange(20, 900)} milliseconds before timing out."
        )
    if rng.random() < 0.6:
        made.append(
            f"[rank{ranks[0]}]:[E ProcessGroupNCCL.cpp:681] [Rank {ranks[0]}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
        )
        made.append(
            f"[rank{ranks[0]}]:[E ProcessGroupNCCL.cpp:695] [Rank {ranks[0]}] To avoid data inconsistency, we are taking the entire process down."
        )
    return made


def cuda_error(rng: random.Random, what: str, rank: int | None) -> list[str]:
    """A CUDA error that reached Python."""
    lines = traceback(rng, f"RuntimeError: CUDA error: {what}")
    lines += [
        "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    ]
    return prefixed(lines, rank)


def peers_gone(rng: random.Random, ranks: Sequence[int]) -> list[str]:
    """What the others print when one rank is gone."""
    made: list[str] = []
    for rank in ranks:
        made += rng.choice(
            [
                [f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2395, remote process exited or there was a network error, NCCL version 2.21.5",
                 f"[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely."],
                [f"[rank{rank}]:[W TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=58, addr=[node]:41742, remote=[node]:29500): failed to recv, got 0 bytes"],
                [],
            ]
        )  # fmt: skip
    return made


def srun_end(rng: random.Random, story: Story, code: int, *, signal: str = "") -> list[str]:
    """How srun or torchrun tells the end of the tasks."""
    node, rank = story.nodes[0], rng.randrange(story.ranks)
    style = rng.randrange(3)
    if style == 0:
        how = signal or f"Exited with exit code {code}"
        return [f"srun: error: {node}: task {rank}: {how}", f"srun: Terminating StepId={story.job_id}.0"]
    if style == 1 and not signal:
        return [
            f"E0512 09:01:44.120000 {rng.randrange(2000, 99999)} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) local_rank: {rank % 8} (pid: {rng.randrange(2000, 99999)}) of binary: /usr/bin/python3",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        ]
    return []


def others(story: Story, rank: int, most: int = 6) -> list[int]:
    """Some ranks other than `rank`."""
    every = [r for r in range(story.ranks) if r != rank]
    return sorted(story.rng.sample(every, min(len(every), most)))
