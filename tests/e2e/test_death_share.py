"""How many of the jobs that hardware kills train again within a minute: deaths of every sort, drawn, in one run on real Slurm."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import deaths
import pytest

from probing_cluster.sandbox import cluster
from probing_cluster.sandbox.machine import scratch
from tests.e2e import conftest

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.cluster, pytest.mark.timeout(3600)]

COUNT = int(os.environ.get("PROBING_DEATHS", "20"))
SEED = int(os.environ.get("PROBING_SEED", "17"))
AT_ONCE = 3
"""Gangs at a time, each with three nodes of its own."""
NODES = 3 * AT_ONCE
LEAST_BACK = 0.95
NOTICED_S = 15
"""SlurmdTimeout: a job beside a crashed node keeps COMPLETING until Slurm gives that node up, and nobody can requeue it before."""


def drawn() -> list[str]:
    """As many of each sort, but for the rest, in a drawn order."""
    dice = random.Random(SEED)
    kinds = sorted(deaths.FAULTS)
    found = [kinds[n % len(kinds)] for n in range(COUNT)]
    dice.shuffle(found)
    return found


def die(up: Any, number: int, fault: str, nodes: Sequence[str]) -> tuple[str, float | None]:
    """One gang on two of three nodes of its own, a fault on one of them, its own end a second later: seconds until it trains elsewhere."""
    others = [n for n in up.sandbox.layout.node_names if n not in nodes]
    job, gate = deaths.train(
        up, f"death-{number}", exclude=",".join(others), gres="gpu:4", cpus_per_task=1, mem="200"
    )
    held = up.running(job)
    broken = held[-1]
    time.sleep(random.Random(f"{SEED}:{number}").uniform(0, 3))
    deaths.FAULTS[fault](up, broken)
    deaths.end(gate, fault)
    try:
        took_s: float | None = deaths.seconds_to_training(up, job)
        up.reported(job, lambda r: r["state"] == "COMPLETED", 60)
    except pytest.fail.Exception:
        took_s = None
        up.sandbox.run(["scancel", str(job)], check=False)
    print(
        f"death {number}: {fault} on {broken}: {'not back' if took_s is None else f'{took_s:g} s'}",
        flush=True,
    )
    if fault != "crash":
        # What its agent remembers of the fault would drain the node once more, under the next gang.
        up.sandbox.fault(broken, "heal")
        up.sandbox.run(["probing-ctl", "set-healthy", broken, "--note", "mended"], check=False)
    deaths.mend(up, broken)
    return fault, took_s


def test_nineteen_of_twenty_deaths_train_again_within_a_minute() -> None:
    """A lost GPU, a lost link, a memory error, a vanished mount, a crashed node; the share is printed, and asserted."""
    todo = list(enumerate(drawn()))
    took: list[tuple[str, float | None]] = []
    with scratch.directory("pcdeath-") as where, cluster.Sandbox.up(where / "s", nodes=NODES, gpus=4) as box:
        up = conftest.Cluster(box)
        config = box.layout.probing_toml
        text = conftest.Cluster.untested(config.read_text()).replace(
            f"budget_nodes = {NODES // 2}", f"budget_nodes = {NODES}"
        )
        config.write_text(text.replace("frac = 0.5", "frac = 1.0"))
        slurm = box.layout.slurm_conf
        slurm.write_text(
            re.sub(r"(?m)^SlurmdTimeout=.*$", f"SlurmdTimeout={NOTICED_S}", slurm.read_text(), count=1)
        )
        box.run(["scontrol", "reconfigure"])
        box.fault("-", "service-crash")
        box.fault("-", "service-start")
        for node in box.layout.node_names:
            up.alive(node)
        lanes = [box.layout.node_names[n::AT_ONCE] for n in range(AT_ONCE)]
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            work = [
                pool.submit(lambda mine, lane: [die(up, n, f, lane) for n, f in mine], todo[k::AT_ONCE], lane)
                for k, lane in enumerate(lanes)
            ]
            for done in work:
                took += done.result()
        up.close()
    back = [s for _, s in took if s is not None and s <= deaths.BACK_S]
    kinds = {f: sorted(s for g, s in took if g == f and s is not None) for f in sorted(deaths.FAULTS)}
    print(f"{len(back)} of {len(took)} back within {deaths.BACK_S:g} s; {kinds}")
    assert len(back) >= LEAST_BACK * len(took)
