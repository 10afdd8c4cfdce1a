"""Driver and firmware versions."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_alike(node: Any) -> None:
    """Equal versions are ok and shown."""
    node.have_gpus(8)
    finding = node.check("gpu_versions")
    assert finding.outcome is Outcome.OK
    assert "96.00.89.00.01" in finding.message


def test_one_differs(node: Any) -> None:
    """The odd GPU out is named as a warning; against the site's version it fails."""
    node.have_gpus(8)
    node.gpu(6, vbios="96.00.30.00.01")
    finding = node.check("gpu_versions")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "gpu6")
    assert node.check("gpu_versions", vbios="96.00.89.00.01").outcome is Outcome.FAIL


def test_models_are_compared_among_themselves(node: Any) -> None:
    """Two models with different VBIOS are no mismatch."""
    node.have_gpus(2)
    node.gpu(1, name="NVIDIA A100", vbios="92.00.45.00.03", inforom="G506", gsp_firmware=None)
    assert node.check("gpu_versions").outcome is Outcome.OK


def test_driver(node: Any) -> None:
    """Another driver than the site's fails; a loaded driver that differs from its libraries warns."""
    node.have_gpus(1)
    assert node.check("gpu_versions", driver="535.104.05").outcome is Outcome.FAIL
    node.put(
        "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug"
    )
    assert node.check("gpu_versions").outcome is Outcome.WARN


def test_open_module_version_line(node: Any) -> None:
    """The open kernel module's version line is understood too."""
    node.have_gpus(1)
    node.put(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release",
    )
    assert node.check("gpu_versions").outcome is Outcome.OK


def test_no_gpu(node: Any) -> None:
    """A node without GPUs has nothing to judge."""
    assert node.check("gpu_versions").outcome is Outcome.ABSENT
