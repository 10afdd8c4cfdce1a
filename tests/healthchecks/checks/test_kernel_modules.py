"""Loaded modules."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_wanted(node: Any) -> None:
    """A module of the site file that is not loaded fails."""
    node.put("proc/modules", "nvidia 1 0 - Live 0x0\nlustre 1 0 - Live 0x0")
    assert node.check("kernel_modules", expected=["lustre"]).outcome is Outcome.OK
    finding = node.check("kernel_modules", expected=["lustre", "gdrdrv"])
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "gdrdrv")


def test_peermem(node: Any) -> None:
    """GPUs and HCAs without nvidia_peermem warn, unless the site uses DMA-BUF."""
    node.put("proc/modules", "nvidia 1 0 - Live 0x0")
    assert node.check("kernel_modules").outcome is Outcome.ABSENT
    node.hca()
    assert node.check("kernel_modules").outcome is Outcome.WARN
    assert node.check("kernel_modules", peermem=False).outcome is Outcome.ABSENT
    node.put("proc/modules", "nvidia 1 0 - Live 0x0\nnvidia_peermem 1 0 - Live 0x0")
    assert node.check("kernel_modules").outcome is Outcome.OK


def test_no_modules(node: Any) -> None:
    """A kernel without modules has nothing to judge."""
    assert node.check("kernel_modules").outcome is Outcome.ABSENT
