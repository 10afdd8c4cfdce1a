"""The tasks whose cost `service_cost` measures: a Slurm in memory, and what each finds to do."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shutil
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.places import layout
from probing_cluster.control_plane import context
from probing_cluster.control_plane.cli.history import fleet_commands
from probing_cluster.control_plane.owners import answers, handover
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
from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import bulk
from probing_cluster.db import store as db_store
from probing_cluster.lemon import nightly
from probing_cluster.reports.fleet import fleet_page

CLUSTER = "bench"
DAYS = 7
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
