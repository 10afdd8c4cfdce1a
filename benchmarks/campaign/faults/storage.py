"""What goes wrong with file systems and disks."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.faults.common import HIGH, HW, SW
from benchmarks.campaign.story import Story, kind


@kind("NFS server", "fault")
def nfs(s: Story) -> None:
    """A server that does not answer until after the end."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "filesystem_mount")
    rng = s.rng
    s.log += words.progress(rng, 4)
    timeout_s = rng.choice([600, 1800])
    if s.ranks > 1 and rng.random() < 0.6:
        s.ran_s = max(s.ran_s, timeout_s * 1.5)
        at = timeout_s + rng.uniform(1, 60)
        s.log += words.watchdog(rng, words.others(s, -1), timeout_s)
    else:
        at = rng.uniform(30, 300)
        s.log += words.traceback(rng, "OSError: [Errno 5] Input/output error: '/scratch/ckpt/step_1200.pt'")
    s.log += words.srun_end(rng, s, 1)
    server = rng.choice(["nfs-prod-01.example.com", "10.0.0.5", "stor3"])
    affected = s.nodes if rng.random() < 0.6 else [node]
    s.broken = node if len(affected) == 1 else None
    for n in affected:
        s.kernel(
            n,
            at - rng.uniform(0, 5),
            f"nfs: server {server} not responding, {rng.choice(['still trying', 'timed out'])}",
        )
        if rng.random() < 0.5:
            s.kernel(
                n,
                at - 125,
                f"INFO: task python3:{rng.randrange(2000, 99999)} blocked for more than 120 seconds.",
            )


@kind("Lustre eviction", "fault")
def lustre(s: Story) -> None:
    """The client is thrown out; open files fail."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "filesystem_mount")
    rng = s.rng
    at = rng.uniform(1, 30)
    s.log += words.progress(rng, 4)
    s.log += words.traceback(
        rng,
        rng.choice(
            [
                "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/data/shard-17.tar'",
                "OSError: [Errno 5] Input/output error: '/lustre/data/shard-17.tar'",
            ]
        ),
    )
    s.log += words.srun_end(rng, s, 1)
    s.kernel(
        node, at + rng.uniform(0, 100),
        "Lustre: lustre-OST0018-osc-ffff8f1: Connection to lustre-OST0018 (at 10.130.93.10@o2ib) was lost; in progress operations using this service will wait for recovery to complete",
    )  # fmt: skip
    s.kernel(
        node,
        at,
        "LustreError: 167-0: lustre-OST0018-osc-ffff8f1: This client was evicted by lustre-OST0018; in progress operations using this service will fail.",
    )


@kind("mount gone", "fault")
def mount(s: Story) -> None:
    """A file system that is no longer mounted."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "filesystem_mount")
    at = s.rng.uniform(5, 100)
    s.log += words.progress(s.rng, 3)
    s.log += words.traceback(
        s.rng,
        s.rng.choice(
            [
                "OSError: [Errno 116] Stale file handle: '/scratch/data/index.bin'",
                "FileNotFoundError: [Errno 2] No such file or directory: '/scratch/data/index.bin'",
            ]
        ),
    )
    s.log += words.srun_end(s.rng, s, 1)
    s.polled(node, at, "mount", "mount", s.rng.choice(["missing", "stale"]), HIGH, "/scratch")


@kind("local disk", "fault")
def disk(s: Story) -> None:
    """The NVMe drive is given up, its file system goes read-only."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "disk")
    at = s.rng.uniform(2, 80)
    s.log += words.progress(s.rng, 3)
    s.log += words.traceback(
        s.rng,
        s.rng.choice(
            [
                "OSError: [Errno 30] Read-only file system: '/tmp/cache/a.bin'",
                "OSError: [Errno 5] Input/output error: '/tmp/cache/a.bin'",
            ]
        ),
    )
    s.log += words.srun_end(s.rng, s, 1)
    s.kernel(
        node, at,
        "nvme nvme0: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller",
        "nvme nvme0: Disabling device after reset failure: -19",
        "blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 0",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    )  # fmt: skip
