"""Which NVML call fills which fields of a `nvml.NvmlGpu`; `p` is pynvml, `ask` calls it for one GPU and gives None for "not known"."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from probing_cluster.healthchecks.readers import nvml

Ask = Callable[..., Any]


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _identity(_: Any, ask: Ask) -> dict[str, Any]:
    pci = ask("pci_bus_id", "nvmlDeviceGetPciInfo")
    return {
        "uuid": ask("uuid", "nvmlDeviceGetUUID"),
        "name": ask("name", "nvmlDeviceGetName"),
        "serial": ask("serial", "nvmlDeviceGetSerial"),
        "minor": ask("minor", "nvmlDeviceGetMinorNumber"),
        "pci_bus_id": None if pci is None else f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
        "vbios": ask("vbios", "nvmlDeviceGetVbiosVersion"),
        "inforom": ask("inforom", "nvmlDeviceGetInforomImageVersion"),
        "gsp_firmware": ask("gsp_firmware", "nvmlDeviceGetGspFirmwareVersion"),
        "persistence": _flag(ask("persistence", "nvmlDeviceGetPersistenceMode")),
    }


def _heat(p: Any, ask: Ask) -> dict[str, Any]:
    def limit(name: str, which: int) -> Any:
        return ask(name, "nvmlDeviceGetTemperatureThreshold", which)

    return {
        "temperature_c": ask("temperature_c", "nvmlDeviceGetTemperature", p.NVML_TEMPERATURE_GPU),
        "memory_temperature_c": _memory_temperature(p, ask),
        "slowdown_c": limit("slowdown_c", p.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        "shutdown_c": limit("shutdown_c", p.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        "memory_max_c": limit("memory_max_c", p.NVML_TEMPERATURE_THRESHOLD_MEM_MAX),
        "power_w": _scaled(ask("power_w", "nvmlDeviceGetPowerUsage"), 0.001),
        "power_limit_w": _scaled(ask("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit"), 0.001),
        "power_default_w": _scaled(ask("power_default_w", "nvmlDeviceGetPowerManagementDefaultLimit"), 0.001),
    }


def _memory_temperature(p: Any, ask: Ask) -> int | None:
    values = ask("memory_temperature_c", "nvmlDeviceGetFieldValues", [p.NVML_FI_DEV_MEMORY_TEMP])
    if not values or values[0].nvmlReturn != p.NVML_SUCCESS:
        return None
    celsius = int(values[0].value.uiVal)
    return celsius or None  # HBM at 0 °C is a GPU without the sensor


def _clocks(p: Any, ask: Ask) -> dict[str, Any]:
    sm, mem = p.NVML_CLOCK_SM, p.NVML_CLOCK_MEM
    load = ask("utilization_frac", "nvmlDeviceGetUtilizationRates")
    return {
        "throttle_reasons": ask("throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        "pstate": ask("pstate", "nvmlDeviceGetPerformanceState"),
        "utilization_frac": None if load is None else load.gpu / 100,
        "sm_clock_mhz": ask("sm_clock_mhz", "nvmlDeviceGetClockInfo", sm),
        "sm_clock_max_mhz": ask("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", sm),
        "memory_clock_mhz": ask("memory_clock_mhz", "nvmlDeviceGetClockInfo", mem),
        "memory_clock_max_mhz": ask("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", mem),
        "application_sm_mhz": ask("application_sm_mhz", "nvmlDeviceGetApplicationsClock", sm),
        "application_sm_default_mhz": ask(
            "application_sm_default_mhz", "nvmlDeviceGetDefaultApplicationsClock", sm
        ),
    }


def _ecc(p: Any, ask: Ask) -> dict[str, Any]:
    corrected, uncorrected = p.NVML_MEMORY_ERROR_TYPE_CORRECTED, p.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = p.NVML_VOLATILE_ECC, p.NVML_AGGREGATE_ECC
    mode = ask("ecc_enabled", "nvmlDeviceGetEccMode")

    def total(name: str, kind: int, since: int) -> Any:
        return ask(name, "nvmlDeviceGetTotalEccErrors", kind, since)

    def place(name: str, where: int) -> Any:
        return ask(name, "nvmlDeviceGetMemoryErrorCounter", uncorrected, volatile, where)

    return {
        "ecc_enabled": None if mode is None else bool(mode[0]),
        "ecc_corrected_volatile_total": total("ecc_corrected_volatile_total", corrected, volatile),
        "ecc_uncorrected_volatile_total": total("ecc_uncorrected_volatile_total", uncorrected, volatile),
        "ecc_corrected_aggregate_total": total("ecc_corrected_aggregate_total", corrected, aggregate),
        "ecc_uncorrected_aggregate_total": total("ecc_uncorrected_aggregate_total", uncorrected, aggregate),
        "ecc_sram_uncorrected_volatile_total": place(
            "ecc_sram_uncorrected_volatile_total", p.NVML_MEMORY_LOCATION_SRAM
        ),
        "ecc_dram_uncorrected_volatile_total": place(
            "ecc_dram_uncorrected_volatile_total", p.NVML_MEMORY_LOCATION_DRAM
        ),
    }


def _remap(p: Any, ask: Ask) -> dict[str, Any]:
    rows = ask("remapped_rows", "nvmlDeviceGetRemappedRows") or (None, None, None, None)
    banks = ask("remap_banks_exhausted", "nvmlDeviceGetRowRemapperHistogram")
    cause = "NVML_PAGE_RETIREMENT_CAUSE_"
    pages: dict[str, int | None] = {}
    if rows[0] is None:  # page retirement is what GPUs before row remapping do
        for key, word in (
            ("retired_sbe_total", "MULTIPLE_SINGLE_BIT_ECC_ERRORS"),
            ("retired_dbe_total", "DOUBLE_BIT_ECC_ERROR"),
        ):
            listed = ask(key, "nvmlDeviceGetRetiredPages", getattr(p, cause + word))
            pages[key] = None if listed is None else len(listed)
        pages["retired_pending"] = _flag(ask("retired_pending", "nvmlDeviceGetRetiredPagesPendingStatus"))
    return {
        "remapped_corrected_total": rows[0],
        "remapped_uncorrected_total": rows[1],
        "remap_pending": _flag(rows[2]),
        "remap_failed": _flag(rows[3]),
        "remap_banks_exhausted": None if banks is None else int(banks.none),
        **pages,
    }


def _pcie(_: Any, ask: Ask) -> dict[str, Any]:
    return {
        "pcie_generation": ask("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_generation_max": ask("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width": ask("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": ask("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
        "pcie_replays_total": ask("pcie_replays_total", "nvmlDeviceGetPcieReplayCounter"),
    }


def _fabric(p: Any, ask: Ask) -> dict[str, Any]:
    info = p.c_nvmlGpuFabricInfo_v2_t()
    info.version = p.nvmlGpuFabricInfo_v2
    if ask("fabric", "nvmlDeviceGetGpuFabricInfoV", ctypes.byref(info)) is None:
        return {}
    return {
        "fabric_state": int(info.state),
        "fabric_status": int(info.status),
        "fabric_health_mask": int(info.healthMask),
    }


def _links(p: Any, ask: Ask) -> dict[str, Any]:
    rows = _links_at_once(p, ask)
    if rows is None:
        rows = [row for i in range(p.NVML_NVLINK_MAX_LINKS) if (row := _link(p, ask, i)) is not None]
    version = ask("nvlink_version", "nvmlDeviceGetNvLinkVersion", 0) if rows else None
    mig = ask("mig", "nvmlDeviceGetMigMode")  # whoever judges links must know: it switches them off
    return {
        "links": tuple(nvml.NvLink(version=version, **row) for row in rows),
        "mig": None if mig is None else bool(mig[0]),
    }


def _links_at_once(p: Any, ask: Ask) -> list[dict[str, Any]] | None:
    """State and errors of all links by one call; None where the driver does not answer so (before Hopper)."""
    count = ask("nvlink_count", "nvmlDeviceGetFieldValues", [p.NVML_FI_DEV_NVLINK_LINK_COUNT])
    if not count or count[0].nvmlReturn != p.NVML_SUCCESS:
        return None
    numbers = range(min(count[0].value.uiVal, p.NVML_NVLINK_MAX_LINKS))
    pairs = [(field, i) for i in numbers for field in _link_fields(p)]
    values = ask("nvlink", "nvmlDeviceGetFieldValues", pairs) if pairs else []
    if values is None or any(v.nvmlReturn != p.NVML_SUCCESS for v in values):
        return None
    found = [
        int(v.value.ullVal) if v.valueType == p.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG else int(v.value.uiVal)
        for v in values
    ]
    width = len(_link_fields(p))
    return [_row(i, *found[i * width : (i + 1) * width]) for i in numbers]


def _link_fields(p: Any) -> tuple[int, ...]:
    return (
        p.NVML_FI_DEV_NVLINK_GET_STATE,
        p.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
        p.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
        p.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
    )


def _link(p: Any, ask: Ask, i: int) -> dict[str, Any] | None:
    active = ask("nvlink", "nvmlDeviceGetNvLinkState", i)
    if active is None:  # not supported, or past the last link
        return None
    kinds = (p.NVML_NVLINK_ERROR_DL_REPLAY, p.NVML_NVLINK_ERROR_DL_RECOVERY, p.NVML_NVLINK_ERROR_DL_CRC_FLIT)
    return _row(i, active, *(ask("nvlink_errors", "nvmlDeviceGetNvLinkErrorCounter", i, k) for k in kinds))


def _row(link: int, active: int, replay: int | None, recovery: int | None, crc: int | None) -> dict[str, Any]:
    errors = {"replay_errors_total": replay, "recovery_errors_total": recovery, "crc_errors_total": crc}
    return {"link": link, "active": bool(active), **errors}


def _usage(p: Any, ask: Ask) -> dict[str, Any]:
    # Version 2 keeps apart what the driver reserves; version 1 counts it as used.
    memory = ask("memory", "nvmlDeviceGetMemoryInfo", p.nvmlMemory_v2)
    running = ask("processes", "nvmlDeviceGetComputeRunningProcesses")
    listed = (
        None
        if running is None
        else tuple(nvml.GpuProcess(pid=r.pid, used_bytes=r.usedGpuMemory) for r in running)
    )
    return {
        "memory_total_bytes": None if memory is None else memory.total,
        "memory_used_bytes": None if memory is None else memory.used,
        "processes": listed,
    }


FIXED = frozenset({
    "name", "serial", "minor", "pci_bus_id", "slowdown_c", "memory_max_c", "pcie_generation_max", "pcie_width_max",
})  # fmt: skip
"""What no GPU changes while its driver is loaded: a watcher asks once."""

NOT_WATCHED = frozenset({
    "vbios", "inforom", "gsp_firmware", "persistence", "shutdown_c", "power_w", "power_limit_w", "power_default_w",
    "pstate", "sm_clock_mhz", "sm_clock_max_mhz", "memory_clock_mhz", "memory_clock_max_mhz", "application_sm_mhz",
    "application_sm_default_mhz", "ecc_enabled", "ecc_corrected_aggregate_total", "memory", "processes",
})  # fmt: skip
"""Calls (by the field they fill) that only the check sweep judges: a watcher leaves them out."""

PARTS = (_identity, _heat, _clocks, _ecc, _remap, _pcie, _fabric, _links, _usage)
"""Asked in this order; after each one a GPU that turned out to be lost is given up."""

WITHOUT_LINKS = tuple(part for part in PARTS if part is not _links)
"""NVLinks are two thirds of the calls."""
