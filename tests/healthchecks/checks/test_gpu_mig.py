"""MIG mode."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_left_on(node: Any) -> None:
    """MIG left on fails, unless the site means it so."""
    node.have_gpus(2)
    assert node.check("gpu_mig").outcome is Outcome.OK
    node.gpu(1, mig=True)
    assert node.check("gpu_mig").device == "gpu1"
    node.have_gpus(2, mig=True)
    assert node.check("gpu_mig", on=True).outcome is Outcome.OK


def test_cannot(node: Any) -> None:
    """A GPU that cannot do MIG has nothing to judge."""
    node.have_gpus(1, mig=None)
    assert node.check("gpu_mig").outcome is Outcome.ABSENT
