"""Real PyTorch gangs under real Slurm that stop, or only seem to: who is at fault is named while they still run.

One sandbox for all cases, two jobs at a time; 4 nodes x 2 ranks on gloo. The culprit is rank 5, on the third node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.sandbox import hanging_mount

pytest.importorskip("torch", reason="needs the test extra torch (make test TORCH=1)")
pytestmark = [pytest.mark.cluster, pytest.mark.torch, pytest.mark.timeout(900)]

JOB = Path(__file__).with_name("gang_job.py")
PATIENCE_S = 180.0
CHECKPOINTS = "/probing-checkpoints"
"""On the third node; not among its mounts, so that only the ranks notice that it hangs."""

HANGS = {
    "python_loop": ("python_loop", "user_program", "in endless"),
    "gil_held": ("gil_held", "user_program", "go_wrong"),
    "rank_stopped": ("rank_stopped", "system_software", "go_wrong"),
    "other_collective": ("collective_mismatch", "user_program", "go_wrong"),
    "dataloader": ("dataloader", "user_program", "<module>"),
    "uneven_input": ("uneven_input", "user_program", "<module>"),
    "deadlock": ("deadlock", "user_program", "go_wrong"),
    "checkpoint_io": ("checkpoint_io", "system_software", "save"),
}
"""Case to kind, domain and the function it hangs in."""
ENDS = {
    "rank_dead": ("rank_killed", "unknown"),
    "other_shape": ("collective_mismatch", "user_program"),
    "node_lost": ("node_lost", "hardware"),
}
"""Cases that gloo or Slurm ends before they hang, to cause and domain of the verdict."""
HEALTHY = ("checkpoint_long", "compile_long")

Done = dict[str, Any]


def submit(up: Any, case: str, *more: str, steps: int = 5000) -> int:
    """A user's unchanged `sbatch` script with its `srun`."""
    directory = up.sandbox.layout.jobs / case
    directory.mkdir()
    words = " ".join([sys.executable, str(JOB), case, str(directory), *more])
    script = f"export OMP_NUM_THREADS=1 STEPS={steps}\nsrun --kill-on-bad-exit=1 {words}"
    options = {"nodes": 4, "ntasks": 8, "ntasks_per_node": 2, "cpus_per_task": 1, "job_name": case}
    return int(up.sandbox.submit(script, requeue=False, **options))


def gang_verdicts(up: Any, job: int) -> list[dict[str, Any]]:
    """What the service says of the job's gang."""
    return list(up.rows("SELECT * FROM probing.gang_verdict WHERE job_id = %s ORDER BY made_at", job))


def told(up: Any, job: int, kind: str) -> list[dict[str, Any]]:
    """Events of the job's ranks."""
    wanted = "SELECT * FROM probing.health_event WHERE job_id = %s AND kind = %s ORDER BY at"
    return list(up.rows(wanted, job, kind))


def hang(up: Any, case: str) -> Done:
    """Until its kind is named; what a person is told meanwhile."""
    third = up.sandbox.layout.node_names[2]
    if case == "checkpoint_io":
        hanging_mount.start(up.sandbox.layout, up.sandbox.env, third, CHECKPOINTS)
    where = up.sandbox.layout.node(third) / "root" / CHECKPOINTS.lstrip("/")
    job = submit(up, case, *([str(where)] if case == "checkpoint_io" else []))

    def named() -> dict[str, Any] | None:
        return next((v for v in gang_verdicts(up, job) if v["kind"] == HANGS[case][0]), None)

    found = up.until(f"{HANGS[case][0]} of job {job}", named, PATIENCE_S)
    report = up.report(job)
    if case == "checkpoint_io":
        hanging_mount.stop(up.sandbox.layout, third)
    if case == "python_loop":  # gloo's own timeout ends it
        report = up.reported(job, judged, PATIENCE_S)
    else:
        up.sandbox.run(["scancel", str(job)])
    return {"job": job, "nodes": up.sandbox.layout.node_names, "found": found, "report": report}


def judged(report: dict[str, Any]) -> bool:
    """Its last attempt has ended and is explained."""
    last = report["attempts"][-1]
    return bool(last["end_at"] and (last["verdict"] or last["state"] == "COMPLETED"))


def end(up: Any, case: str) -> Done:
    """Until the failure is explained."""
    job = submit(up, case)
    if case == "node_lost":
        up.until("steps", lambda: told(up, job, "first_step"), PATIENCE_S)
        up.sandbox.fault(up.sandbox.layout.node_names[2], "node-crash")

    def right(report: dict[str, Any]) -> bool:
        last = report["attempts"][-1]
        explained = judged(report) and last["verdict"]["cause"] == ENDS[case][0]
        return explained and (case == "node_lost" or "rank 5" in last["verdict"]["summary"])

    report = up.reported(job, right, PATIENCE_S)
    if case == "node_lost":
        up.sandbox.fault(up.sandbox.layout.node_names[2], "node-start")
    return {"job": job, "nodes": up.sandbox.layout.node_names, "report": report}


def complete(up: Any, case: str) -> Done:
    """Until it has ended and its time is accounted as measured."""
    job = submit(up, case, steps=40)
    report = up.reported(job, lambda r: judged(r) and r["ettr"] and r["ettr"]["assumed"] is False, PATIENCE_S)
    return {"job": job, "report": report, "verdicts": gang_verdicts(up, job)}


def slow(up: Any, case: str) -> Done:
    """Until some rank is called slow, and a little longer."""
    job = submit(up, case)
    up.until("a slow rank", lambda: told(up, job, "rank_slow"), PATIENCE_S)
    up.sandbox.run(["scancel", str(job)])
    return {"job": job, "nodes": up.sandbox.layout.node_names, "slow": told(up, job, "rank_slow")}


Start = Callable[[Any, str], Done]


@pytest.fixture(scope="module")
def outcome(gangs: Any) -> Iterator[Callable[[str], Done]]:
    """What came of a case; all of them are started at once and run two at a time, the lost node and the slow rank alone."""
    together: dict[str, Start] = {
        **dict.fromkeys(HANGS, hang),
        "rank_dead": end,
        "other_shape": end,
        **dict.fromkeys(HEALTHY, complete),
    }
    with futures.ThreadPoolExecutor(2) as pool, futures.ThreadPoolExecutor(1) as alone:
        started = {case: pool.submit(work, gangs, case) for case, work in together.items()}

        def after(work: Start, case: str) -> Done:
            futures.wait(list(started.values()))
            return work(gangs, case)

        last = {
            case: alone.submit(after, work, case) for case, work in {"slow": slow, "node_lost": end}.items()
        }
        yield lambda case: (started | last)[case].result()


@pytest.mark.parametrize("case", HANGS)
def test_a_hang_is_named_while_it_lasts(outcome: Callable[[str], Done], case: str) -> None:
    """Right kind, rank, node, domain and line; and the report of the running job says so."""
    kind, domain, function = HANGS[case]
    done = outcome(case)
    found = done["found"]
    ranks = [4, 5] if case == "deadlock" else [5]
    assert (found["ranks"], found["nodes"], found["domain"]) == (ranks, [done["nodes"][2]], domain)
    assert function.removeprefix("in ") in found["location"]
    assert "gang_job.py" in found["location"]
    assert found["confidence"] != "certain"
    said = done["report"]["attempts"][-1]["gangs"]
    assert [(g["kind"], g["ranks"]) for g in said] == [(kind, ranks)]


def test_the_verdict_of_a_hang_that_a_watchdog_ended(outcome: Callable[[str], Done]) -> None:
    """The same rank's node, from the snapshots taken while it hung; begun when the gang last got on; time measured."""
    done = outcome("python_loop")
    verdict = done["report"]["attempts"][-1]["verdict"]
    assert (verdict["cause"], verdict["domain"]) == ("missing_rank", "user_program")
    assert f"rank 5 on {done['nodes'][2]}" in verdict["summary"]
    assert done["report"]["ettr"]["assumed"] is False


@pytest.mark.parametrize("case", ENDS)
def test_a_gang_that_is_ended_is_explained(outcome: Callable[[str], Done], case: str) -> None:
    """Killed rank, other shape, lost node: right cause, domain and node."""
    cause, domain = ENDS[case]
    done = outcome(case)
    verdict = done["report"]["attempts"][-1]["verdict"]
    # A node is at fault only where the program is not.
    node = None if domain == "user_program" else done["nodes"][2]
    assert (verdict["cause"], verdict["domain"], verdict["node"]) == (cause, domain, node)
    if case != "node_lost":
        assert f"rank 5 on {done['nodes'][2]}" in verdict["summary"]


@pytest.mark.parametrize("case", HEALTHY)
def test_what_takes_long_is_no_hang(outcome: Callable[[str], Done], case: str) -> None:
    """A checkpoint and a compilation of several bounds: nobody is named, the job completes, its time is measured."""
    done = outcome(case)
    assert done["verdicts"] == []
    assert done["report"]["state"] == "COMPLETED"
    assert done["report"]["ettr"]["assumed"] is False


def test_a_slow_rank_is_named_and_nobody_else(outcome: Callable[[str], Done]) -> None:
    """1.2 times slower at 2 % noise."""
    done = outcome("slow")
    assert {(e["detail"]["rank"], e["node"]) for e in done["slow"]} == {(5, done["nodes"][2])}
