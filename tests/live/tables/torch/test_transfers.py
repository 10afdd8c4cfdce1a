"""Bandwidth is told where a time is that of the transfer, and only there."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.live.table import Scan
from probing_cluster.live.tables.python import own, tables
from probing_cluster.live.tables.torch import modules, transfers
from probing_cluster.probe_agent import bandwidth
from probing_cluster.probe_agent.ranks import pages

TIMED = """
import sys, time
from _probing_probe import page
from _probing_probe.tables import table
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=2, backend="cpu:gloo,cuda:nccl")
if rank == 0:
    transfers = table(
        "torch_transfers", group=str, role=str, seq=int, op=str, group_size=int, bytes=int, dtype=str, begin_ns=int, transfer_s=float
    )
    transfers.append("1", "dp", 7, "all_reduce", 8, 8_000_000, "Float", 10**18, 0.001)
    transfers.append("1", None, 8, "gather", 8, 8_000_000, "Float", 10**18, 0.001)
    transfers.append("1", None, 9, "all_reduce", 1, None, None, None, 0.0)
    spans = table("torch_modules", step=int, phase=str, module=str, kind=str, depth=int, since_s=float, duration_s=float)
    spans.append(5, "forward", "layers.3", "Block", 1, 0.25, 0.5)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


def test_under_nccl_it_is_what_the_gpu_timed(empty_job: Any) -> None:
    """Bytes times the factor of the operation and the group's size; nothing where that is not defined; who is not traced is named."""
    empty_job.start(2, code=TIMED)
    view = empty_job.view()
    found = list(transfers.rows(view, Scan(table="torch.transfers")))
    names = {c.name for c in transfers.TABLE.columns}
    assert all(set(row) == names for row in found)
    assert [(r["rank"], r["seq"], r["timed_by"], r["group_role"]) for r in found] == [
        (0, 7, "gpu", "dp"), (0, 8, "gpu", None), (0, 9, "gpu", None),
    ]  # fmt: skip
    assert [r["bus_bytes_per_s"] for r in found] == [pytest.approx(8_000_000 * 2 * 7 / 8 / 0.001), None, None]
    assert [(rank, "PROBING_TRACE" in why) for rank, why in view.missing] == [(1, True)]
    spans = list(modules.rows(empty_job.view(), Scan(table="torch.modules")))
    assert [(s["rank"], s["module"], s["duration_s"]) for s in spans] == [(0, "layers.3", 0.5)]
    # They are the probe's own, not the program's.
    assert list(tables.rows(empty_job.view(), Scan(table="python.tables"))) == []
    listed = own.resolve(empty_job.view(), "*", Scan(table="python.*"))
    assert listed is not None
    assert listed.values == ([],)


def test_under_gloo_it_is_the_call_that_waits(job: Any) -> None:
    """The same columns, from the page."""
    found = [r for r in transfers.rows(job.view(), Scan(table="torch.transfers")) if r["rank"] == 0]
    assert {r["timed_by"] for r in found} == {"call"}
    assert {r["op"] for r in found} == {"all_reduce"}
    assert set(found[0]) == {c.name for c in transfers.TABLE.columns}
    assert found[0]["bus_bytes_per_s"] == pytest.approx(1024 * 4 * 2 * 3 / 4 / found[0]["transfer_s"])


@pytest.mark.parametrize(
    ("backend", "has"), [("gloo", False), ("mpi", False), ("nccl", True), ("cpu:gloo,cuda:nc", True)]
)
def test_a_backend_of_two_is_not_taken_for_gloo(backend: str, has: bool) -> None:
    """Else a queued NCCL call would have the bandwidth of its queueing."""
    assert bandwidth.has_gpu(backend) is has


@pytest.mark.parametrize(
    ("op", "size", "wanted"),
    [("all_reduce", 8, 1.75), ("_all_gather_base", 8, 0.875), ("reduce_scatter_tensor", 2, 0.5), ("broadcast", 4, 1.0), ("send 0->1", 4, None), ("all_reduce", 1, None)],
)  # fmt: skip
def test_factors_are_those_of_nccl_tests(op: str, size: int, wanted: float | None) -> None:
    assert bandwidth.factor(op, size) == wanted


@pytest.mark.parametrize(
    ("op", "bus"),
    [("all_gather_into_tensor", 0.75), ("all_gather", 0.75), ("reduce_scatter_tensor", 3.0), ("reduce_scatter", 3.0),
     ("all_to_all_single", 0.75), ("all_reduce", 1.5), ("reduce", 1.0), ("scatter", None)],
)  # fmt: skip
def test_bandwidth_of_a_call_by_its_name_on_the_page(op: str, bus: float | None) -> None:
    """Sixteen characters of it. Four ranks, 1,000 bytes in a second; of a reduce_scatter the tensor is one rank's part."""
    call = pages.Collective(
        seq=1, group="0", group_size=4, op=op[:16], numel=250, dtype_code=bandwidth.code_of("float32"),
        enter_ns=0, leave_ns=10**9, is_async=False, is_p2p=False, raised=False,
    )  # fmt: skip
    assert bandwidth.of_call(call, "gloo") == (None if bus is None else pytest.approx(1000 * bus))
