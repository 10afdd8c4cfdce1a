"""What goes wrong with GPUs, their links to each other and to the host, and the software that drives them."""

from __future__ import annotations

from benchmarks.campaign import words
from benchmarks.campaign.faults.common import ANY, ECC, HIGH, HW, LOST, LOW, SW, aer, aftermath, dies
from benchmarks.campaign.story import Story, gpu_uuid, kind, pci


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
