"""SATA and SAS disks."""

from __future__ import annotations

import json
from typing import Any

from probing_cluster.core.records import Outcome


def disk(node: Any, passed: bool | None = True, status: int = 0) -> None:
    node.put("sys/block/sda/removable", "0")
    report: dict[str, Any] = {"smartctl": {"exit_status": status}}
    if passed is not None:
        report["smart_status"] = {"passed": passed}
    node.tool("smartctl", json.dumps(report), code=status)


def test_verdicts(node: Any) -> None:
    """The disk's own verdict decides: passed, failed, an attribute below its limit, none."""
    disk(node)
    assert node.check("disk_smart").outcome is Outcome.OK
    disk(node, passed=False, status=8)
    assert (node.check("disk_smart").outcome, node.check("disk_smart").device) == (Outcome.FAIL, "sda")
    disk(node, status=16)
    assert node.check("disk_smart").outcome is Outcome.WARN
    disk(node, passed=None)
    assert node.check("disk_smart").outcome is Outcome.ABSENT


def test_no_answer(node: Any) -> None:
    """A tool without JSON is an error."""
    disk(node)
    node.tool("smartctl", "", code=2, error="open failed")
    assert node.check("disk_smart").outcome is Outcome.ERROR


def test_no_disk_or_tool(node: Any) -> None:
    """Without a disk or without smartctl there is nothing to judge; sticks are no disks."""
    assert node.check("disk_smart").outcome is Outcome.ABSENT
    node.put("sys/block/sdb/removable", "1")
    assert node.check("disk_smart").outcome is Outcome.ABSENT
    node.put("sys/block/sda/removable", "0")
    assert node.check("disk_smart").outcome is Outcome.ABSENT
