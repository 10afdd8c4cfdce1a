"""After a repair, on a real Slurm cluster: a person's word brings the node back for good, or says what is still broken."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_repaired_node_comes_back_and_stays(up: Any) -> None:
    """Broken: the drain stays and the fault is named. Mended: it comes back, and no sweep drains it again."""
    config = up.sandbox.layout.probing_toml
    config.write_text(up.untested(config.read_text()))
    up.sandbox.fault("-", "service-crash")
    up.sandbox.fault("-", "service-start")
    node = up.sandbox.layout.node_names[0]
    xids = "SELECT 1 FROM probing.check_now WHERE node = %s AND name = 'gpu_xid' AND outcome = %s"
    up.sandbox.fault(node, "xid", code=79)
    up.until("drain", lambda: up.drained(node))
    up.sandbox.run(["env", f"SLURMD_NODENAME={node}", str(up.sandbox.layout.bin / "healthcheck")])
    up.until("check that fails", lambda: up.rows(xids, node, "fail"))

    broken = up.sandbox.run(["probing-ctl", "set-healthy", node], check=False, timeout_s=200)
    assert broken.returncode == 1
    assert "still failing: " in broken.stdout
    assert "gpu_lost" in broken.stdout
    assert up.drained(node)

    up.sandbox.fault(node, "heal")
    mended = up.sandbox.run(["probing-ctl", "set-healthy", node, "--note", "reseated"], timeout_s=200)
    assert mended.stdout == f"{node}: noted as repaired and resumed\n"
    assert up.rows(xids, node, "ok"), (
        "the kernel log still holds the Xid; the check counts from the repair on"
    )
    since = "SELECT 1 FROM probing.agent_heartbeat WHERE node = %s AND received_at > now() - interval '1 s' AND faults = '{}'"
    for _ in range(3):
        up.sandbox.run(["env", f"SLURMD_NODENAME={node}", str(up.sandbox.layout.bin / "healthcheck")])
        up.until("heartbeat without a fault", lambda: up.rows(since, node))
        assert up.drained(node) is None

    up.sandbox.fault(node, "xid", code=79)
    up.until("drain of a node that broke again", lambda: up.drained(node))
