"""RDMA ports up and at their rate."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from probing_cluster.core.records import Outcome, Severity
from probing_cluster.healthchecks.readers import ib

DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)"}


def test_up(node: Any) -> None:
    """Ports that are up are ok."""
    for i in range(8):
        node.hca(f"mlx5_{i}")
    finding = node.check("ib_link")
    assert (finding.outcome, finding.message) == (Outcome.OK, "8 of 8 ports up")


def test_a_wanted_port_down_or_missing(node: Any) -> None:
    """A port of the site file that is down, or not there, fails high."""
    node.hca("mlx5_0", **DOWN)
    finding = node.check("ib_link", ports=["mlx5_0:1"])
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "mlx5_0", None)
    assert node.check("ib_link", ports=["mlx5_7:1"]).message.startswith("mlx5_7:1 is missing")


def test_no_hca_left(node: Any) -> None:
    """With every HCA gone, a site file that wants ports still fails."""
    assert node.check("ib_link", ports=["mlx5_0:1"]).outcome is Outcome.FAIL
    assert node.check("ib_link", count=8).outcome is Outcome.FAIL
    assert node.check("ib_link").outcome is Outcome.ABSENT


def test_a_port_that_was_up_and_went_down(node: Any) -> None:
    """Without a site file a port once seen up fails when it goes down; one never seen up only warns."""
    node.hca("mlx5_0")
    node.hca("mlx5_1", **DOWN)
    finding = node.check("ib_link")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "mlx5_1")
    node.hca("mlx5_0", **DOWN)
    finding = node.check("ib_link")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "mlx5_0")


def test_an_hca_that_vanished(node: Any) -> None:
    """Without a site file, an HCA that was up in this boot and is gone from the system fails, the last one too."""
    node.hca("mlx5_0")
    node.hca("mlx5_1")
    node.check("ib_link")
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_1")
    finding = node.check("ib_link")
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "mlx5_1", None)
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_0")
    assert node.check("ib_link").outcome is Outcome.FAIL


def test_waiting_for_the_subnet_manager(node: Any) -> None:
    """A port with a link in INIT warns, whatever the number wanted, and fails low when it lasts."""
    node.hca("mlx5_0", state="2: INIT")
    assert node.check("ib_link", count=1).outcome is Outcome.WARN
    node.later(300)
    finding = node.check("ib_link", count=1)
    assert (finding.outcome, finding.severity) == (Outcome.FAIL, Severity.LOW)


def test_switched_off_by_hand(node: Any) -> None:
    """A port that was up and was then disabled is somebody's doing: a warning; a wanted one fails all the same."""
    node.hca("mlx5_0")
    node.check("ib_link")
    node.hca("mlx5_0", state="1: DOWN", phys_state="3: Disabled")
    assert node.check("ib_link").outcome is Outcome.WARN
    assert node.check("ib_link", ports=["mlx5_0:1"]).outcome is Outcome.FAIL


def test_by_number(node: Any) -> None:
    """With a number of ports, spare ports may be down, and one too few fails."""
    node.hca("mlx5_0")
    node.hca("mlx5_1", **DOWN)
    assert node.check("ib_link", count=1).outcome is Outcome.OK
    finding = node.check("ib_link", count=2)
    assert (finding.outcome, finding.measured, finding.threshold) == (Outcome.FAIL, 1, 2)


def test_slow(node: Any) -> None:
    """A live port below its configured rate, or below what it had, fails low."""
    node.hca("mlx5_0")
    node.check("ib_link")
    node.hca("mlx5_0", rate="200 Gb/sec (2X NDR)")
    finding = node.check("ib_link")
    assert (finding.outcome, finding.severity, finding.measured, finding.threshold) == (
        Outcome.FAIL,
        Severity.LOW,
        200,
        400,
    )
    assert node.check("ib_link", rate_gbps=100.0).outcome is Outcome.OK


def test_a_speed_the_kernel_does_not_know(node: Any) -> None:
    """An active port at 10 Gb/s SDR is a kernel that does not know the speed: not judged slow."""
    node.hca("mlx5_0", rate="10 Gb/sec (4X SDR)")
    assert node.check("ib_link", rate_gbps=800.0).outcome is Outcome.OK
    node.hca("mlx5_0", rate="10 Gb/sec (4X)")
    assert node.check("ib_link", rate_gbps=800.0).outcome is Outcome.OK


def test_numbers_count_not_words(node: Any) -> None:
    """States are compared by number: some drivers put other words behind them."""
    node.hca("mlx5_0", phys_state="5: ACTIVE")
    assert node.check("ib_link", ports=["mlx5_0:1"]).outcome is Outcome.OK


def test_disabled_and_virtual_ports_are_not_missed(node: Any) -> None:
    """A port switched off, and a virtual function, are nobody's fault."""
    node.hca("mlx5_0", state="1: DOWN", phys_state="3: Disabled")
    node.hca("mlx5_9", **DOWN)
    node.put("sys/class/infiniband/mlx5_9/device/physfn/vendor", "0x15b3")
    assert node.check("ib_link").outcome is Outcome.OK


def test_virtual_functions_that_are_up_come_and_go(node: Any) -> None:
    """Only the site file makes one of them a port that must be there."""
    node.hca("mlx5_0")
    for name, place in (("mlx5_8", "0000:18:00.2"), ("mlx5_9", "mlx5_core.sf.4")):
        node.hca(name)
        node.put(f"sys/devices/{place}/numa_node", "0")
        node.link(f"sys/class/infiniband/{name}/device", f"../../../devices/{place}")
    node.put("sys/devices/0000:18:00.2/physfn/vendor", "0x15b3")
    for _ in range(2):
        assert node.check("ib_link").message == "1 of 1 ports up"
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_8")
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_9")
    assert node.check("ib_link").outcome is Outcome.OK
    assert node.check("ib_link", ports=["mlx5_0:1", "mlx5_8:1"]).outcome is Outcome.FAIL


def test_ports_that_join_a_bond(node: Any) -> None:
    """They are not missed where the bond's own port comes; the bond's own is."""
    for name in ("mlx5_0", "mlx5_1", "mlx5_2"):
        node.hca(name)
    node.check("ib_link")
    for name in ("mlx5_0", "mlx5_1"):
        shutil.rmtree(node.root / f"sys/class/infiniband/{name}")
    node.hca("mlx5_bond_0")
    assert node.check("ib_link").outcome is Outcome.OK
    assert node.check("ib_link").outcome is Outcome.OK
    shutil.rmtree(node.root / "sys/class/infiniband/mlx5_2")
    assert node.check("ib_link").device == "mlx5_2"


def test_unreadable(node: Any) -> None:
    """A port whose state cannot be read is an error, not down."""
    node.hca("mlx5_0", state="N/A (no PMA)")
    assert node.check("ib_link", ports=["mlx5_0:1"]).outcome is Outcome.ERROR


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, "NDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, "SDR")),
        ("10 Gb/sec (4X)", (10.0, "")),
        ("garbage", (None, "")),
        (None, (None, "")),
    ],
)
def test_rate_text(text: str | None, rate: tuple[float | None, str]) -> None:
    """The rate file's forms, old and new."""
    assert ib.parse_rate(text) == rate
