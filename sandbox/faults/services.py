"""Faults of our own services: agents and the database."""

from __future__ import annotations

from probing_cluster.sandbox import services
from probing_cluster.sandbox.faults import registry
from probing_cluster.sandbox.machine import processes


@registry.fault("agent-crash")
def agent_crash(target: registry.Target) -> None:
    """The node's agent and its children are killed."""
    role = services.agent_role(target.node)
    processes.kill(lambda: processes.pids_of(target.layout.directory, role))


@registry.fault("agent-start")
def agent_start(target: registry.Target) -> None:
    """The node's agent is started again."""
    services.start_agents(target.layout, target.env, [target.node])


@registry.fault("db-down", cluster_wide=True)
def db_down(target: registry.Target) -> None:
    """Postgres is stopped."""
    services.stop_database(target.layout)


@registry.fault("db-up", cluster_wide=True)
def db_up(target: registry.Target) -> None:
    """Postgres is started again."""
    services.resume_database(target.layout)


@registry.fault("service-crash", cluster_wide=True)
def service_crash(target: registry.Target) -> None:
    """`probing-ctl serve` is killed."""
    processes.kill(lambda: processes.pids_of(target.layout.directory, services.SERVICE))


@registry.fault("service-start", cluster_wide=True)
def service_start(target: registry.Target) -> None:
    """`probing-ctl serve` is started again."""
    services.start_service(target.layout, target.env)
