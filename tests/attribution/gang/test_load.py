"""GPUs and adapters of a stalled gang's nodes: proof of waiting, and a node that alone moves nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from probing_cluster.attribution.gang import load, snapshots

SPINS = {"uuid": "GPU-1", "utilization_frac": 1.0, "power_w": 118.0, "power_limit_w": 700.0}
IDLE, BUSY = 2_000, 40_000_000_000


def snapshot(make: Any, node: str, moved: Any, *, gpus: Any = (SPINS,), inside: bool = True) -> Any:
    """A node's snapshot whose two ranks are inside the same collective; its adapters moved that many bytes a second."""
    first = 2 * (int(node[1:]) - 1)
    call = {"group": "0", "seq": 8, "op": "all_reduce", "numel": 4, "group_size": 6, "left": False}
    waits = [{"function": "item", "file": "/home/alice/train.py", "line": 9}]
    ranks = [
        {"rank": r, "pid": 100 + r, "alive": True, "phase": "training", "steps": 8, "step_id": 0, "stalled": True}
        | ({"calls": [call]} if inside else {"stack": waits})
        for r in (first, first + 1)
    ]  # fmt: skip
    ports = [
        {"device": f"mlx5_{i}", "tx_bytes_per_s": m, "rx_bytes_per_s": m} for i, m in enumerate((0, moved))
    ]
    detail = {"ranks": ranks, "world_size": 6, "gpus": list(gpus), "nics": {"over_s": 12.0, "ports": ports}}
    return make.finding("rank_snapshot", 60, node=node, source="probe", detail=detail)


def judge(*nodes: Any) -> Any:
    """The proof sentences for the gang on n1, n2 and n3."""
    gang = snapshots.gang(nodes)
    assert gang is not None
    return snapshots.judge(gang, {}, ("n1", "n2", "n3"))


def test_nothing_moves_anywhere_is_proof_of_a_stuck_collective(make: Any) -> None:
    """All ranks inside, GPUs busy on little power, no traffic: the figures are stated, and no node is suspected."""
    found = judge(*(snapshot(make, n, IDLE) for n in ("n1", "n2", "n3")))
    assert (found.kind, found.nodes) == ("inside_collective", ())
    assert "the network adapters of all 3 nodes moved at most 4.0 kB/s over 12 s" in found.proof
    assert sum("their kernels wait" in p for p in found.proof) == 3


def test_the_one_node_that_moves_nothing_is_suspected(make: Any) -> None:
    """The others retransmit or serve the rest of the ring; never more than possible, and no hardware verdict."""
    found = judge(snapshot(make, "n1", BUSY), snapshot(make, "n2", IDLE), snapshot(make, "n3", BUSY))
    assert (found.kind, found.nodes, found.ranks) == ("inside_collective", ("n2",), (2, 3))
    assert (str(found.domain), str(found.confidence)) == ("unknown", "possible")
    assert (
        "n2: its network adapters moved 4.0 kB/s over 12 s, those of every other node at least 80.0 GB/s"
        in found.proof
    )


def test_kernels_that_wait_everywhere_are_a_collective_that_the_pages_do_not_show(make: Any) -> None:
    """Collectives made by C++ are on no page: then only the load shows the hang, if it was measured on every node."""
    nodes = [snapshot(make, n, IDLE, inside=False) for n in ("n1", "n2", "n3")]
    found = judge(*nodes)
    assert (found.kind, found.nodes, str(found.confidence)) == ("inside_collective", (), "possible")
    trains = {**SPINS, "power_w": 650.0}
    assert judge(*nodes[:2], snapshot(make, "n3", IDLE, gpus=(trains,), inside=False)).kind == "unknown"
    assert judge(*nodes[:2], snapshot(make, "n3", BUSY, inside=False)).kind == "unknown"
    assert judge(*nodes[:2]).kind == "unknown"


@pytest.mark.parametrize(
    ("rates", "silent"),
    [
        ((IDLE, BUSY, BUSY), ("n1",)),
        ((IDLE, IDLE, BUSY), ()),
        ((IDLE, IDLE, IDLE), ()),
        ((BUSY, BUSY, BUSY), ()),
        ((IDLE, BUSY, 2_000_000), ()),
        ((IDLE, BUSY, None), ()),
        ((IDLE, BUSY, "forged"), ()),
    ],
    ids=["one", "most", "all", "none", "the others hardly", "one is not known", "nonsense is no rate"],
)
def test_a_node_is_silent_only_beside_others_that_are_not(
    make: Any, rates: tuple[Any, ...], silent: tuple[str, ...]
) -> None:
    """A missing measurement of one node could be its silence, so no node is called silent."""
    shots = [snapshot(make, f"n{i}", rate) for i, rate in enumerate(rates, 1)]
    shots = [
        dataclasses.replace(s, detail={**s.detail, "nics": {}}) if rate is None else s
        for s, rate in zip(shots, rates, strict=True)
    ]
    assert load.silent(shots) == silent
