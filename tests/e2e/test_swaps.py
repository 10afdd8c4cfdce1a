"""Swap search on real Slurm: a training that became slow, and the node that is found by replacing some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from probing_cluster.sandbox import gangs as cases

pytestmark = [pytest.mark.soak, pytest.mark.cluster, pytest.mark.torch, pytest.mark.timeout(1800)]

STEPS = 150
"""So many steps of a stretch are waited for before its step time is asked for."""


class Training:
    """One run that is submitted again and again, on other nodes; one of the cluster's nodes is slow."""

    def __init__(self, up: Any, slow_node: str, run: str) -> None:
        self.up, self.slow_node, self.run = up, slow_node, run

    def ask(self, nodes: set[str], *options: str) -> tuple[dict[str, Any], str]:
        """A stretch on these nodes, and the search's answer after it, as JSON and in words."""
        up = self.up
        directory = cases.new_directory(up.sandbox, self.run)
        job = cases.submit(
            up.sandbox, "slow", directory=directory, variables={"SLOW_NODE": self.slow_node}, nodes=len(nodes),
            ntasks=2 * len(nodes), nodelist=",".join(sorted(nodes)), probing_run=self.run,
        )  # fmt: skip
        up.running(job)
        lines = directory / "steps.0"
        up.until(
            f"{STEPS} steps", lambda: lines.exists() and len(lines.read_text().splitlines()) >= STEPS, 180
        )
        argv = ["probing-ctl", "swap-search", str(job), "--spares", "1", *options]
        up.until("its step time", lambda: up.sandbox.run([*argv, "--json"], check=False).returncode == 0, 60)
        plain = json.loads(up.sandbox.run([*argv, "--json"]).stdout)
        words = up.sandbox.run(argv).stdout
        up.sandbox.run(["scancel", str(job)])
        up.sandbox.wait(job, {"CANCELLED", "UNKNOWN"}, 60)
        print(f"{','.join(sorted(nodes))}: {words}")
        return plain, words


def test_the_slow_node_of_a_gang_is_found_by_replacing_one_at_a_time(gangs: Any) -> None:
    """Three nodes train, a fourth is spare; one of the three takes twice as long. Each replacement is one that the search asked for."""
    names = gangs.sandbox.layout.node_names
    slow = names[1]
    good, _ = Training(gangs, "none", "before").ask({*names[:3]}, "--good", "0.01", "--slow", "0.02")
    good_s = good["stretches"][-1]["step_s"]
    training, nodes = Training(gangs, slow, "swapped"), {*names[:3]}
    for _ in range(6):
        plain, words = training.ask(nodes, "--good", f"{good_s:.4f}")
        if f"it is {slow} (" in words:
            break
        assert "it is " not in words, words
        gone = set(plain["replace"])
        back = set(plain["put_back"])
        assert gone or back, words
        nodes = nodes - gone | set(names) - nodes if gone else (nodes - {min(nodes - back)}) | back
    assert f"it is {slow} (" in words
    assert plain["probabilities"][slow] >= 0.95
