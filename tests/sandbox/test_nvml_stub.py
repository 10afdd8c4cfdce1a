"""The NVML stub as real pynvml sees it."""

from __future__ import annotations

import ctypes
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from probing_cluster.sandbox.c_libraries import nvml_state
from probing_cluster.sandbox.faults import registry

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "nvmlDeviceGetArchitecture": lambda n, h: n.nvmlDeviceGetArchitecture(h) == 9,
    "nvmlDeviceGetBoardId": lambda n, h: n.nvmlDeviceGetBoardId(h) > 0,
    "nvmlDeviceGetBoardPartNumber": lambda n, h: n.nvmlDeviceGetBoardPartNumber(h).startswith("692-"),
    "nvmlDeviceGetBrand": lambda n, h: n.nvmlDeviceGetBrand(h) == 14,
    "nvmlDeviceGetClockInfo": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM) == 345,
    "nvmlDeviceGetComputeMode": lambda n, h: n.nvmlDeviceGetComputeMode(h) == 0,
    "nvmlDeviceGetComputeRunningProcesses_v2": lambda n, h: (
        n.nvmlDeviceGetComputeRunningProcesses_v2(h) == []
    ),
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda n, h: (
        n.nvmlDeviceGetComputeRunningProcesses_v3(h) == []
    ),
    "nvmlDeviceGetCount_v2": lambda n, h: n.nvmlDeviceGetCount() == 8,
    "nvmlDeviceGetCudaComputeCapability": lambda n, h: n.nvmlDeviceGetCudaComputeCapability(h) == (9, 0),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h) == 5,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h) == 16,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda n, h: n.nvmlDeviceGetCurrentClocksEventReasons(h) == 1,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda n, h: (
        n.nvmlDeviceGetCurrentClocksThrottleReasons(h) == 1
    ),
    "nvmlDeviceGetEccMode": lambda n, h: n.nvmlDeviceGetEccMode(h) == [1, 1],
    "nvmlDeviceGetEnforcedPowerLimit": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) == 700_000,
    "nvmlDeviceGetFieldValues": lambda n, h: (
        [v.nvmlReturn for v in n.nvmlDeviceGetFieldValues(h, [145, 9999])] == [0, 3]
    ),
    "nvmlDeviceGetGpuFabricInfo": lambda n, h: _fabric(
        n, h, n.c_nvmlGpuFabricInfo_t(), n.nvmlDeviceGetGpuFabricInfo
    ),
    "nvmlDeviceGetGpuFabricInfoV": lambda n, h: (
        _fabric(n, h, n.c_nvmlGpuFabricInfo_v3_t(), n.nvmlDeviceGetGpuFabricInfoV)
        and _fabric(n, h, n.c_nvmlGpuFabricInfo_v2_t(), n.nvmlDeviceGetGpuFabricInfoV)
    ),
    "nvmlDeviceGetGpuMaxPcieLinkGeneration": lambda n, h: n.nvmlDeviceGetGpuMaxPcieLinkGeneration(h) == 5,
    "nvmlDeviceGetGspFirmwareVersion": lambda n, h: _buffer(n, h) == b"550.90.07",
    "nvmlDeviceGetHandleByIndex_v2": lambda n, h: n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByIndex(5)) == 5,
    "nvmlDeviceGetHandleByPciBusId_v2": lambda n, h: _same(
        n, h, n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h).busId.encode())
    ),
    "nvmlDeviceGetHandleBySerial": lambda n, h: _same(
        n, h, n.nvmlDeviceGetHandleBySerial(n.nvmlDeviceGetSerial(h).encode())
    ),
    "nvmlDeviceGetHandleByUUID": lambda n, h: _same(
        n, h, n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h).encode())
    ),
    "nvmlDeviceGetIndex": lambda n, h: n.nvmlDeviceGetIndex(h) == 3,
    "nvmlDeviceGetInforomImageVersion": lambda n, h: n.nvmlDeviceGetInforomImageVersion(h).startswith("G520"),
    "nvmlDeviceGetInforomVersion": lambda n, h: (
        n.nvmlDeviceGetInforomVersion(h, n.NVML_INFOROM_ECC) == "7.16"
    ),
    "nvmlDeviceGetMaxClockInfo": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM) == 2619,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda n, h: n.nvmlDeviceGetMaxPcieLinkGeneration(h) == 5,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda n, h: n.nvmlDeviceGetMaxPcieLinkWidth(h) == 16,
    "nvmlDeviceGetMemoryErrorCounter": lambda n, h: (
        n.nvmlDeviceGetMemoryErrorCounter(h, 1, 0, n.NVML_MEMORY_LOCATION_DRAM) == 0
    ),
    "nvmlDeviceGetMemoryInfo": lambda n, h: n.nvmlDeviceGetMemoryInfo(h).total == 85_520_809_984,
    "nvmlDeviceGetMemoryInfo_v2": lambda n, h: (
        n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2).reserved == 641_728_512
    ),
    "nvmlDeviceGetMigMode": lambda n, h: n.nvmlDeviceGetMigMode(h) == [0, 0],
    "nvmlDeviceGetMinorNumber": lambda n, h: 0 <= n.nvmlDeviceGetMinorNumber(h) < 8,
    "nvmlDeviceGetModuleId": lambda n, h: 0 < n.nvmlDeviceGetModuleId(h) <= 8,
    "nvmlDeviceGetName": lambda n, h: n.nvmlDeviceGetName(h) == "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetNvLinkErrorCounter": lambda n, h: (
        n.nvmlDeviceGetNvLinkErrorCounter(h, 0, n.NVML_NVLINK_ERROR_DL_REPLAY) == 0
    ),
    "nvmlDeviceGetNvLinkState": lambda n, h: (
        [n.nvmlDeviceGetNvLinkState(h, i) for i in range(18)] == [1] * 18
    ),
    "nvmlDeviceGetNvLinkVersion": lambda n, h: n.nvmlDeviceGetNvLinkVersion(h, 17) == 4,
    "nvmlDeviceGetPciInfo_v3": lambda n, h: n.nvmlDeviceGetPciInfo(h).pciDeviceId == 0x233010DE,
    "nvmlDeviceGetPcieReplayCounter": lambda n, h: n.nvmlDeviceGetPcieReplayCounter(h) == 0,
    "nvmlDeviceGetPerformanceState": lambda n, h: n.nvmlDeviceGetPerformanceState(h) == 0,
    "nvmlDeviceGetPersistenceMode": lambda n, h: n.nvmlDeviceGetPersistenceMode(h) == 1,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda n, h: (
        n.nvmlDeviceGetPowerManagementDefaultLimit(h) == 700_000
    ),
    "nvmlDeviceGetPowerManagementLimit": lambda n, h: n.nvmlDeviceGetPowerManagementLimit(h) == 700_000,
    "nvmlDeviceGetPowerUsage": lambda n, h: n.nvmlDeviceGetPowerUsage(h) == 71_400,
    "nvmlDeviceGetRemappedRows": lambda n, h: n.nvmlDeviceGetRemappedRows(h) == (0, 0, 0, 0),
    "nvmlDeviceGetRowRemapperHistogram": lambda n, h: n.nvmlDeviceGetRowRemapperHistogram(h).max == 2560,
    "nvmlDeviceGetSerial": lambda n, h: n.nvmlDeviceGetSerial(h).startswith("165"),
    "nvmlDeviceGetSramEccErrorStatus": lambda n, h: _sram(n, h).bThresholdExceeded == 0,
    "nvmlDeviceGetSupportedClocksEventReasons": lambda n, h: (
        n.nvmlDeviceGetSupportedClocksEventReasons(h) == 0x1FF
    ),
    "nvmlDeviceGetSupportedClocksThrottleReasons": lambda n, h: (
        n.nvmlDeviceGetSupportedClocksThrottleReasons(h) == 0x1FF
    ),
    "nvmlDeviceGetSupportedEventTypes": lambda n, h: n.nvmlDeviceGetSupportedEventTypes(h) & 8 == 8,
    "nvmlDeviceGetTemperature": lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU) == 34,
    "nvmlDeviceGetTemperatureThreshold": lambda n, h: n.nvmlDeviceGetTemperatureThreshold(h, 1) == 89,
    "nvmlDeviceGetTemperatureV": lambda n, h: n.nvmlDeviceGetTemperatureV(h, 0) == 34,
    "nvmlDeviceGetTotalEccErrors": lambda n, h: n.nvmlDeviceGetTotalEccErrors(h, 1, 1) == 0,
    "nvmlDeviceGetTotalEnergyConsumption": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h) > 0,
    "nvmlDeviceGetUUID": lambda n, h: n.nvmlDeviceGetUUID(h).startswith("GPU-"),
    "nvmlDeviceGetUtilizationRates": lambda n, h: n.nvmlDeviceGetUtilizationRates(h).gpu == 0,
    "nvmlDeviceGetVbiosVersion": lambda n, h: n.nvmlDeviceGetVbiosVersion(h).startswith("96."),
    "nvmlDeviceIsMigDeviceHandle": lambda n, h: n.nvmlDeviceIsMigDeviceHandle(h).value == 0,
    "nvmlSystemGetCudaDriverVersion": lambda n, h: n.nvmlSystemGetCudaDriverVersion() == 12_040,
    "nvmlSystemGetCudaDriverVersion_v2": lambda n, h: n.nvmlSystemGetCudaDriverVersion_v2() == 12_040,
    "nvmlSystemGetDriverVersion": lambda n, h: n.nvmlSystemGetDriverVersion() == "550.90.07",
    "nvmlSystemGetNVMLVersion": lambda n, h: n.nvmlSystemGetNVMLVersion() == "12.550.90.07",
    "nvmlSystemGetProcessName": lambda n, h: bool(n.nvmlSystemGetProcessName(1)),
    "nvmlErrorString": lambda n, h: n.nvmlErrorString(15) == "GPU is lost",
}
"""Every answering function of the stub, with whether it answers right about a healthy GPU 3."""

ELSEWHERE = {
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPages_v2",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlEventSetWait_v2",
}
"""Functions that the other tests of this file call."""


def _same(n: Any, a: Any, b: Any) -> bool:
    return bool(n.nvmlDeviceGetUUID(a) == n.nvmlDeviceGetUUID(b))


def _fabric(n: Any, handle: Any, info: Any, call: Callable[[Any, Any], Any]) -> bool:
    call(handle, ctypes.byref(info))
    return bool(info.state == n.NVML_GPU_FABRIC_STATE_COMPLETED and info.status == 0)


def _sram(n: Any, handle: Any) -> Any:
    status = n.c_nvmlEccSramErrorStatus_v1_t()
    n.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return status


def _buffer(n: Any, handle: Any) -> bytes:
    version = ctypes.create_string_buffer(64)
    n.nvmlDeviceGetGspFirmwareVersion(handle, version)
    return version.value


def test_every_exported_function_answers_real_pynvml_about_a_healthy_gpu(
    nvml: ModuleType, nvml_library: Path
) -> None:
    """Every function that the stub exports is called through pynvml and answers what the state file says."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", nvml_library], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert exported == CALLS.keys() | ELSEWHERE
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    assert [name for name, call in CALLS.items() if not call(nvml, handle)] == []


def test_a_new_state_is_seen_by_a_process_that_has_the_library_open(
    nvml: ModuleType, node: registry.Target
) -> None:
    """Replacing the state file changes the next answer about that GPU, and about no other."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in (2, 3)]
    node.set_gpu(3, temperature_c=91)
    assert [nvml.nvmlDeviceGetTemperature(h, 0) for h in handles] == [34, 91]


def test_a_lost_gpu_says_so_to_handles_from_before_and_after(nvml: ModuleType, node: registry.Target) -> None:
    """Every call about a lost GPU fails with GPU_IS_LOST, also asking for its handle; its neighbours go on."""
    before, neighbour = nvml.nvmlDeviceGetHandleByIndex(3), nvml.nvmlDeviceGetHandleByIndex(4)
    uuid = nvml.nvmlDeviceGetUUID(before).encode()
    node.set_gpu(3, lost=1)
    calls = (
        lambda: nvml.nvmlDeviceGetTemperature(before, 0),
        lambda: nvml.nvmlDeviceGetUUID(before),
        lambda: nvml.nvmlDeviceGetHandleByIndex(3),
        lambda: nvml.nvmlDeviceGetHandleByUUID(uuid),
        lambda: nvml.nvmlDeviceGetFieldValues(before, [82]),
    )
    for call in calls:
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call()
    assert nvml.nvmlDeviceGetTemperature(neighbour, 0) == 34
    assert nvml.nvmlDeviceGetCount() == 8


@pytest.mark.parametrize(
    ("state", "error"),
    [("not_loaded", "NVMLError_DriverNotLoaded"), ("mismatch", "NVMLError_LibRmVersionMismatch")],
)
def test_a_missing_or_mismatched_driver_fails_initialisation(
    nvml: ModuleType, node: registry.Target, state: str, error: str
) -> None:
    """Without the driver, or with another version of it, nvmlInit fails as the real one does."""
    nvml_state.update(node.nvml, {"driver.state": state})
    with pytest.raises(getattr(nvml, error)):
        nvml.nvmlInit()


def test_without_a_state_file_there_is_no_driver(nvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was given no node sees no driver, not an empty machine."""
    monkeypatch.delenv("PROBING_NVML_STATE")
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlInit()


def test_a_call_before_initialisation_is_refused(nvml: ModuleType) -> None:
    """After the last shutdown every call says Uninitialized."""
    nvml.nvmlShutdown()
    try:
        with pytest.raises(nvml.NVMLError_Uninitialized):
            nvml.nvmlDeviceGetCount()
    finally:
        nvml.nvmlInit()


def test_a_hanging_call_returns_only_when_the_hang_is_over(nvml: ModuleType, node: registry.Target) -> None:
    """A named function hangs for that GPU only, other calls answer, and healing lets the caller go on."""
    handle = nvml.nvmlDeviceGetHandleByIndex(3)
    node.set_gpu(3, hang="nvmlDeviceGetPowerUsage")
    done = threading.Event()

    def ask() -> None:
        nvml.nvmlDeviceGetPowerUsage(handle)
        done.set()

    caller = threading.Thread(target=ask)
    caller.start()
    assert not done.wait(0.3)
    assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(4)) == 71_400
    assert nvml.nvmlDeviceGetTemperature(handle, 0) == 34
    node.set_gpu(3, hang=None)
    assert done.wait(60)
    caller.join()


def test_what_the_state_file_does_not_say_is_not_supported(nvml: ModuleType, node: registry.Target) -> None:
    """An absent key is NOT_SUPPORTED, never zero: a GPU that remaps rows retires no pages."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (nvml.nvmlDeviceGetRetiredPages, nvml.nvmlDeviceGetRetiredPages_v2):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call(handle, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetRepairStatus(handle)


def test_an_older_gpu_retires_pages(nvml: ModuleType, node: registry.Target) -> None:
    """Retired pages are listed with address and time once the state names them."""
    node.set_gpu(0, retired__double_bit="0x1a2b:1700000000,0x3c4d:1700000100", retired__pending=1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    cause = nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
    assert nvml.nvmlDeviceGetRetiredPages(handle, cause) == [0x1A2B, 0x3C4D]
    assert nvml.nvmlDeviceGetRetiredPages_v2(handle, cause)[1] == {
        "address": 0x3C4D,
        "timestamp": 1_700_000_100,
    }
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle) == 1


def test_processes_are_listed_with_their_memory(nvml: ModuleType, node: registry.Target) -> None:
    """Compute processes come back with pid and bytes."""
    node.set_gpu(2, processes="4711:1048576,4712:2097152")
    found = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(2))
    assert [(p.pid, p.usedGpuMemory) for p in found] == [(4711, 1_048_576), (4712, 2_097_152)]


def test_field_values_agree_with_the_functions(nvml: ModuleType, node: registry.Target) -> None:
    """A field id and the function about the same thing tell the same, links by scope and in total."""
    node.set_gpu(
        1, ecc__volatile__uncorrected__dram=3, link__7__state=0, link__7__replay=5, remapped__pending=1
    )
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    wanted = [
        nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
        (nvml.NVML_FI_DEV_NVLINK_GET_STATE, 7),
        (nvml.NVML_FI_DEV_NVLINK_GET_STATE, 6),
        nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
        nvml.NVML_FI_DEV_REMAPPED_PENDING,
    ]
    assert [v.value.uiVal for v in nvml.nvmlDeviceGetFieldValues(handle, wanted)] == [3, 0, 1, 5, 1]
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0) == 3


def test_an_event_set_delivers_what_came_after_registration_once_and_in_order(
    nvml: ModuleType, node: registry.Target
) -> None:
    """Xids from before registration and of unregistered GPUs are not delivered; the others once, in order."""
    nvml_state.add_event(node.nvml, 3, 13)
    events = nvml.nvmlEventSetCreate()
    for index in (3, 5):
        nvml.nvmlDeviceRegisterEvents(
            nvml.nvmlDeviceGetHandleByIndex(index), nvml.nvmlEventTypeXidCriticalError, events
        )
    for gpu, code in ((3, 48), (4, 31), (5, 79)):
        nvml_state.add_event(node.nvml, gpu, code)
    got = [nvml.nvmlEventSetWait_v2(events, 1000) for _ in range(2)]
    assert [(nvml.nvmlDeviceGetIndex(e.device), e.eventData) for e in got] == [(3, 48), (5, 79)]
    assert {e.eventType for e in got} == {nvml.nvmlEventTypeXidCriticalError}
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 20)
    nvml.nvmlEventSetFree(events)


def test_a_waiting_event_set_wakes_when_an_xid_comes(nvml: ModuleType, node: registry.Target) -> None:
    """An Xid that comes while a caller waits ends the wait."""
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(
        nvml.nvmlDeviceGetHandleByIndex(3), nvml.nvmlEventTypeXidCriticalError, events
    )
    got: list[int] = []
    waiter = threading.Thread(target=lambda: got.append(nvml.nvmlEventSetWait_v2(events, 120_000).eventData))
    waiter.start()
    time.sleep(0.1)
    nvml_state.add_event(node.nvml, 3, 79)
    waiter.join(timeout=130)
    assert got == [79]
    nvml.nvmlEventSetFree(events)


def test_events_after_a_reboot_are_delivered_to_an_old_set(nvml: ModuleType, node: registry.Target) -> None:
    """A list that began anew does not hide its first events from a set that had seen more."""
    nvml_state.add_event(node.nvml, 3, 13)
    nvml_state.add_event(node.nvml, 3, 31)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(
        nvml.nvmlDeviceGetHandleByIndex(3), nvml.nvmlEventTypeXidCriticalError, events
    )
    nvml_state.update(node.nvml, {"event.1": None, "event.2": None, "event.count": 0})
    nvml_state.add_event(node.nvml, 3, 79)
    assert nvml.nvmlEventSetWait_v2(events, 1000).eventData == 79
    nvml.nvmlEventSetFree(events)


def test_init_v2_is_there_for_other_clients(nvml: ModuleType, nvml_library: Path) -> None:
    """Clients that are not pynvml initialise by nvmlInit_v2."""
    library = ctypes.CDLL(str(nvml_library))
    assert library.nvmlInit_v2() == 0
    assert library.nvmlShutdown() == 0
