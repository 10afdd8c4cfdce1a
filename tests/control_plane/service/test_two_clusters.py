"""A database may hold several clusters; the service of one acts on its own rows and leaves the others' alone."""

from __future__ import annotations

import ast
import dataclasses
import types
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fakes

from probing_cluster.control_plane import context
from probing_cluster.control_plane.notices import picture as notice_picture
from probing_cluster.control_plane.policy import actions, policy, view
from probing_cluster.control_plane.repair import workflow
from probing_cluster.control_plane.service import reconcile, restart_picture
from probing_cluster.control_plane.service.tasks.nodes import actions as actions_task
from probing_cluster.control_plane.service.tasks.nodes import resume, silence
from probing_cluster.core import records, settings
from probing_cluster.db import delivery
from tests.set_clock import SetClock

ROOT = Path(context.__file__).parents[1]


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
    assert "n2" not in service.memory(resume.GreenTimes)


def test_the_other_clusters_agents_are_not_ours_to_miss(service: context.Context) -> None:
    beat = records.AgentHeartbeat(cluster="beta", node="b7", at=fakes.NOW, started_at=fakes.NOW, beat_s=0.001)
    delivery.Delivery(service.store.connection_uri(), "beta", "b7").deliver(heartbeat=beat)
    service.store.rows("SELECT pg_sleep(0.05)", {})
    assert silence.run(service) == ""
    assert service.memory(silence.AgentListening).silent == set()


def test_another_clusters_boot_is_no_cure(service: context.Context, slurm: fakes.FakeSlurm) -> None:
    """An Xid 79 is over after a reboot: of our node, not of another cluster's of its name."""
    service.config = dataclasses.replace(
        service.config, repair=settings.RepairSettings(test_before_return=False)
    )
    fakes.deliver(service.store, "n2", _xid())
    actions_task.run(service)
    for step in range(32):
        at = fakes.NOW + timedelta(seconds=60 + 30 * step)
        service.clock = SetClock(at)
        fakes.deliver(service.store, "n2", at=at)
        assert resume.run(service) == ""
    boot = _xid(cluster="zeta", kind="node_boot", code=None, severity=records.Severity.INFO, at=at)
    delivery.Delivery(service.store.connection_uri(), "zeta", "n2").deliver(events=[boot])
    assert resume.run(service) == ""
    ours = dataclasses.replace(boot, cluster="c", event_id=uuid.uuid4())
    fakes.deliver(service.store, "n2", ours, at=at)
    assert "n2" in resume.run(service)


def test_a_fault_elsewhere_keeps_no_node_of_ours_back(service: context.Context) -> None:
    """The nodes that a restart may use are judged by their own events."""
    now = datetime.now(UTC)
    for cluster in ("c", "zeta"):
        beat = records.AgentHeartbeat(cluster=cluster, node="n2", at=now, started_at=now)
        fault = [_xid(cluster="zeta", at=now)] if cluster == "zeta" else []
        delivery.Delivery(service.store.connection_uri(), cluster, "n2").deliver(heartbeat=beat, events=fault)
    queue = restart_picture.queue(service, (), now)
    assert restart_picture.green_nodes(service, {"n2"}, queue, now) == {"n2"}


def _xid(**changes: object) -> records.HealthEvent:
    values: dict[str, object] = {
        "event_id": uuid.uuid4(), "cluster": "c", "node": "n2", "at": fakes.NOW - timedelta(seconds=5),
        "observed_at": fakes.NOW, "kind": "xid", "code": "79", "severity": records.Severity.HIGH, "device": "gpu3",
        "gpu_uuid": "GPU-3", "source": "kernel", "message": "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.",
    }  # fmt: skip
    return records.HealthEvent(**(values | changes))


def test_requests_go_to_our_node(service: context.Context) -> None:
    """The other cluster's agent of the same name was heard last: a repair's recheck and a permission to refuse are not for it."""
    now = datetime.now(UTC)
    for cluster in ("c", "zeta"):
        beat = records.AgentHeartbeat(cluster=cluster, node="n2", at=now, boot_id="b")
        delivery.Delivery(service.store.connection_uri(), cluster, "n2").deliver(heartbeat=beat)
    incident = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node="n2", opened_at=now, changed_at=now, state="testing",
        reason="probing: xid 79", drain_id=uuid.uuid4(), cause="gpu",
    )  # fmt: skip
    unbound = service.store.of(None)
    unbound.open_incident(incident)
    doing = object.__new__(workflow.Pass)
    about = types.SimpleNamespace(store=unbound, clock=service.clock, config=service.config)
    object.__setattr__(doing, "context", about)
    object.__setattr__(doing, "save", lambda one, **new: unbound.update_incident(one.incident_id, **new))
    doing.ask_to_look_again(incident)
    event = _xid()
    refusal = policy.Decision(
        action="refuse", node="n2", reason="probing: xid 79 gpu3", severity=records.Severity.HIGH,
        event_ids=(event.event_id,),
    )  # fmt: skip
    actions.carry_out([refusal], service.slurm, unbound, service.config, service.clock)
    verbs = {
        cluster: sorted(r.verb for r in delivery.Delivery(unbound.url, cluster, "n2").deliver().requests)
        for cluster in ("c", "zeta")
    }
    assert verbs == {"c": ["recheck", "refusal_permission"], "zeta": []}


def test_our_lemons_while_the_other_cluster_is_a_night_ahead(service: context.Context) -> None:
    day = datetime(2026, 11, 20, tzinfo=UTC)

    def score(cluster: str, node: str, at: datetime) -> records.LemonScore:
        return records.LemonScore(cluster=cluster, node=node, day=at, score=0.99, verdict="lemon", made_at=at)

    service.store.save_lemon_scores([score("c", "n1", day), score("zeta", "z1", day + timedelta(days=1))])
    assert [s.node for s in notice_picture.read(service, set()).lemons] == ["n1"]


def test_a_service_reads_its_own_cluster(service: context.Context) -> None:
    """Whatever store it is given."""
    assert service.store.cluster == "c"
    other = context.Context(
        config=service.config, store=service.store.of(None), run_slurm=service.run_slurm, slurm=service.slurm
    )
    assert other.store.cluster == "c"


OF_ALL = {
    "attribution/passes/attribute.py": "a pass judges every cluster's attempts, each by what its own recorded",
    "control_plane/cli/history/fleet_commands.py": "--all-clusters",
    "control_plane/cli/jobs/ranks_commands.py": "the gang names its cluster in each read",
    "control_plane/doctor/site_database.py": "bound before it reads, and a key that names the cluster",
    "control_plane/gangs/gang_board.py": "a job that only another cluster has; faults held against their attempt's cluster",
    "control_plane/gangs/mailbox.py": "the gang names its cluster in each read",
    "control_plane/imports/job_outputs.py": "it tells which other clusters have the job",
    "frames/rows.py": "each row bears its cluster",
    "sandbox/demo/now_page.py": "a database of its own",
}
"""The modules that may read the rows of all clusters, and why."""


def test_whoever_reads_all_clusters_is_named() -> None:
    """A store of settings is of their cluster; one of a URL, or `of(None)`, is of all that the database holds."""
    found = {
        str(path.relative_to(ROOT))
        for room in ("attribution", "control_plane", "frames", "lemon", "live", "reports", "sandbox", "web")
        for path in (ROOT / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args
        if (call.func.attr == "of" and ast.unparse(call.args[0]).startswith("None"))
        or (ast.unparse(call.func).endswith("Store.open") and not _of_settings(call.args[0]))
        or ("opened.of(None)" in ast.unparse(call))
    }
    assert found == set(OF_ALL)


def _of_settings(given: ast.expr) -> bool:
    return ast.unparse(given) == "config" or ast.unparse(given).startswith("settings.load(")
