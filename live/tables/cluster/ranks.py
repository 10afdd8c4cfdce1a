"""`cluster.ranks`: every rank of the job, what it is inside of and how far it has come; dead ones with their last words."""

from __future__ import annotations

import time
from collections.abc import Iterator

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import PLACE, Column, Row, Scan, Table


def _ns(page_ns: int | None, process: node_view.RankProcess) -> int | None:
    """One of the page's instants as nanoseconds since 1970."""
    return None if not page_ns else int(process.page.realtime_s(page_ns) * 1e9)


def rows(view: node_view.NodeView, _: Scan) -> Iterator[Row]:
    """One per rank."""
    now_ns = time.monotonic_ns()
    for process in view.ranks:
        page, facts, alive = process.page, process.facts, process.alive
        call = page.inside()
        yield {
            **view.place(process),
            "alive": alive,
            "state": facts.state if facts is not None else None,
            "phase": page.phase,
            "step": page.steps,
            "step_at": _ns(page.step_ns, process),
            "seconds_since_step": (now_ns - page.step_ns) / 1e9 if alive and page.step_ns else None,
            "inside": call.op if call is not None else None,
            "inside_group": call.group if call is not None else None,
            "inside_seq": call.seq if call is not None else None,
            "inside_at": _ns(call.enter_ns, process) if call is not None else None,
            "seconds_inside": (now_ns - call.enter_ns) / 1e9 if alive and call is not None else None,
            "cpu_s": facts.cpu_s if facts is not None else None,
            "wchan": facts.wchan if facts is not None else None,
            "checkpoints": page.checkpoints,
            "local_rank": page.local_rank,
            "world_size": page.world_size,
            "step_id": page.step_id,
            "restart": page.restart,
            "host": page.host,
            "backend": page.backend,
            "torch": page.torch,
            "python": page.python,
            "started_at": _ns(page.monotonic_ns, process),
        }


TABLE = Table(
    schema="cluster",
    name="ranks",
    meaning="Every rank of the job: what it does now, or did last.",
    source="the probe's page of each process, and /proc",
    rows=rows,
    columns=(
        *PLACE,
        Column(name="alive", kind="bool", meaning="its process runs; a dead rank keeps its last words"),
        Column(name="state", kind="text", meaning="state of the process as the kernel has it: R, S, D, T, Z"),
        Column(
            name="phase",
            kind="text",
            meaning="importing, loading, init, training, checkpointing, validating, compiling, ended or none",
        ),
        Column(name="step", kind="int", meaning="optimizer steps so far"),
        Column(name="step_at", kind="time", meaning="when the last one ended"),
        Column(name="seconds_since_step", kind="float", meaning="seconds since then; null for the dead"),
        Column(
            name="inside", kind="text", meaning="the collective it has entered and not left; null for none"
        ),
        Column(name="inside_group", kind="text", meaning="its process group, by torch's name, 16 characters"),
        Column(name="inside_seq", kind="int", meaning="how many calls this rank has made on that group"),
        Column(name="inside_at", kind="time", meaning="when it was entered"),
        Column(name="seconds_inside", kind="float", meaning="seconds since then; null for the dead"),
        Column(
            name="cpu_s",
            kind="float",
            meaning="processor time of the process and its ended children, seconds",
        ),
        Column(name="wchan", kind="text", meaning="kernel function in which its main thread sleeps"),
        Column(name="checkpoints", kind="int", meaning="checkpoints written so far"),
        Column(name="local_rank", kind="int", meaning="number on the node"),
        Column(name="world_size", kind="int", meaning="ranks in all"),
        Column(name="step_id", kind="int", meaning="Slurm's number of the job step"),
        Column(name="restart", kind="int", meaning="Slurm's restart count of the job"),
        Column(name="host", kind="text", meaning="host name as the process has it"),
        Column(name="backend", kind="text", meaning="torch.distributed's backend"),
        Column(name="torch", kind="text", meaning="version of torch"),
        Column(name="python", kind="text", meaning="version of Python"),
        Column(name="started_at", kind="time", meaning="when the probe began in this process"),
    ),
)
