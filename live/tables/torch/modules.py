"""`torch.modules`: forward and backward of every module in sampled steps, where the job is traced."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import traced
from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per span, of the last steps that the ring holds."""
    return traced.rows(view, "torch_modules")


TABLE = Table(
    schema="torch",
    name="modules",
    meaning=(
        "Forward and backward of modules in sampled steps, of a job that was started with `PROBING_TRACE=RATE[:DEPTH]` "
        "(a share of its steps; three levels of modules). Not of programs that use torch.compile."
    ),
    source="a ring of the probe",
    rows=rows,
    columns=(
        *PLACE,
        Column(
            name="step", kind="int", meaning="optimizer step that ended it, counted from 1 by this process"
        ),
        Column(name="phase", kind="text", meaning="forward or backward"),
        Column(name="module", kind="text", meaning="its name in the model, of the outermost its class"),
        Column(name="kind", kind="text", meaning="its class"),
        Column(name="depth", kind="int", meaning="0 is the outermost"),
        Column(name="since_s", kind="float", meaning="seconds from the end of the step before to its begin"),
        Column(
            name="duration_s",
            kind="float",
            meaning="seconds by the host's clock: on a GPU the time to queue it; null for a backward whose inputs need no gradient",
        ),
    ),
)
