"""A step on one node: the tests that need nothing run for real, each apart, and one that dies or hangs costs only itself."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from collections.abc import Sequence

import pytest

from probing_cluster.core import errors, records
from probing_cluster.diagnostics import machine, registry, wire, worker
from probing_cluster.healthchecks import findings

OPTIONS = machine.Options(size=64, repeats=1, bytes_moved=1 << 14, connect_s=1.0)


def step(*tests: str, command: str = "", test_s: float = 20.0) -> wire.WireStep:
    return wire.WireStep(
        round_id=uuid.UUID(int=1), token=wire.new_token(), tests=tests, addresses={"n1": ("127.0.0.1", 1)},
        options=OPTIONS, test_s=test_s, command=command, command_nodes=("n1",),
    )  # fmt: skip


def run(given: wire.WireStep, make: worker.MakeMachine = machine.Machine) -> list[wire.Reported]:
    lines: list[str] = []
    worker.run(given, "n1", make, lines.append)
    return wire.parse("\n".join(lines).encode(), ["n1"], (*given.tests, worker.REPAIR))


def test_what_needs_nothing_passes_on_this_machine() -> None:
    found = run(step("gemm", "memory", "disk", "intra", "loopback", "pair"))
    outcomes = {(r.test, r.device): r.outcome for r in found}
    assert outcomes[("gemm", "cpu")] is records.Outcome.OK
    assert outcomes[("gemm", "gpu")] is records.Outcome.ABSENT
    assert {t for (t, _), o in outcomes.items() if o is records.Outcome.OK} == {
        "gemm",
        "memory",
        "disk",
        "intra",
        "loopback",
    }


class Wrong(machine.Machine):
    def product(self, a: machine.Matrix, b: machine.Matrix) -> machine.Matrix:
        made = super().product(a, b)
        made[5][7] = float("nan")
        return made

    def copy(self, data: bytes) -> bytes:
        return data[:-1] + bytes([data[-1] ^ 1])


def test_wrong_arithmetic_and_memory_are_found() -> None:
    found = {r.test: r for r in run(step("gemm", "memory"), Wrong) if r.outcome is records.Outcome.FAIL}
    assert set(found) == {"gemm", "memory"}
    assert "NaN" in found["gemm"].message


def test_a_person_at_the_node_runs_tests_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each part; a failure is exit 2; what needs more than this node is refused by name, with the way."""
    assert worker.main(["--here", "disk,loopback"]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [
        ["ok", "disk"],
        ["ok", "loopback"],
    ]
    assert worker.main(["--here", "gemm"], Wrong) == 2
    assert capsys.readouterr().out.startswith("fail    gemm cpu")
    for names, words in (("ring", "probing-ctl diagnose NODES"), ("disc", "did you mean: disk")):
        assert worker.main(["--here", names]) == errors.UsageError.exit_code
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("deed", ["hangs", "dies", "raises"])
def test_a_test_that_goes_wrong_costs_only_itself(monkeypatch: pytest.MonkeyPatch, deed: str) -> None:
    def run_badly(_: machine.Machine) -> Sequence[findings.Finding]:
        if deed == "hangs":
            time.sleep(60)
        if deed == "dies":
            os._exit(7)
        raise ValueError("odd")

    bad = registry.Test(
        name="bad", proves="", needs="", fails="", next_step="", run=run_badly, deadline_s=0.5
    )
    known = dict(registry.load()) | {"bad": bad}
    monkeypatch.setattr(registry, "load", lambda: known)
    found = {r.test: r.outcome for r in run(step("bad", "disk"))}
    assert found == {"bad": records.Outcome.ERROR, "disk": records.Outcome.OK}


def test_a_repair_step_says_how_it_ended() -> None:
    (good,) = run(step(command="echo reset done"))[:1]
    assert (good.test, good.outcome, good.message) == (worker.REPAIR, records.Outcome.OK, "reset done")
    (bad,) = run(step(command="exit 3"))[:1]
    assert bad.outcome is records.Outcome.WARN


def test_a_reference_node_is_not_repaired() -> None:
    """A node that the broken one is held against takes part in the tests, not in the reset."""
    assert run(dataclasses.replace(step(command="echo reset done"), command_nodes=("n2",))) == []
