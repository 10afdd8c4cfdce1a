"""Clock synchronisation."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.core.records import Outcome
from probing_cluster.healthchecks import nodeview

CHRONY = "A9FEA97B,169.254.169.123,4,1772366400.1,{},0.000002,0.00001,-15.2,0.001,0.05,0.0005,0.0001,64.3,{}"


@pytest.mark.parametrize(
    ("offset", "leap", "outcome"),
    [
        ("0.000012", "Normal", Outcome.OK),
        ("-0.250000", "Normal", Outcome.WARN),
        ("-75.5", "Normal", Outcome.FAIL),
        ("0.000012", "Not synchronised", Outcome.WARN),
    ],
)
def test_chrony(node: Any, offset: str, leap: str, outcome: Outcome) -> None:
    """The offset counts by its size whatever its sign; not synchronised warns."""
    node.tool("chronyc", CHRONY.format(offset, leap))
    assert node.check("clock_sync").outcome is outcome


def test_ntpd(node: Any) -> None:
    """ntpq's figures are milliseconds; an alarm is not synchronised."""
    node.tool("ntpq", "associd=0 status=0615 leap_none, sync_ntp, 1 event,\noffset=-0.423, frequency=1.2")
    finding = node.check("clock_sync")
    assert (finding.outcome, finding.measured) == (Outcome.OK, 0.000423)
    node.tool("ntpq", "associd=0 status=c016 leap_alarm, sync_unspec, 1 event,\noffset=0.000")
    assert node.check("clock_sync").outcome is Outcome.WARN


def test_timesyncd(node: Any) -> None:
    """systemd-timesyncd says it with a file."""
    node.put("run/systemd/timesync/x", "")
    assert node.check("clock_sync").outcome is Outcome.WARN
    node.put("run/systemd/timesync/synchronized", "")
    assert node.check("clock_sync").outcome is Outcome.OK


def test_no_answer(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that does not answer, babbles or hangs is an error."""
    node.tool("chronyc", "", code=1, error="506 Cannot talk to daemon")
    assert node.check("clock_sync").outcome is Outcome.ERROR
    node.tool("chronyc", "what?")
    assert node.check("clock_sync").outcome is Outcome.ERROR
    node.tool("chronyc", script="exec sleep 60")
    real = nodeview.NodeView.run
    monkeypatch.setattr(nodeview.NodeView, "run", lambda self, *a: real(self, *a, deadline_s=0.1))
    assert node.check("clock_sync").timed_out


def test_nobody_keeps_the_clock(node: Any) -> None:
    """Without any time daemon there is nothing to judge."""
    assert node.check("clock_sync").outcome is Outcome.ABSENT
