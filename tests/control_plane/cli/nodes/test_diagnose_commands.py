"""Which nodes `probing-ctl diagnose` takes: of a job's or the suspects those that take a job, of those named all or none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probing_cluster.control_plane.cli import main
from probing_cluster.control_plane.cli.nodes import diagnose_commands
from probing_cluster.control_plane.policy import slurm_actions, view
from probing_cluster.core import errors
from probing_cluster.db import store as db_store

NODES = {
    "n1": view.Node(name="n1", states=frozenset({"IDLE"})),
    "n2": view.Node(name="n2", states=frozenset({"IDLE", "DRAIN"}), reason="probing: xid 79 gpu3"),
    "n3": view.Node(name="n3", states=frozenset({"DOWN", "NOT_RESPONDING"}), reason="Not responding"),
    "n4": view.Node(name="n4", states=frozenset({"MIXED"})),
}


def test_of_a_dead_job_s_nodes_the_drained_one_is_left_out_with_what_tests_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The node that the job died on is drained by then: the others are tested all the same."""
    assert diagnose_commands._those_free(["n1", "n2", "n3", "n4", "n9"], NODES) == ["n1", "n4"]
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].split()[0] for line in lines[:2]] == ["n2", "n3"]
    assert "probing-ctl repair release n2" in lines[0]
    assert "DOWN+NOT_RESPONDING" in lines[1]
    assert lines[2] == "left out: Slurm does not list n9"
    assert diagnose_commands._busy(["n1", "n4"], NODES) == [
        "jobs run on n4 now: the tests wait for their ends"
    ]
    assert diagnose_commands._busy(["n1"], NODES) == []


def test_where_none_is_left_it_says_so_and_named_ones_are_refused() -> None:
    with pytest.raises(errors.NotPermitted, match=r"none of n\[2-3\] takes a test now"):
        diagnose_commands._those_free(["n2", "n3"], NODES)
    with pytest.raises(errors.NotPermitted, match=r"n2 is drained by us.*; n3 takes no job"):
        diagnose_commands._require_free(["n1", "n2", "n3"], NODES)


def test_of_too_few_nodes_the_plan_says_what_they_cannot_show_and_whom_to_add() -> None:
    """Idle ones of a partition that all are in; four are enough, and a disk is compared with nobody's."""
    states = {"n1": "MIXED", "n2": "IDLE", "n3": "ALLOCATED", "n4": "IDLE", "n5": "IDLE", "n6": "IDLE"}
    nodes = {
        name: view.Node(
            name=name, states=frozenset({state}), partitions=("other",) if name == "n4" else ("gpu",)
        )
        for name, state in states.items()
    }
    assert diagnose_commands._too_few(["n1"], nodes, ["gemm", "pair"]) == [
        "one node alone has no link to test, and fewer than 4 nodes are not compared by speed; to add idle ones: --reference 'n[2,5-6]'"
    ]
    assert diagnose_commands._too_few(["n1", "n2", "n5"], nodes, ["pair"]) == [
        "fewer than 4 nodes are not compared by speed; to add idle ones: --reference 'n6'"
    ]
    assert diagnose_commands._too_few(["n1", "n2", "n5", "n6"], nodes, ["pair"]) == []
    assert diagnose_commands._too_few(["n1"], nodes, ["disk"]) == []
    assert diagnose_commands._too_few(["n4"], nodes, ["gemm"])[0].endswith("are not compared by speed")


def test_a_plan_as_json_is_json(
    store: db_store.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What would be tested where, and the plan's lines; on standard output, where a script reads."""
    monkeypatch.setattr(slurm_actions.SlurmActions, "nodes", lambda _: list(NODES.values()))
    config = tmp_path / "probing.toml"
    config.write_text(f'[cluster]\nname = "c"\n[database]\nurl = "{store.connection_uri()}"\n')
    words = ["diagnose", "n1", "--tests", "gemm", "--dry-run", "--json", "--config", str(config)]
    assert main.main(words) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["nodes"], made["references"], made["tests"]) == (["n1"], [], ["gemm"])
    assert made["plan"][0].startswith("plan: gemm on n1 (1 node)")
