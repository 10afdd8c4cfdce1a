"""HCA firmware."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_alike(node: Any) -> None:
    """The same firmware everywhere is ok; an odd one warns; against the site's it fails."""
    node.hca("mlx5_0")
    node.hca("mlx5_1")
    assert node.check("ib_firmware").outcome is Outcome.OK
    node.hca("mlx5_2", fw_ver="28.37.1014")
    finding = node.check("ib_firmware")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "mlx5_2")
    assert node.check("ib_firmware", firmware=["MT_0000000838=28.39.2048"]).outcome is Outcome.FAIL
    assert node.check("ib_firmware", firmware=["*=28.37.1014"]).outcome is Outcome.FAIL


def test_boards_are_compared_among_themselves(node: Any) -> None:
    """Two kinds of HCA with their own firmware are no mismatch."""
    node.hca("mlx5_0")
    node.hca("mlx5_1", fw_ver="26.35.2000", board_id="MT_0000000223")
    assert node.check("ib_firmware").outcome is Outcome.OK


def test_not_told(node: Any) -> None:
    """HCAs that do not tell their firmware give nothing to judge."""
    node.hca("mlx5_0", fw_ver="")
    assert node.check("ib_firmware").outcome is Outcome.ABSENT
