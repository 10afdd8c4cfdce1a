"""Uncorrected and corrected GPU memory errors."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_clean(node: Any) -> None:
    """GPUs without errors are ok."""
    node.have_gpus(8)
    assert node.check("gpu_ecc").outcome is Outcome.OK


def test_uncorrected_fails_high(node: Any) -> None:
    """One uncorrected error on one GPU fails with that GPU, its count and where it was."""
    node.have_gpus(8)
    node.gpu(5, ecc_uncorrected_volatile_total=2, ecc_dram_uncorrected_volatile_total=2)
    finding = node.check("gpu_ecc")
    assert (finding.outcome, finding.device, finding.measured, finding.severity) == (
        Outcome.FAIL,
        "gpu5",
        2,
        None,
    )
    assert "2 DRAM" in finding.message
    assert finding.detail["findings"][0]["gpu_uuid"] == "GPU-5"


def test_only_what_came_after_clearing_counts(node: Any) -> None:
    """After a person cleared it the same count is ok, one more fails, and a driver reload starts anew."""
    node.have_gpus(1)
    node.gpu(0, ecc_uncorrected_volatile_total=3)
    assert node.check("gpu_ecc").outcome is Outcome.FAIL
    node.memory["gpu_ecc"]["cleared"] = node.memory["gpu_ecc"]["last"]
    assert node.check("gpu_ecc").outcome is Outcome.OK
    node.gpu(0, ecc_uncorrected_volatile_total=4)
    assert node.check("gpu_ecc").measured == 1
    node.gpu(0, ecc_uncorrected_volatile_total=1)
    assert node.check("gpu_ecc").measured == 1


def test_many_corrected_warn(node: Any) -> None:
    """More corrected errors than the limit warn."""
    node.have_gpus(2)
    node.gpu(0, ecc_corrected_volatile_total=50_000_001)
    assert node.check("gpu_ecc").outcome is Outcome.WARN
    assert node.check("gpu_ecc", corrected_warn=60_000_000).outcome is Outcome.OK


def test_switched_off(node: Any) -> None:
    """ECC switched off warns, unless the site says it may be."""
    node.have_gpus(1, ecc_enabled=False)
    assert node.check("gpu_ecc").outcome is Outcome.WARN
    assert node.check("gpu_ecc", require_enabled=False).outcome is Outcome.ABSENT


def test_unreadable_counters_are_not_zero(node: Any) -> None:
    """A counter that NVML failed to give is an error; one the GPU does not have is absent."""
    node.have_gpus(2)
    node.gpu(1, ecc_uncorrected_volatile_total=None, unread={"ecc_uncorrected_volatile_total": "UNKNOWN"})
    finding = node.check("gpu_ecc")
    assert (finding.outcome, finding.device) == (Outcome.ERROR, "gpu1")
    node.have_gpus(2, ecc_uncorrected_volatile_total=None)
    assert node.check("gpu_ecc").outcome is Outcome.ABSENT
