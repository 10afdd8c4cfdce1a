"""The rings of the job's own program on this node, each with the place of its process."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from probing_cluster.live.node import view as node_view
from probing_cluster.live.table import Missing
from probing_cluster.probe_agent.ranks import ring


def of_job(
    view: node_view.NodeView, names: Container[str] | None = None
) -> Iterator[tuple[ring.RingTable, dict[str, Any]]]:
    """(table of one process, its node, rank and pid), of all tables or those of `names`; dead processes included."""
    try:
        found = ring.read_rings(str(view.directory), view.uid, names=names)
    except OSError as exc:
        raise Missing(f"the job's directory cannot be read here: {exc.strerror}") from exc
    if found.refused or found.more:
        view.miss(
            f"{len(found.refused) + found.more} files of the job's directory are no tables, or too many"
        )
    known = {(p.page.pid_inside, p.page.start_ticks): p for p in view.ranks}
    for table in found.tables:
        process = known.get((table.pid, table.start_ticks))
        yield (
            table,
            {
                "node": view.node,
                "rank": process.rank if process is not None else table.rank,
                "pid": process.pid if process is not None else table.pid,
            },
        )
