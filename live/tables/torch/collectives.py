"""`torch.collectives`: the last collectives of every rank, with bytes, and bus bandwidth where it can be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from probing_cluster.live.node import dtypes
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table
from probing_cluster.probe_agent.ranks import pages

_BLOCKING = ("gloo", "mpi")
"""Backends whose calls return when the collective is done; NCCL's return when it is queued on the GPU."""


def _whole(_: int) -> float:
    return 1.0


def _part(n: int) -> float:
    return (n - 1) / n


BUS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": _part,
    "all_gather_into_tensor": _part,
    "all_to_all": _part,
    "all_to_all_single": _part,
    "broadcast": _whole,
    "reduce": _whole,
    # The tensor that is counted is one rank's part: n of them move (n-1)/n of their sum.
    "reduce_scatter": lambda n: float(n - 1),
    "reduce_scatter_tensor": lambda n: float(n - 1),
}
"""Bytes over a rank's link per byte of the tensor, as nccl-tests counts bus bandwidth, of the group's size."""


def has_gpu(backend: str) -> bool:
    """Whether calls may go by NCCL, as the page has the backend (16 characters)."""
    return "nccl" in backend or "cuda" in backend


def bus_bytes_per_s(call: pages.Collective, n_bytes: int | None, backend: str) -> float | None:
    """Bus bandwidth of one call; None where its times do not tell when the bytes moved."""
    factor, size = BUS.get(call.op), call.group_size
    # "cpu:gloo,cuda:nccl": which of the two a call took is not known.
    blocking = any(name in backend for name in _BLOCKING) and not has_gpu(backend) and not call.is_async
    if factor is None or not blocking or not n_bytes or size < 2 or call.raised or not call.leave_ns:
        return None
    took_ns = call.leave_ns - call.enter_ns
    return n_bytes * factor(size) / (took_ns / 1e9) if took_ns > 0 else None


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """At most 64 per rank, the page's ring."""
    for process in view.ranks:
        page = process.page
        for call in page.recent_collectives:
            dtype, size = dtypes.of_code(call.dtype_code)
            n_bytes = call.numel * size if size else None
            left = call.leave_ns
            yield {
                **view.place(process),
                "group": call.group,
                "group_role": call.role or None,
                "seq": call.seq,
                "op": call.op,
                "group_size": call.group_size or None,
                "numel": call.numel,
                "dtype": dtype,
                "bytes": n_bytes,
                "enter_at": int(page.realtime_s(call.enter_ns) * 1e9),
                "duration_s": None if left is None else (left - call.enter_ns) / 1e9,
                "bus_bytes_per_s": bus_bytes_per_s(call, n_bytes, page.backend),
                "done": left is not None,
                "async": call.is_async,
                "point_to_point": call.is_p2p,
                "raised": call.raised,
            }


TABLE = Table(
    schema="torch",
    name="collectives",
    meaning="The last collectives and point-to-point calls that each rank made from Python, at most 64.",
    source="the probe's page",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="group", kind="text", meaning="process group, by torch's name, 16 characters"),
        Column(
            name="group_role",
            kind="text",
            meaning="what it is for: tp, pp, dp, cp, ep, sp, mp, shard, replicate or embedding; null where neither DeviceMesh nor Megatron names it",
        ),
        Column(
            name="seq",
            kind="int",
            meaning="count of this rank's calls on the group: the same call on all ranks",
        ),
        Column(name="op", kind="text", meaning="torch.distributed's name, 16 characters"),
        Column(name="group_size", kind="int", meaning="ranks in the group"),
        Column(name="numel", kind="int", meaning="elements of the first tensor that is passed"),
        Column(name="dtype", kind="text", meaning="its type; null where not known"),
        Column(name="bytes", kind="int", meaning="its size; null where the type is not known"),
        Column(name="enter_at", kind="time", meaning="when the call was made"),
        Column(name="duration_s", kind="float", meaning="seconds until it returned; null while it has not"),
        Column(
            name="bus_bytes_per_s",
            kind="float",
            meaning="bus bandwidth as nccl-tests defines it; null where the call does not wait for the transfer (NCCL, async): `torch.transfers` has those",
        ),
        Column(name="done", kind="bool", meaning="the call has returned"),
        Column(name="async", kind="bool", meaning="it returned without waiting"),
        Column(name="point_to_point", kind="bool", meaning="a send or receive"),
        Column(name="raised", kind="bool", meaning="it ended with an exception"),
    ),
)
