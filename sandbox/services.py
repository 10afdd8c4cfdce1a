"""Our own processes in a sandbox: embedded Postgres, one agent per node, the service."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from probing_cluster.core import errors
from probing_cluster.db.server import embedded
from probing_cluster.sandbox.machine import commands, layout, processes
from probing_cluster.sandbox.nodetree import build

Env = Mapping[str, str]
SERVICE = "service"


def start_database(lay: layout.Layout) -> None:
    """The embedded Postgres with this version's schema."""
    from probing_cluster.db import migrate  # Alembic costs a second: paid only here

    migrate.upgrade(embedded.ensure(lay.postgres))


def resume_database(lay: layout.Layout) -> None:
    """The embedded Postgres again, as it was."""
    embedded.ensure(lay.postgres)


def stop_database(lay: layout.Layout) -> None:
    """Stops the embedded Postgres; nothing to do when none runs."""
    embedded.stop(lay.postgres)


def database_runs(lay: layout.Layout) -> bool:
    """Whether the embedded Postgres is up."""
    return embedded.running(lay.postgres)


def agent_role(node: str) -> str:
    """What the agent of `node` is started as."""
    return f"agent-{node}"


def start_agents(lay: layout.Layout, env: Env, nodes: Sequence[str]) -> None:
    """The agents of `nodes`, at once; returns when the hooks can reach each."""
    sockets = [lay.node(node) / "run/agent.sock" for node in nodes]
    pids: list[int] = []
    for node, socket in zip(nodes, sockets, strict=True):
        if processes.pids_of(lay.directory, agent_role(node)):
            raise errors.UsageError(
                f"the agent of {node} runs; end it first (probing-sandbox fault {node} agent-crash)"
            )
        socket.unlink(missing_ok=True)
        home = lay.node(node)
        own = {**env, "PROBING_NVML_STATE": str(home / build.NVML_STATE), "SLURMD_NODENAME": node}
        argv = [_command("probing-agent"), "--config", str(home / "probing.toml")]
        role = agent_role(node)
        pids.append(commands.start(role, argv, env=own, run=lay.run, log=lay.log / f"{role}.out"))
    for node, socket, pid in zip(nodes, sockets, pids, strict=True):
        commands.wait_ready(agent_role(node), pid, lay.log / f"{agent_role(node)}.out", socket.exists)


def start_service(lay: layout.Layout, env: Env) -> None:
    """`probing-ctl serve`; returns when it answers reports."""
    if processes.pids_of(lay.directory, SERVICE):
        raise errors.UsageError("the service runs; end it first (probing-sandbox fault service-crash)")
    socket = lay.run / "report.sock"
    socket.unlink(missing_ok=True)
    argv = [_command("probing-ctl"), "serve", "--config", str(lay.probing_toml)]
    log = lay.log / f"{SERVICE}.out"
    commands.start_ready(SERVICE, argv, env=env, run=lay.run, log=log, ready=socket.exists)


def _command(name: str) -> str:
    return str(Path(sys.executable).with_name(name))
