"""What NVML answers on a healthy simulated node."""

from __future__ import annotations

from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.nodetree import identity, procfs

LINKS = 18
IDLE_REASON = 0x1

_EVERY_GPU: dict[str, str | int] = {
    "name": "NVIDIA H100 80GB HBM3", "pci_device_id": 0x233010DE, "pci_subsystem_id": 0x16C110DE,
    "board_part_number": "692-2G520-0200-000", "vbios": "96.00.89.00.01", "brand": 14, "architecture": 9,
    "compute_capability": 90, "persistence_mode": 1, "compute_mode": 0, "mig.current": 0, "mig.pending": 0,
    "inforom.image": "G520.0200.00.05", "inforom.oem": "2.1", "inforom.ecc": "7.16", "gsp.version": "550.90.07",
    "pcie.generation": 5, "pcie.max_generation": 5, "pcie.width": 16, "pcie.max_width": 16, "pcie.replay": 0,
    "temperature_c": 34, "memory_temperature_c": 42, "threshold.shutdown_c": 92, "threshold.slowdown_c": 89,
    "threshold.memory_max_c": 95, "threshold.gpu_max_c": 87,
    "power_mw": 71_400, "power_limit_mw": 700_000, "energy_mj": 1_204_118_332, "performance_state": 0,
    "throttle.reasons": IDLE_REASON, "throttle.supported": 0x1FF,
    "clock.graphics_mhz": 345, "clock.sm_mhz": 345, "clock.memory_mhz": 2619, "clock.video_mhz": 765,
    "clock_max.graphics_mhz": 1980, "clock_max.sm_mhz": 1980, "clock_max.memory_mhz": 2619,
    "clock_max.video_mhz": 1545,
    "utilization.gpu_percent": 0, "utilization.memory_percent": 0,
    "memory.total_bytes": 85_520_809_984, "memory.used_bytes": 4_718_592, "memory.reserved_bytes": 641_728_512,
    "ecc.current": 1, "ecc.pending": 1,
    **{f"ecc.{kind}.{error}.{where}": 0 for kind in ("volatile", "aggregate")
       for error in ("corrected", "uncorrected") for where in ("dram", "sram")},
    "ecc.sram_threshold_exceeded": 0,
    "remapped.corrected": 0, "remapped.uncorrected": 0, "remapped.pending": 0, "remapped.failure": 0,
    "remapped.banks_max": 2560, "remapped.banks_high": 0, "remapped.banks_partial": 0, "remapped.banks_low": 0,
    "remapped.banks_none": 0,
    "links": LINKS, "link.state": 1, "link.version": 4,
    **{f"link.{counter}": 0 for counter in ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")},
    "fabric.state": 3, "fabric.status": 0, "fabric.clique": 0, "fabric.health_mask": 0,
    "recovery_action": 0,
}  # fmt: skip


def healthy(node_identity: identity.TreeIdentity) -> nvml_state.Values:
    """The state file of a node with nothing wrong."""
    state: dict[str, str | int | None] = {
        "driver.state": "ok",
        "driver.version": procfs.DRIVER_VERSION,
        "nvml.version": f"12.{procfs.DRIVER_VERSION}",
        "cuda.version": 12_040,
        "gpu.count": len(node_identity.gpus),
        "event.count": 0,
        **{f"gpu.{key}": value for key, value in _EVERY_GPU.items()},
    }
    for gpu in node_identity.gpus:
        own: dict[str, str | int] = {
            "uuid": gpu.uuid,
            "serial": gpu.serial,
            "pci": gpu.pci,
            "minor": gpu.minor,
        }
        own |= {"board_id": int(gpu.pci[5:7], 16) << 8, "module_id": gpu.minor + 1}
        state |= {f"gpu.{gpu.index}.{key}": value for key, value in own.items()}
    return state
