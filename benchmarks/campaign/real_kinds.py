"""The kinds of endings a sandbox can really have: what is broken, what the program prints, how it ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.campaign import bugs, words
from benchmarks.campaign.story import Story
from probing_cluster.core import records
from probing_cluster.sandbox import cluster

HW, SW, USER, NOBODY = (
    records.Domain.HARDWARE,
    records.Domain.SYSTEM_SOFTWARE,
    records.Domain.USER_PROGRAM,
    records.Domain.UNKNOWN,
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault strikes."""

    box: cluster.Sandbox
    nodes: tuple[str, ...]
    gpu: int
    job_id: int
    rng: random.Random

    @property
    def pci(self) -> str:
        """`0000:1b:00.0` of the GPU on the last node."""
        return self.box.hardware(self.nodes[-1]).gpus[self.gpu].pci

    def fault(self, kind: str, **options: object) -> str:
        """Injects it on the last node; returns the node."""
        self.box.fault(self.nodes[-1], kind, **options)
        return self.nodes[-1]

    def lines(self, *texts: str) -> str:
        """Kernel lines on the last node."""
        for text in texts:
            self.fault("kernel-line", text=text)
        return self.nodes[-1]


Breaks = Callable[[Place], str | None]
Teller = Callable[[Story], None]


@dataclass(frozen=True, kw_only=True)
class RealKind:
    """One sort of ending on the sandbox."""

    name: str
    group: str
    causes: tuple[str, ...]
    domain: records.Domain
    breaks: Breaks
    write_story: Teller
    end: str = ""
    """Shell that ends the script; empty = the exit code of the story."""
    crashes: bool = False
    reboot: bool = False
    least_nodes: int = 1
    whole_nodes: bool = False


def _nothing(_place: Place) -> None:
    return None


def _cuda(*what: str) -> Teller:
    def write_story(s: Story) -> None:
        s.log += (
            words.cuda_error(s.rng, s.rng.choice(what), 3)
            + words.peers_gone(s.rng, [0, 1])
            + words.srun_end(s.rng, s, 1)
        )

    return write_story


def _python(*messages: str) -> Teller:
    def write_story(s: Story) -> None:
        s.log += words.traceback(s.rng, s.rng.choice(messages)) + words.srun_end(s.rng, s, 1)

    return write_story


def _network(s: Story) -> None:
    if s.rng.random() < 0.5:
        s.log += [
            f"{s.nodes[0]}:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with error 12, opcode 0, len 0, vendor err 129 (Recv)"
        ]
        s.log += words.peers_gone(s.rng, [0, 1, 2]) + words.srun_end(s.rng, s, 1)
    else:
        s.log += words.watchdog(s.rng, [0, 3, 9], 4) + words.srun_end(s.rng, s, 1)


def _no_fault(_s: Story) -> None:
    return None


_LOST = ("unspecified launch failure", "unknown error", "no CUDA-capable device is detected")
_ECC = ("uncorrectable ECC error encountered",)


def _fault(
    name: str,
    cause: str,
    domain: records.Domain,
    breaks: Breaks,
    write_story: Teller,
    **more: bool | int | tuple[str, ...],
) -> RealKind:
    also = more.pop("also", ())
    assert isinstance(also, tuple)
    return RealKind(
        name=name,
        group="fault",
        causes=(cause, *also),
        domain=domain,
        breaks=breaks,
        write_story=write_story,
        reboot=True,
        **more,
    )  # type: ignore[arg-type]


def _xid(code: int) -> Breaks:
    return lambda p: p.fault("xid", code=code, gpu=p.gpu)


def _remap(p: Place) -> str:
    p.fault("ecc-uncorrectable", gpu=p.gpu)
    return p.fault("row-remap-failed", gpu=p.gpu)


def _crash_after(*texts: str) -> Breaks:
    def breaks(p: Place) -> str:
        import time

        if texts:
            p.lines(*texts)
            time.sleep(4)  # the agent reads and delivers them before it dies
        return p.fault("node-crash")

    return breaks


def _oom(p: Place) -> None:
    p.box.fault(p.nodes[0], "oom", job_id=p.job_id)


def _own_xid(code: int) -> Breaks:
    def breaks(p: Place) -> None:
        p.fault("xid", code=code, gpu=p.gpu)

    return breaks


FAULTS = (
    _fault("gpu off the bus", "gpu_lost", HW, lambda p: p.fault("gpu-lost", gpu=p.gpu), _cuda(*_LOST)),
    _fault("uncorrectable GPU memory", "gpu_memory_uncorrectable", HW, lambda p: p.fault("ecc-uncorrectable", gpu=p.gpu), _cuda(*_ECC)),
    _fault("contained GPU memory", "gpu_memory_contained", HW, _xid(94), _cuda(*_ECC)),
    _fault("uncontained GPU memory", "gpu_memory_uncorrectable", HW, _xid(95), _cuda(*_ECC)),
    _fault("Xid 140", "gpu_memory_uncorrectable", HW, _xid(140), _cuda(*_ECC)),
    _fault("row remap failure", "gpu_row_remap_failure", HW, _remap, _cuda(*_ECC)),
    _fault("GSP timeout", "gpu_gsp_timeout", SW, _xid(119), _cuda(*_LOST)),
    _fault("GSP exception", "gpu_gsp_timeout", SW, _xid(120), _cuda(*_LOST)),
    _fault("GPU firmware halt", "gpu_driver", SW, _xid(62), _cuda(*_LOST[:2])),
    _fault("GPU initialization", "gpu_driver", SW, _xid(143), _cuda(*_LOST[:2])),
    _fault("NVLink of a GPU", "gpu_nvlink", HW, lambda p: p.fault("nvlink-down", gpu=p.gpu), _cuda(*_LOST[:2]), whole_nodes=True),
    _fault("NVLink 5 of a GPU", "gpu_nvlink", HW, _xid(149), _cuda(*_LOST[:2]), whole_nodes=True),
    _fault("NVSwitch", "nvswitch", HW, lambda p: p.lines("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"), _cuda(*_LOST[:2]), whole_nodes=True),
    _fault("auxiliary power of a GPU", "thermal_power", HW, _xid(54), _cuda(*_LOST[:2])),
    _fault("PCIe link", "pcie", HW, lambda p: p.lines(f"nvidia {p.pci}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Inaccessible, (Unregistered Agent ID)"), _cuda(*_LOST)),
    _fault("InfiniBand port down", "ib_link", HW, lambda p: p.fault("ib-down", hca="mlx5_2"), _network, least_nodes=2),
    _fault("InfiniBand adapter", "ib_link", HW, lambda p: p.lines("mlx5_core 0000:18:00.0: poll_health:852:(pid 0): device's health compromised - reached miss count"), _network, least_nodes=2),
    _fault("Ethernet link", "eth_link", HW, lambda p: p.fault("eth-down"), _python("RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:589] Read error [10.0.0.7]:25266: Connection reset by peer"), least_nodes=2),
    _fault("NFS server", "filesystem_mount", SW, lambda p: p.lines("nfs: server stor3 not responding, timed out"), _python("OSError: [Errno 5] Input/output error: '/scratch/ckpt/step_1200.pt'")),
    _fault("Lustre eviction", "filesystem_mount", SW, lambda p: p.lines("LustreError: 167-0: lustre-OST0018-osc-ffff8f1: This client was evicted by lustre-OST0018; in progress operations using this service will fail."), _python("OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/data/a.tar'")),
    _fault("mount gone", "filesystem_mount", SW, lambda p: _waited(p, p.fault("mount-gone", path="/scratch")), _python("OSError: [Errno 116] Stale file handle: '/scratch/data/index.bin'", "FileNotFoundError: [Errno 2] No such file or directory: '/scratch/data/index.bin'")),
    _fault("local disk", "disk", HW, lambda p: p.fault("nvme-gone"), _python("OSError: [Errno 30] Read-only file system: '/tmp/cache/a.bin'", "OSError: [Errno 5] Input/output error: '/tmp/cache/a.bin'")),
    _fault("uncorrectable main memory", "main_memory", HW, lambda p: p.lines("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x20a905 offset:0xa80 grain:32)"), lambda s: s.log.append("srun: error: n: task 0: Bus error (core dumped)")),
    _fault("driver gone", "gpu_driver", SW, lambda p: _waited(p, p.fault("driver-gone")), _python("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu."), also=("gpu_lost",)),
    _fault("node lost without a word", "node_lost", HW, _crash_after(), _no_fault, crashes=True, also=("node_reboot",)),
    _fault("machine check", "cpu_mce", HW, _crash_after("mce: [Hardware Error]: CPU 17: Machine Check Exception: 5 Bank 5: be00000000800400", "Kernel panic - not syncing: Fatal machine check"), _no_fault, crashes=True),
    _fault("kernel panic", "kernel_panic", SW, _crash_after("Kernel panic - not syncing: Fatal exception in interrupt"), _no_fault, crashes=True),
    _fault("thermal shutdown", "thermal_power", HW, _crash_after("thermal thermal_zone0: cpu-thermal: critical temperature reached, shutting down"), _no_fault, crashes=True),
)  # fmt: skip


def _waited(p: Place, node: str) -> str:
    """Polled conditions are seen at the next look."""
    import time

    time.sleep(p.rng.uniform(1, 5))
    return node


def _bug(
    name: str,
    cause: str,
    write_story: Teller,
    breaks: Breaks = _nothing,
    end: str = "",
    also: tuple[str, ...] = (),
) -> RealKind:
    return RealKind(
        name=name,
        group="bug",
        causes=(cause, *also),
        domain=USER,
        breaks=breaks,
        write_story=write_story,
        end=end,
    )


BUGS = (
    _bug("exception", "user_error", bugs.exception),
    _bug("import error", "user_error", bugs.import_error),
    _bug("CUDA out of memory", "oom_gpu", bugs.cuda_oom),
    _bug(
        "loader killed for memory",
        "oom_host",
        _python("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed."),
        _oom,
    ),
    _bug(
        "host out of memory",
        "oom_host",
        lambda s: s.log.append(
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4242.0. Some of the step tasks have been OOM Killed."
        ),
        _oom,
        "exit 137",
    ),
    _bug(
        "illegal memory access", "user_error", _cuda("an illegal memory access was encountered"), _own_xid(31)
    ),
    _bug("device assert", "user_error", bugs.device_assert),
    _bug("GPU error of its own, no log", "user_error", _no_fault, _own_xid(13), "exit 1"),
    _bug("segmentation fault", "user_error", _no_fault, _nothing, "kill -SEGV $$"),
    _bug("collective mismatch", "collective_mismatch", bugs.mismatch, also=("user_error",)),
    _bug("one rank failed, the others hung", "user_error", bugs.left_behind),
    _bug("disk quota", "user_error", bugs.quota),
    _bug("just an exit code", "user_error", _no_fault, _nothing, "exit 3"),
    _bug("address in use", "user_error", bugs.address),
    _bug("shared memory full", "user_error", bugs.shm),
    _bug("wrong use of NCCL", "user_error", bugs.nccl_usage),
)


def _cancel(p: Place) -> None:
    p.box.run(["scancel", str(p.job_id)])


OTHERS = (
    RealKind(name="cancelled", group="scheduler", causes=("user_cancelled",), domain=NOBODY, breaks=_cancel, write_story=_no_fault, end="sleep 60"),
    RealKind(name="hang without a trace", group="silent", causes=("unknown",), domain=NOBODY, breaks=_nothing, write_story=lambda s: s.log.extend(words.watchdog(s.rng, [0, 1, 2], 4)), end="exit 134"),
)  # fmt: skip


def choose(rng: random.Random, *, n_nodes: int) -> RealKind:
    """A fault or a bug as likely, now and then something else; what needs two nodes only there."""
    group = rng.choices([FAULTS, BUGS, OTHERS], [0.48, 0.46, 0.06])[0]
    fits = [k for k in group if k.least_nodes <= n_nodes]
    return rng.choice(fits)


def add_noise(place: Place, *, gpus: int) -> list[str]:
    """Things that have nothing to do with the job, just before its end; what was done."""
    rng, node = place.rng, place.rng.choice(place.nodes)
    every: dict[str, Callable[[], object]] = {
        "corrected": lambda: place.box.fault(node, "ecc-correctable", gpu=0, count=3),
        "pcie_corrected": lambda: place.lines("pcieport 0000:00:01.0: AER: Corrected error received: 0000:00:01.0"),
        "edac_ce": lambda: place.lines("EDAC MC1: 5 CE memory read error on CPU_SrcID#2_Channel#2_DIMM#0 (channel:2 slot:0 page:0x2007e9ea offset:0x100 grain:32 syndrome:0x0)"),
        "flap": lambda: place.box.fault(node, "ib-flap", hca="mlx5_5", times=1, gap_s=0.3),
        "hung_task": lambda: place.lines("INFO: task kcompactd1:1177 blocked for more than 120 seconds."),
        "throttle": lambda: place.box.fault(node, "thermal", gpu=0),
        "pcie_replay": lambda: place.box.fault(node, "pcie-replay", gpu=0),
        "nfs_hiccup": lambda: place.lines("nfs: server stor9 not responding, still trying", "nfs: server stor9 OK"),
    }  # fmt: skip
    if gpus == 1:
        every["neighbours_gpu"] = lambda: place.box.fault(
            place.nodes[0], "xid", code=rng.choice([79, 48, 94]), gpu=(place.gpu + 3) % 8
        )
    chosen = [name for name in every if rng.random() < 0.3]
    for name in chosen:
        every[name]()
    return chosen
