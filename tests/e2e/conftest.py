"""A fresh real cluster for each end-to-end test, and the few questions every test asks of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import psycopg
import pytest
from psycopg.rows import dict_row

from probing_cluster.db.server import embedded
from probing_cluster.sandbox import cluster, jobs
from probing_cluster.sandbox.machine import configs, scratch

sys.path.insert(0, str(Path(__file__).parent))  # for deaths

T = TypeVar("T")

BUSY = 2.0
"""What is waited for may take this much longer than it does on a machine with nothing else to do."""


_REPORTED = """
SELECT job_id, submit_at, state, start_at, end_at, nodes, judged_at,
       (SELECT max(v.made_at) FROM probing.verdict v WHERE v.job_id = a.job_id),
       (SELECT max(g.made_at) FROM probing.gang_verdict g WHERE g.job_id = a.job_id),
       (SELECT max(r.made_at) FROM probing.run_account r WHERE r.run_key = a.run_key),
       (SELECT jsonb_agg(l.detail -> 'logs' ORDER BY l.node, l.at) FROM probing.job_allocation l WHERE l.job_id = a.job_id)
FROM probing.job_attempt a WHERE job_id = %s OR array_job_id = %s OR het_job_id = %s ORDER BY submit_at, job_id
"""
"""What a report is made of, as far as it changes by itself: a report costs a tenth of a second of processor, this nothing."""
_ASK_ANEW_S = 9.0
"""What is no row of these is seen that much later at most."""


class Cluster:
    """The sandbox with eyes: Slurm's and the database's state as a test wants to read them."""

    def __init__(self, sandbox: cluster.Sandbox) -> None:
        self.sandbox = sandbox
        self._lock = threading.Lock()
        self._database: psycopg.Connection[dict[str, Any]] | None = None

    def close(self) -> None:
        """Ends our own connection to the database."""
        if self._database is not None:
            self._database.close()

    def until(self, what: str, ask: Callable[[], T | None], timeout_s: float = 60) -> T:
        """The first truthy answer; fails naming `what`, with the end of our own logs, when none comes."""
        deadline = time.monotonic() + BUSY * timeout_s
        while time.monotonic() < deadline:
            answer = ask()
            if answer:
                return answer
            time.sleep(0.4)
        pytest.fail(f"no {what} within {BUSY * timeout_s:g} s\n{self.logs()}")

    def logs(self) -> str:
        """The last lines of the service's and agents' logs, but those of tasks that went well, and what was decided about nodes."""
        ours = [
            path
            for path in sorted(self.sandbox.layout.log.glob("*.out"))
            if path.stem.startswith(("service", "agent"))
        ]
        lines_shown = []
        for path in ours:
            lines = path.read_text(errors="replace").splitlines()
            lines_shown += [f"--- {path.name}", *[x for x in lines if '"outcome": "ok"' not in x][-15:]]
        decided: list[dict[str, Any]] = []
        with contextlib.suppress(psycopg.OperationalError):  # a test may have taken the database away
            decided = self.rows(
                "SELECT node, action, state, reason, why_state FROM probing.drain ORDER BY at DESC LIMIT 10"
            )
        return "\n".join([*lines_shown, *map(str, decided)])

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Rows of the embedded database, by one connection: a new one each time would make the server a process each time."""
        with self._lock:
            if self._database is not None and not self._database.closed:
                # The server may have been away since.
                with contextlib.suppress(psycopg.OperationalError):
                    return self._database.execute(sql, values).fetchall()
                self._database.close()
            url = embedded.url(self.sandbox.layout.postgres)
            self._database = psycopg.connect(url, autocommit=True, row_factory=dict_row)
            return self._database.execute(sql, values).fetchall()

    def node_state(self, node: str) -> tuple[str, str]:
        """(state with flags, reason) as Slurm tells it."""
        text = self.sandbox.run(["scontrol", "show", "node", "-o", node]).stdout
        state = text.split("State=", 1)[1].split()[0]
        reason = text.split("Reason=", 1)[1].split(" [", 1)[0].strip() if "Reason=" in text else ""
        return state, reason

    def drained(self, node: str) -> str | None:
        """The reason of a node that is drained, or that tests of ours hold since its drain; else None."""
        state, reason = self.node_state(node)
        if "DRAIN" in state:
            return reason
        lasting = "SELECT reason FROM probing.drain WHERE node = %s AND action = 'drain' AND state = 'done' AND ended_at IS NULL"
        return next((row["reason"] for row in self.rows(lasting, node)), None)

    @staticmethod
    def untested(settings_text: str) -> str:
        """Settings under which a drained node stays drained: one under test is in a reservation of ours instead."""
        changed = settings_text.replace("[repair]\n", "[repair]\ntest_before_return = false\n")
        assert changed != settings_text
        return changed

    def nodes_of(self, job_id: int) -> list[str]:
        """The nodes a job runs on now."""
        done = self.sandbox.run(["squeue", "-ho", "%N", f"--jobs={job_id}"], check=False)
        if not done.stdout.strip():
            return []
        return self.sandbox.run(["scontrol", "show", "hostnames", done.stdout.strip()]).stdout.split()

    def running(self, job_id: int) -> list[str]:
        """Waits until the job runs; its nodes."""
        self.sandbox.wait(job_id, {"RUNNING"}, BUSY * 60)
        return self.nodes_of(job_id)

    def state(self, job_id: int) -> str:
        """squeue's state."""
        return jobs.state(self.sandbox.env, job_id)

    def report(self, job_id: int | str) -> dict[str, Any]:
        """`probing-report JOBID --json`, as a user runs it."""
        return json.loads(self.sandbox.run(["probing-report", str(job_id), "--json"]).stdout)

    def reported(
        self, job_id: int | str, good: Callable[[dict[str, Any]], bool], timeout_s: float = 60
    ) -> dict[str, Any]:
        """The first report that is `good`, of an array's task by 12_3; asked for when rows that it tells of have changed, and now and then."""
        number = int(str(job_id).partition("_")[0])
        calls: list[Any] = [None, 0.0]

        def ask() -> dict[str, Any] | None:
            now = [self.rows(_REPORTED, number, number, number), time.monotonic()]
            if now[0] == calls[0] and now[1] < calls[1] + _ASK_ANEW_S:
                return None
            calls[:] = now
            done = self.sandbox.run(["probing-report", str(job_id), "--json"], check=False)
            if done.returncode != 0:
                return None
            report: dict[str, Any] = json.loads(done.stdout)
            return report if good(report) else None

        return self.until(f"report of job {job_id}", ask, timeout_s)

    def alive(self, node: str) -> None:
        """Waits for the node's agent to have delivered a heartbeat."""
        self.until(
            f"heartbeat of {node}",
            lambda: self.rows("SELECT 1 FROM probing.agent_heartbeat WHERE node = %s", node),
        )


@contextlib.contextmanager
def _untested() -> Iterator[None]:
    """Meanwhile clusters boot with such settings."""
    made = configs.service_toml
    with mock.patch.object(configs, "service_toml", lambda lay: Cluster.untested(made(lay))):
        yield


@contextlib.contextmanager
def _booted() -> Iterator[Cluster]:
    if os.geteuid() != 0 or shutil.which("slurmctld") is None:
        pytest.skip("needs root and Debian's slurm packages")
    with (
        scratch.directory("pce2e-") as directory,
        cluster.Sandbox.up(directory / "s") as sandbox,
        contextlib.closing(Cluster(sandbox)) as found,
    ):
        for node in sandbox.layout.node_names:
            found.alive(node)
        yield found


class Clusters:
    """The clusters that tests of a module share, one at a time: asking for another ends the one before.

    What is drained there stays drained. Tests before a return cost more than all else on a cluster, and hold other nodes, which the next
    test may need. `up` and `gangs` have them.
    """

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._name = ""
        self._cluster: Cluster | None = None

    def close(self) -> None:
        """End the one there is."""
        self._name, self._cluster = "", None
        self._open.close()

    def named(self, name: str) -> Cluster:
        """The cluster of that name, booted if it is not the one there is."""
        if self._cluster is None or name != self._name:
            self.close()
            with _untested():
                self._name, self._cluster = name, self._open.enter_context(_booted())
        return self._cluster


@pytest.fixture(scope="module")
def clusters() -> Iterator[Clusters]:
    """One cluster at a time for all tests of a module."""
    made = Clusters()
    yield made
    made.close()


@pytest.fixture
def up(clusters: Clusters) -> Iterator[Cluster]:
    """Four nodes of eight GPUs, everything running; gone afterwards."""
    clusters.close()
    with _booted() as found:
        yield found


@pytest.fixture(scope="module")
def gangs() -> Iterator[Cluster]:
    """The same for all gangs of a module, one after another."""
    with _booted() as found:
        yield found


@pytest.fixture(scope="module")
def wide(gangs: Cluster) -> Cluster:
    """The same with a budget that lets every node be left out: each test takes another one."""
    config = gangs.sandbox.layout.probing_toml
    text = config.read_text().replace("budget_nodes = 2", "budget_nodes = 9")
    config.write_text(text.replace("frac = 0.5", "frac = 1.0"))
    gangs.sandbox.fault("-", "service-crash")
    gangs.sandbox.fault("-", "service-start")
    return gangs


@pytest.fixture
def calm(clusters: Clusters) -> Cluster:
    """The same for tests that agree on its nodes, one after another: each module says which and how."""
    return clusters.named("calm")


@pytest.fixture
def pair(clusters: Clusters) -> Cluster:
    """Another one, for two tests that take a node each: the budget of a cluster is two."""
    return clusters.named("pair")


@pytest.fixture
def last(clusters: Clusters) -> Cluster:
    """A third one."""
    return clusters.named("last")
