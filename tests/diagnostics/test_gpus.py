"""The torch path, for real on a CPU: gemm, memory and the all-reduce by Gloo; what GPUs alone have is absent, and said so."""

from __future__ import annotations

import dataclasses
import socket
import sys
import threading
from pathlib import Path

import pytest

from probing_cluster.core import records
from probing_cluster.diagnostics import exact, gpus, machine
from probing_cluster.diagnostics.procedures import gemm, memory, pcie, torch_allreduce
from probing_cluster.healthchecks import findings

pytestmark = pytest.mark.torch
OPTIONS = machine.Options(
    size=64, torch_cpu_size=256, repeats=2, bytes_moved=1 << 16, torch_python=sys.executable, connect_s=20.0
)


@pytest.fixture(autouse=True, scope="module")
def _without_gpus() -> None:
    """Nobody loads torch here to learn it: that takes seconds."""
    if list(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("a machine with GPUs takes the other path")


def node(name: str = "n1", group: machine.Group | None = None, **options: float) -> machine.Machine:
    return machine.Machine(node=name, options=dataclasses.replace(OPTIONS, **options), group=group)


def test_torch_multiplies_on_the_cpu_and_every_element_is_right() -> None:
    found = {f.device: f for f in gemm.run(node())}
    assert found["torch-cpu"].outcome is records.Outcome.OK
    assert found["torch-cpu"].measured > 0
    assert "torch" in found["torch-cpu"].detail["engine"]


def test_a_product_that_differs_from_its_checksum_fails_and_is_counted() -> None:
    """What torch computed is held against the checksum, not against itself: one wrong of the period's sums shows."""
    a, b = exact.factors(1)
    expected = exact.checksums(a, b, exact.PERIOD)
    expected[5] += 1
    version, parts = gpus.ask(
        node(), "gemm", 60.0, sizes={"cpu": 128, "cuda": 128}, a=a, b=b, expected=expected
    )
    (found,) = gpus.judged(parts, version, lambda part: (part["best_s"], "s", ""))
    assert found.outcome is records.Outcome.FAIL
    assert found.message == f"{2 * 128 * 128 // exact.PERIOD} wrong results"


@pytest.mark.soak
def test_memory_passes_and_what_needs_a_gpu_is_absent() -> None:
    found = {f.device: f for f in memory.run(node())}
    assert (found["torch-cpu"].outcome, found["torch-cpu"].unit) == (records.Outcome.OK, "bytes_s")
    with pytest.raises(findings.Absent, match="torch sees no GPU"):
        pcie.run(node())


def together(n: int, absent: int = 0, connect_s: float = 20.0) -> dict[str, findings.Finding]:
    names = tuple(f"n{i}" for i in range(n))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    group = machine.Group(
        members=names,
        addresses=dict.fromkeys(names, ("127.0.0.1", port)),
        token=b"t" * 32,
    )
    found: dict[str, findings.Finding] = {}

    def one(name: str) -> None:
        try:
            found[name] = torch_allreduce.run(node(name, group, connect_s=connect_s))[0]
        except findings.Undetermined as exc:
            found[name] = findings.unseen(str(exc))

    threads = [threading.Thread(target=one, args=(name,)) for name in names[: n - absent]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return found


def test_gloo_adds_up_right_between_ranks() -> None:
    found = together(2)
    assert {f.outcome for f in found.values()} == {records.Outcome.OK}, found
    assert len(found) == 2
    assert all("gloo, 2 nodes" in f.message for f in found.values())


@pytest.mark.soak
def test_a_rank_that_does_not_come_fails_the_others_in_time() -> None:
    found = together(3, absent=1, connect_s=4.0)
    assert len(found) == 2
    assert found["n0"].outcome is records.Outcome.FAIL, found
    # torch itself aborts a rank whose first one is gone: that is no answer, and no pass.
    assert found["n1"].outcome in {records.Outcome.FAIL, records.Outcome.ERROR}, found


def test_no_answer_from_torch_is_no_verdict() -> None:
    broken = dataclasses.replace(OPTIONS, torch_python="/bin/false")
    with pytest.raises(findings.Undetermined, match="ended with 1"):
        gpus.ask(machine.Machine(node="n1", options=broken), "gemm", 10.0)
    with pytest.raises(findings.Absent, match="names no Python with torch"):
        gpus.ask(machine.Machine(node="n1"), "gemm", 1.0)
