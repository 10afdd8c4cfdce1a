"""The first line of defence on a real Slurm cluster: it takes the bad node, and never shoots its own side."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# One cluster (`calm`) serves the gate's in this order: no node is out of service until the third takes n4, the mount n2 and a person n3. The
# budget of a cluster is two and a person's drain counts in it, so the mount comes before the person. The soak's have others: `last` the
# links, `pair` the repaired one, and the last, whose budget is its own, one for itself.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FUSE = pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="needs /dev/fuse to make a mount hang")


def restart_agent(up: Any, node: str, change: Callable[[str], str]) -> None:
    """The agent of a node again, with a changed configuration."""
    path = up.sandbox.layout.node(node) / "probing.toml"
    path.write_text(change(path.read_text()))
    up.sandbox.fault(node, "agent-crash")
    up.sandbox.fault(node, "agent-start")


def check_now(up: Any, node: str, name: str) -> dict[str, Any] | None:
    """The latest stored result of one check."""
    rows = up.rows("SELECT * FROM probing.check_now WHERE node = %s AND name = %s", node, name)
    return rows[0] if rows else None


def sweep(up: Any, node: str) -> None:
    """What Slurm's HealthCheckProgram does on this node."""
    up.sandbox.run(["env", f"SLURMD_NODENAME={node}", str(up.sandbox.layout.bin / "healthcheck")])


def test_a_bad_config_push_keeps_what_was_in_force(calm: Any) -> None:
    """A broken site file on every node: the old limits stay, every node says so, and none is drained."""
    site = calm.sandbox.layout.etc / "site.toml"
    site.write_text("[checks.ib_link]\ncount = 8\n")
    nodes = calm.sandbox.layout.node_names
    for node in nodes:
        restart_agent(
            calm, node, lambda text: re.sub(r"\[checks\]\n", f'[checks]\nsite_file = "{site}"\n', text)
        )
    for node in nodes:
        sweep(calm, node)
    for node in nodes:
        calm.until("first sweep", lambda node=node: check_now(calm, node, "ib_link"), 60)
    site.write_text("[checks.ib_link]\ncount = 80\nthis is no TOML\n")
    for node in nodes:
        sweep(calm, node)

    def warned() -> bool:
        found = [check_now(calm, node, "agent_self") for node in nodes]
        return all(f and f["outcome"] == "warn" and "site file" in f["message"] for f in found)

    calm.until("warning of every node", warned, 60)
    for node in nodes:
        kept = check_now(calm, node, "ib_link")
        assert kept is not None
        assert kept["outcome"] == "ok"
        assert calm.drained(node) is None
    site.write_text("[checks.ib_link]\ncount = 8\n")
    sweep(calm, nodes[0])
    calm.until("recovery", lambda: (check_now(calm, nodes[0], "agent_self") or {}).get("outcome") == "ok", 60)


def test_a_dead_agent_costs_no_job_anything(calm: Any) -> None:
    """Killed before the job starts and dead at its end: the job runs there, completes, and the node stays in service."""
    node = calm.sandbox.layout.node_names[0]
    calm.sandbox.fault(node, "agent-crash")
    job = calm.sandbox.submit("sleep 1; echo $SLURMD_NODENAME", nodelist=node, gres="gpu:8")
    assert calm.sandbox.wait(job, {"COMPLETED", "FAILED", "CANCELLED"}, 120) == "COMPLETED"
    state, reason = calm.node_state(node)
    assert "DRAIN" not in state, reason
    silent = "SELECT 1 FROM probing.health_event WHERE kind = 'agent_silent' AND node = %s"
    assert calm.until("event of the silence", lambda: calm.rows(silent, node), 40)
    assert calm.drained(node) is None
    calm.sandbox.fault(node, "agent-start")


def test_a_reboot_ends_what_stood_before_it(calm: Any) -> None:
    """A drained node that rebooted and is healthy: nothing of the old boot stands, and only our own drain may end."""
    node = calm.sandbox.layout.node_names[3]
    calm.sandbox.fault(node, "xid", code=79, gpu=2)
    calm.until("drain", lambda: calm.drained(node), 60)
    faults = "SELECT faults, boot_id FROM probing.agent_heartbeat WHERE node = %s"
    (before,) = calm.rows(faults, node)
    calm.sandbox.fault(node, "node-reboot")

    def clean() -> bool:
        (beat,) = calm.rows(faults, node)
        return beat["boot_id"] != before["boot_id"] and not beat["faults"]

    calm.until("a clean beat of the new boot", clean, 90)
    reason = calm.drained(node)
    # Hysteresis: it must stay green for a while before we resume it.
    assert reason is not None
    assert reason.startswith("probing:")


@pytest.mark.soak
def test_a_link_that_stays_down_takes_its_node_and_frees_its_job(last: Any) -> None:
    """Held for a while, then as sure as any fault: drained, and the job requeued onto another node."""
    # Slurm chooses the node: the last test's job may not have left the first one yet.
    job = last.sandbox.submit('[ "$SLURM_RESTART_COUNT" ] || sleep 300', nodes=1, gres="gpu:8")
    (node,) = last.running(job)
    last.sandbox.fault(node, "ib-down", hca="mlx5_2")
    last.until("drain", lambda: last.drained(node), 60)

    def explained(report: dict[str, Any]) -> bool:
        # What the agent saw may come after the drain that its heartbeat asked for: then it is judged again.
        verdict = report["attempts"][0]["verdict"]
        return report["state"] == "COMPLETED" and verdict is not None and verdict["cause"] == "ib_link"

    report = last.reported(job, explained, 90)
    assert [a["state"] for a in report["attempts"]] == ["REQUEUED", "COMPLETED"]
    verdict = report["attempts"][0]["verdict"]
    assert (verdict["domain"], verdict["node"], verdict["confidence"]) == ("hardware", node, "likely")


@pytest.mark.soak
def test_a_flapping_link_drains_and_disturbs_no_job(last: Any) -> None:
    """Flaps that came back are no reason to end a job: the node is drained at most, the job on it runs on."""
    node = last.sandbox.layout.node_names[2]
    job = last.sandbox.submit("sleep 280", nodelist=node, gres="gpu:8")
    last.running(job)
    last.sandbox.fault(node, "ib-flap", hca="mlx5_2", times=4, gap_s=0.1)
    flap = "SELECT 1 FROM probing.health_event WHERE node = %s AND kind = 'ib_link' AND severity = 'high'"
    last.until("kernel line of a link that went down", lambda: last.rows(flap, node), 30)
    query = "SELECT faults FROM probing.agent_heartbeat WHERE node = %s"

    def only_flapping() -> bool:
        (beat,) = last.rows(query, node)
        return bool(beat["faults"]) and all(f["severity"] == "low" for f in beat["faults"].values())

    last.until("beat that says only that it flaps", only_flapping, 60)
    last.until("drain", lambda: last.drained(node), 30)
    time.sleep(3)
    assert "ib_" in last.drained(node)
    assert last.state(job) == "RUNNING"
    assert last.rows("SELECT 1 FROM probing.drain WHERE action = 'requeue' AND job_id = %s", job) == []
    last.sandbox.run(["scancel", str(job)])


@pytest.mark.soak
def test_a_repaired_node_comes_back_and_stays(pair: Any) -> None:
    """Broken: the drain stays and the fault is named. Mended: it comes back, and no sweep drains it again."""
    node = pair.sandbox.layout.node_names[0]
    xids = "SELECT 1 FROM probing.check_now WHERE node = %s AND name = 'gpu_xid' AND outcome = %s"
    pair.sandbox.fault(node, "xid", code=79)
    pair.until("drain", lambda: pair.drained(node))
    pair.sandbox.run(["env", f"SLURMD_NODENAME={node}", str(pair.sandbox.layout.bin / "healthcheck")])
    pair.until("check that fails", lambda: pair.rows(xids, node, "fail"))

    broken = pair.sandbox.run(["probing-ctl", "set-healthy", node], check=False, timeout_s=200)
    assert broken.returncode == 1
    assert "still failing: " in broken.stdout
    assert "gpu_lost" in broken.stdout
    assert pair.drained(node)

    pair.sandbox.fault(node, "heal")
    mended = pair.sandbox.run(["probing-ctl", "set-healthy", node, "--note", "reseated"], timeout_s=200)
    assert mended.stdout == f"{node}: noted as repaired and resumed\n"
    assert pair.rows(xids, node, "ok"), (
        "the kernel log still holds the Xid; the check counts from the repair on"
    )
    since = "SELECT 1 FROM probing.agent_heartbeat WHERE node = %s AND received_at > now() - interval '1 s' AND faults = '{}'"
    for _ in range(3):
        pair.sandbox.run(["env", f"SLURMD_NODENAME={node}", str(pair.sandbox.layout.bin / "healthcheck")])
        pair.until("heartbeat without a fault", lambda: pair.rows(since, node))
        assert pair.drained(node) is None

    pair.sandbox.fault(node, "xid", code=79)
    pair.until("drain of a node that broke again", lambda: pair.drained(node))


@FUSE
def test_a_mount_that_hangs_in_the_kernel_takes_its_node_and_not_its_agent(calm: Any) -> None:
    """A stale mount: found while every call on it sleeps unkillably, the node drained, the agent beating on."""
    node = calm.sandbox.layout.node_names[1]
    calm.sandbox.fault(node, "mount-hang", path="/home")
    reason = calm.until("drain", lambda: calm.drained(node), 90)
    assert reason.startswith("probing:")
    beat = "SELECT received_at, hung_children FROM probing.agent_heartbeat WHERE node = %s"
    (before,) = calm.rows(beat, node)
    calm.until("another beat", lambda: calm.rows(beat, node)[0]["received_at"] > before["received_at"], 30)
    sweep(calm, node)
    stuck = calm.until(
        "stuck child shown",
        lambda: (found := check_now(calm, node, "mount_responsive")) and found["outcome"] == "fail" and found,
        60,
    )
    assert "/home" in (stuck["device"] or "") + stuck["message"]
    assert check_now(calm, node, "uptime") is not None  # the others were judged all the same


def test_an_administrators_drain_stays_as_it_was(calm: Any) -> None:
    """A node a person drained keeps the person's words, whatever breaks on it."""
    node = calm.sandbox.layout.node_names[2]
    calm.sandbox.run(["scontrol", "update", f"nodename={node}", "state=drain", "reason=fan swap, ask Bob"])
    before = calm.node_state(node)
    calm.sandbox.fault(node, "xid", code=79, gpu=1)
    calm.until(
        "a recorded decision",
        lambda: calm.rows("SELECT 1 FROM probing.drain WHERE node = %s AND state = 'skipped'", node),
        30,
    )
    time.sleep(3)
    assert calm.node_state(node) == before


@pytest.mark.soak
def test_half_of_the_nodes_failing_at_once_stops_at_the_budget(up: Any) -> None:
    """One node within the budget is taken; the next is denied in words, keeps its job, and the alarm is a row."""
    config = up.sandbox.layout.probing_toml
    text = config.read_text()
    assert "budget_nodes = 2" in text
    config.write_text(up.untested(text.replace("budget_nodes = 2", "budget_nodes = 1")))
    up.sandbox.fault("-", "service-crash")
    up.sandbox.fault("-", "service-start")
    half = up.sandbox.layout.node_names[:2]
    jobs = {node: up.sandbox.submit("sleep 280", nodelist=node, gres="gpu:8") for node in half}
    for job in jobs.values():
        up.running(job)
    for node in half:
        up.sandbox.fault(node, "xid", code=79, gpu=1)
    denied = "SELECT node, why_state FROM probing.drain WHERE action = 'drain' AND state = 'denied'"
    up.until("denied decision", lambda: up.rows(denied), 60)
    time.sleep(8)
    drained = [node for node in up.sandbox.layout.node_names if up.drained(node) is not None]
    assert len(drained) == 1
    (spared,) = set(half) - set(drained)
    rows = up.rows(denied)
    assert {r["node"] for r in rows} == {spared}
    assert all("budget" in r["why_state"] for r in rows)
    assert up.state(jobs[spared]) == "RUNNING"
    up.sandbox.run(["scancel", *map(str, jobs.values())])
