"""`torch.memory`: torch's allocator on the GPU at the end of sampled steps, where the job is traced."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import traced
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per sampled step, as many as the ring holds; none without a GPU."""
    return traced.rows(view, "torch_memory")


TABLE = Table(
    schema="torch",
    name="memory",
    meaning="torch's allocator of GPU memory after sampled steps, of a job that was started with `PROBING_TRACE`; no rows without CUDA.",
    source="a ring of the probe",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="step", kind="int", meaning="optimizer step, counted from 1 by this process"),
        Column(name="device", kind="int", meaning="torch's number of the GPU"),
        Column(name="allocated_bytes", kind="int", meaning="held by tensors"),
        Column(name="reserved_bytes", kind="int", meaning="taken from the driver"),
        Column(name="peak_allocated_bytes", kind="int", meaning="the most that was allocated"),
        Column(name="peak_reserved_bytes", kind="int", meaning="the most that was reserved"),
        Column(
            name="retries",
            kind="int",
            meaning="allocations that had to give cached memory back first, so far",
        ),
        Column(name="ooms", kind="int", meaning="allocations that failed, so far"),
    ),
)
