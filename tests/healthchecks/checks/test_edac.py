"""Main-memory errors."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def counts(node: Any, ue: int = 0, ce: int = 0, noinfo: int = 0) -> None:
    base = "sys/devices/system/edac/mc/mc0"
    node.put(f"{base}/ue_noinfo_count", str(noinfo))
    node.put(f"{base}/ce_noinfo_count", "0")
    node.put(f"{base}/ue_count", str(ue + noinfo))
    node.put(f"{base}/dimm1/dimm_label", "CPU0_DIMM_B1")
    node.put(f"{base}/dimm1/dimm_ue_count", str(ue))
    node.put(f"{base}/dimm1/dimm_ce_count", str(ce))


def test_uncorrected_fails_high(node: Any) -> None:
    """One uncorrected error fails with the DIMM's label; one without a DIMM with the controller."""
    counts(node)
    assert node.check("edac").outcome is Outcome.OK
    counts(node, ue=1)
    finding = node.check("edac")
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "CPU0_DIMM_B1", None)
    counts(node, noinfo=1)
    assert node.check("edac").device == "mc0"


def test_cleared(node: Any) -> None:
    """After clearing only new errors count."""
    counts(node, ue=2)
    node.check("edac")
    node.memory["edac"]["cleared"] = node.memory["edac"]["last"]
    assert node.check("edac").outcome is Outcome.OK
    counts(node, ue=3)
    assert node.check("edac").measured == 1


def test_corrected_within_a_day(node: Any) -> None:
    """Eleven corrected errors within a day warn; a day later they are forgotten; old totals never count."""
    counts(node, ce=5000)
    assert node.check("edac").outcome is Outcome.OK
    node.later(3600)
    counts(node, ce=5011)
    finding = node.check("edac")
    assert (finding.outcome, finding.measured) == (Outcome.WARN, 11)
    node.later(90000)
    assert node.check("edac").outcome is Outcome.OK


def test_no_edac(node: Any) -> None:
    """Without an EDAC driver there is nothing to judge."""
    assert node.check("edac").outcome is Outcome.ABSENT
