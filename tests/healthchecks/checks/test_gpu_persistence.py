"""Persistence mode."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_on_and_off(node: Any) -> None:
    """Off warns, unless the site wants it off."""
    node.have_gpus(2)
    assert node.check("gpu_persistence").outcome is Outcome.OK
    node.gpu(1, persistence=False)
    assert node.check("gpu_persistence").device == "gpu1"
    node.have_gpus(2, persistence=False)
    assert node.check("gpu_persistence", on=False).outcome is Outcome.OK
    assert node.check("gpu_persistence").outcome is Outcome.WARN


def test_not_told(node: Any) -> None:
    """A GPU without persistence mode has nothing to judge."""
    node.have_gpus(1, persistence=None)
    assert node.check("gpu_persistence").outcome is Outcome.ABSENT
