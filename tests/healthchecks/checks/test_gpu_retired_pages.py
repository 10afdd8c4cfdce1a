"""Retired pages of GPUs before Ampere."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

PAGES = {"retired_sbe_total": 2, "retired_dbe_total": 1, "retired_pending": False}


def test_few(node: Any) -> None:
    """A few retired pages are ordinary."""
    node.have_gpus(2, **PAGES)
    assert node.check("gpu_retired_pages").outcome is Outcome.OK


def test_pending_fails(node: Any) -> None:
    """A retirement that waits for a reboot fails."""
    node.have_gpus(2, **PAGES)
    node.gpu(1, retired_pending=True)
    finding = node.check("gpu_retired_pages")
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "gpu1")


def test_many_warn_then_fail(node: Any) -> None:
    """Both kinds of pages add up; above the limits they warn and fail."""
    node.have_gpus(1, **PAGES | {"retired_sbe_total": 10})
    assert node.check("gpu_retired_pages").outcome is Outcome.WARN
    node.have_gpus(1, **PAGES | {"retired_sbe_total": 60})
    finding = node.check("gpu_retired_pages")
    assert (finding.outcome, finding.measured) == (Outcome.FAIL, 61)


def test_newer_gpus_do_not_retire(node: Any) -> None:
    """A GPU without page retirement has nothing to judge."""
    node.have_gpus(1)
    assert node.check("gpu_retired_pages").outcome is Outcome.ABSENT
