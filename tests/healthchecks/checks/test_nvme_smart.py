"""NVMe drives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from probing_cluster.core.records import Outcome, Severity
from probing_cluster.healthchecks import nodeview

FINE = {"critical_warning": 0, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3, "media_errors": 0}


def drive(node: Any, state: str = "live", **log: Any) -> None:
    node.put("sys/class/nvme/nvme0/state", state)
    node.put("sys/class/nvme/nvme0/transport", "pcie")
    node.tool("nvme", json.dumps(FINE | log))


def test_healthy(node: Any) -> None:
    """A live drive with a clean log is ok, also in the key names of newer nvme-cli."""
    drive(node)
    assert node.check("nvme_smart").outcome is Outcome.OK
    node.tool(
        "nvme", json.dumps({"critical_warning": {"value": 0}, "available_spare": 100, "percentage_used": 1})
    )
    assert node.check("nvme_smart").outcome is Outcome.OK


def test_dead(node: Any) -> None:
    """A dead controller fails high; nobody asks it for a log."""
    drive(node, state="dead")
    finding = node.check("nvme_smart")
    assert (finding.outcome, finding.device, finding.severity) == (Outcome.FAIL, "nvme0", None)
    drive(node, state="resetting")
    assert node.check("nvme_smart").outcome is Outcome.WARN


def test_what_the_drive_says(node: Any) -> None:
    """Read-only media is high, other critical warnings and lost spare are low."""
    drive(node, critical_warning=0x08)
    assert (node.check("nvme_smart").outcome, node.check("nvme_smart").severity) == (Outcome.FAIL, None)
    drive(node, critical_warning=0x04)
    assert node.check("nvme_smart").severity is Severity.LOW
    drive(node, avail_spare=5)
    assert node.check("nvme_smart").outcome is Outcome.FAIL


def test_endurance(node: Any) -> None:
    """Used endurance warns, then fails."""
    drive(node, percent_used=85)
    assert node.check("nvme_smart").outcome is Outcome.WARN
    drive(node, percent_used=120)
    assert node.check("nvme_smart").outcome is Outcome.FAIL


def test_missing_drive(node: Any) -> None:
    """Fewer drives than the site file says fail, even none at all."""
    drive(node)
    assert node.check("nvme_smart", count=2).measured == 1


def test_without_the_tool(node: Any) -> None:
    """Without nvme-cli a live controller is ok as far as seen, and that is said."""
    drive(node)
    (node.root / "tools/nvme").unlink()
    finding = node.check("nvme_smart")
    assert finding.outcome is Outcome.OK
    assert "not installed" in finding.message


def test_a_tool_that_fails(node: Any) -> None:
    """A failing or babbling tool is an error, never ok."""
    drive(node)
    node.tool("nvme", "", code=1, error="Permission denied")
    assert node.check("nvme_smart").outcome is Outcome.ERROR
    node.tool("nvme", "not json")
    assert node.check("nvme_smart").outcome is Outcome.ERROR


def test_a_tool_that_hangs(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that hangs is ended at its deadline: an error that timed out."""
    drive(node)
    node.tool("nvme", script="exec sleep 60")
    real = nodeview.NodeView.run
    monkeypatch.setattr(nodeview.NodeView, "run", lambda self, *a, **k: real(self, *a, deadline_s=0.1))
    finding = node.check("nvme_smart")
    assert (finding.outcome, finding.timed_out) == (Outcome.ERROR, True)


def test_no_drive(node: Any) -> None:
    """A node without NVMe has nothing to judge."""
    assert node.check("nvme_smart").outcome is Outcome.ABSENT
