"""A database may hold several clusters; the service of one acts on its own rows and leaves the others' alone."""

from __future__ import annotations

import ast
import uuid
from datetime import UTC, datetime
from pathlib import Path

import fakes

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.service import reconcile
from probing_cluster.control_plane.service.tasks.nodes import resume, silence
from probing_cluster.core import records
from probing_cluster.db import delivery

ROOM = Path(context.__file__).parent
READS = {"drains", "heartbeats", "heartbeat_ages_s", "silences_s", "incidents"}
"""What the store reads of one cluster only where it is told which."""


def _drain(**changes: object) -> records.Drain:
    values: dict[str, object] = {
        "drain_id": uuid.uuid4(), "cluster": "beta", "node": "b7", "at": fakes.NOW, "action": "drain",
        "reason": "probing: xid 79 gpu3", "owner": "probing", "state": "done",
    }  # fmt: skip
    return records.Drain(**(values | changes))


def test_the_other_clusters_drains_stand(service: context.Context) -> None:
    """Slurm here knows no such node, which says nothing about a node of another Slurm."""
    drain, begun = _drain(), _drain(node="b8", state="failed", why_state=view.BEGUN)
    for row in (drain, begun):
        service.store.save_drain(row)
    assert resume.run(service) == ""
    assert reconcile.settle(service, service.clock.now()) == []
    assert service.store.drains(cluster="beta") == [drain, begun]


def test_a_healthy_node_elsewhere_is_no_proof_of_ours(service: context.Context) -> None:
    """Two clusters may use one node name."""
    now = datetime.now(UTC)
    fault = {
        "severity": "high", "since": now.isoformat(), "confirmed_at": now.isoformat(), "latched": True,
        "event_id": str(uuid.uuid4()), "code": "79", "message": "m",
    }  # fmt: skip
    for cluster, faults in (("c", {"xid:gpu3": fault}), ("zeta", {})):
        beat = records.AgentHeartbeat(cluster=cluster, node="n2", at=now, started_at=now, faults=faults)
        delivery.Delivery(service.store.connection_uri(), cluster, "n2").deliver(heartbeat=beat)
    resume.follow_beats(service)
    assert "n2" not in service.green


def test_the_other_clusters_agents_are_not_ours_to_miss(service: context.Context) -> None:
    beat = records.AgentHeartbeat(cluster="beta", node="b7", at=fakes.NOW, started_at=fakes.NOW, beat_s=0.001)
    delivery.Delivery(service.store.connection_uri(), "beta", "b7").deliver(heartbeat=beat)
    service.store.rows("SELECT pg_sleep(0.05)", {})
    assert silence.run(service) == ""
    assert service.silent == set()


def test_every_read_of_the_control_plane_names_its_cluster() -> None:
    """A read without one gives the rows of all clusters."""
    without = [
        f"{path.relative_to(ROOM)}:{call.lineno}"
        for path in ROOM.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in READS
        and not any(k.arg == "cluster" for k in call.keywords)
    ]
    assert without == []
