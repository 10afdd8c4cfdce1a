"""Judging one GPU: errors that stand, counters that moved, links, PCIe, heat and power."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks.readers import nvml
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO

LASTING = 3
"""Readings in a row before something that may be a passing state counts."""
RETIRED_PAGES_MOST = 60
"""NVIDIA's limit for replacement of boards that retire pages (before row remapping)."""

_HW_THERMAL, _HW_POWER_BRAKE, _SW_THERMAL = 0x40, 0x80, 0x20
_FABRIC_COMPLETED = 3


@dataclass(kw_only=True)
class GpuFound:
    """What one GPU's reading means."""

    present: list[Condition] = field(default_factory=list)
    edges: list[ConditionEdge] = field(default_factory=list)
    was_reset: bool = False


@dataclass(frozen=True, kw_only=True)
class _GpuJudgement:
    """One GPU on the judge's desk."""

    gpu: nvml.NvmlGpu
    name: gpus.Gpu
    counters: baseline.Baseline
    streaks: baseline.Streaks
    found: GpuFound

    def condition(
        self, kind: str, code: str, severity: records.Severity, message: str, **more: Any
    ) -> Condition:
        return Condition(
            kind=kind,
            code=code,
            device=more.pop("device", self.name.device),
            gpu_uuid=self.gpu.uuid,
            pci_bus_id=self.gpu.pci_bus_id,
            severity=severity,
            message=f"{self.name.device}: {message}",
            **more,
        )

    def stands(self, kind: str, code: str, severity: records.Severity, message: str, **more: Any) -> None:
        self.found.present.append(self.condition(kind, code, severity, message, **more))

    def lasting(self, name: str, *, holds: bool) -> bool:
        return self.streaks.at_least(f"{self.gpu.uuid}:{name}", LASTING, holds=holds)

    def move(self, counter: str, value: int | None) -> baseline.CounterChange | None:
        return self.counters.move(f"{self.gpu.uuid}:{counter}", value)

    def happened(
        self, kind: str, code: str, severity: records.Severity, moved: baseline.CounterChange, what: str
    ) -> None:
        condition = self.condition(
            kind,
            code,
            severity,
            f"{moved.delta} more {what}, {moved.value} in all",
            measured=float(moved.delta),
            unit="count",
            detail={"total": moved.value},
        )
        latches = severity is HIGH
        self.found.edges.append(
            ConditionEdge(what=condition, latches=latches, value=f"{self.gpu.uuid}:{moved.position}")
        )


def judge(
    gpu: nvml.NvmlGpu,
    name: gpus.Gpu,
    counters: baseline.Baseline,
    streaks: baseline.Streaks,
    links: dict[str, dict[str, list[int]]],
    *,
    links_read: bool = True,
) -> GpuFound:
    """What this GPU's reading means; `links` remembers, per UUID, the NVLinks seen active and those down at last sight."""
    judgement = _GpuJudgement(gpu=gpu, name=name, counters=counters, streaks=streaks, found=GpuFound())
    for part in (_ecc, _rows, _pages, _pcie, _throttle, _heat, _fabric):
        part(judgement)
    if links_read:
        _look_at_links(judgement, links)
    _links(judgement, links)
    return judgement.found


def _ecc(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    bad = judgement.move("ecc_uncorrected_volatile", gpu.ecc_uncorrected_volatile_total)
    if bad is not None and bad.was_reset:
        # Volatile counts go down only when the driver or the GPU started anew.
        judgement.found.was_reset = True
    elif bad is not None and bad.delta:
        judgement.happened(
            "ecc", "uncorrectable", HIGH, bad, "uncorrectable memory errors since the driver was loaded"
        )
    for memory, total in (
        ("sram", gpu.ecc_sram_uncorrected_volatile_total),
        ("dram", gpu.ecc_dram_uncorrected_volatile_total),
    ):
        moved = judgement.move(f"ecc_{memory}_uncorrected", total)
        if moved is not None and moved.delta and not moved.was_reset:
            judgement.happened(
                "ecc", f"uncorrectable_{memory}", INFO, moved, f"uncorrectable {memory.upper()} errors"
            )
    _slowly(judgement, "ecc", "corrected", gpu.ecc_corrected_volatile_total, "corrected memory errors")
    _slowly(
        judgement,
        "ecc",
        "uncorrectable_aggregate",
        gpu.ecc_uncorrected_aggregate_total,
        "uncorrectable errors in its life",
    )


def _slowly(judgement: _GpuJudgement, kind: str, code: str, value: int | None, what: str) -> None:
    """Tell of a harmless counter each time it reaches another power of ten."""
    before = judgement.counters.values.get(f"{judgement.gpu.uuid}:{code}")
    moved = judgement.move(code, value)
    if moved is None or before is None or not moved.delta or moved.was_reset:
        return
    if baseline.decade(moved.value) > baseline.decade(before):
        judgement.happened(kind, code, INFO, moved, what)


def _rows(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    if gpu.remap_failed:
        judgement.stands(
            "row_remap", "failed", HIGH, "a row of its memory could not be remapped; it must be replaced"
        )
    if gpu.remap_pending:
        judgement.stands("row_remap", "pending", LOW, "a row remapping waits for a reset of the GPU")
    if gpu.remap_banks_exhausted:
        judgement.stands(
            "row_remap",
            "banks_exhausted",
            INFO,
            f"{gpu.remap_banks_exhausted} memory banks have no spare row left",
            measured=float(gpu.remap_banks_exhausted),
            unit="count",
        )
    for code, value in (
        ("uncorrected", gpu.remapped_uncorrected_total),
        ("corrected", gpu.remapped_corrected_total),
    ):
        moved = judgement.move(f"remapped_{code}", value)
        if moved is not None and moved.delta and not moved.was_reset:
            judgement.happened(
                "row_remap", f"remapped_{code}", INFO, moved, f"rows remapped for {code} errors"
            )


def _pages(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    if gpu.retired_pending:
        judgement.stands("retired_pages", "pending", LOW, "a memory page retirement waits for a restart")
    if gpu.retired_dbe_total is None and gpu.retired_sbe_total is None:
        return
    total = (gpu.retired_dbe_total or 0) + (gpu.retired_sbe_total or 0)
    moved = judgement.move("retired_pages", total)
    if moved is not None and moved.delta and not moved.was_reset:
        judgement.happened("retired_pages", "retired", INFO, moved, "memory pages retired")
    if total >= RETIRED_PAGES_MOST:
        judgement.stands(
            "retired_pages",
            "limit",
            LOW,
            f"{total} memory pages are retired; it should be replaced",
            measured=float(total),
            threshold=float(RETIRED_PAGES_MOST),
            unit="count",
        )


def _pcie(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    _slowly(judgement, "pcie_replay", "replays", gpu.pcie_replays_total, "PCIe packets sent again")
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if judgement.lasting("width", holds=bool(width and most and width < most)):
        judgement.stands(
            "pcie_width",
            "width",
            LOW,
            f"its PCIe link runs x{width} of x{most}",
            measured=float(width or 0),
            threshold=float(most or 0),
            unit="count",
        )
    # An idle GPU slows its link down on purpose: the generation counts only under load.
    busy = (gpu.utilization_frac or 0.0) > 0.5
    speed, best = gpu.pcie_generation, gpu.pcie_generation_max
    if judgement.lasting("generation", holds=bool(busy and speed and best and speed < best)):
        judgement.stands(
            "pcie_width",
            "generation",
            INFO,
            f"its PCIe link runs at generation {speed} of {best} under load",
            measured=float(speed or 0),
            threshold=float(best or 0),
            unit="count",
        )


def _throttle(judgement: _GpuJudgement) -> None:
    reasons = judgement.gpu.throttle_reasons or 0
    for code, bit, severity, what in (
        ("hw_thermal", _HW_THERMAL, LOW, "its hardware slows it down for heat"),
        ("hw_power_brake", _HW_POWER_BRAKE, LOW, "an external power brake slows it down"),
        ("sw_thermal", _SW_THERMAL, INFO, "the driver slows it down for heat"),
    ):
        if judgement.lasting(code, holds=bool(reasons & bit)):
            judgement.stands("throttle", code, severity, what)


def _heat(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    for code, value, limit in (
        ("gpu", gpu.temperature_c, gpu.slowdown_c),
        ("memory", gpu.memory_temperature_c, gpu.memory_max_c),
    ):
        # Some boards answer 0 for a limit they do not have.
        if value is not None and limit and judgement.lasting(f"heat_{code}", holds=value >= limit):
            judgement.stands(
                "thermal",
                code,
                LOW,
                f"{code} temperature {value} °C is at its limit of {limit} °C",
                measured=float(value),
                threshold=float(limit),
                unit="c",
            )


def _fabric(judgement: _GpuJudgement) -> None:
    gpu = judgement.gpu
    failed = gpu.fabric_state == _FABRIC_COMPLETED and gpu.fabric_status not in (None, 0)
    if judgement.lasting("fabric", holds=failed):
        judgement.stands(
            "nvlink",
            "fabric",
            HIGH,
            f"it could not join the NVLink fabric (NVML status {gpu.fabric_status})",
            detail={"health_mask": gpu.fabric_health_mask},
        )


_LINK_COUNTERS: tuple[tuple[str, Callable[[nvml.NvLink], int | None]], ...] = (
    ("replay", lambda link: link.replay_errors_total),
    ("recovery", lambda link: link.recovery_errors_total),
    ("crc", lambda link: link.crc_errors_total),
)


def _look_at_links(judgement: _GpuJudgement, remembered: dict[str, dict[str, list[int]]]) -> None:
    """A link is down only if it was ever up: boards leave links unconnected by design. In MIG mode all are off."""
    gpu = judgement.gpu
    if gpu.mig:
        remembered.get(gpu.uuid or "", {})["down"] = []
        return
    if not gpu.links or gpu.uuid is None:
        return
    up = {link.link for link in gpu.links if link.active}
    known = up | set(remembered.get(gpu.uuid, {}).get("seen", ()))
    down = [link.link for link in gpu.links if link.active is False and link.link in known]
    remembered[gpu.uuid] = {"seen": sorted(known), "down": sorted(down)}
    for link in gpu.links:
        for code, value_of in _LINK_COUNTERS:
            _slowly(
                judgement,
                "nvlink",
                f"{code}_link{link.link}",
                value_of(link),
                f"{code} errors on NVLink {link.link}",
            )


def _links(judgement: _GpuJudgement, remembered: dict[str, dict[str, list[int]]]) -> None:
    down = remembered.get(judgement.gpu.uuid or "", {}).get("down", [])
    if down:
        judgement.stands(
            "nvlink",
            "inactive",
            HIGH,
            f"NVLink {', '.join(map(str, down))} is down",
            measured=float(len(down)),
            unit="count",
            detail={"links": down},
        )
