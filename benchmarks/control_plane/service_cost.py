"""What each task of the service costs at 250, 500, 1,000 and 2,000 nodes, and how that grows: one table with fitted exponents.

    .venv/bin/python -m benchmarks.control_plane.service_cost [--nodes 250,500,1000,2000] [--rounds 2] [--tasks pass,gangs]

Per size a database of its own: a week of jobs (6.5 ends per node and day) and events (30 per node and day) as full_size.sql makes them, every
agent's last beat. Each task is the service's own function in this process; Slurm is a twin in memory. Given is the processor time of
this process and that of the database, the least of the rounds, in which the sizes take turns; exponents are the slope of log time over log nodes.
What this process holds is printed after each round: it must not grow from one to the next.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import psutil
import psycopg

from benchmarks.attribution import processes
from benchmarks.db import full_size
from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.places import layout
from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.control_plane.owners import answers, handover
from probing_cluster.control_plane.policy import actions as policy_actions
from probing_cluster.control_plane.policy import policy, view
from probing_cluster.control_plane.service import picture
from probing_cluster.control_plane.service.tasks.jobs import (
    accounting,
    accounts,
    attribution,
    gangs,
    hangs,
    restarts,
)
from probing_cluster.control_plane.service.tasks.nodes import actions, silence
from probing_cluster.control_plane.service.tasks.people import notices
from probing_cluster.core import clock, records, settings, vocabulary
from probing_cluster.db import bulk, migrate, partitions
from probing_cluster.db import store as db_store
from probing_cluster.db.server import embedded
from probing_cluster.lemon import nightly
from probing_cluster.reports.fleet import fleet_page

CLUSTER = "bench"
DAYS = 7
ENDS_PER_NODE_DAY, EVENTS_PER_NODE_DAY = 6.5, 30
_SECTIONS = ("helpers", "attempts", "verdicts", "events", "runs", "heartbeats")
_JOB, _LONG_JOB = 77_000_000, 78_000_000
OWED = 100
"""Mails in one pass."""
_FIELDS = "JobIDRaw,JobID,State,Submit,Eligible,Start,End,ExitCode,NodeList,AllocTRES,User,Account,Partition,JobName,Cluster"


class Slurm:
    """Slurm in memory: its nodes, no running job, and in its accounting a day of jobs and one that has run for seven days."""

    def __init__(self, n_nodes: int, store: db_store.Store, now: datetime) -> None:
        idle = frozenset({"IDLE"})
        self._nodes = [
            view.Node(name=f"n{n}", states=idle, partitions=("gpu",), n_gpus=8) for n in range(n_nodes)
        ]
        ended = store.attempts(since=now - timedelta(days=1), until=now, ended=True)
        began = now - timedelta(days=DAYS)
        long_job = records.JobAttempt(
            cluster=CLUSTER, job_id=_LONG_JOB, submit_at=began, start_at=began, state="RUNNING", nodes=("n0",), n_gpus=8, n_cpus=8
        )  # fmt: skip
        self._lines = [
            (
                a.end_at or datetime.max.replace(tzinfo=UTC),
                dict(zip(_FIELDS.split(","), _sacct(a), strict=True)),
            )
            for a in (*ended, long_job)
        ]

    def nodes(self) -> list[view.Node]:
        """Every node."""
        return self._nodes

    def nothing(self, *_: Any, **__: Any) -> tuple[()]:
        """No jobs, no outages, no places."""
        return ()

    jobs = queue = outages = places = nothing

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        """The text that Slurm's command would print."""
        del environment
        if program == "scontrol":
            return b"AccountingStorageTRES = cpu,gres/gpu\n"
        if program != "sacct":
            return b""
        if arguments == ("-e",):
            return _FIELDS.replace(",", " ").encode()
        delimiter = next(a.partition("=")[2] for a in arguments if a.startswith("--delimiter="))
        fields = next(a.partition("=")[2] for a in arguments if a.startswith("--format=")).split(",")
        given = dict(itertools.pairwise(arguments))
        since = datetime.fromisoformat(given["-S"]).replace(tzinfo=UTC)
        jobs = given["-j"].split(",") if "-j" in given else None
        listed = (
            row for end, row in self._lines if end >= since and (jobs is None or row["JobIDRaw"] in jobs)
        )
        lines = [fields, *([row.get(f, "") for f in fields] for row in listed)]
        return "".join(delimiter.join(line) + "\n" for line in lines).encode()


def _sacct(a: records.JobAttempt) -> tuple[str, ...]:
    start, end = (str(int(at.timestamp())) if at else "" for at in (a.start_at, a.end_at))
    submit = str(int(a.submit_at.timestamp()))
    tres = f"cpu={a.n_cpus},gres/gpu={a.n_gpus},node={len(a.nodes)}"
    job = str(a.job_id)
    return (job, job, a.state, submit, submit, start, end, f"{a.exit_code or 0}:0", ",".join(a.nodes), tres, a.user, a.account,
            a.partition, a.name, CLUSTER)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServiceTask:
    """One thing the service does: what is measured, how often it is done, and what must be there before."""

    name: str
    per_day: float
    run: Callable[[context.Context, int], object]
    before: Callable[[context.Context, int], object] = lambda _service, _n: None


def _unjudged(service: context.Context, _n: int) -> None:
    """The last day has ended and nobody has judged it."""
    now = service.clock.now()
    with psycopg.connect(service.store.url, autocommit=True) as connection:
        day = (CLUSTER, now - timedelta(days=1))
        connection.execute(
            "DELETE FROM probing.verdict v USING probing.job_attempt a WHERE a.cluster = %s AND a.end_at >= %s"
            " AND (a.cluster, a.job_id, a.submit_at) = (v.cluster, v.job_id, v.submit_at)",
            day,
        )
        connection.execute(
            "UPDATE probing.job_attempt SET judged_at = NULL WHERE cluster = %s AND end_at >= %s", day
        )
        connection.execute("VACUUM ANALYZE probing.job_attempt, probing.verdict")


def _stalled(service: context.Context, n: int) -> None:
    """A job on every node, eight ranks each, of which one has not arrived; every node has answered."""
    now = service.clock.now()
    nodes = tuple(f"n{i}" for i in range(n))
    with psycopg.connect(service.store.url, autocommit=True) as connection:
        connection.execute("DELETE FROM probing.gang_verdict WHERE job_id = %s", (_JOB,))
        connection.execute("DELETE FROM probing.health_event WHERE job_id = %s", (_JOB,))
    began = now - timedelta(hours=1)
    service.store.upsert_attempts(
        [records.JobAttempt(cluster=CLUSTER, job_id=_JOB, submit_at=began, start_at=began, state="RUNNING", nodes=nodes, run_key=str(_JOB))]
    )  # fmt: skip
    events = [_of_ranks(now, nodes[1], "rank_stall", {})]
    for i, node in enumerate(nodes):
        ranks = [_rank(8 * i + k, 8 * n) for k in range(8)]
        events.append(_of_ranks(now, node, "rank_snapshot", {"ranks": ranks, "world_size": 8 * n}))
    bulk.load_events(service.store.connection_uri(), events)
    service.memory(gangs.AnsweredStalls).clear()


def _stalled_named(service: context.Context, n: int) -> None:
    """That gang, and what it hangs in is known."""
    _stalled(service, n)
    gangs.run(service)


def _of_ranks(now: datetime, node: str, kind: str, detail: dict[str, Any]) -> records.HealthEvent:
    return records.HealthEvent(
        event_id=uuid.uuid4(), cluster=CLUSTER, node=node, at=now - timedelta(seconds=3), observed_at=now, kind=kind,
        severity=records.Severity.INFO, source="probe", message="", job_id=_JOB, detail=detail,
    )  # fmt: skip


def _rank(number: int, world: int) -> dict[str, Any]:
    arrived = number != 5
    call = {
        "group": "0",
        "seq": 8 if arrived else 7,
        "op": "all_reduce",
        "numel": 4,
        "group_size": world,
        "left": not arrived,
    }
    spin = [{"function": "spin", "file": "/home/u/train.py", "line": 12}]
    return {"rank": number, "pid": 100 + number, "alive": True, "phase": "training", "steps": 7, "stalled": True, "calls": [call],
            "stack": [] if arrived else spin, "moved": not arrived}  # fmt: skip


def _owed(service: context.Context, _n: int) -> None:
    """A hundred owners asked Slurm for mail about ends of the last day."""
    shutil.rmtree(service.config.mail.spool_directory, ignore_errors=True)
    now = service.clock.now()
    ended = service.store.attempts(since=now - timedelta(days=1), until=now, ended=True, states=["FAILED"])
    for a in ended[:OWED]:
        owed = handover.OwedMail(
            job_id=a.job_id, restart_count=a.attempt - 1, recipient="alice@site", subject="Slurm", event="Failed", state=a.state, at=now
        )  # fmt: skip
        handover.put(service.config, owed)


def _incidents(service: context.Context, n: int) -> object:
    """A quarter of the nodes lose their link within a minute, in a day of other events; the chains and what they share."""
    now = service.clock.now()
    known = service.store.events(since=now - timedelta(days=1), min_severity="high")
    lost = [
        dataclasses.replace(
            _of_ranks(now, f"n{i}", "ib_link", {}), at=now - timedelta(milliseconds=40 * i), code="port_down",
            severity=records.Severity.HIGH, source="sysfs", job_id=None,
        )
        for i in range(n // 4)
    ]  # fmt: skip
    at = now - timedelta(days=1)
    rows = (
        records.NodePlace(cluster=CLUSTER, node=f"n{i}", kind=kind, place=f"{kind}{i // size}", since_at=at)
        for i in range(n)
        for kind, size in (("leaf", 16), ("rack", 8), ("pdu", 32))
    )
    chains = incidents.Chains([*known, *lost], lambda: layout.Places(rows))
    return [chains.place([e.event_id]) for e in lost]


@functools.cache
def _storm(n: int) -> view.View:
    """Five links of every node went down a minute ago, and each node has four decisions of the last week."""
    now = datetime.now(UTC)
    at = now - timedelta(seconds=60)
    events = [
        dataclasses.replace(
            _of_ranks(now, f"n{i}", "ib_link", {}), at=at, observed_at=at, code="down", device=f"mlx5_{link}",
            severity=records.Severity.LOW, source="sysfs", job_id=None,
        )
        for i in range(n)
        for link in range(5)
    ]  # fmt: skip
    faults: dict[str, dict[str, object]] = {}
    for event in events:
        fault = {"severity": "low", "code": "down", "event_id": str(event.event_id), "since": clock.iso_z(at)}
        faults.setdefault(event.node, {})[f"ib_link:{event.device}"] = fault
    drains = [
        records.Drain(
            drain_id=uuid.uuid4(), cluster=CLUSTER, node=f"n{i}", at=now - timedelta(days=1), action="drain",
            reason="probing: ib_link", owner="probing", state="resumed", ended_at=now - timedelta(hours=20),
        )
        for i in range(n)
        for _ in range(4)
    ]  # fmt: skip
    return view.View(
        now=now,
        events=tuple(events),
        heartbeats={
            node: records.AgentHeartbeat(cluster=CLUSTER, node=node, at=now, faults=f)
            for node, f in faults.items()
        },
        silent_s=dict.fromkeys(faults, 1.0),
        drains=tuple(drains),
        nodes={
            node: view.Node(name=node, states=frozenset({"IDLE"}), partitions=("gpu",)) for node in faults
        },
    )


def _decided(service: context.Context, n: int) -> object:
    # A picture of its own, as each pass has: what it derives from its rows it derives anew.
    storm, config = dataclasses.replace(_storm(n)), service.config.policy
    assert picture.asks_for_more(storm, config, again=False)
    return policy.decide(storm, config)


def _night(service: context.Context, _n: int) -> object:
    return nightly.score(service.store, service.config, nightly.day_of(service.clock.now()) - nightly.DAY)


def _page(service: context.Context, _n: int) -> object:
    now = service.clock.now()
    about = {"since": now - timedelta(days=DAYS), "until": now, "partition": None, "users": None}
    source = fleet_commands.read_once(service.store)
    found = {
        name: fleet_commands.compute(name, service.store, service.config, about, {}, source).to_json()
        for name in fleet_commands.FIGURES
    }
    return fleet_page.render(CLUSTER, found, fleet_commands.FIGURES, made_at=now)


def _polled(before: timedelta) -> Callable[[context.Context, int], None]:
    """The last poll of accounting was so long ago, and the whole history has just been read."""

    def remember(service: context.Context, _n: int) -> None:
        now = datetime.now(UTC)
        service.store.remember(
            vocabulary.key_of(accounting.CURSOR, service.cluster), clock.iso_z(now - before)
        )
        service.store.remember(vocabulary.key_of(accounting.DEEP, service.cluster), clock.iso_z(now))

    return remember


def _look(service: context.Context, _n: int) -> object:
    service.memory(actions.Looks).everywhere_s = float("-inf")
    return actions.run(service)


TASKS = (
    ServiceTask(
        name="accounting poll: a day's jobs",
        per_day=24.0,
        run=lambda s, _: accounting.run(s),
        before=_polled(timedelta(days=1) - accounting.OVERLAP),
    ),
    ServiceTask(
        name="accounting poll: 30 s, one job of 7 days",
        per_day=86400 / 30,
        run=lambda s, _: accounting.run(s),
        before=_polled(timedelta(seconds=30)),
    ),
    ServiceTask(name="sweep: a look at all nodes", per_day=86400 / 30, run=_look),
    ServiceTask(name="silence: every agent's age", per_day=86400 / 5, run=lambda s, _: silence.run(s)),
    ServiceTask(
        name="pass: a day's ends judged", per_day=1.0, run=lambda s, _: attribution.run(s), before=_unjudged
    ),
    ServiceTask(name="accounts: runs of that day", per_day=1.0, run=lambda s, _: accounts.run(s)),
    ServiceTask(
        name="gangs: one job on every node, 8 ranks each",
        per_day=1.0,
        run=lambda s, _: gangs.run(s),
        before=_stalled,
    ),
    ServiceTask(
        name="hangs: the same gang", per_day=86400 / 2, run=lambda s, _: hangs.run(s), before=_stalled_named
    ),
    ServiceTask(name="restarts: a look", per_day=86400.0, run=lambda s, _: restarts.run(s)),
    ServiceTask(name="notices: a look", per_day=86400 / 2, run=lambda s, _: notices.run(s)),
    ServiceTask(
        name=f"mails: {OWED} verdicts",
        per_day=1.0,
        run=lambda s, _: answers.run(s, s.clock.now()),
        before=_owed,
    ),
    ServiceTask(name="incidents: a quarter of the nodes, and where", per_day=1.0, run=_incidents),
    ServiceTask(
        name="decisions: a storm of 5 faults a node",
        per_day=86400.0,
        run=_decided,
        before=lambda _, n: _storm(n),
    ),
    ServiceTask(name="lemon night", per_day=1.0, run=_night),
    ServiceTask(name="page: every fleet figure of the week", per_day=24.0, run=_page),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CpuTime:
    """Processor seconds of one run of a task: this process's, and the database server's."""

    service_s: float
    server_s: float

    @property
    def both_s(self) -> float:
        """Of both together."""
        return self.service_s + self.server_s


class Site:
    """A cluster of so many nodes: its database and its service."""

    def __init__(self, n_nodes: int) -> None:
        self.n_nodes = n_nodes
        self._home = Path(tempfile.mkdtemp(prefix="probing-cost-"))
        self._home.chmod(0o755)
        url = embedded.ensure(self._home)
        migrate.upgrade(url)
        partitions.maintain(url, retention_days=400)
        made = (round(n_nodes * DAYS * each) for each in (ENDS_PER_NODE_DAY, EVENTS_PER_NODE_DAY))
        full_size.fill(url, *made, n_nodes=n_nodes, n_days=DAYS, only=_SECTIONS, show=False)
        self._store = db_store.Store.open(url)
        slurm = Slurm(n_nodes, self._store, datetime.now(UTC))
        self._service = context.Context(
            config=settings.Settings(
                cluster=settings.ClusterSettings(name=CLUSTER),
                mail=settings.MailSettings(host="localhost", spool_directory=str(self._home / "mail")),
                # A file that is not there: what is told stays in the outbox.
                notices=settings.NoticesSettings(
                    routes=(settings.NoticeRoute(name="ops", url_file=str(self._home / "urls")),)
                ),
            ),
            store=self._store,
            run_slurm=slurm,
            slurm=cast("policy_actions.SlurmOperations", slurm),
        )

    def close(self) -> None:
        """Stop the server and remove it."""
        self._store.close()
        embedded.stop(self._home)
        shutil.rmtree(self._home, ignore_errors=True)

    def used(self, task: ServiceTask) -> CpuTime:
        """What one run of a task costs."""
        task.before(self._service, self.n_nodes)
        own, server = time.process_time(), processes.server_cpu_s(self._home)
        task.run(self._service, self.n_nodes)
        server_s = processes.server_cpu_s(self._home) - server
        return CpuTime(service_s=time.process_time() - own, server_s=server_s)


def exponent(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log nodes."""
    return statistics.linear_regression(
        [math.log(n) for n in nodes], [math.log(max(s, 1e-3)) for s in seconds]
    ).slope


def main() -> None:
    """Measure every size, print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", default="250,500,1000,2000")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tasks", default="", help="only those whose name begins with one of these words")
    wanted = parser.parse_args()
    sizes = sorted(int(n) for n in wanted.nodes.split(","))
    tasks = [task for task in TASKS if task.name.startswith(tuple(wanted.tasks.split(",")))]
    found: dict[int, dict[str, CpuTime]] = {n: {} for n in sizes}
    with contextlib.ExitStack() as stack:
        sites = []
        for n_nodes in sizes:
            sites.append(Site(n_nodes))
            stack.callback(sites[-1].close)
        # The sizes take turns, so that the machine's other work strikes them alike; the first round opens connections.
        for number in range(wanted.rounds + 1):
            for site in sites:
                used = {task.name: site.used(task) for task in tasks}
                if number:
                    best = found[site.n_nodes]
                    for name, cost in used.items():
                        best[name] = min(cost, best.get(name, cost), key=lambda each: each.both_s)
                held_mb = psutil.Process().memory_info().rss / 1e6
                each = ", ".join(
                    f"{name.split(':')[0]} {cost.service_s:.2f} + {cost.server_s:.2f}"
                    for name, cost in used.items()
                )
                at = f"round {number}, {site.n_nodes:,} nodes, load {os.getloadavg()[0]:.1f}"
                print(f"{at}, {held_mb:.0f} MB resident: {each}", flush=True)
    print(table(sizes, [task for task in tasks if wanted.rounds], found))


def table(
    sizes: Sequence[int], tasks: Sequence[ServiceTask], found: Mapping[int, Mapping[str, CpuTime]]
) -> str:
    """What each task costs at each size (the service + the server), and how that grows: of both, of the service, of the server."""
    heads = [f"{n:,} nodes" for n in sizes]
    lines = [
        f"| task, CPU seconds: service + server | {' | '.join(heads)} | exponent (service, server) | a day at the last size |",
        "|---" * (len(sizes) + 3) + "|",
    ]
    for task in tasks:
        costs = [found[n][task.name] for n in sizes]
        cells = " | ".join(f"{c.service_s:.2f} + {c.server_s:.2f}" for c in costs)
        both, own, server = (
            exponent(sizes, [seconds(c) for c in costs])
            for seconds in (lambda c: c.both_s, lambda c: c.service_s, lambda c: c.server_s)
        )
        day_s = costs[-1].both_s * task.per_day
        lines.append(f"| {task.name} | {cells} | {both:.2f} ({own:.2f}, {server:.2f}) | {day_s:.0f} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
