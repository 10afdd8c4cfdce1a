"""Jobs that end by themselves on real Slurm: what they wrote is read; what the hardware killed comes back elsewhere, what the program killed does not."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deaths
import pytest

# One cluster (`calm`) serves those of logs, which touch no node, and then the first of restarts, which takes one.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NOBODY = 65534
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
BUG = "sleep 2; echo 'Traceback (most recent call last):'; echo \"KeyError: 'labels'\"; exit 1"


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in which that user works."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o777)
        yield Path(directory)


def submit(up: Any, home: Path, script: str, *options: str) -> int:
    """sbatch as that user; the job's number, of an array its master's."""
    path = home / "job.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    done = up.sandbox.run([*become, "sbatch", "--parsable", "-D", str(home), *options, str(path)])
    return int(re.split(r"[;\s]", done.stdout)[0])


def logs(up: Any, job: str) -> list[dict[str, Any]]:
    """What the report shows of the logs of the job's attempt, once judged."""

    def shown(report: dict[str, Any]) -> bool:
        return bool(report["attempts"][-1].get("logs") and report["attempts"][-1].get("verdict"))

    return list(up.reported(job, shown)["attempts"][-1]["logs"])


def test_an_arrays_task_with_a_file_for_its_errors(calm: Any, home: Path) -> None:
    """`arr-%A_%a` and `--error` are read like any other name: the same line gives the same verdict."""
    script = f"echo step 1; sleep 2; echo '{ECC}' >&2; exit 1"
    alone = submit(calm, home, script, "-o", "single.out")
    plain = submit(calm, home, script, "-a", "5", "-o", "arr-%A_%3a.out", "-e", "%u-%5j-%a.err")
    (single,) = logs(calm, str(alone))
    assert (single["path"], single["tail"]) == (str(home / "single.out"), ["step 1", ECC])
    out, err = logs(calm, f"{plain}_5")
    assert (out["stream"], out["path"], out["tail"]) == (
        "stdout",
        str(home / f"arr-{plain}_005.out"),
        ["step 1"],
    )
    assert (err["stream"], err["tail"]) == ("stderr", [ECC])
    assert Path(err["path"]).name == f"nobody-{plain:05d}-5.err"
    report = calm.sandbox.run(["probing-report", f"{plain}_5"]).stdout
    assert f"| {ECC}" in report

    def causes() -> set[str]:
        return {calm.report(str(j))["attempts"][-1]["verdict"]["cause"] for j in (alone, f"{plain}_5")}

    calm.until("the same verdict", lambda: len(causes()) == 1)


@pytest.mark.soak
def test_an_array_task_that_is_dead_at_once(calm: Any, home: Path) -> None:
    """No process of it was ever looked at, and this Slurm's Prolog is told nothing of arrays: accounting knows the number."""
    job = submit(calm, home, f"echo '{ECC}'; exit 1", "-a", "5", "-o", "at-once-%A_%a.out")

    def read() -> dict[str, Any] | None:
        return next((log for log in logs(calm, f"{job}_5") if log.get("tail")), None)

    log = calm.until("the log", read)
    assert (log["path"], log["tail"]) == (str(home / f"at-once-{job}_5.out"), [ECC])


def test_files_of_a_steps_tasks_are_read_on_their_own_nodes(calm: Any, home: Path) -> None:
    """`srun --output rank-%t`: each node reads those of its own tasks."""
    script = "srun -o rank-%t sh -c 'echo rank $SLURM_PROCID; sleep 4; echo ValueError: bad shape; exit 1'"
    job = submit(calm, home, script, "-N2", "-n2", "-o", "batch.out")
    calm.until("all logs", lambda: len(logs(calm, str(job))) >= 3)
    found = {Path(log["path"]).name: log for log in logs(calm, str(job))}
    assert {"rank-0", "rank-1"} <= found.keys()
    assert found["rank-0"]["node"] != found["rank-1"]["node"]
    assert found["rank-1"]["tail"][-2:] == ["rank 1", "ValueError: bad shape"]


@pytest.mark.soak
def test_a_file_that_nobody_can_read_says_why(calm: Any, home: Path) -> None:
    """Removed by the job itself: the report says so, and does not pretend that nothing was written."""
    job = submit(calm, home, "sleep 1; rm gone.out; exit 1", "-o", "gone.out")
    (log,) = logs(calm, str(job))
    assert (log["path"], log["why_not_read"]) == (str(home / "gone.out"), "there is no such file")


def test_what_the_hardware_killed_comes_back_and_a_bug_does_not(calm: Any) -> None:
    """Xid 79, the job's own exit a second later: back and training elsewhere, its dependent with it, its log kept; beside it bugs, --no-requeue and interactive jobs stay where they are."""
    bugs = [calm.sandbox.submit(BUG, job_name=f"bug-{n}") for n in range(3)]
    job, gate = deaths.train(calm, "llama")
    dependent = calm.sandbox.submit("sleep 1", dependency=f"afterok:{job}", job_name="eval")
    nodes = calm.running(job)
    stays, _ = deaths.train(
        calm,
        "stays",
        nodes=1,
        gres="gpu:0",
        mem="100",
        nodelist=nodes[1],
        no_requeue=True,
        open_mode="append",
    )
    calm.running(stays)
    deaths.FAULTS["xid"](calm, nodes[1])
    deaths.end(gate)
    deaths.end(calm.sandbox.layout.jobs / "stays.gate")
    took_s = deaths.seconds_to_training(calm, job)
    # The bound itself is the soak's, below: this runs beside other tests on machines of any speed.
    print(f"it took {took_s:g} s")
    report = calm.reported(job, lambda r: r["state"] == "COMPLETED", 60)
    assert nodes[1] not in report["attempts"][1]["nodes"]
    assert report["attempts"][0]["verdict"]["cause"] == "gpu_lost"
    (row,) = deaths.restarts(calm, job)
    assert (row["state"], row["node"]) == ("done", nodes[1])
    calm.sandbox.wait(dependent, {"COMPLETED"}, 180)
    kept = calm.sandbox.layout.jobs / f"slurm-{job}.out.start1"
    assert "CUDA error" in kept.read_text()
    (copy_request,) = calm.rows(
        "SELECT made_at FROM probing.node_request WHERE verb = 'keep_log' AND job_id = %s", job
    )
    assert copy_request["made_at"] > row["at"], "no copy is made before the restart is decided"
    text = calm.sandbox.run(["probing-report", str(job)]).stdout
    assert "job restarted after its end" in " ".join(text.split())
    assert f"kept as {kept}" in " ".join(text.split())
    for bug in bugs:
        assert calm.state(bug) in {"FAILED", "UNKNOWN"}
        assert deaths.restarts(calm, bug) == []
    assert calm.state(stays) in {"FAILED", "UNKNOWN"}
    assert all(r["state"] != "done" for r in deaths.restarts(calm, stays))


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
