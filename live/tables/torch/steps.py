"""`torch.steps`: the last optimizer steps of every rank and what each waited for."""

from __future__ import annotations

from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table
from probing_cluster.probe_agent.ranks import pages


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """At most 64 per rank, the page's ring."""
    for process in view.ranks:
        page = process.page
        before: pages.PageStep | None = None
        if page.steps_unseen:
            view.miss("this torch has no hook for optimizer steps (before 2.0)", rank=process.rank)
        for step in page.recent_steps:
            follows = before is not None and before.step + 1 == step.step
            took_ns = step.end_ns - before.end_ns if before is not None and follows else None
            yield {
                **view.place(process),
                "step": step.step,
                "end_at": int(page.realtime_s(step.end_ns) * 1e9),
                "duration_s": None if took_ns is None else took_ns / 1e9,
                "input_s": step.input_ns / 1e9,
                "collective_s": step.collective_ns / 1e9,
                "backward_s": step.backward_ns / 1e9,
                "checkpoint_s": step.checkpoint_ns / 1e9,
            }
            before = step


TABLE = Table(
    schema="torch",
    name="steps",
    meaning="The last optimizer steps of every rank, at most 64.",
    source="the probe's page",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="step", kind="int", meaning="number of the step, from 1"),
        Column(name="end_at", kind="time", meaning="when the optimizer had stepped"),
        Column(
            name="duration_s",
            kind="float",
            meaning="seconds since the end of the step before; null where that one is no longer known",
        ),
        Column(name="input_s", kind="float", meaning="of which waiting for the data loader"),
        Column(name="collective_s", kind="float", meaning="of which inside collectives called from Python"),
        Column(name="backward_s", kind="float", meaning="of which in backward()"),
        Column(name="checkpoint_s", kind="float", meaning="of which held up by checkpoint writes"),
    ),
)
