"""MIG mode."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_left_on(node: Any) -> None:
    """Without a word of the site one GPU unlike the others warns; against its word it fails."""
    node.have_gpus(3)
    assert node.check("gpu_mig").outcome is Outcome.OK
    node.gpu(1, mig=True)
    assert (node.check("gpu_mig").outcome, node.check("gpu_mig").device) == (Outcome.WARN, "gpu1")
    assert node.check("gpu_mig", on=False).outcome is Outcome.FAIL


def test_meant_so(node: Any) -> None:
    """A node that uses MIG on purpose is fine, with and without a word of the site."""
    node.have_gpus(2, mig=True)
    assert node.check("gpu_mig").outcome is Outcome.OK
    assert node.check("gpu_mig", on=True).outcome is Outcome.OK
    assert node.check("gpu_mig", on=False).outcome is Outcome.FAIL


def test_cannot(node: Any) -> None:
    """A GPU that cannot do MIG has nothing to judge."""
    node.have_gpus(1, mig=None)
    assert node.check("gpu_mig").outcome is Outcome.ABSENT
