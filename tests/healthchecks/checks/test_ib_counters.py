"""RDMA error counters."""

from __future__ import annotations

import os
from typing import Any

import pytest

from probing_cluster.core.records import Outcome


def test_growth_not_totals(node: Any) -> None:
    """Large old totals are ok; symbol errors faster than the limit warn."""
    node.hca("mlx5_0", **{"counters/symbol_error": "9000"})
    assert node.check("ib_counters").outcome is Outcome.OK
    node.later(300)
    node.hca("mlx5_0", **{"counters/symbol_error": "9121"})
    finding = node.check("ib_counters")
    assert (finding.outcome, finding.device, finding.measured) == (Outcome.WARN, "mlx5_0", 121)


def test_stuck_at_the_ceiling(node: Any) -> None:
    """A 4-bit counter at 15 sees nothing any more: that is said, not taken for quiet."""
    node.hca("mlx5_0", **{"counters/excessive_buffer_overrun_errors": "15"})
    node.check("ib_counters", excessive_buffer_overrun_errors_per_hour=1e9)
    node.later(300)
    finding = node.check("ib_counters")
    assert finding.outcome is Outcome.WARN
    assert "ceiling 15" in finding.message


def test_unreadable_is_unknown(node: Any) -> None:
    """`N/A (no PMA)` is unknown, not 0: one such counter is noted, all of them are absent."""
    node.hca("mlx5_0", **{"counters/symbol_error": "N/A (no PMA)"})
    assert "1 counters unreadable" in node.check("ib_counters").message
    counters = node.root / "sys/class/infiniband/mlx5_0/ports/1/counters"
    node.hca("mlx5_0", **{f"counters/{n.name}": "N/A (no PMA)" for n in counters.iterdir()})
    assert node.check("ib_counters").outcome is Outcome.ABSENT


def test_ignored_ports_are_not_even_read(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters of an ignored HCA are never opened: reading restricted functions floods the kernel log."""
    node.hca("mlx5_0")
    node.hca("mlx5_7")
    opened: list[str] = []
    real = os.open

    def spy(path: Any, *args: Any, **kwargs: Any) -> int:
        opened.append(str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", spy)
    assert node.check("ib_counters", ignore=["mlx5_7"]).outcome is Outcome.OK
    assert any("mlx5_0/ports/1/counters" in p for p in opened)
    assert not any("mlx5_7/ports/1/counters" in p for p in opened)


def test_no_hca(node: Any) -> None:
    """A node without RDMA has nothing to judge."""
    assert node.check("ib_counters").outcome is Outcome.ABSENT
