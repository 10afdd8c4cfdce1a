"""A machine that stands still for minutes: no program's own bug is laid at a node for it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bugs
import pytest

from probing_cluster.sandbox.machine import processes

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("PROBING_FROZEN_BUGS", "120"))
FREEZES = int(os.environ.get("PROBING_FREEZES", "3"))
FREEZE_S = float(os.environ.get("PROBING_FREEZE_S", "150"))
"""Longer than SlurmdTimeout, than two beats of an agent and than the service's patience."""
MOST_BLAMED = 0.005


@contextlib.contextmanager
def frozen(directory: Path) -> Iterator[int]:
    """Every process of the sandbox stands still: Slurm, its accounting, the database, service, agents and jobs; how many."""
    stopped: set[int] = set()
    try:
        # Again until nothing is new: what is not stopped yet may start another.
        while fresh := {p.pid for p in processes.listing(directory)} - stopped:
            for pid in fresh:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= fresh
        yield len(stopped)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def resume_slurms_own(up: Any) -> None:
    """What an operator does afterwards: Slurm takes nodes out by itself whose steps or Epilog stood still for too long."""
    for node in up.sandbox.layout.node_names:
        state, reason = up.node_state(node)
        if "DRAIN" in state and reason in ("Kill task failed", "Epilog error"):
            up.sandbox.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)


def test_a_frozen_machine_is_not_blamed_for_programs_bugs(gangs: Any, tmp_path: Path) -> None:
    """Jobs begin, run and fail across every freeze; at most one in two hundred is laid at hardware or a node."""
    up = gangs
    each = COUNT // FREEZES
    made = list(bugs.programs(COUNT))
    submitted: list[int] = []
    held = 0
    for number in range(FREEZES):
        for n, (name, text) in enumerate(made[number * each : (number + 1) * each]):
            program = tmp_path / f"{name}-{number}.py"
            # A third dies before the freeze or in it, a third sleeps across its end, a third waits in the queue.
            program.write_text(f"import time; time.sleep({n % 3 * 8})\n{text}\n")
            submitted.append(
                up.sandbox.submit(
                    f"exec {sys.executable} {program}",
                    job_name=name,
                    nodes=1,
                    cpus_per_task=1,
                    mem="200",
                )
            )
        up.until("a job that runs", lambda: up.sandbox.run(["squeue", "-ht", "RUNNING"]).stdout.strip())
        with frozen(up.sandbox.directory) as n_processes:
            held += n_processes
            time.sleep(FREEZE_S)
    ended = "SELECT count(DISTINCT job_id) AS n FROM probing.job_attempt WHERE job_id = ANY(%s) AND end_at IS NOT NULL"

    def all_ended() -> bool:
        resume_slurms_own(up)
        return bool(up.rows(ended, submitted)[0]["n"] >= len(submitted))

    up.until("their ends", all_ended, 300)
    judged = "SELECT count(DISTINCT job_id) AS n FROM probing.verdict WHERE job_id = ANY(%s)"
    up.until("their verdicts", lambda: up.rows(judged, submitted)[0]["n"] >= len(submitted), 300)
    found = up.rows(
        "SELECT a.job_id, a.state, a.exit_code, a.name, v.cause, v.domain, v.node, v.confidence, v.summary FROM probing.verdict v"
        " JOIN probing.job_attempt a USING (cluster, job_id, submit_at) WHERE v.superseded_at IS NULL AND job_id = ANY(%s)",
        submitted,
    )
    # Slurm itself ends some of them, or starts them anew, for nodes that it did not hear: that is no fault of hardware either.
    own = [r for r in found if r["state"] in ("FAILED", "OUT_OF_MEMORY")]
    others = [r for r in found if r not in own]
    blamed = [r for r in own if r["domain"] in ("hardware", "system_software")]
    broken = [r for r in others if r["domain"] == "hardware"]
    ends = Counter(f"{r['state']} {r['cause']} ({r['domain']}, {r['confidence']})" for r in others)
    print(
        f"{FREEZES} freezes of {FREEZE_S:g} s, {held} processes: of {len(found)} ends {len(own)} by the program's own bug,"
        f" {len(blamed)} of them blamed on a machine; others: {dict(ends)}; {[*blamed, *broken]}"
    )
    assert len(own) >= 0.5 * len(submitted)
    assert len(blamed) <= MOST_BLAMED * len(own)
    assert len(broken) <= MOST_BLAMED * len(found)
    drained = up.rows(
        "SELECT node, reason, state FROM probing.drain WHERE action = 'drain' AND state = 'done'"
    )
    assert drained == []
