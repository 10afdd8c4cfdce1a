"""Links that come back: read of a port that went down before in the same log, and of no other."""

from __future__ import annotations

import pytest

from probing_cluster.attribution.verdict import signatures
from probing_cluster.evidence.kernel import reader
from probing_cluster.probe_agent.sources import kernel_words

PAIRS = (
    ("mlx5_core 0000:18:00.0 ibs1: Link down", "mlx5_core 0000:18:00.0 ibs1: Link up"),
    ("mlx4_en: ens1: Link Down", "mlx4_en: ens1: Link Up"),
    ("mlx5_0: Port: 1 Link DOWN", "mlx5_0: Port: 1 Link ACTIVE"),
    (
        "hfi1 0000:06:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)",
        "hfi1 0000:06:00.0: hfi1_0: logical state changed to PORT_ACTIVE (0x4)",
    ),
    ("cxi_core 0000:21:00.0: cxi0[hsn0] CXI_EVENT_LINK_DOWN", "cxi_core 0000:21:00.0: cxi0[hsn0] CXI_EVENT_LINK_UP"),
    ("ixgbe 0000:03:00.0 eth2: NIC Link is Down", "ixgbe 0000:03:00.0 eth2: NIC Link is Up 10 Gbps, Flow Control: RX/TX"),
    ("tg3 0000:02:00.0 eno1: Link is down", "tg3 0000:02:00.0 eno1: Link is up at 1000 Mbps, full duplex"),
    (
        "bond0: (slave eth2): link status definitely down, disabling slave",
        "bond0: (slave eth2): link status definitely up, 10000 Mbps full duplex",
    ),
)  # fmt: skip


@pytest.mark.parametrize(("down", "up"), PAIRS)
def test_a_link_that_comes_up_again_is_the_recovery_of_its_fault(down, up):
    """Of the same kind and device as its fault, and by its signature a recovery."""
    log = reader.KernelReader()
    fault = log.read_message(down)
    back = log.read_message(up)
    assert back is not None
    assert (back.kind, back.device, back.pci_bus_id) == (fault.kind, fault.device, fault.pci_bus_id)
    assert (back.code, back.severity, back.message) == ("link_up", "info", up)
    assert signatures.find(back.kind, back.code, back.severity).recovery
    assert log.read_line(f"2026-11-24T10:51:03+00:00 w05 kernel: {up}") is not None


@pytest.mark.parametrize(("down", "up"), PAIRS)
def test_a_link_that_was_not_seen_to_go_down_makes_no_event(down, up):
    """Every port comes up at boot; another port's fault is no reason either."""
    log = reader.KernelReader()
    assert log.read_message(up) is None
    other = PAIRS[0][0].replace("ibs1", "ibs7").replace("18:00", "19:00")
    assert log.read_message(other) is not None
    assert log.read_message(up) is None


@pytest.mark.parametrize(("down", "up"), PAIRS)
def test_the_live_log_reads_them_too(down, up):
    """Also a flap whose lines it knows word for word."""
    words = kernel_words.classifier()
    assert words(up, 1.0) is None
    for at in (10.0, 14.0, 19.0, 40.0):
        assert words(down, at).kind == words(up, at + 2.0).kind
