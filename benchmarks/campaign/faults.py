"""Faults of hardware and system software, told as the cluster would write them down."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.story import HCA_PCI, Story, gpu_uuid, kind, pci
from probing_cluster.core import records

HW, SW = records.Domain.HARDWARE, records.Domain.SYSTEM_SOFTWARE
HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO

LOST = ("unspecified launch failure", "unknown error", "no CUDA-capable device is detected")
ECC = ("uncorrectable ECC error encountered",)
ANY = ("unspecified launch failure", "unknown error", "an illegal memory access was encountered")


def dies(
    s: Story, node: str | None, gpu: int | None, what: tuple[str, ...] = ANY, *, crash: float = 0.5
) -> float:
    """How the job felt it; returns how long before its end the fault came."""
    rng = s.rng
    s.log += words.progress(rng, rng.randrange(2, 12))
    rank = s.rank_of(node, gpu) if node is not None and gpu is not None else None
    if s.ranks == 1 or rng.random() < crash:
        at = rng.uniform(0.5, 40)
        if rank is not None:
            s.log += words.cuda_error(rng, rng.choice(what), rank if s.ranks > 1 else None)
            s.log += words.peers_gone(rng, words.others(s, rank))
        s.log += words.srun_end(rng, s, 1)
        s.exit_code = 1
        return at
    timeout_s = rng.choice([600, 1800])
    s.ran_s = max(s.ran_s, timeout_s * 1.5)
    s.log += words.watchdog(rng, words.others(s, rank if rank is not None else -1), timeout_s)
    aborted = rng.random() < 0.5
    s.log += words.srun_end(rng, s, 1, signal="Aborted" if aborted else "")
    s.exit_code = 134 if aborted else 1
    return timeout_s + rng.uniform(1, 40)


def aftermath(s: Story, node: str, gpu: int, before_s: float) -> None:
    """What the driver says when it ends the other channels."""
    rng = s.rng
    for code in rng.sample([43, 45], rng.randrange(0, 3)):
        for _ in range(rng.randrange(1, 4)):
            s.kernel(node, before_s - rng.uniform(0.01, 2), words.xid(rng, code, gpu))


@kind("gpu off the bus", "fault")
def gpu_lost(s: Story) -> None:
    """Xid 79, mostly with PCIe errors around it and NVML's word after it."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_lost")
    at = dies(s, node, gpu, LOST)
    rng = s.rng
    if rng.random() < 0.5:
        s.kernel(node, at + 0.5, *aer(s, "fatal", pci(gpu) + ".0"))
    if rng.random() < 0.4:
        s.kernel(
            node,
            at + 0.2,
            f"pcieport 0000:{rng.choice('159c')}7:01.0: pciehp: Slot({rng.randrange(1, 300)}): Link Down",
        )
    s.kernel(
        node,
        at,
        f"NVRM: GPU at PCI:{pci(gpu)}: {gpu_uuid(node, gpu)}",
        words.xid(rng, 79, gpu),
        f"NVRM: GPU {pci(gpu)}.0: GPU has fallen off the bus.",
    )
    if rng.random() < 0.8:
        s.polled(node, at, "nvml", "gpu_lost", "GPU_IS_LOST", HIGH, f"gpu{gpu}", gpu=gpu)
    if rng.random() < 0.3:
        s.polled(node, at, "ipmi", "ipmi", "critical_interrupt", LOW, "Critical Interrupt", every_s=60)
    aftermath(s, node, gpu, at)
    if rng.random() < 0.3:
        s.kernel(node, at - 6, words.xid(rng, 119, gpu))


@kind("gpu off the bus, no Xid", "fault")
def gpu_fallen(s: Story) -> None:
    """Only the driver's plain words, or only NVML's."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_lost")
    at = dies(s, node, gpu, LOST)
    if s.rng.random() < 0.6:
        s.kernel(node, at, f"NVRM: GPU {pci(gpu)}.0: GPU has fallen off the bus.")
    s.polled(
        node, at, "nvml", "gpu_lost", s.rng.choice(["GPU_IS_LOST", "MISSING"]), HIGH, f"gpu{gpu}", gpu=gpu
    )


@kind("uncorrectable GPU memory", "fault")
def ecc(s: Story) -> None:
    """Xid 48 or 140, the row marked for remapping, the counter."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_memory_uncorrectable")
    at = dies(s, node, gpu, ECC, crash=0.8)
    s.kernel(node, at, words.xid(s.rng, s.rng.choice([48, 140]), gpu))
    if s.rng.random() < 0.6:
        s.kernel(node, at - 0.02, words.xid(s.rng, 63, gpu))
    if s.rng.random() < 0.6:
        s.polled(node, at, "nvml", "ecc", "uncorrectable", HIGH, f"gpu{gpu}", gpu=gpu)
    aftermath(s, node, gpu, at)


@kind("contained GPU memory", "fault")
def contained(s: Story) -> None:
    """Xid 94, alone or after the error it contains."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_memory_contained", "gpu_memory_uncorrectable")
    at = dies(s, node, gpu, ECC, crash=0.9)
    if s.rng.random() < 0.5:
        s.kernel(node, at + 0.03, words.xid(s.rng, 48, gpu), words.xid(s.rng, 63, gpu))
    s.kernel(node, at, words.xid(s.rng, 94, gpu))
    aftermath(s, node, gpu, at)


@kind("uncontained GPU memory", "fault")
def uncontained(s: Story) -> None:
    """Xid 95."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_memory_uncorrectable")
    at = dies(s, node, gpu, ECC, crash=0.8)
    if s.rng.random() < 0.3:
        s.kernel(node, at + 0.1, words.xid(s.rng, 94, gpu))
    s.kernel(node, at, words.xid(s.rng, 95, gpu))
    aftermath(s, node, gpu, at)


@kind("row remap failure", "fault")
def remap(s: Story) -> None:
    """The error, then no spare row for it."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_row_remap_failure")
    at = dies(s, node, gpu, ECC, crash=0.8)
    s.kernel(node, at, words.xid(s.rng, s.rng.choice([48, 94, 95]), gpu))
    s.kernel(node, at - 0.05, words.xid(s.rng, 64, gpu))
    if s.rng.random() < 0.5:
        s.polled(node, at, "nvml", "row_remap", "failed", HIGH, f"gpu{gpu}", gpu=gpu)


@kind("GSP timeout", "fault")
def gsp(s: Story) -> None:
    """Xid 119 again and again, or 120."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(SW, "gpu_gsp_timeout")
    at = dies(s, node, gpu, LOST, crash=0.4)
    code = s.rng.choice([119, 119, 120])
    for i in range(s.rng.randrange(1, 6)):
        s.kernel(node, at - 6 * i, words.xid(s.rng, code, gpu))
    if s.rng.random() < 0.3:
        s.kernel(node, at - 8, words.xid(s.rng, 109, gpu))
    aftermath(s, node, gpu, at)


@kind("GPU firmware halt", "fault")
def halted(s: Story) -> None:
    """Xid 62 or 143."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(SW, "gpu_driver")
    at = dies(s, node, gpu, ANY, crash=0.6)
    s.kernel(node, at, words.xid(s.rng, s.rng.choice([62, 143]), gpu))
    if s.rng.random() < 0.4:
        s.kernel(node, at - 0.5, words.xid(s.rng, 31, gpu))
    aftermath(s, node, gpu, at)


@kind("NVLink of a GPU", "fault", whole_nodes=True)
def nvlink(s: Story) -> None:
    """Xid 74, or the newer 145 and 149."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_nvlink")
    at = dies(s, node, gpu, (*ANY, "uncorrectable NVLink error detected during the execution"), crash=0.4)
    s.kernel(node, at, words.xid(s.rng, s.rng.choice([74, 145, 149]), gpu))
    if s.rng.random() < 0.5:
        s.polled(node, at, "nvml", "nvlink", "down", HIGH, f"gpu{gpu}", gpu=gpu)
    aftermath(s, node, gpu, at)


@kind("NVSwitch", "fault", whole_nodes=True)
def nvswitch(s: Story) -> None:
    """A fatal SXid, and the links of the GPUs behind it."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "nvswitch")
    at = dies(s, node, gpu, ANY, crash=0.5)
    rng = s.rng
    code, what = rng.choice(
        [
            (24007, "sourcetrack timeout error (First)"),
            (20034, "LTSSM Fault Up"),
            (12023, "ingress invalid VCSet (First)"),
        ]
    )
    s.kernel(
        node,
        at,
        f"nvidia-nvswitch{rng.randrange(4)}: SXid (PCI:0000:{rng.choice(['05', '06', 'c3'])}:00.0): {code}, Fatal, Link {rng.randrange(1, 60)} {what}",
    )
    for other in rng.sample(s.held, rng.randrange(0, 5)):
        s.kernel(node, at - rng.uniform(0.01, 1), words.xid(rng, 74, other))
    aftermath(s, node, gpu, at)


def aer(s: Story, grade: str, device: str) -> list[str]:
    """A PCIe error report."""
    rng = s.rng
    port = f"0000:{rng.choice('159c')}{rng.randrange(10)}:01.0"
    layer, bit = rng.choice(
        [
            ("Transaction Layer", "[14] CmpltTO                (First)"),
            ("Data Link Layer", "[ 4] DLP                    (First)"),
        ]
    )
    if grade == "corrected":
        return [
            f"pcieport {port}: AER: Corrected error received: {device}",
            f"pcieport {port}: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            f"pcieport {port}:   device [8086:352a] error status/mask=00000001/00002000",
            f"pcieport {port}:    [ 0] RxErr                  (First)",
        ]
    return [
        f"pcieport {port}: AER: Uncorrected (Fatal) error received: {device}",
        f"pcieport {port}: PCIe Bus Error: severity=Uncorrected (Fatal), type={layer}, (Requester ID)",
        f"pcieport {port}:   device [8086:352a] error status/mask=00004000/00000000",
        f"pcieport {port}:    {bit}",
    ]


@kind("PCIe link", "fault")
def pcie(s: Story) -> None:
    """A fatal PCIe error or a link down without the driver losing the GPU in words."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "pcie")
    at = dies(s, node, gpu, LOST)
    if s.rng.random() < 0.7:
        s.kernel(
            node,
            at,
            *aer(s, "fatal", pci(gpu) + ".0"),
            f"nvidia {pci(gpu)}.0: AER: can't recover (no error_detected callback)",
        )
    else:
        s.kernel(
            node,
            at,
            f"nvidia {pci(gpu)}.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)",
        )
    aftermath(s, node, gpu, at)


@kind("auxiliary power of a GPU", "fault")
def power(s: Story) -> None:
    """Xid 54."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "thermal_power")
    at = dies(s, node, gpu, LOST)
    s.kernel(node, at, words.xid(s.rng, 54, gpu))
    aftermath(s, node, gpu, at)


@kind("driver does not start", "fault")
def driver(s: Story) -> None:
    """The driver cannot initialise the GPU; the program ends within seconds."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(SW, "gpu_driver")
    s.ran_s = s.rng.uniform(15, 200)
    s.log += words.traceback(
        s.rng, "RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu."
    )
    s.log += words.srun_end(s.rng, s, 1)
    at = s.rng.uniform(2, min(12, s.ran_s))
    s.kernel(
        node,
        at,
        f"NVRM: GPU {pci(gpu)}.0: RmInitAdapter failed! (0x62:0xffff:2477)",
        f"NVRM: GPU {pci(gpu)}.0: rm_init_adapter failed, device minor number {gpu}",
    )


def fabric_log(s: Story) -> float:
    """How a gang feels a dead link: NCCL's own words, or silence until the watchdog."""
    rng = s.rng
    s.log += words.progress(rng, 4)
    if rng.random() < 0.5:
        at = rng.uniform(8, 60)
        node = s.nodes[-1]
        s.log += [
            f"{node}:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.{rng.randrange(2, 200)}<{rng.randrange(30000, 60000)}> with error {rng.choice([5, 12])}, opcode 0, len 0, vendor err {rng.choice([129, 249])} (Recv)",
            f"{node}:5776:5902 [0] NCCL INFO transport/net.cc:1134 -> 6",
        ]
        s.log += words.peers_gone(rng, words.others(s, -1))
        s.log += words.srun_end(rng, s, 1)
        return at
    timeout_s = rng.choice([600, 1800])
    s.ran_s = max(s.ran_s, timeout_s * 1.5)
    s.log += words.watchdog(rng, words.others(s, -1, 8), timeout_s) + words.srun_end(
        rng, s, 1, signal="Aborted"
    )
    s.exit_code = 134
    return timeout_s + rng.uniform(1, 30)


@kind("InfiniBand port down", "fault", least_nodes=2)
def ib_down(s: Story) -> None:
    """A port that goes down and stays down."""
    node, rail = s.node(), s.rng.randrange(8)
    s.broken = node
    s.is_caused(HW, "ib_link")
    at = fabric_log(s)
    if s.rng.random() < 0.7:
        s.kernel(
            node,
            at,
            s.rng.choice(
                [
                    f"mlx5_core 0000:{HCA_PCI[rail]}:00.0 mlx5_{rail}: Port: 1 Link DOWN",
                    f"mlx5_core 0000:{HCA_PCI[rail]}:00.0 ib{rail}: Link down",
                ]
            ),
        )
    s.polled(node, at, "sysfs", "ib_link", "link_downed", LOW, f"mlx5_{rail}")
    s.polled(node, at - 10, "sysfs", "ib_link", "down", HIGH, f"mlx5_{rail}")


@kind("InfiniBand adapter", "fault", least_nodes=2)
def hca(s: Story) -> None:
    """The adapter's firmware stops."""
    node, rail = s.node(), s.rng.randrange(8)
    s.broken = node
    s.is_caused(HW, "ib_link")
    at = fabric_log(s)
    where = f"mlx5_core 0000:{HCA_PCI[rail]}:00.0"
    s.kernel(
        node,
        at,
        f"{where}: poll_health:852:(pid 0): device's health compromised - reached miss count",
        f"{where}: print_health_info:458:(pid 0): synd 0x8: unrecoverable hardware error",
    )


@kind("Ethernet link", "fault", least_nodes=2)
def ethernet(s: Story) -> None:
    """The node's Ethernet goes: sockets break."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "eth_link")
    at = s.rng.uniform(3, 60)
    s.log += words.progress(s.rng, 4)
    rank = s.rng.choice(words.others(s, -1))
    s.log += words.prefixed(
        words.traceback(
            s.rng,
            f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:{s.rng.randrange(500, 600)}] Read error [10.0.0.{s.rng.randrange(2, 99)}]:{s.rng.randrange(2000, 60000)}: Connection reset by peer",
        ),
        rank,
    )
    s.log += words.srun_end(s.rng, s, 1)
    s.kernel(
        node,
        at,
        s.rng.choice(
            [
                "ixgbe 0000:29:00.0 eno1: NIC Link is Down",
                "bnxt_en 0000:29:00.0 eno1: NIC Link is Down",
                "bond0: now running without any active interface!",
            ]
        ),
    )


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
    seen = s.nodes if rng.random() < 0.6 else [node]
    s.broken = node if len(seen) == 1 else None
    for n in seen:
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


def crashed(s: Story, node: str) -> None:
    """The node stops: Slurm says NODE_FAIL some minutes later."""
    s.state, s.exit_code = "NODE_FAIL", 0
    s.failed_node = node if s.rng.random() < 0.7 else None
    s.log += words.progress(s.rng, 5)
    if s.rng.random() < 0.6:
        s.log += [
            f"slurmstepd: error: *** JOB {s.job_id} ON {s.nodes[0]} CANCELLED AT 2026-05-12T10:11:12 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***"
        ]
    s.has_log = s.nodes[0] != node


@kind("uncorrectable main memory", "fault")
def edac(s: Story) -> None:
    """EDAC tells it; the process or the node dies."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "main_memory")
    rng = s.rng
    line = f"EDAC MC{rng.randrange(4)}: 1 UE memory read error on CPU_SrcID#{rng.randrange(2)}_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x20a905 offset:0xa80 grain:32)"
    if rng.random() < 0.5:
        crashed(s, node)
        at = rng.uniform(60, 400)
        s.silent[node] = at - 5
    else:
        at = rng.uniform(0.5, 8)
        s.exit_code = 135
        s.log += words.progress(rng, 4) + words.srun_end(rng, s, 135, signal="Bus error (core dumped)")
        s.kernel(
            node,
            at - 0.1,
            f"Memory failure: 0x{rng.randrange(10**6):x}: Sending SIGBUS to python3:{rng.randrange(9999)} due to hardware memory corruption",
        )
    s.kernel(node, at, line)


@kind("machine check", "fault")
def mce(s: Story) -> None:
    """The processor stops the node."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "cpu_mce")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 5
    s.kernel(
        node,
        at,
        "mce: [Hardware Error]: CPU 17: Machine Check Exception: 5 Bank 5: be00000000800400",
        "mce: [Hardware Error]: Machine check: Processor context corrupt",
        "Kernel panic - not syncing: Fatal machine check",
    )


@kind("kernel panic", "fault")
def panic(s: Story) -> None:
    """The kernel's last words."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "kernel_panic")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 2
    s.kernel(
        node,
        at,
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "Kernel panic - not syncing: Fatal exception in interrupt",
    )


@kind("node lost without a word", "fault")
def node_lost(s: Story) -> None:
    """NODE_FAIL and nothing before it."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "node_lost", "node_reboot")
    crashed(s, node)
    s.silent[node] = s.rng.uniform(60, 500)
    if s.rng.random() < 0.3:
        s.polled(node, -s.rng.uniform(60, 250), "agent", "node_boot", "", LOW, "node")


@kind("thermal shutdown", "fault")
def thermal(s: Story) -> None:
    """Too hot, then off."""
    node = s.node()
    s.broken = node
    s.is_caused(HW, "thermal_power")
    crashed(s, node)
    at = s.rng.uniform(60, 400)
    s.silent[node] = at - 8
    s.kernel(node, at, "thermal thermal_zone0: cpu-thermal: critical temperature reached, shutting down")


@kind("GPU memory, kernel log not seen", "fault")
def ecc_unseen(s: Story) -> None:
    """Only CUDA's own words and a node nobody watched."""
    node, gpu = s.node(), s.gpu()
    s.broken = node
    s.is_caused(HW, "gpu_memory_uncorrectable", "gpu_memory_contained")
    dies(s, node, gpu, ECC, crash=1.0)
    s.silent[node] = s.rng.uniform(2000, 9000)


@kind("fabric manager down", "fault", whole_nodes=True)
def fabric_manager(s: Story) -> None:
    """CUDA cannot start on a node whose fabric manager is down."""
    node = s.node()
    s.broken = node
    s.is_caused(SW, "system_services", "gpu_driver")
    s.ran_s = s.rng.uniform(15, 100)
    s.log += words.traceback(
        s.rng,
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
    )
    s.log += words.srun_end(s.rng, s, 1)
    s.polled(node, s.ran_s - 1 + 30, "service", "service", "down", HIGH, "nvidia-fabricmanager", every_s=5)
