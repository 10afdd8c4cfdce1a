"""Who is brought back and who is not, on one real cluster: arrays, het jobs, dependants, --no-requeue, resubmission, loops."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deaths
import pytest

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.timeout(1800)]

ONE = {"nodes": 1, "gres": "gpu:1", "cpus_per_task": 1, "mem": "500", "open_mode": "truncate"}
"""A job of one GPU: several of them share the node that loses its mount."""


@pytest.fixture
def broken(wide: Any) -> Iterator[list[str]]:
    """Nodes that a test breaks: whole again after it, whatever it found, or the next one has too few."""
    nodes: list[str] = []
    yield nodes
    for node in nodes:
        deaths.mend(wide, node)


class JobsOfOneNode:
    """Jobs on one node of which the mount goes, and then each of them."""

    def __init__(self, up: Any, node: str, name: str) -> None:
        self.up, self.node = up, node
        self.gate = up.sandbox.layout.jobs / f"{name}.gate"
        self.gate.unlink(missing_ok=True)

    def submit(self, **options: Any) -> int:
        script = deaths.TRAINS.format(gate=self.gate)
        return int(self.up.sandbox.submit(script, **(ONE | {"nodelist": self.node} | options)))

    def die(self) -> None:
        deaths.FAULTS["mount"](self.up, self.node)
        deaths.end(self.gate, "mount")


def decided(up: Any, job: int) -> dict[str, Any]:
    """The row of what was decided about a job, with its outcome."""
    found: list[dict[str, Any]] = up.until(
        f"decision about job {job}",
        lambda: [r for r in deaths.restarts(up, job) if not r["why_state"].startswith("begun")],
        120,
    )
    return found[-1]


def test_who_comes_back_of_a_node_that_lost_its_mount(wide: Any, broken: list[str]) -> None:
    """Side by side on one node: a job with its afterok dependant comes back and both complete; one whose dependant has begun,
    one with --no-requeue, one that its owner has submitted again, one that asks for its node by name and one that its owner cancels stay, each with
    its reason."""
    up = wide
    # It comes back elsewhere: only the others ask for its node by name.
    jobs = JobsOfOneNode(up, "", "crowd")
    plain = jobs.submit(job_name="plain", nodelist=False)
    (jobs.node,) = up.running(plain)
    broken.append(jobs.node)
    after_ok = up.sandbox.submit("sleep 1", dependency=f"afterok:{plain}", **ONE)
    gone_on = jobs.submit(job_name="gone-on")
    after_any = up.sandbox.submit("sleep 60", dependency=f"afterany:{gone_on}", **ONE)
    stays = jobs.submit(job_name="stays", no_requeue=True)
    again = jobs.submit(job_name="again")
    named = jobs.submit(job_name="named")
    cancelled = jobs.submit(job_name="cancelled")
    for job in (plain, gone_on, stays, again, named, cancelled):
        up.running(job)
    up.until("their dependencies known", lambda: len(up.rows("SELECT 1 FROM probing.job_dependency")) >= 2)
    jobs.die()
    up.sandbox.run(["scancel", str(cancelled)])
    up.sandbox.wait(again, {"FAILED"}, 60)
    second = up.sandbox.submit("sleep 5", **(ONE | {"job_name": "again"}))
    assert deaths.seconds_to_training(up, plain) <= deaths.BACK_S
    assert decided(up, plain)["state"] == "done"
    up.sandbox.wait(after_ok, {"COMPLETED"}, 120)
    for job, words in (
        (gone_on, f"job {after_any}, which waited for it, has started"),
        (stays, "--no-requeue"),
        (again, f"submitted it again as job {second}"),
        (named, f"it asks for {jobs.node} by name"),
    ):
        row = decided(up, job)
        assert (row["state"], words in row["why_state"]) == ("skipped", True), row["why_state"]
        assert up.state(job) in {"FAILED", "UNKNOWN"}
    assert [r["state"] for r in deaths.restarts(up, cancelled)] in ([], ["skipped"])
    assert up.state(cancelled) in {"CANCELLED", "UNKNOWN"}
    up.sandbox.run(["scancel", str(after_any), str(second)])


def test_an_interactive_job_is_nobodys_to_bring_back(wide: Any, broken: list[str]) -> None:
    """srun's own allocation: its user sits in front of it."""
    up = wide
    node = up.sandbox.layout.node_names[1]
    broken.append(node)
    gate = up.sandbox.layout.jobs / "interactive.gate"
    gate.unlink(missing_ok=True)
    script = up.sandbox.layout.jobs / "interactive.sh"
    script.write_text(f"#!/bin/bash\n{deaths.TRAINS.format(gate=gate)}\n")
    script.chmod(0o755)
    argv = ["srun", "-w", node, "--gres=gpu:8", "--mem=500", "-J", "interactive", str(script)]
    with subprocess.Popen(
        argv, env=up.sandbox.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as srun:
        listed = ["squeue", "-hn", "interactive", "-t", "R", "-o", "%A"]
        job = int(up.until("its job", lambda: up.sandbox.run(listed).stdout.split())[0])
        deaths.FAULTS["xid"](up, node)
        deaths.end(gate)
        srun.wait(timeout=120)
    row = decided(up, job)
    assert (row["state"], row["why_state"]) == ("skipped", "it is interactive")


def test_of_an_array_the_task_that_died_comes_back(wide: Any, broken: list[str]) -> None:
    """Two tasks on two nodes: one dies with its node's GPU and comes back; the other trains on."""
    up = wide
    gate = up.sandbox.layout.jobs / "array.gate"
    for task in (1, 2):
        gate.with_name(f"array.gate.{task}").unlink(missing_ok=True)
    script = deaths.TRAINS.format(gate=f"{gate}.$SLURM_ARRAY_TASK_ID")
    array = up.sandbox.submit(
        script, array="1-2", gres="gpu:8", job_name="array", nodes=1, open_mode="truncate"
    )
    rows = up.until(
        "both tasks",
        lambda: (
            [r for r in _tasks(up, array) if len(r) == 3]
            if len([r for r in _tasks(up, array) if len(r) == 3]) == 2
            else None
        ),
    )
    (raw, task, node), (other, _, elsewhere) = rows
    assert node != elsewhere
    broken.append(node)
    deaths.FAULTS["xid"](up, node)
    deaths.end(gate.with_name(f"array.gate.{task}"))
    assert decided(up, int(raw))["state"] == "done"
    assert deaths.seconds_to_training(up, int(raw), f"{array}_{task}") <= deaths.BACK_S
    states = dict(
        r.split() for r in up.sandbox.run(["squeue", "-hro", "%K %T", f"--jobs={array}"]).stdout.splitlines()
    )
    assert [s for t, s in states.items() if t != task] == ["RUNNING"]
    assert deaths.restarts(up, int(other)) == []
    up.sandbox.run(["scancel", str(array)])


def _tasks(up: Any, array: int) -> list[list[str]]:
    """Raw id, task and node of each running task."""
    done = up.sandbox.run(["squeue", "-hrt", "R", "-o", "%A %K %N", f"--jobs={array}"], check=False)
    return [line.split() for line in done.stdout.splitlines()]


def test_a_het_job_comes_back_whole(wide: Any, broken: list[str]) -> None:
    """The node of its second component fails: both components start again, together."""
    up = wide
    gate = up.sandbox.layout.jobs / "het.gate"
    gate.unlink(missing_ok=True)
    part = "#SBATCH --nodes=1 --gres=gpu:8 --mem=500 --open-mode=truncate --job-name=het"
    script = f"#!/bin/bash\n{part}\n#SBATCH hetjob\n{part}\n{deaths.TRAINS.format(gate=gate)}\n"
    leader = up.sandbox.submit(script)
    nodes = up.until("both components", lambda: n if len(n := _components(up, leader)) == 2 else None)
    broken.append(nodes[leader + 1])
    deaths.FAULTS["xid"](up, nodes[leader + 1])
    deaths.end(gate)
    row = up.until(
        "its decision",
        lambda: [
            r
            for r in (*deaths.restarts(up, leader), *deaths.restarts(up, leader + 1))
            if not r["why_state"].startswith("begun")
        ],
        120,
    )[-1]
    print(f"het job: {row['state']} {row['why_state']}")
    assert row["state"] == "done"
    assert row["detail"]["components"] == [leader, leader + 1]
    up.until("both components again", lambda: len(_components(up, leader)) == 2, 90)
    assert nodes[leader + 1] not in _components(up, leader).values()
    up.until("both components' good end", lambda: _ends(up, leader) == ["COMPLETED"] * 2, 120)


def _components(up: Any, leader: int) -> dict[int, str]:
    """Raw id to node of each running component."""
    done = up.sandbox.run(["squeue", "-ht", "R", "-o", "%A %N", f"--jobs={leader}"], check=False)
    return {
        int(line.split()[0]): line.split()[1] for line in done.stdout.splitlines() if len(line.split()) == 2
    }


def _ends(up: Any, leader: int) -> list[str]:
    """States of the latest start of each component, by accounting."""
    states = up.sandbox.run(["sacct", "-XnP", "-o", "State", "-j", str(leader)]).stdout
    return list(states.split())


STEPS = """
import time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
    time.sleep(0.1)
raise KeyError("labels")
"""


def test_a_loop_of_the_programs_own_is_told_and_left_alone(wide: Any, tmp_path: Path) -> None:
    """Three starts, requeued by hand, die of the same KeyError at the same step: a row says so, and nothing is done."""
    pytest.importorskip("torch", reason="needs torch (make setup installs it)")
    up = wide
    program = tmp_path / "loop.py"
    program.write_text(STEPS)
    job = up.sandbox.submit(
        f"export OMP_NUM_THREADS=1\nsrun -n1 {sys.executable} {program}", job_name="loop", **ONE
    )
    judged = "SELECT 1 FROM probing.verdict WHERE job_id = %s AND attempt = %s"
    for start in (1, 2, 3):
        up.until(f"verdict on start {start}", lambda n=start: up.rows(judged, job, n), 120)
        if start < 3:
            up.sandbox.run(["scontrol", "requeue", str(job)])
    row = up.until("a word about the loop", lambda: deaths.restarts(up, job), 60)[-1]
    print(row["why_state"])
    assert (row["state"], row["detail"]["loop"]) == ("skipped", True)
    assert (
        "three starts in a row died at step 40 with the same KeyError: it is the program" in row["why_state"]
    )
    time.sleep(5)
    assert up.state(job) in {"FAILED", "UNKNOWN"}
