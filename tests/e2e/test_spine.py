"""The nine ways through the spine, each on a real Slurm cluster with real Postgres and accounting."""

from __future__ import annotations

import time
from typing import Any

import pytest

# One cluster (`calm`) serves 1, 4, 7, 6 and 3 in this order, in the soak another (`pair`) 5 and a third (`last`) 2 and 9: 1 and 4 find
# every node in service, 7 takes none, 5, 6, 2 and 9 each take a node, and 3 loses one. The budget of a cluster is two nodes. What a person drained (8) is
# in test_first_line.py.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RESUMES = """
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ]; then sleep 4; echo resumed; exit 0; fi
sleep 300
"""
"""Hangs on its first attempt, as training on a dead GPU does, and finishes on its second."""

FAILS_SOON = "sleep 20; echo 'Traceback (most recent call last):'; exit 1"


def ended(report: dict[str, Any]) -> bool:
    """The last attempt has ended, every failed one has its verdict, and the run its account."""
    attempts = report["attempts"]
    return bool(attempts) and report["ettr"]["wall_s"] is not None and all(
        a["end_at"] and (a["verdict"] or a["state"] == "COMPLETED") for a in attempts
    )  # fmt: skip


def explained(report: dict[str, Any], cause: str) -> bool:
    """Ended, and its first attempt by this cause: what is known late is judged again, so this is waited for."""
    return ended(report) and (report["attempts"][0]["verdict"] or {}).get("cause") == cause


def two_node_job(up: Any, script: str = RESUMES, **options: Any) -> tuple[int, list[str]]:
    """A gang on all GPUs of two nodes, running."""
    job = up.sandbox.submit(
        script, nodes=2, gres="gpu:8", ntasks_per_node=1, job_name="llama-70b-sft", **options
    )
    return job, up.running(job)


def test_1_a_clean_job_has_no_verdict(calm: Any) -> None:
    """COMPLETED, nothing to explain, and an ETTR whose parts add up to the wall time."""
    job = calm.sandbox.submit("sleep 5", nodes=2, gres="gpu:8")
    report = calm.reported(job, ended)
    (attempt,) = report["attempts"]
    assert (attempt["state"], attempt["verdict"], attempt["n_gpus"]) == ("COMPLETED", None, 16)
    ettr = report["ettr"]
    parts = (
        "queued_s",
        "productive_s",
        "lost_to_replay_s",
        "restart_s",
        "checkpoint_s",
        "suspended_s",
        "idle_s",
    )
    assert ettr["wall_s"] == pytest.approx(sum(ettr[p] for p in parts), abs=1e-6)
    assert 0 < ettr["measured"] <= 1
    assert all(calm.drained(node) is None for node in calm.sandbox.layout.node_names)


def test_4_a_users_traceback_is_the_users(calm: Any) -> None:
    """Exit 1 with a traceback is user_program although an old, unrelated Xid is in the database."""
    nodes = calm.sandbox.layout.node_names
    for node in nodes:
        calm.sandbox.fault(node, "xid", code=31, gpu=2)
    calm.until(
        "old events of kernel and NVML",
        lambda: len(calm.rows("SELECT 1 FROM probing.health_event WHERE kind = 'xid'")) >= 2 * len(nodes),
    )
    with_old_xids = (
        "UPDATE probing.health_event SET at = at - interval '2 hours' WHERE kind = 'xid' RETURNING 1"
    )
    assert calm.rows(with_old_xids)
    script = "sleep 3; python3 -c 'raise ValueError(\"bad batch\")'"
    job = calm.sandbox.submit(script, nodes=1, gres="gpu:8")

    def the_users(report: dict[str, Any]) -> bool:
        # Its log may be read after the first verdict: then it is judged again.
        return ended(report) and report["attempts"][0]["verdict"]["domain"] == "user_program"

    (attempt,) = calm.reported(job, the_users)["attempts"]
    assert (attempt["state"], attempt["exit_code"]) == ("FAILED", 1)
    assert all(e["kind"] != "xid" for e in attempt["verdict"]["evidence"])
    assert all(calm.drained(node) is None for node in nodes)


def test_7_the_agent_is_killed_in_mid_fault(calm: Any) -> None:
    """SIGKILL while events stream, then a restart: each kernel line is one row. They are of a kind that drains no node."""
    node = calm.sandbox.layout.node_names[1]
    for number in range(30):
        calm.sandbox.fault(
            node,
            "kernel-line",
            text=f"NVRM: Xid (PCI:0000:1b:00): 43, pid={number}, name=python, Ch {number:08x}",
        )
        if number == 15:
            calm.sandbox.fault(node, "agent-crash")
    calm.sandbox.fault(node, "agent-start")

    def delivered() -> bool:
        rows = calm.rows(
            "SELECT coalesce(sum(count), 0) AS n FROM probing.health_event WHERE node = %s AND kind = 'xid' AND code = '43'",
            node,
        )
        return int(rows[0]["n"]) >= 30

    calm.until("all lines", delivered, 60)
    time.sleep(3)
    (total,) = calm.rows(
        "SELECT sum(count) AS n FROM probing.health_event WHERE node = %s AND kind = 'xid' AND code = '43' AND source = 'kernel'",
        node,
    )
    assert int(total["n"]) == 30


def test_6_an_unfit_node_at_job_start(calm: Any) -> None:
    """A job that would start on a node with a dead GPU runs elsewhere, with nothing lost."""
    victim = calm.sandbox.layout.node_names[0]
    calm.sandbox.fault(victim, "gpu-lost", gpu=5)
    decided = (
        "SELECT 1 FROM probing.drain WHERE node = %s AND action IN ('drain', 'refuse') AND state = 'done'"
    )
    calm.until("drain or leave to refuse", lambda: calm.rows(decided, victim))
    # On a dead GPU training hangs.
    script = f'[ "$SLURMD_NODENAME" != {victim} ] || sleep 300\nsleep 4; hostname; echo $SLURM_JOB_NODELIST'
    job = calm.sandbox.submit(script, nodes=3, gres="gpu:8", job_name="start")
    report = calm.reported(job, lambda r: ended(r) and r["state"] == "COMPLETED", 90)
    assert victim not in report["attempts"][-1]["nodes"]
    assert calm.drained(victim) is not None


def test_3_a_node_crashes(calm: Any) -> None:
    """NODE_FAIL; the report says that the node was lost and what was or was not seen before."""
    job, (_first, second) = two_node_job(calm)
    calm.sandbox.fault(second, "node-crash")

    def named(report: dict[str, Any]) -> bool:
        # Which node fell silent is known when it has been silent for a while.
        return explained(report, "node_lost") and report["attempts"][0]["verdict"]["node"] == second

    report = calm.reported(job, lambda r: len(r["attempts"]) == 2 and named(r), 150)
    lost = report["attempts"][0]
    assert lost["state"] == "NODE_FAIL"
    assert (lost["verdict"]["cause"], lost["verdict"]["node"]) == ("node_lost", second)
    assert lost["verdict"]["confidence"] != "certain" or lost["verdict"]["evidence"]
    assert second in lost["verdict"]["summary"]
    assert report["attempts"][1]["state"] == "COMPLETED"


@pytest.mark.soak
def test_5_the_database_is_away_when_it_happens(pair: Any) -> None:
    """Nothing is done meanwhile; afterwards verdict and evidence are those of case 2, once each, and no later attempt is touched."""
    job, (_first, second) = two_node_job(pair, FAILS_SOON, no_requeue=True)
    pair.sandbox.fault("-", "db-down")
    pair.sandbox.fault(second, "xid", code=79, gpu=3)
    pair.sandbox.wait(job, {"FAILED"}, 120)
    assert "DRAIN" not in pair.node_state(second)[0]
    later = pair.sandbox.submit("sleep 280", nodelist=second, gres="gpu:8")
    pair.running(later)
    pair.sandbox.fault("-", "db-up")
    report = pair.reported(job, lambda r: explained(r, "gpu_lost"), 90)
    (attempt,) = report["attempts"]
    verdict = attempt["verdict"]
    assert (attempt["state"], verdict["domain"], verdict["node"]) == ("FAILED", "hardware", second)
    assert verdict["confidence"] == "certain"
    assert any(
        e["kind"] == "xid" and e["code"] == "79" and "NVRM" in e["message"] for e in verdict["evidence"]
    )
    lines = pair.rows(
        "SELECT message, count(*) FROM probing.health_event WHERE source = 'kernel' AND code = '79' AND node = %s GROUP BY message",
        second,
    )
    assert lines
    assert {line["count"] for line in lines} == {1}
    time.sleep(8)
    assert pair.state(later) == "RUNNING"
    requeues = pair.rows("SELECT * FROM probing.drain WHERE action = 'requeue' AND state = 'done'")
    assert requeues == []
    pair.sandbox.run(["scancel", str(later)])


@pytest.mark.soak
def test_2_a_gpu_falls_off_the_bus_under_a_job(last: Any) -> None:
    """Its node is drained with our reason, the other untouched; the job finishes elsewhere; the report says why."""
    job, (first, second) = two_node_job(last)
    gpu = last.sandbox.hardware(second).gpus[3]
    last.sandbox.fault(second, "xid", code=79, gpu=3)
    reason = last.until("drain", lambda: last.drained(second), 30)
    assert reason.startswith("probing:")
    assert "79" in reason
    report = last.reported(job, lambda r: explained(r, "gpu_lost") and len(r["attempts"]) == 2, 90)
    assert last.drained(first) is None
    before, after = report["attempts"]
    assert (before["state"], after["state"], report["state"]) == ("REQUEUED", "COMPLETED", "COMPLETED")
    assert second in before["nodes"]
    assert second not in after["nodes"]
    verdict = before["verdict"]
    assert (verdict["domain"], verdict["node"], verdict["cause"]) == ("hardware", second, "gpu_lost")
    assert verdict["confidence"] == "certain"
    assert "3" in verdict["device"]
    kernel = [
        e for e in verdict["evidence"] if e["kind"] == "xid" and e["code"] == "79" and "NVRM" in e["message"]
    ]
    assert kernel, verdict["evidence"]
    assert gpu.pci.rpartition(".")[0] in kernel[0]["message"].lower()
    assert kernel[0]["node"] == second
    assert verdict["next_step"]
    assert after["verdict"] is None
    (drain,) = last.rows(
        "SELECT * FROM probing.drain WHERE action = 'drain' AND state = 'done' AND node = %s", second
    )
    assert (drain["node"], drain["owner"]) == (second, "probing")


@pytest.mark.soak
def test_9_one_gpu_of_two_jobs_on_a_node(last: Any) -> None:
    """Two 1-GPU jobs share a node: the fault of one's GPU has one victim, the other is left in peace."""
    first = last.sandbox.submit(RESUMES, gres="gpu:1", job_name="one-0")
    (node,) = last.running(first)
    jobs = [first, last.sandbox.submit(RESUMES, gres="gpu:1", job_name="one-1", nodelist=node)]
    last.running(jobs[1])

    def allocations() -> dict[int, str] | None:
        rows = last.rows("SELECT job_id, gpu_uuids FROM probing.job_allocation WHERE node = %s", node)
        found = {r["job_id"]: r["gpu_uuids"][0] for r in rows if r["gpu_uuids"]}
        return found if set(jobs) <= set(found) else None

    held = last.until("allocations", allocations, 30)
    assert held[jobs[0]] != held[jobs[1]]
    index = next(g.index for g in last.sandbox.hardware(node).gpus if g.uuid == held[jobs[0]])
    last.sandbox.fault(node, "xid", code=79, gpu=index)
    report = last.reported(jobs[0], lambda r: ended(r) and len(r["attempts"]) == 2, 90)
    assert report["attempts"][0]["verdict"]["cause"] == "gpu_lost"
    assert last.state(jobs[1]) == "RUNNING"
    other = last.report(jobs[1])
    assert [a["verdict"] for a in other["attempts"]] == [None]
    last.sandbox.run(["scancel", str(jobs[1])])
