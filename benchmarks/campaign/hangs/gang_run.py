"""Runs one gang from its submission to what is said of it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from benchmarks.campaign.hangs import noise
from benchmarks.campaign.hangs.outcome import HEALTHY_HOUR, NOTHING, Outcome
from probing_cluster.db.server import embedded
from probing_cluster.sandbox import cluster, gangs
from probing_cluster.sandbox.machine import commands

LONGEST_S = 240.0
ENDS_LONGEST_S = 480.0
"""Slurm gives a lost node up, and a job that ends its last tasks, only after timeouts of its own; a busy machine takes longer."""
LATE_S = 12.0
"""How long late evidence is waited for: a verdict is made again, another rank may be called slow."""
STEPS = 1_000_000
"""More than any gang will make."""
SHORT = 40
_ENDED = {"CANCELLED", "FAILED", "NODE_FAIL", "COMPLETED", "UNKNOWN"}
_SQL = {
    "first_step": "SELECT 1 FROM probing.health_event WHERE job_id = %s AND kind = 'first_step'",
    "gangs": "SELECT * FROM probing.gang_verdict WHERE job_id = %s ORDER BY made_at",
    "ended": "SELECT 1 FROM probing.job_attempt WHERE job_id = %s AND end_at IS NOT NULL",
    "verdict": "SELECT * FROM probing.verdict WHERE job_id = %s AND superseded_at IS NULL ORDER BY submit_at",
    "slow": "SELECT node, (detail->>'rank')::int AS rank FROM probing.health_event WHERE job_id = %s AND kind = 'rank_slow'",
    "told": "SELECT kind FROM probing.health_event WHERE job_id = %s AND kind = ANY(ARRAY['rank_stall', 'rank_dead', 'rank_slow', 'gang_drift'])",
}


def run(sandbox: cluster.Sandbox, case: str) -> Outcome:
    """One gang of a case."""
    third = gangs.third_node(sandbox)
    if case == "checkpoint_io":
        sandbox.fault(third, "directory-hang", path=gangs.CHECKPOINTS)
    directory = gangs.new_directory(sandbox, case)
    job = gangs.submit(sandbox, case, steps=SHORT if case in gangs.HEALTHY else STEPS, directory=directory)
    try:
        found = _slow(sandbox, job) if case == gangs.SLOW else _watch(sandbox, case, job, directory)
    finally:
        if case == "checkpoint_io":
            sandbox.fault(third, "directory-free")
        sandbox.run(["scancel", str(job)], check=False)
        if case != "node_lost":
            sandbox.wait(job, _ENDED, 60)
        if case == "node_lost" or case in gangs.BROKEN:
            gangs.mend(sandbox, case)
        sandbox.wait(job, _ENDED, 60)
    if not list(directory.glob("steps.*")):
        msg = f"{case}: job {job} never began to train"
        raise commands.CommandFailed(msg)
    until = None if case == gangs.SLOW else gangs.FAILS_AT
    return _dated(found, directory, noise.measure(directory, gangs.culprits(case), until))


def healthy(sandbox: cluster.Sandbox, minutes: float, stop: Callable[[], bool]) -> Outcome:
    """Runs a healthy gang for `minutes`, or until `stop`, and counts everything that is reported of it meanwhile."""
    directory = gangs.new_directory(sandbox, HEALTHY_HOUR)
    job = gangs.submit(sandbox, HEALTHY_HOUR, steps=STEPS, directory=directory)
    began_s: float | None = None
    try:
        while not stop():
            time.sleep(1.0)
            if began_s is None and _rows(sandbox, "first_step", job):
                began_s = time.monotonic()
            if began_s is not None and time.monotonic() - began_s > 60 * minutes:
                break
            if _rows(sandbox, "ended", job):
                break
        watched_s = 0.0 if began_s is None else time.monotonic() - began_s
        counts = Counter(str(r["kind"]) for r in _rows(sandbox, "told", job))
        named = [v for v in _rows(sandbox, "gangs", job) if v["kind"] != "unknown"]
        counts += Counter(f"verdict {v['kind']}" for v in named)
        counts += Counter(["ended"] * bool(_rows(sandbox, "ended", job)))
    finally:
        sandbox.run(["scancel", str(job)], check=False)
        sandbox.wait(job, _ENDED, 60)
    found = Outcome(
        case=HEALTHY_HOUR, named=named[0]["kind"] if named else NOTHING,
        minutes=round(watched_s / 60, 2), false=dict(counts),
    )  # fmt: skip
    return _dated(found, directory, noise.measure(directory, ()))


def _dated(found: Outcome, directory: Path, measured: dict[str, float]) -> Outcome:
    for path in directory.glob("steps.*"):
        path.unlink()
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return replace(found, at=now, load=round(os.getloadavg()[0], 1), noise=measured)


def _watch(sandbox: cluster.Sandbox, case: str, job: int, directory: Path) -> Outcome:
    crashed = struck = False
    deadline = time.monotonic() + (ENDS_LONGEST_S if case in gangs.ENDS else LONGEST_S)
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if case == "node_lost" and not crashed and _rows(sandbox, "first_step", job):
            sandbox.fault(gangs.third_node(sandbox), "node-crash")
            crashed = True
        if case in gangs.BROKEN and not struck and gangs.hangs(directory):
            gangs.strike(sandbox, case)
            struck = True
        named = [v for v in _rows(sandbox, "gangs", job) if v["kind"] != "unknown"]
        if named and case not in gangs.ENDS:
            v = named[0]
            after_s = (v["made_at"] - v["onset_at"]).total_seconds()
            return Outcome(
                case=case, named=v["kind"], ranks=tuple(v["ranks"]), node=",".join(v["nodes"]),
                domain=v["domain"], after_s=after_s,
            )  # fmt: skip
        if not _rows(sandbox, "ended", job):
            continue
        if case in gangs.HEALTHY:
            return Outcome(case=case, named=NOTHING)
        time.sleep(LATE_S)
        for verdict in _rows(sandbox, "verdict", job):
            return Outcome(case=case, named=verdict["cause"], node=verdict["node"], domain=verdict["domain"])
    return Outcome(case=case, named=NOTHING)


def _slow(sandbox: cluster.Sandbox, job: int) -> Outcome:
    deadline = time.monotonic() + LONGEST_S
    while not _rows(sandbox, "slow", job):
        if time.monotonic() > deadline:
            return Outcome(case=gangs.SLOW, named=NOTHING)
        time.sleep(0.5)
    time.sleep(LATE_S)
    slow_ranks = {(r["rank"], r["node"]) for r in _rows(sandbox, "slow", job)}
    nodes = ",".join(sorted({n for _, n in slow_ranks}))
    return Outcome(
        case=gangs.SLOW, named=gangs.SLOW, ranks=tuple(sorted(r for r, _ in slow_ranks)), node=nodes
    )


def _rows(sandbox: cluster.Sandbox, what: str, job: int) -> list[dict[str, Any]]:
    with psycopg.connect(embedded.url(sandbox.layout.postgres), row_factory=dict_row) as connection:
        return connection.execute(_SQL[what], (job,)).fetchall()
