"""Host names."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome


def test_found(node: Any) -> None:
    """A name with an address is ok."""
    node.tool("getent", "10.0.0.5       STREAM n1")
    assert node.check("dns").message == "n1 found"


def test_not_found(node: Any) -> None:
    """Our own name without address warns, a name of the site file fails."""
    node.tool("getent", "", code=2)
    assert node.check("dns").outcome is Outcome.WARN
    finding = node.check("dns", names=["slurmctl"])
    assert (finding.outcome, finding.device) == (Outcome.FAIL, "slurmctl")


def test_no_answer(node: Any) -> None:
    """A resolver that gives no answer in time is an error that timed out; a failing tool is an error."""
    node.tool("getent", script="exec sleep 60")
    finding = node.check("dns", names=["slurmctl"], answer_s=0.1)
    assert (finding.outcome, finding.timed_out) == (Outcome.ERROR, True)
    node.tool("getent", "", code=1)
    assert node.check("dns").outcome is Outcome.ERROR


def test_no_getent(node: Any) -> None:
    """Without getent there is nothing to judge."""
    assert node.check("dns").outcome is Outcome.ABSENT
