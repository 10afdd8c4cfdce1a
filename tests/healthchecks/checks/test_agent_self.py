"""The checks about themselves."""

from __future__ import annotations

from typing import Any

from probing_cluster.core.records import Outcome

STUCK = {"what": "nvml", "pid": 4711, "age_s": 30.0, "waits_in": "rpc_wait_bit_killable"}


def test_in_order(node: Any) -> None:
    """Nothing stuck, nothing broken: ok."""
    assert node.check("agent_self").outcome is Outcome.OK


def test_stuck_children(node: Any) -> None:
    """A stuck child warns with what it waits in, and fails when it lasts."""
    node.self_state = {"stuck": [STUCK]}
    finding = node.check("agent_self")
    assert (finding.outcome, finding.device) == (Outcome.WARN, "nvml")
    assert "4711" in finding.message
    assert "rpc_wait_bit_killable" in finding.message
    node.self_state = {"stuck": [STUCK | {"age_s": 600.0}]}
    assert node.check("agent_self").outcome is Outcome.FAIL


def test_troubles_warn(node: Any) -> None:
    """A broken site file, state that cannot be kept, and checks that cannot run are warnings."""
    for key in ("site_problem", "memory_problem", "agent_problem"):
        node.self_state = {key: "it is broken"}
        assert node.check("agent_self").message == "it is broken"
    node.self_state = {"errors": ["dns", "services"]}
    finding = node.check("agent_self")
    assert (finding.outcome, finding.measured) == (Outcome.WARN, 2)
    assert node.check("agent_self", errors_warn=2).outcome is Outcome.OK
