"""Failed and pending row remaps."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome, Severity


def test_no_remap(node: Any) -> None:
    """Nothing failed, nothing pending: ok."""
    node.have_gpus(8)
    assert node.check("gpu_row_remap").outcome is Outcome.OK


def test_failed_is_high_and_pending_low(node: Any) -> None:
    """A failed remap is worse than a pending one: it speaks, at the check's own severity."""
    node.have_gpus(3)
    node.gpu(0, remap_pending=True)
    pending = node.check("gpu_row_remap")
    assert (pending.outcome, pending.device, pending.severity) == (Outcome.FAIL, "gpu0", Severity.LOW)
    node.gpu(2, remap_failed=True)
    failed = node.check("gpu_row_remap")
    assert (failed.outcome, failed.device, failed.severity) == (Outcome.FAIL, "gpu2", None)


def test_wear_warns(node: Any) -> None:
    """Many remapped rows, or a bank without spare rows, warn."""
    node.have_gpus(1, remapped_uncorrected_total=513)
    assert node.check("gpu_row_remap").outcome is Outcome.WARN
    node.have_gpus(1, remap_banks_exhausted=1)
    assert "1 memory bank has no spare row" in node.check("gpu_row_remap").message


def test_older_gpus_do_not_remap(node: Any) -> None:
    """A GPU that does not remap rows has nothing to judge."""
    node.have_gpus(1, remap_failed=None, remap_pending=None)
    assert node.check("gpu_row_remap").outcome is Outcome.ABSENT
