"""The mesh of a running gang, from the last snapshots that its nodes sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from probing_cluster.attribution.gang import mesh, snapshots
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.db import store as db_store


@dataclass(frozen=True, kw_only=True)
class MeshLook:
    """The mesh, and when it was looked at."""

    at: datetime
    mesh: mesh.Mesh


def of(store: db_store.Store, gang: gang_board.BoardGang) -> MeshLook | None:
    """None where no node has sent a snapshot of this attempt."""
    fresh = gang_board.fresh_snapshots(store, gang)
    if not fresh:
        return None
    deaths = store.events(job_id=gang.job_id, since=gang.since, kinds=(snapshots.DEAD,), cluster=gang.cluster)
    deaths = [e for e in deaths if gang_board.may_speak(gang, e.node)]
    found = snapshots.gang([*fresh, *deaths])
    if found is None:
        return None
    return MeshLook(at=max(e.at for e in fresh), mesh=mesh.of(found.ranks, found.world_size))
