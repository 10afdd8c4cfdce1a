"""Every fault, on a simulated node."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probing_cluster.core import errors
from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.faults import registry


def _log(node: registry.Target) -> list[str]:
    return [line.partition(";")[2] for line in (node.root / "dev/kmsg").read_text().splitlines()]


def _value(node: registry.Target, path: str) -> str:
    return (node.root / path).read_text().strip()


def test_xid_writes_the_drivers_line_and_raises_the_event(nvml: ModuleType, node: registry.Target) -> None:
    """The kernel line names the GPU's bus address without its function, and NVML delivers the Xid."""
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(
        nvml.nvmlDeviceGetHandleByIndex(2), nvml.nvmlEventTypeXidCriticalError, events
    )
    registry.inject(node, "xid", code=31, gpu=2, pid=4711, process="python3")
    address = node.gpu(2).pci.removesuffix(".0")
    assert _log(node)[-1].startswith(f"NVRM: Xid (PCI:{address}): 31, pid=4711, name=python3, Ch 00000007, ")
    assert nvml.nvmlEventSetWait_v2(events, 1000).eventData == 31
    nvml.nvmlEventSetFree(events)


def test_an_xid_without_a_text_of_ours_is_logged_without_one(node: registry.Target) -> None:
    """Any code can be injected; the line then ends after the process."""
    registry.inject(node, "xid", code=999, gpu=0)
    assert _log(node)[-1].endswith("): 999, pid='<unknown>', name=<unknown>")


def test_gpu_lost_is_xid_79_and_a_gpu_that_does_not_answer(nvml: ModuleType, node: registry.Target) -> None:
    """The kernel says so with UUID and serial number, and NVML loses the GPU."""
    registry.inject(node, "gpu-lost", gpu=3)
    gpu = node.gpu(3)
    log = "\n".join(_log(node))
    assert re.search(r"NVRM: Xid \(PCI:[0-9a-f:]+\): 79, .*GPU has fallen off the bus\.", log)
    assert gpu.uuid in log
    assert gpu.serial in log
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(3)


@pytest.mark.parametrize(
    ("fault", "options", "code", "state"),
    [
        (
            "ecc-uncorrectable",
            {"count": 2},
            48,
            {"ecc.volatile.uncorrected.dram": "2", "remapped.pending": "1"},
        ),
        ("row-remap-failed", {}, 64, {"remapped.failure": "1"}),
        ("nvlink-down", {"link": 6}, 74, {"link.6.state": "0", "link.6.recovery": "1"}),
        ("thermal", {"celsius": 95}, None, {"temperature_c": "95", "throttle.reasons": str(0x48)}),
        ("pcie-replay", {"count": 7}, None, {"pcie.replay": "7"}),
        ("ecc-correctable", {"count": 9}, None, {"ecc.volatile.corrected.dram": "9"}),
        ("nvml-hang", {"call": "nvmlDeviceGetPowerUsage"}, None, {"hang": "nvmlDeviceGetPowerUsage"}),
    ],
)
def test_gpu_faults_show_in_nvml(
    node: registry.Target, fault: str, options: dict[str, Any], code: int | None, state: dict[str, str]
) -> None:
    """Each fault sets the counters it is about, on its GPU only, and logs its Xid where it has one."""
    before = nvml_state.read(node.nvml)
    registry.inject(node, fault, gpu=1, **options)
    now = nvml_state.read(node.nvml)
    changed = {key for key in now if now[key] != before.get(key) and not key.startswith("event.")}
    assert {key: now[f"gpu.1.{key}"] for key in state} == state
    assert all(key.startswith("gpu.1.") for key in changed)
    assert sum(f"): {code}, " in line for line in _log(node)) == (options.get("count", 1) if code else 0)


def test_pcie_downgrade_shows_in_sysfs_nvml_and_the_kernel_log(node: registry.Target) -> None:
    """All three tell the same narrower link."""
    registry.inject(node, "pcie-downgrade", gpu=5, width=4, generation=3)
    where = f"sys/bus/pci/devices/{node.gpu(5).pci}"
    assert _value(node, f"{where}/current_link_width") == "4"
    assert _value(node, f"{where}/current_link_speed") == "8.0 GT/s PCIe"
    assert _value(node, f"{where}/max_link_width") == "16"
    assert nvml_state.read(node.nvml)["gpu.5.pcie.width"] == "4"
    assert "limited by 8.0 GT/s PCIe x4 link" in _log(node)[-1]


def test_an_ib_port_that_is_down_shows_the_slowest_rate(node: registry.Target) -> None:
    """State, physical state, rate, netdev and counters change together, as on real hardware."""
    registry.inject(node, "ib-down", hca="mlx5_2")
    port = "sys/class/infiniband/mlx5_2/ports/1"
    assert _value(node, f"{port}/state") == "1: DOWN"
    assert _value(node, f"{port}/rate") == "10 Gb/sec (4X SDR)"
    assert _value(node, f"{port}/counters/link_downed") == "1"
    assert _value(node, "sys/class/net/ib2/carrier_changes") == "3"
    assert _log(node)[-1].endswith("ib2: Link down")


def test_flaps_count_and_end_up(node: registry.Target) -> None:
    """Three flaps leave the port active with link_downed three higher."""
    registry.inject(node, "ib-flap", hca="mlx5_0", times=3, gap_s=0.0)
    assert _value(node, "sys/class/infiniband/mlx5_0/ports/1/state") == "4: ACTIVE"
    assert _value(node, "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed") == "3"


def test_ib_counters_stop_at_their_maximum(node: registry.Target) -> None:
    """link_downed sticks at 255, as the hardware's 8-bit counter does."""
    registry.inject(node, "ib-errors", hca="mlx5_0", counter="link_downed", count=400)
    assert _value(node, "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed") == "255"


def test_a_mount_disappears_from_both_tables(node: registry.Target) -> None:
    """mount-gone removes exactly that mount; a path that is not mounted is refused."""
    registry.inject(node, "mount-gone", path="/scratch")
    for table in ("proc/mounts", "proc/self/mounts"):
        assert [line.split()[1] for line in (node.root / table).read_text().splitlines()].count(
            "/scratch"
        ) == 0
        assert "/home" in _value(node, table)
    with pytest.raises(errors.NotFound, match="/scratch is not mounted on n1"):
        registry.inject(node, "mount-gone", path="/scratch")


def test_a_mount_becomes_read_only(node: registry.Target) -> None:
    """mount-readonly changes the option rw to ro and nothing else."""
    registry.inject(node, "mount-readonly", path="/")
    row = next(line.split() for line in _value(node, "proc/mounts").splitlines() if line.split()[1] == "/")
    assert row[2:4] == ["ext4", "ro,relatime"]
    assert "Remounting filesystem read-only" in _log(node)[-1]


@pytest.mark.parametrize(
    ("fault", "options", "path", "value", "line"),
    [
        ("eth-down", {}, "sys/class/net/eno1/operstate", "down", "NIC Link is Down"),
        ("nvme-gone", {}, "sys/class/nvme/nvme0/state", "dead", "controller is down"),
        ("oom", {"pid": 99}, "proc/swaps", None, "Killed process 99 (python3)"),
        ("kernel-line", {"text": "mce: [Hardware Error]: x"}, "proc/swaps", None, "mce: [Hardware Error]: x"),
    ],
)
def test_host_faults_log_what_the_kernel_would(
    node: registry.Target, fault: str, options: dict[str, Any], path: str, value: str | None, line: str
) -> None:
    """Each fault leaves its kernel line, and its file where it has one."""
    registry.inject(node, fault, **options)
    assert line in "\n".join(_log(node))
    assert value is None or _value(node, path) == value


def test_driver_gone_fails_initialisation(nvml: ModuleType, node: registry.Target) -> None:
    """A node whose driver is gone refuses nvmlInit."""
    registry.inject(node, "driver-gone", state="mismatch")
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()


def test_healing_undoes_every_fault_and_keeps_the_log(node: registry.Target) -> None:
    """After heal the tree and NVML are as built; the kernel log keeps what was said."""
    healthy = _snapshot(node)
    registry.inject(node, "gpu-lost", gpu=3)
    registry.inject(node, "ib-down", hca="mlx5_2")
    registry.inject(node, "mount-gone", path="/scratch")
    registry.inject(node, "pcie-downgrade", gpu=1)
    registry.inject(node, "heal")
    assert _snapshot(node) == healthy
    assert any("): 79, " in line for line in _log(node))
    assert nvml_state.read(node.nvml)["event.count"] == "1"


def _snapshot(node: registry.Target) -> dict[str, str]:
    files = {
        str(path): path.read_text()
        for path in node.root.rglob("*")
        if path.is_file() and path.name not in {"kmsg", "uptime"}
    }
    state = nvml_state.read(node.nvml)
    return files | {key: value for key, value in state.items() if not key.startswith("event.")}


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        ("no-such-fault", {}, errors.NotFound),
        ("xid", {}, errors.UsageError),
        ("xid", {"code": 79, "gpu": 8}, errors.NotFound),
        ("ib-down", {"hca": "mlx5_99"}, errors.NotFound),
        ("db-down", {}, errors.UsageError),
        ("xid", {"code": 0}, errors.UsageError),
        ("xid", {"code": 1000}, errors.UsageError),
        ("pcie-downgrade", {"generation": 9}, errors.UsageError),
        ("pcie-downgrade", {"width": 3}, errors.UsageError),
        ("ecc-correctable", {"count": 0}, errors.UsageError),
    ],
)
def test_wrong_faults_are_refused_in_one_line(
    node: registry.Target, kind: str, options: dict[str, Any], error: type[Exception]
) -> None:
    """An unknown fault, a missing option, a GPU or HCA that is not there: an error that names the choices."""
    with pytest.raises(error):
        registry.inject(node, kind, **options)


def test_every_fault_has_its_row_in_the_manual() -> None:
    """docs/sandbox.md lists every registered fault with its options and its sentence, and no other."""
    manual = (Path(__file__).parents[2] / "docs/sandbox.md").read_text()
    table = manual.partition("| fault | what happens |\n|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == registry.manual_rows()
