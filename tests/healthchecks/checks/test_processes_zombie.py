"""Zombies."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_old_ones_count(node: Any) -> None:
    """Many zombies warn once they are old, naming their parent."""
    for pid in range(100, 112):
        node.process(pid, "worker", "Z", parent=77)
    assert node.check("processes_zombie").outcome is Outcome.OK
    node.later(300)
    finding = node.check("processes_zombie")
    assert (finding.outcome, finding.measured, finding.device) == (Outcome.WARN, 12, "pid 77")
    assert node.check("processes_zombie", count_warn=20).outcome is Outcome.OK


def test_no_proc(node: Any) -> None:
    """Without processes there is nothing to judge."""
    assert node.check("processes_zombie").outcome is Outcome.ABSENT
