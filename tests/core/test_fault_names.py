from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.core.catalogue import fault_names

LOST = {
    "xid:gpu0": {"code": "79", "kind": "xid", "device": "gpu0", "severity": "high", "gpu_uuid": "GPU-7",
                 "pci_bus_id": "0000:43:00", "since": "2026-11-22T11:40:05Z"},
    "check:gpu0": {"code": "gpu_count", "kind": "check", "device": "gpu0", "severity": "high"},
    "gpu_lost:gpu0": {"code": "GPU_IS_LOST", "kind": "gpu_lost", "device": "gpu0", "severity": "high",
                      "pci_bus_id": "0000:43:00.0", "since": "2026-11-22T11:40:01Z"},
    "check:0000:43:00": {"code": "gpu_xid", "kind": "check", "device": "0000:43:00", "severity": "high",
                         "pci_bus_id": "0000:43:00"},
}  # fmt: skip


def test_one_broken_gpu_is_one_fault() -> None:
    """Kernel, NVML and two checks say it, by index, UUID and PCI address: one name, the strongest."""
    (fault,) = fault_names.named(LOST)
    assert fault.words == "Xid 79 gpu0 (high, 4 signs)"
    assert fault.keys == tuple(sorted(LOST))
    assert fault.since is not None
    assert fault.since.isoformat() == "2026-11-22T11:40:01+00:00"


def test_parts_that_share_nothing_stay_apart() -> None:
    """Two GPUs are two faults, and a mount is a third; the worst comes first."""
    other = {"xid:gpu1": {"code": "63", "kind": "xid", "device": "gpu1", "severity": "low"}}
    mount = {
        "check:/scratch": {"kind": "check", "code": "mount_present", "device": "/scratch", "severity": "high"}
    }
    words = [fault.words for fault in fault_names.named({**other, **mount, **LOST})]
    assert words == ["Xid 79 gpu0 (high, 4 signs)", "mount_present /scratch (high)", "Xid 63 gpu1 (low)"]


def test_a_fault_without_a_part_is_one_of_its_own() -> None:
    """Two faults of the node as a whole are not merged for lack of a part."""
    whole = {"load": {"severity": "low"}, "clock": {"severity": "low"}}
    assert [fault.name for fault in fault_names.named(whole)] == ["clock", "load"]


def test_gpus_that_cannot_be_counted_without_the_driver_are_no_fault_of_their_own() -> None:
    """Where the driver answers, a GPU too few is one; and a GPU's own fault is none of the driver's."""
    driver = {
        "driver:nvml": {"code": "DRIVER_NOT_LOADED", "kind": "driver", "device": "nvml", "severity": "high"}
    }
    count = {
        "check:gpu_count": {"code": "gpu_count", "kind": "check", "device": "gpu_count", "severity": "high"}
    }
    assert [f.words for f in fault_names.named(driver | count)] == ["driver nvml (high, 2 signs)"]
    assert [f.words for f in fault_names.named(count)] == ["gpu_count (high)"]
    assert len(fault_names.named(driver | LOST)) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["severity", "since", "kind", "code", "device", "pci_bus_id", "gpu_uuid"])


@given(JSON | st.dictionaries(st.text(max_size=12), JSON | st.dictionaries(FIELDS, JSON), max_size=5))
def test_whatever_an_agent_sends_names_are_short_lines(faults: Any) -> None:
    """Any JSON: no exception, every name one printable line, every key in one fault at most."""
    found = fault_names.named(faults)
    keys = [key for fault in found for key in fault.keys]
    assert len(keys) == len(set(keys))
    for fault in found:
        assert fault.severity in ("high", "low", "info")
        assert len(fault.name) <= 61
        assert "\n" not in fault.name
        assert "\x1b" not in fault.name


@pytest.mark.parametrize("faults", [None, [1, 2], "boo", {"xid:gpu0": "boo"}, {"xid:gpu0": None}, {}])
def test_what_is_no_fault_is_none(faults: Any) -> None:
    """A heartbeat of another shape is no fault, and no exception."""
    assert fault_names.named(faults) == []
