"""Drained, tested, back or to a ticket: on a real Slurm cluster, with services killed on the way."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

INCIDENT = "SELECT state, why, detail, steps_done FROM probing.repair_incident WHERE node = %s ORDER BY opened_at DESC LIMIT 1"


def incident(up: Any, node: str) -> dict[str, Any]:
    rows = up.rows(INCIDENT, node)
    return rows[0] if rows else {"state": "", "why": "", "detail": {}, "steps_done": 0}


def drained_and_healed(up: Any, node: str) -> None:
    """A link goes down until the node is drained, and comes back: by its agent the node is well again."""
    up.sandbox.fault(node, "ib-down", hca="mlx5_0")
    up.until(f"drain of {node}", lambda: up.drained(node))
    up.sandbox.fault(node, "ib-up", hca="mlx5_0")


def ended(up: Any, node: str, *states: str) -> dict[str, Any]:
    return up.until(
        f"{node} at {' or '.join(states)}",
        lambda: incident(up, node) if incident(up, node)["state"] in states else None,
        timeout_s=150,
    )


def free_of_us(up: Any) -> bool:
    listed = up.sandbox.run(["scontrol", "-o", "show", "reservation"]).stdout
    return "probing-" not in listed


def test_the_curable_return_tested_and_the_incurable_do_not(calm: Any) -> None:
    """Two nodes at once: one is well, the other calculates wrongly until its GPUs are reset; a third for ever."""
    well, wrong, never = calm.sandbox.layout.node_names[:3]
    calm.sandbox.fault(wrong, "hidden-fault", what="wrong_product", cured_by="reset")
    drained_and_healed(calm, well)
    assert ended(calm, well, "returned", "ticket")["state"] == "returned"
    tests = calm.rows(
        "SELECT DISTINCT test FROM probing.diagnostic_result WHERE node = %s AND outcome = 'ok'", well
    )
    assert {"gemm", "memory", "disk", "intra", "loopback", "pair"} <= {row["test"] for row in tests}
    assert calm.drained(well) is None

    calm.sandbox.run(["probing-ctl", "drain", wrong, "--reason", "x"])
    told = calm.sandbox.run(["probing-ctl", "diagnose", wrong], check=False)
    assert told.returncode == 5, told.stderr
    assert "repair" in told.stderr
    calm.sandbox.run(["probing-ctl", "resume", wrong])
    told = calm.sandbox.run(["probing-ctl", "diagnose", wrong, well, "--json"], check=False, timeout_s=240)
    assert told.returncode == 1, told.stderr
    answer = json.loads(told.stdout)
    # The nodes of a sandbox share its cores: another may be named beside it for its speed, never for its results.
    incorrect = {node for node, why in answer["at_fault"].items() if any("wrong" in words for words in why)}
    assert incorrect == {wrong}
    assert "elements are wrong" in answer["at_fault"][wrong][0]
    assert not calm.sandbox.run(["squeue", "-h"]).stdout.strip()

    calm.sandbox.fault(never, "hidden-fault", what="wrong_product", cured_by="never")
    drained_and_healed(calm, never)
    found = ended(calm, never, "returned", "ticket")
    assert found["state"] == "ticket", found
    assert "elements are wrong" in found["detail"]["failing"][0]
    assert calm.drained(never), "an incurable node is never resumed"
    assert "still failing" in calm.sandbox.run(["probing-ctl", "repair", "show", never]).stdout
    calm.until("no reservation of ours", lambda: free_of_us(calm))


@pytest.mark.soak
def test_a_service_killed_at_any_moment_loses_no_node(calm: Any) -> None:
    """Killed at drawn moments of the workflow, on real Slurm: nothing is resumed untested, nothing is lost."""
    node = calm.sandbox.layout.node_names[3]
    draw = random.Random(1)
    for turn in range(20):
        drained_and_healed(calm, node)
        for _ in range(5):
            time.sleep(draw.uniform(0.5, 12))
            calm.sandbox.fault("-", "service-crash")
            calm.sandbox.fault("-", "service-start")
            state, _ = calm.node_state(node)
            seen = incident(calm, node)
            assert "DRAIN" in state or not free_of_us(calm) or seen["state"] == "returned", (
                turn,
                state,
                seen,
            )
        assert ended(calm, node, "returned", "ticket")["state"] == "returned"
        calm.until("no reservation of ours", lambda: free_of_us(calm))
        assert not calm.sandbox.run(["squeue", "-h"]).stdout.strip()
