"""The hardware that tests of a sandbox's node touch: with the faults it has at that moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probing_cluster.diagnostics import machine
from probing_cluster.sandbox import diagnosed


@pytest.mark.parametrize("by", ["reset", "heal"])
def test_a_reset_cures_the_tests_that_follow_it_in_the_same_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """The repair step and the tests after it run in one process: a fault read at its beginning would outlive its cure."""
    home = tmp_path / "nodes" / "n1"
    home.mkdir(parents=True)
    (home / diagnosed.FILE).write_text(json.dumps({"wrong_product": 1.0, "cured_by": by}))
    here = diagnosed.SimulatedMachine(
        node="n1",
        home=home,
        options=machine.Options(),
        group=machine.Group(members=("n1",), addresses={}, token=b""),
    )
    one = [[1.0 if i == j else 0.0 for j in range(4)] for i in range(4)]
    wrong = here.product(one, one)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    assert diagnosed.main(["--reset", str(tmp_path)]) == 0
    assert (here.product(one, one) == wrong) is (by != "reset")
