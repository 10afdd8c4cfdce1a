"""Jobs that end by themselves on real Slurm: what the hardware killed comes back elsewhere, what the program killed does not."""

from __future__ import annotations

from typing import Any

import deaths
import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

BUG = "sleep 2; echo 'Traceback (most recent call last):'; echo \"KeyError: 'labels'\"; exit 1"


def test_what_the_hardware_killed_comes_back_and_a_bug_does_not(calm: Any) -> None:
    """Xid 79, the job's own exit a second later: back and training elsewhere, its dependent with it, its log kept; beside it bugs, --no-requeue and interactive jobs stay where they are."""
    up = calm
    bugs = [up.sandbox.submit(BUG, job_name=f"bug-{n}") for n in range(3)]
    job, gate = deaths.train(up, "llama")
    dependent = up.sandbox.submit("sleep 1", dependency=f"afterok:{job}", job_name="eval")
    nodes = up.running(job)
    stays, _ = deaths.train(
        up, "stays", nodes=1, gres="gpu:0", mem="100", nodelist=nodes[1], no_requeue=True, open_mode="append"
    )
    up.running(stays)
    deaths.FAULTS["xid"](up, nodes[1])
    deaths.end(gate)
    deaths.end(up.sandbox.layout.jobs / "stays.gate")
    took_s = deaths.seconds_to_training(up, job)
    # The bound itself is the soak's, below: this runs beside other tests on machines of any speed.
    print(f"it took {took_s:g} s")
    report = up.reported(job, lambda r: r["state"] == "COMPLETED", 60)
    assert nodes[1] not in report["attempts"][1]["nodes"]
    assert report["attempts"][0]["verdict"]["cause"] == "gpu_lost"
    (row,) = deaths.restarts(up, job)
    assert (row["state"], row["node"]) == ("done", nodes[1])
    up.sandbox.wait(dependent, {"COMPLETED"}, 60)
    kept = up.sandbox.layout.jobs / f"slurm-{job}.out.start1"
    assert "CUDA error" in kept.read_text()
    (copy_request,) = up.rows(
        "SELECT made_at FROM probing.node_request WHERE verb = 'keep_log' AND job_id = %s", job
    )
    assert copy_request["made_at"] > row["at"], "no copy is made before the restart is decided"
    text = up.sandbox.run(["probing-report", str(job)]).stdout
    assert "job restarted after its end" in " ".join(text.split())
    assert f"kept as {kept}" in " ".join(text.split())
    for bug in bugs:
        assert up.state(bug) in {"FAILED", "UNKNOWN"}
        assert deaths.restarts(up, bug) == []
    assert up.state(stays) in {"FAILED", "UNKNOWN"}
    assert all(r["state"] != "done" for r in deaths.restarts(up, stays))


@pytest.mark.soak
@pytest.mark.parametrize("fault", sorted(deaths.FAULTS))
def test_every_death_by_hardware_comes_back(wide: Any, fault: str) -> None:
    """A lost GPU, a lost link, a memory error, a vanished mount, a crashed node: each within a minute of the job's end."""
    up = wide
    job, gate = deaths.train(up, f"train-{fault}")
    nodes = up.running(job)
    deaths.FAULTS[fault](up, nodes[1])
    deaths.end(gate, fault)
    took_s = deaths.seconds_to_training(up, job)
    report = up.reported(job, lambda r: r["state"] == "COMPLETED", 120)
    print(f"{fault}: {took_s:g} s")
    deaths.mend(up, nodes[1])
    assert nodes[1] not in report["attempts"][1]["nodes"]
    assert took_s <= deaths.BACK_S
