"""`torch.collectives`: the last collectives of every rank, with bytes, and bus bandwidth where it can be known."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table
from probing_cluster.probe_agent import bandwidth


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """At most 64 per rank, the page's ring."""
    for process in view.ranks:
        page = process.page
        for call in page.recent_collectives:
            left = call.leave_ns
            yield {
                **view.place(process),
                "group": call.group,
                "group_role": call.role or None,
                "seq": call.seq,
                "op": call.op,
                "group_size": call.group_size or None,
                "numel": call.numel,
                "dtype": bandwidth.dtype_of(call),
                "bytes": bandwidth.bytes_of(call),
                "enter_at": int(page.realtime_s(call.enter_ns) * 1e9),
                "duration_s": None if left is None else (left - call.enter_ns) / 1e9,
                "bus_bytes_per_s": bandwidth.of_call(call, page.backend),
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
        Column(
            name="numel",
            kind="int",
            meaning="elements of the first tensor that is passed, or of all in the list",
        ),
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
