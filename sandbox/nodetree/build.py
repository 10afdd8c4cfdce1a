"""Making, booting and healing a simulated node's directory."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.nodetree import identity, kmsg, nvml, procfs, sysfs, writing

NVML_STATE = "nvml.state"


def build(directory: Path, node: str, *, number: int = 1, gpus: int = 8) -> identity.TreeIdentity:
    """Makes the healthy node `node` in `directory`: root/ and nvml.state. One that is there already stays."""
    node_identity = identity.identity(node, number, gpus)
    if (directory / NVML_STATE).exists():
        return node_identity
    root = directory / "root"
    btime_s = int(time.time()) - procfs.UP_S
    writing.write(root, procfs.files(node_identity, str(uuid.uuid4()), btime_s))
    writing.write(root, sysfs.files(node_identity))
    kmsg.start(root, *_boot_lines())
    nvml_state.write(directory / NVML_STATE, nvml.healthy(node_identity))
    return node_identity


def reboot(directory: Path, node: str, *, number: int, gpus: int) -> None:
    """The node boots now: a new boot id and boot time, an empty kernel log, NVML and links as if new."""
    root = directory / "root"
    writing.write(root, procfs.boot(str(uuid.uuid4()), int(time.time())))
    kmsg.start(root, *_boot_lines())
    heal(directory, node, number=number, gpus=gpus)


def heal(directory: Path, node: str, *, number: int, gpus: int) -> None:
    """Everything as on a healthy node again; kernel log, boot id and delivered NVML events stay."""
    node_identity = identity.identity(node, number, gpus)
    root = directory / "root"
    kept = {"proc/stat", "proc/uptime", "proc/sys/kernel/random/boot_id"}
    tree = procfs.files(node_identity, "", 0) | sysfs.files(node_identity)
    files = {name: entry for name, entry in tree.items() if isinstance(entry, str) and name not in kept}
    writing.write(root, files)
    with nvml_state.changing(directory / NVML_STATE) as state:
        events = {key: value for key, value in state.items() if key.startswith("event.")}
        state.clear()
        state |= {key: str(value) for key, value in nvml.healthy(node_identity).items()} | events


def _boot_lines() -> tuple[str, ...]:
    return (
        f"Linux version {procfs.KERNEL_RELEASE} (buildd@lcy02) (gcc 11.4.0) #53-Ubuntu SMP",
        f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {procfs.DRIVER_VERSION}  Fri May 31 09:35:42 UTC 2024",
        "nvidia-uvm: Loaded the UVM driver, major device number 510.",
    )
