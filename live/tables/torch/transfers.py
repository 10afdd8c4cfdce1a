"""`torch.transfers`: how long collectives moved bytes, and their bus bandwidth: under NCCL by the GPU's clock, under gloo by the call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probing_cluster.live.node import traced
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table
from probing_cluster.probe_agent import bandwidth


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """Transfers of a traced job, from the flight recorder; blocking calls under gloo and MPI, from the page."""
    for process in view.ranks:
        for call in process.page.recent_collectives:
            speed = bandwidth.of_call(call, process.page.backend)
            if speed is None or call.leave_ns is None:
                continue
            yield {
                **view.place(process),
                "group": call.group,
                "group_role": call.role or None,
                "seq": call.seq,
                "op": call.op,
                "group_size": call.group_size,
                "bytes": bandwidth.bytes_of(call),
                "dtype": bandwidth.dtype_of(call),
                "begin_at": int(process.page.realtime_s(call.enter_ns) * 1e9),
                "transfer_s": (call.leave_ns - call.enter_ns) / 1e9,
                "bus_bytes_per_s": speed,
                "timed_by": "call",
            }
    if any(bandwidth.has_gpu(p.page.backend) for p in view.ranks):
        yield from map(_timed, traced.rows(view, "torch_transfers"))


def _timed(row: Mapping[str, object]) -> Row:
    kept = {name: value for name, value in row.items() if name not in ("role", "begin_ns")}
    more = {
        "group_role": row["role"],
        "begin_at": row["begin_ns"],
        "bus_bytes_per_s": bandwidth.of_recorded(row),
        "timed_by": "gpu",
    }
    return {**kept, **more}


TABLE = Table(
    schema="torch",
    name="transfers",
    meaning=(
        "Collectives whose time is known, with bus bandwidth: under gloo and MPI the calls that wait; under NCCL, of a job that was started with "
        "`PROBING_TRACE`, all that torch's flight recorder has timed, those of DDP and FSDP among them."
    ),
    source="the probe's page; the flight recorder, through a ring of the probe",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="group", kind="text", meaning="process group, by torch's name"),
        Column(
            name="group_role",
            kind="text",
            meaning="what it is for, as in torch.collectives; null where not named",
        ),
        Column(name="seq", kind="int", meaning="number of the collective in its group"),
        Column(name="op", kind="text", meaning="the collective, under NCCL by the flight recorder's name"),
        Column(name="group_size", kind="int", meaning="ranks in the group"),
        Column(name="bytes", kind="int", meaning="its size: under NCCL the larger of input and output"),
        Column(name="dtype", kind="text", meaning="type of its tensors"),
        Column(name="begin_at", kind="time", meaning="when it was called"),
        Column(name="transfer_s", kind="float", meaning="seconds it took, waiting for other ranks included"),
        Column(name="bus_bytes_per_s", kind="float", meaning="bus bandwidth as nccl-tests defines it"),
        Column(name="timed_by", kind="text", meaning="call: the time of the call; gpu: by events on the GPU"),
    ),
)
