"""What NVML said about a node's GPUs, as plain values; `None` is "not known", never zero."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class SnapshotLack(StrEnum):
    """Why there is no snapshot."""

    ABSENT = "absent"
    """No NVML library on this node."""
    DRIVER = "driver"
    """The library is there and the driver does not answer it: not loaded, or another version."""
    LOST = "lost"
    """The driver answers that GPUs are lost or cannot be initialised."""
    HANG = "hang"
    """The call did not return in time."""
    ERROR = "error"
    """NVML failed in another way."""


@dataclass(frozen=True, kw_only=True)
class NvmlUnavailable:
    """There is no snapshot, and why."""

    kind: SnapshotLack
    message: str
    code: str | None = None
    """NVML's own word: DRIVER_NOT_LOADED, GPU_IS_LOST …"""


@dataclass(frozen=True, kw_only=True)
class NvLink:
    """One NVLink of one GPU."""

    link: int
    active: bool | None = None
    version: int | None = None
    replay_errors_total: int | None = None
    recovery_errors_total: int | None = None
    crc_errors_total: int | None = None
    """Flit CRC errors since the counters were last reset."""


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A compute process on a GPU."""

    pid: int
    used_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class NvmlGpu:
    """One GPU. `lost` is NVML's word when the device itself cannot be reached."""

    index: int
    uuid: str | None = None
    name: str | None = None
    serial: str | None = None
    pci_bus_id: str | None = None
    """Lower case, `0000:5e:00.0`."""
    minor: int | None = None
    lost: str | None = None
    unread: Mapping[str, str] = field(default_factory=dict)
    """Field to NVML's error word, for what is supported and could not be read."""
    vbios: str | None = None
    inforom: str | None = None
    gsp_firmware: str | None = None
    persistence: bool | None = None
    mig: bool | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    slowdown_c: int | None = None
    shutdown_c: int | None = None
    memory_max_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """The limit enforced now."""
    power_default_w: float | None = None
    throttle_reasons: int | None = None
    """NVML's clocks event reasons bit mask."""
    pstate: int | None = None
    utilization_frac: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    application_sm_mhz: int | None = None
    application_sm_default_mhz: int | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    """Without what the driver reserves for itself."""
    ecc_enabled: bool | None = None
    ecc_corrected_volatile_total: int | None = None
    ecc_uncorrected_volatile_total: int | None = None
    ecc_corrected_aggregate_total: int | None = None
    ecc_uncorrected_aggregate_total: int | None = None
    ecc_sram_uncorrected_volatile_total: int | None = None
    ecc_dram_uncorrected_volatile_total: int | None = None
    remapped_corrected_total: int | None = None
    remapped_uncorrected_total: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    remap_banks_exhausted: int | None = None
    """Memory banks without a spare row left (histogram class "none")."""
    retired_sbe_total: int | None = None
    retired_dbe_total: int | None = None
    retired_pending: bool | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    """The highest that this GPU in this slot can do."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays_total: int | None = None
    fabric_state: int | None = None
    """0 not supported, 1 not started, 2 in progress, 3 completed."""
    fabric_status: int | None = None
    """NVML return code of the registration; 0 is success."""
    fabric_health_mask: int | None = None
    links: tuple[NvLink, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def device(self) -> str:
        """How findings name it."""
        return f"gpu{self.index}"

    @property
    def virtual(self) -> bool:
        """Whether it is a slice that a hypervisor gives to this machine (vGPU), by NVIDIA's names of them: `A40-48Q`, `A100-1-5C`."""
        return re.search(r"-\d+(?:[ABQ]|C(?:ME)?)$", self.name or "") is not None

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that tie a finding to this GPU."""
        return {"gpu_uuid": self.uuid, "pci_bus_id": self.pci_bus_id}


@dataclass(frozen=True, kw_only=True)
class NvmlSnapshot:
    """Every GPU at one moment, in NVML's index order (not the order of minor numbers, nor always of PCI)."""

    driver_version: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    cpu_s: float = 0.0
    """CPU seconds that taking it cost."""

    def by_uuid(self, uuid: str) -> NvmlGpu | None:
        """The GPU with that UUID."""
        return next((g for g in self.gpus if g.uuid == uuid), None)


def to_json(value: NvmlSnapshot | NvmlUnavailable) -> dict[str, Any]:
    """`value` as JSON-ready values; unknown fields are left out."""
    if isinstance(value, NvmlUnavailable):
        return {"unavailable": dataclasses.asdict(value)}
    return {**vars(value), "gpus": [_row(g) for g in value.gpus]}


def _row(gpu: NvmlGpu) -> dict[str, Any]:
    """Flat but for two lists, and made every ten seconds for ever: dataclasses.asdict costs ten times this."""
    row = {k: v for k, v in vars(gpu).items() if v is not None}
    row["links"] = [dict(vars(link)) for link in gpu.links]
    if gpu.processes is not None:
        row["processes"] = [dict(vars(process)) for process in gpu.processes]
    return row


def from_json(data: Mapping[str, Any]) -> NvmlSnapshot | NvmlUnavailable:
    """The value that `to_json` wrote."""
    if "unavailable" in data:
        lack = dict(data["unavailable"])
        return NvmlUnavailable(**{**lack, "kind": SnapshotLack(lack["kind"])})
    return NvmlSnapshot(**{**data, "gpus": tuple(_gpu(g) for g in data["gpus"])})


def _gpu(row: Mapping[str, Any]) -> NvmlGpu:
    ended = row.get("processes")
    return NvmlGpu(
        **{
            **row,
            "links": tuple(NvLink(**link) for link in row.get("links", ())),
            "processes": None if ended is None else tuple(GpuProcess(**p) for p in ended),
        }
    )
