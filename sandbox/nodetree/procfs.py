"""The parts of /proc, /etc and /dev that a GPU node shows and that health checks read."""

from __future__ import annotations

import time

from probing_cluster.sandbox.nodetree import identity, writing

DRIVER_VERSION = "550.90.07"
KERNEL_RELEASE = "5.15.0-1053-nvidia"
UP_S = 9 * 86_400
"""A new node claims to have been up this long: the first minutes after a boot are judged leniently."""

_MEM_MAJOR, _NVIDIA_MAJOR, _UVERBS_MAJOR, _UVM_MAJOR = 1, 195, 231, 510

MOUNTS = (
    ("/dev/nvme0n1p2", "/", "ext4", "rw,relatime"),
    ("proc", "/proc", "proc", "rw,nosuid,nodev,noexec,relatime"),
    ("sysfs", "/sys", "sysfs", "rw,nosuid,nodev,noexec,relatime"),
    ("tmpfs", "/dev/shm", "tmpfs", "rw,nosuid,nodev"),  # noqa: S108  # a line of the simulated mount table
    ("tmpfs", "/run", "tmpfs", "rw,nosuid,nodev,size=52428800k,mode=755"),
    ("nfs1:/export/home", "/home", "nfs4", "rw,relatime,vers=4.2,hard,proto=tcp,timeo=600,retrans=2"),
    ("10.10.0.1@o2ib:/scratch", "/scratch", "lustre", "rw,flock,user_xattr,lazystatfs,encrypt"),
)
"""What is mounted on a healthy node."""

_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem", "mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs",
            "rdma_ucm", "lustre", "lnet", "nfsv4", "nvme", "ipmi_si")  # fmt: skip


def files(node_identity: identity.TreeIdentity, boot_id: str, btime_s: int) -> writing.Tree:
    """Everything below /proc, /etc and /dev, for a node that booted at `btime_s`."""
    return {
        **boot(boot_id, btime_s),
        **_mounts(),
        **_counters(),
        **_kernel(node_identity),
        **_gpus(node_identity),
        **_devices(node_identity),
    }


def _mounts() -> writing.Tree:
    rows = {target: f"{source} {target} {kind} {options} 0 0" for source, target, kind, options in MOUNTS}
    wanted = [target for _, target, kind, _ in MOUNTS if kind in {"ext4", "nfs4", "lustre"}]
    return {
        "proc/mounts": "\n".join(rows.values()),
        "proc/self/mounts": "\n".join(rows.values()),
        "etc/fstab": "\n".join(rows[target] for target in wanted),
        **{target.lstrip("/"): None for target in rows if target != "/"},
        "tmp": None,
        "var/log": None,
    }


def _counters() -> writing.Tree:
    return {
        "proc/meminfo": _meminfo(),
        "proc/cpuinfo": "\n\n".join(_cpuinfo(i) for i in range(64)) + "\n",
        "proc/loadavg": "1.20 1.05 0.98 2/1204 48211",
        "proc/buddyinfo": "Node 0, zone   Normal 9216 6810 5122 3391 2204 1630 1102 804 611 402 20480\n"
        "Node 1, zone   Normal 8977 6622 5012 3300 2188 1601 1090 799 604 398 20511",
        "proc/vmstat": "oom_kill 0\npgmajfault 1204\nnr_free_pages 92274688",
        "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority",
        "proc/mdstat": "Personalities : \nunused devices: <none>",
        "proc/sys/kernel/pid_max": "4194304",
        "proc/sys/fs/file-nr": "9984\t0\t9223372036854775807",
    }


def _kernel(node_identity: identity.TreeIdentity) -> writing.Tree:
    return {
        "proc/modules": "\n".join(f"{m} 1048576 2 - Live 0x0000000000000000" for m in _MODULES),
        "proc/version": f"Linux version {KERNEL_RELEASE} (buildd@lcy02) (gcc 11.4.0) #53-Ubuntu SMP",
        "proc/sys/kernel/osrelease": KERNEL_RELEASE,
        "proc/sys/kernel/hostname": node_identity.node,
        "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER_VERSION}  "
        "Fri May 31 09:35:42 UTC 2024\nGCC version:  gcc version 11.4.0",
        "etc/hostname": node_identity.node,
        "etc/os-release": 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu',
    }


def _gpus(node_identity: identity.TreeIdentity) -> writing.Tree:
    return {
        f"proc/driver/nvidia/gpus/{gpu.pci}/information": f"Model: \t\t NVIDIA H100 80GB HBM3\n"
        f"IRQ:   \t\t {200 + gpu.index}\nGPU UUID: \t {gpu.uuid}\nBus Type: \t PCIe\n"
        f"Bus Location: \t {gpu.pci}\nDevice Minor: \t {gpu.minor}"
        for gpu in node_identity.gpus
    }


def _devices(node_identity: identity.TreeIdentity) -> writing.Tree:
    return {
        "dev/null": writing.TreeDevice(_MEM_MAJOR, 3),
        "dev/nvidiactl": writing.TreeDevice(_NVIDIA_MAJOR, 255),
        "dev/nvidia-uvm": writing.TreeDevice(_UVM_MAJOR, 0),
        **{
            f"dev/nvidia{gpu.minor}": writing.TreeDevice(_NVIDIA_MAJOR, gpu.minor)
            for gpu in node_identity.gpus
        },
        **{
            f"dev/infiniband/uverbs{i}": writing.TreeDevice(_UVERBS_MAJOR, 192 + i)
            for i in range(len(node_identity.hcas))
        },
    }


def boot(boot_id: str, btime_s: int) -> writing.Tree:
    """What changes when the node boots."""
    up_s = max(0, int(time.time()) - btime_s)
    return {
        "proc/sys/kernel/random/boot_id": boot_id,
        "proc/uptime": f"{up_s}.00 {up_s * 60}.00",
        "proc/stat": f"cpu  84190 120 31480 9412388 1204 0 812 0 0 0\nintr 8412201\nctxt 30221841\nbtime {btime_s}\n"
        "processes 48211\nprocs_running 2\nprocs_blocked 0",
    }


def _meminfo() -> str:
    rows = {
        "MemTotal": 528_280_588, "MemFree": 441_022_112, "MemAvailable": 498_775_404, "Buffers": 812_332,
        "Cached": 52_114_908, "SwapTotal": 0, "SwapFree": 0, "Dirty": 1_204, "Writeback": 0, "Shmem": 20_480,
        "HardwareCorrupted": 0,
    }  # fmt: skip
    return "\n".join(f"{name + ':':<16}{kib:>9} kB" for name, kib in rows.items())


def _cpuinfo(i: int) -> str:
    return (
        f"processor\t: {i}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n"
        f"cpu MHz\t\t: 3000.000\nphysical id\t: {i // 32}\ncore id\t\t: {i % 32}"
    )
