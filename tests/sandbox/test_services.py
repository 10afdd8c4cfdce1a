"""Our own processes on a sandbox, broken and started again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.core import errors
from probing_cluster.db.server import embedded
from probing_cluster.sandbox import cluster, services
from probing_cluster.sandbox.machine import commands, processes

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def full(box_directory: Path) -> Iterator[cluster.Sandbox]:
    """A cluster of two nodes with agents, Postgres and the service."""
    with cluster.Sandbox.up(box_directory / "full", nodes=2, gpus=4) as box:
        yield box


def test_agents_and_service_run_and_their_crash_is_complete(full: cluster.Sandbox) -> None:
    """A crashed agent or service leaves no child behind, and starts again."""
    for role, node, crash, start in (
        (services.agent_role("n2"), "n2", "agent-crash", "agent-start"),
        (services.SERVICE, "-", "service-crash", "service-start"),
    ):
        before = processes.pids_of(full.directory, role)
        assert before
        full.fault(node, crash)
        assert processes.pids_of(full.directory, role) == []
        full.fault(node, start)
        after = processes.pids_of(full.directory, role)
        assert after
        assert not set(before) & set(after)
        with pytest.raises(errors.UsageError, match="runs; end it first"):
            full.fault(node, start)
        assert processes.pids_of(full.directory, role)[0] == after[0]
    assert (full.layout.node("n2") / "run/agent.sock").is_socket(), "hooks still reach the agent that runs"


def test_the_database_stays_down_until_it_is_started(full: cluster.Sandbox) -> None:
    """db-down is no restart: neither agents, service nor a report bring Postgres up again."""
    full.fault("-", "db-down")
    done = full.run(["probing-report", "1"], check=False)
    assert done.returncode != 0
    assert not services.database_runs(full.layout)
    full.fault("-", "db-up")
    assert services.database_runs(full.layout)


def test_tasks_get_the_probes_environment_and_their_users_identity(full: cluster.Sandbox) -> None:
    """A job of another user sees PROBING_DEFAULT and the probe's directory, which it can read."""
    out = full.layout.jobs / "environment.out"
    script = "id -un; echo $PROBING_DEFAULT; ls $(echo $PYTHONPATH | cut -d: -f1)"
    job = full.submit(f"srun sh -c '{script}'", uid="nobody", output=str(out), gres="gpu:1")
    assert full.wait(job, ["COMPLETED", "FAILED"]) == "COMPLETED"
    lines = [line for line in out.read_text().splitlines() if "error:" not in line]
    assert lines[:2] == ["nobody", "on"]
    assert "sitecustomize.py" in lines


@pytest.mark.soak
def test_down_stops_postgres_too_and_up_goes_on(box_directory: Path) -> None:
    """After down nothing of ours runs, Postgres included; the next up keeps what was stored."""
    directory = box_directory / "again"
    box = cluster.Sandbox.up(directory, nodes=1, gpus=1)
    job = box.submit("true", gres="gpu:1")
    box.wait(job, ["COMPLETED"])
    commands.wait_until(lambda: _known(box, job), "the job is not in the database", timeout_s=60)
    box.down()
    assert processes.listing(directory) == []
    assert not embedded.running(box.layout.postgres)
    with cluster.Sandbox.up(directory) as again:
        assert _known(again, job)
    again.down(purge=True)
    assert not directory.exists()


def _known(box: cluster.Sandbox, job: int) -> bool:
    done = box.run(["probing-report", str(job), "--json"], check=False)
    return done.returncode == 0 and json.loads(done.stdout)["state"] == "COMPLETED"
