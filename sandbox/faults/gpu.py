"""Faults of GPUs: the kernel line as the driver words it, and what NVML shows from then on."""

from __future__ import annotations

from collections.abc import Callable

from probing_cluster.core import errors
from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.faults import registry, xid_lines
from probing_cluster.sandbox.nodetree import kmsg, writing

HW_SLOWDOWN, HW_THERMAL = 0x8, 0x40
_MOST_XID = 999
"""Higher than any that the driver has, newer ones than our catalogue's included."""
_MOST_AT_ONCE = 100_000
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0"}
"""PCIe generation to GT/s."""


@registry.fault("xid")
def xid(
    target: registry.Target,
    code: int,
    *,
    gpu: int = 0,
    pid: int | None = None,
    process: str | None = None,
    text: str | None = None,
) -> None:
    """The driver reports Xid CODE: the kernel line, the NVML event, and what else that Xid does to a GPU."""
    _require(1 <= code <= _MOST_XID, f"{code} is no Xid; the driver's are 1 to {_MOST_XID}")
    device = target.gpu(gpu)
    lines = [xid_lines.line(code, device.pci, pid, process, text)]
    if code == 79:
        address = device.pci.rpartition(".")[0]
        lines = [
            f"NVRM: GPU at PCI:{address}: {device.uuid}",
            f"NVRM: GPU Board Serial Number: {device.serial}",
            *lines,
        ]
        lines += [f"NVRM: GPU {device.pci}: GPU has fallen off the bus."]
        lines += [f"NVRM: GPU {device.pci}: GPU serial number is {device.serial}."]
    target.kernel(*lines)
    nvml_state.add_event(target.nvml, gpu, code)
    if code in _EFFECTS:
        _EFFECTS[code](target, gpu)


@registry.fault("gpu-lost")
def gpu_lost(target: registry.Target, *, gpu: int = 0) -> None:
    """The GPU falls off the bus: Xid 79, and every NVML call about it says that it is lost."""
    xid(target, 79, gpu=gpu)


@registry.fault("ecc-uncorrectable")
def ecc_uncorrectable(target: registry.Target, *, gpu: int = 0, count: int = 1) -> None:
    """Uncorrectable errors in GPU memory: Xid 48, ECC counters, a row waiting to be remapped."""
    _require(1 <= count <= _MOST_AT_ONCE, f"a count of {count} is not between 1 and {_MOST_AT_ONCE:,}")
    for _ in range(count):
        xid(target, 48, gpu=gpu)


@registry.fault("ecc-correctable")
def ecc_correctable(target: registry.Target, *, gpu: int = 0, count: int = 1) -> None:
    """Corrected errors in GPU memory: counters only, no kernel line."""
    _require(1 <= count <= _MOST_AT_ONCE, f"a count of {count} is not between 1 and {_MOST_AT_ONCE:,}")
    for kind in ("volatile", "aggregate"):
        nvml_state.add(target.nvml, gpu, f"ecc.{kind}.corrected.dram", count)


@registry.fault("row-remap-failed")
def row_remap_failed(target: registry.Target, *, gpu: int = 0) -> None:
    """A bad row cannot be remapped: Xid 64 and the failure flag of the row remapper."""
    xid(target, 64, gpu=gpu)


@registry.fault("nvlink-down")
def nvlink_down(target: registry.Target, *, gpu: int = 0, link: int = 4) -> None:
    """One NVLink of the GPU goes down: Xid 74, the link's state and its error counters."""
    xid(
        target,
        74,
        gpu=gpu,
        text=f"NVLink: fatal error detected on link {link}(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    )
    for counter, amount in {"recovery": 1, "replay": 812, "crc_data": 44}.items():
        nvml_state.add(target.nvml, gpu, f"link.{link}.{counter}", amount)
    target.set_gpu(gpu, **{f"link__{link}__state": 0})


@registry.fault("pcie-downgrade")
def pcie_downgrade(target: registry.Target, *, gpu: int = 0, width: int = 8, generation: int = 5) -> None:
    """The GPU's PCIe link trains with fewer lanes or slower: sysfs, NVML, and the kernel's word about it."""
    device = target.gpu(gpu)
    _require(generation in _SPEEDS, f"there is no PCIe generation {generation} here; there are 1 to 5")
    _require(width in (1, 2, 4, 8, 16), f"a PCIe link has 1, 2, 4, 8 or 16 lanes, not {width}")
    speed = _SPEEDS[generation]
    where = f"sys/bus/pci/devices/{device.pci}"
    writing.put(target.root, f"{where}/current_link_width", str(width))
    writing.put(target.root, f"{where}/current_link_speed", f"{speed} GT/s PCIe")
    target.set_gpu(gpu, pcie__width=width, pcie__generation=generation)
    target.kernel(
        f"pci {device.pci}: {float(speed) * width * 0.985:.3f} Gb/s available PCIe bandwidth, limited by {speed} GT/s "
        f"PCIe x{width} link at 0000:00:01.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)",
        level=kmsg.INFO,
    )


@registry.fault("pcie-replay")
def pcie_replay(target: registry.Target, *, gpu: int = 0, count: int = 1000) -> None:
    """The GPU's PCIe replay counter jumps."""
    _require(1 <= count <= _MOST_AT_ONCE, f"a count of {count} is not between 1 and {_MOST_AT_ONCE:,}")
    nvml_state.add(target.nvml, gpu, "pcie.replay", count)


@registry.fault("thermal")
def thermal(target: registry.Target, *, gpu: int = 0, celsius: int = 93) -> None:
    """The GPU overheats and slows itself down: temperature, throttle reasons, clocks."""
    target.set_gpu(
        gpu,
        temperature_c=celsius,
        memory_temperature_c=celsius + 4,
        throttle__reasons=HW_SLOWDOWN | HW_THERMAL,
        clock__sm_mhz=510,
        clock__graphics_mhz=510,
    )


@registry.fault("nvml-hang")
def nvml_hang(target: registry.Target, *, gpu: int = 0, call: str = "all") -> None:
    """NVML calls about the GPU (all, or the named function) never return until the node is healed."""
    target.set_gpu(gpu, hang=call)


@registry.fault("driver-gone")
def driver_gone(target: registry.Target, *, state: str = "not_loaded") -> None:
    """The NVIDIA driver is not loaded, or (state mismatch) is of another version than its library."""
    nvml_state.update(target.nvml, {"driver.state": state})


def _require(fits: bool, why: str) -> None:
    if not fits:
        raise errors.UsageError(why)


def _lost(target: registry.Target, gpu: int) -> None:
    target.set_gpu(gpu, lost=1, recovery_action=2)


def _uncorrected(target: registry.Target, gpu: int) -> None:
    for kind in ("volatile", "aggregate"):
        nvml_state.add(target.nvml, gpu, f"ecc.{kind}.uncorrected.dram")
    target.set_gpu(gpu, remapped__pending=1, recovery_action=1)


def _remapped(target: registry.Target, gpu: int) -> None:
    nvml_state.add(target.nvml, gpu, "remapped.uncorrected")
    target.set_gpu(gpu, remapped__pending=1, recovery_action=1)


def _remap_failed(target: registry.Target, gpu: int) -> None:
    target.set_gpu(gpu, remapped__failure=1, remapped__banks_none=1, remapped__banks_max=2559)


_EFFECTS: dict[int, Callable[[registry.Target, int], None]] = {
    48: _uncorrected,
    63: _remapped,
    64: _remap_failed,
    79: _lost,
    95: _uncorrected,
}
"""What NVML shows after an Xid, beyond the event; the others leave no trace there."""
