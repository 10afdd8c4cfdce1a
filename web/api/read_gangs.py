"""The ranks of a running job: what each does, their stacks, the mesh of their groups, and their past minutes."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import msgspec

from probing_cluster.attribution.gang import mesh, stacks
from probing_cluster.control_plane.gangs import gang_board, gang_mesh
from probing_cluster.core import errors
from probing_cluster.web import documents
from probing_cluster.web.api import operation, read_jobs
from probing_cluster.web.live import rank_history

MOST_WAITS, MOST_WORST = 50, 20
LOOK_EVERY_S = 10.0
"""Between two looks at the stacks of one job, whoever asks."""


def ranks(ask: operation.Ask) -> dict[str, Any]:
    """Every rank at the last heartbeat of its node, and what has been found out about the gang."""
    service, gang = ask.site.service, read_jobs.gang_of(ask)
    known = rank_history.HISTORIES.rows(service, gang)
    return gang_board.ranks(service.store, gang, service.clock.now(), known)


def worst(ask: operation.Ask) -> dict[str, Any]:
    """How many ranks there are, those that stand still for longest, and what has been found out about the gang."""
    service, gang = ask.site.service, read_jobs.gang_of(ask)
    known = rank_history.HISTORIES.rows(service, gang)
    shown = sorted(known, key=lambda r: -(r.step_age_s or 0.0))[:MOST_WORST]
    found = gang_board.findings(service.store, gang, service.clock.now(), known)
    return found | {"n_ranks": len(known), "worst": shown}


def stacks_of(ask: operation.Ask) -> dict[str, Any]:
    """The ranks' last stacks as one tree."""
    service, gang = ask.site.service, read_jobs.gang_of(ask)
    return gang_board.stacks_of(service.store, gang, service.clock.now())


def last_mesh(ask: operation.Ask) -> gang_mesh.MeshLook | None:
    """The mesh as its last snapshots show it; None where nobody looked."""
    return gang_mesh.of(ask.site.service.store, read_jobs.gang_of(ask))


def mesh_of(ask: operation.Ask) -> documents.Mesh:
    """The mesh of process groups, and who waits for whom; raises NotFound where nobody looked."""
    found = last_mesh(ask)
    if found is None:
        raise errors.NotFound("nobody has looked at its ranks yet; POST …/look asks its nodes")
    return document(found)


def document(found: gang_mesh.MeshLook) -> documents.Mesh:
    """The mesh as the API gives it: ranks as ranges."""
    whole = found.mesh
    by_state: dict[str, list[int]] = {}
    for rank, state in whole.states.items():
        by_state.setdefault(state, []).append(rank)
    return documents.Mesh(
        at=found.at,
        world_size=whole.world_size,
        axes=[msgspec.convert(a, documents.MeshAxis, from_attributes=True) for a in whole.axes],
        states={state: stacks.ranges(found_ranks) for state, found_ranks in sorted(by_state.items())},
        waits=[_wait(w) for w in whole.waits[:MOST_WAITS]],
        n_waits=len(whole.waits),
        roots=stacks.ranges(whole.roots),
        cycle=stacks.ranges(whole.cycle),
    )


def _wait(wait: mesh.Wait) -> documents.MeshWait:
    return documents.MeshWait(
        axis=wait.axis, group=wait.group, op=wait.op, seq=wait.seq, complete=wait.complete,
        waiting=stacks.ranges(wait.waiting), awaited=stacks.ranges(wait.awaited),
    )  # fmt: skip


class _Looks:
    """The jobs whose nodes were asked for stacks a moment ago. Requests come in threads of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_s: dict[tuple[str, int], float] = {}

    def claim(self, cluster: str, job_id: int, now_s: float) -> bool:
        """True if the job's nodes may be asked now, by the monotonic clock: then they count as asked."""
        with self._lock:
            self._looked_s = {job: s for job, s in self._looked_s.items() if now_s - s < LOOK_EVERY_S}
            is_first = (cluster, job_id) not in self._looked_s
            self._looked_s.setdefault((cluster, job_id), now_s)
            return is_first

    def give_back(self, cluster: str, job_id: int) -> None:
        """Nobody was asked after all."""
        with self._lock:
            self._looked_s.pop((cluster, job_id), None)


def look(ask: operation.Ask) -> documents.Done:
    """Ask the job's nodes for their ranks' stacks and calls; they come within seconds."""
    service, gang = ask.site.service, read_jobs.gang_of(ask)
    looks, n_nodes = service.memory(_Looks), 0
    if not looks.claim(gang.cluster, gang.job_id, service.clock.monotonic_s()):
        return documents.Done(subject=gang.ref, outcome="its nodes were asked a moment ago")
    try:
        n_nodes = gang_board.ask(service.store, gang)
    finally:
        if not n_nodes:
            looks.give_back(gang.cluster, gang.job_id)
    if not n_nodes:
        raise errors.NotFound(f"no node of job {gang.ref} is heard: nobody can be asked")
    return documents.Done(
        subject=gang.ref,
        outcome=f"{n_nodes} node{'s' * (n_nodes > 1)} asked; their stacks come within seconds",
    )


class Heat(operation.OfCluster, kw_only=True, forbid_unknown_fields=True):
    """Which figure of the ranks."""

    layer: Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(rank_history.LAYERS)})$")] = "own"


def heat(ask: operation.Ask) -> operation.Raw:
    """Ranks over time as bytes: a row a rank, a column a look, 0 nothing known, 1 least to 255 most."""
    gang = read_jobs.gang_of(ask)
    picture = rank_history.HISTORIES.of(ask.site.service, gang).picture(ask.query.layer)
    return operation.Raw(
        body=picture.cells,
        media_type="application/octet-stream",
        headers={
            "x-ranks": str(picture.n_ranks), "x-looks": str(picture.n_looks), "x-most": f"{picture.most:.6g}",
            "x-unit": rank_history.LAYERS[ask.query.layer], "x-every-s": f"{picture.every_s:g}",
        },
    )  # fmt: skip
