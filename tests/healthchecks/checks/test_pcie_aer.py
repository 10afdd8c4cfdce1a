"""AER counters."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks.checks import pcie_aer

NIC = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc07i00"


def aer(node: Any, cor: int = 0, nonfatal: int = 0, fatal: int = 0) -> None:
    node.pci(
        "0000:18:00.0",
        NIC,
        aer_dev_correctable=f"RxErr {cor}\nBadTLP 0\nTOTAL_ERR_COR {cor}",
        aer_dev_nonfatal=f"TLP {nonfatal}\nTOTAL_ERR_NONFATAL {nonfatal}",
        aer_dev_fatal=f"DLP {fatal}\nTOTAL_ERR_FATAL {fatal}",
    )


def test_quiet(node: Any) -> None:
    """No errors, and a few correctable ones, are ok."""
    aer(node, cor=3)
    assert node.check("pcie_aer").outcome is Outcome.OK


def test_a_new_fatal_error_fails_an_old_one_warns(node: Any) -> None:
    """A fatal error from before our first look is shown as a warning; a new one fails; then it is old."""
    aer(node, fatal=1)
    assert node.check("pcie_aer").outcome is Outcome.WARN
    node.later(300)
    aer(node, fatal=2)
    finding = node.check("pcie_aer")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "0000:18:00.0")
    node.later(300)
    assert node.check("pcie_aer").outcome is Outcome.OK


def test_many_correctable_warn(node: Any) -> None:
    """Correctable errors warn by their rate."""
    aer(node)
    node.check("pcie_aer")
    node.later(300)
    aer(node, cor=101)
    assert node.check("pcie_aer").outcome is Outcome.WARN


def test_a_reset_counter_is_no_storm(node: Any) -> None:
    """A counter that went back to a small number was reset; it does not count as growth by its old value."""
    aer(node, cor=5000)
    node.check("pcie_aer", correctable_per_hour=1e9)
    node.later(300)
    aer(node, cor=2)
    assert node.check("pcie_aer").outcome is Outcome.OK


def test_no_aer(node: Any) -> None:
    """Devices without error reporting give nothing to judge."""
    node.pci("0000:18:00.0", NIC)
    assert node.check("pcie_aer").outcome is Outcome.ABSENT


def test_a_count_that_is_no_number_is_passed_over() -> None:
    """`²` is a digit to `str.isdigit` and no number to `int`."""
    assert pcie_aer.parse("RxErr ²\nTOTAL_ERR_COR 4", "TOTAL_ERR_COR") == 4
    assert pcie_aer.parse("TOTAL_ERR_COR ²", "TOTAL_ERR_COR") is None
