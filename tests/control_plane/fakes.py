"""Twins of what lies outside: Slurm's hands, sacct's output; and a service that is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import view
from probing_cluster.core import errors, records
from probing_cluster.db import delivery, load
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes
from probing_cluster.slurm_plugins.live import live_records

NOW = datetime.now(UTC).replace(microsecond=0)


def jobs_of_allocations_read(store: db_store.Store, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The jobs whose allocations are read from now on."""
    jobs: set[int] = set()
    read = store.allocations

    def counted(*args: Any, **kwargs: Any) -> list[records.JobAllocation]:
        found = read(*args, **kwargs)
        jobs.update(a.job_id for a in found)
        return found

    monkeypatch.setattr(store, "allocations", counted)
    return jobs


def live_job(job_id: int, **changes: Any) -> live_records.LiveJob:
    """A job of alice's as Slurm holds it: it ran on n1 and n2 and failed."""
    values: dict[str, Any] = {
        "job_id": job_id, "name": "train", "user": "alice", "partition": "gpu", "state": "FAILED", "batch": True,
        "requeue": True, "command": "/home/alice/train.sh", "work_dir": "/home/alice", "nodes": ("n1", "n2"),
        "submit_at": NOW - timedelta(minutes=11), "start_at": NOW - timedelta(minutes=10), "priority": 100,
    }  # fmt: skip
    return live_records.LiveJob(**(values | changes))


class FakeSlurm:
    """Slurm as the policy sees it, in memory; `acts` is what it was told."""

    def __init__(self) -> None:
        names = ("n1", "n2", "n3", "n4")
        self.state = {
            n: view.Node(name=n, states=frozenset({"IDLE"}), partitions=("gpu",), n_gpus=8) for n in names
        }
        self.running: dict[int, view.ActiveJob] = {}
        self.acts: list[tuple[str, ...]] = []
        self.held: dict[int, live_records.LiveJob] = {}
        """Slurm's whole queue: jobs that wait, run or have ended."""
        self.out: list[view.Outage] = []
        self.switches: list[tuple[str, str, str]] = []
        self.down = False
        self.outcome: slurm_nodes.Outcome | None = None

    def cluster_name(self) -> str:
        self._answer()
        return "c"

    def nodes(self) -> list[view.Node]:
        self._answer()
        return list(self.state.values())

    def named_nodes(self) -> list[view.Node]:
        return self.nodes()

    def jobs(self) -> list[view.ActiveJob]:
        self._answer()
        return list(self.running.values())

    def node(self, name: str) -> view.Node | None:
        self._answer()
        return self.state.get(name)

    def job(self, job_id: int) -> view.ActiveJob | None:
        self._answer()
        return self.running.get(job_id)

    def outages(self, since: datetime, until: datetime) -> list[view.Outage]:
        self._answer()
        return [o for o in self.out if since <= o.start_at < until]

    def places(self) -> list[tuple[str, str, str]]:
        self._answer()
        return self.switches

    def drain(self, name: str, reason: str, reservation: str = "") -> slurm_nodes.Outcome:
        del reservation
        return self._act("drain", name, reason, {"DRAIN"})

    def adopt(self, name: str, reason: str) -> slurm_nodes.Outcome:
        return self._act("adopt", name, reason, {"DRAIN"})

    def reboot(self, name: str) -> slurm_nodes.Outcome:
        self._answer()
        self.acts.append(("reboot", name))
        return slurm_nodes.Outcome(state="done")

    def resume(self, name: str, reservation: str = "") -> slurm_nodes.Outcome:
        del reservation
        return self._act("resume", name, "", set())

    def requeue(self, job: view.ActiveJob) -> slurm_nodes.Outcome:
        self._answer()
        self.acts.append(("requeue", str(job.job_id)))
        del self.running[job.job_id]
        return slurm_nodes.Outcome(state="done")

    def queue(self) -> list[live_records.LiveJob]:
        self._answer()
        return list(self.held.values())

    def requeue_held(
        self, job_id: int, start_at: datetime, restart: int, *, running: bool = False
    ) -> slurm_nodes.Outcome:
        assert (self.held[job_id].state == "RUNNING") is running
        del start_at
        for component in self._components(job_id):
            self._change(
                component, "requeue_held", state="PENDING", priority=0, nodes=(), start_at=None,
                restart_count=restart + 1, description="job_requeued_in_held_state",
            )  # fmt: skip
        return slurm_nodes.Outcome(state="done")

    def exclude(
        self, job_id: int, restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> slurm_nodes.Outcome:
        assert self.held[job_id].restart_count == restart
        nodes = (set(self.held[job_id].excluded_nodes) | set(add)) - set(remove)
        return self._change(job_id, "exclude", excluded_nodes=tuple(sorted(nodes)))

    def depend(self, job_id: int, on: int) -> slurm_nodes.Outcome:
        return self._change(job_id, "depend", dependency=f"afterok:{on}(unfulfilled)", reason="Dependency")

    def release(self, job_id: int, restart: int) -> slurm_nodes.Outcome:
        assert self.held[job_id].restart_count == restart
        for component in self._components(job_id):
            self._change(component, "release", priority=100, description="")
        return slurm_nodes.Outcome(state="done")

    def _components(self, leader: int) -> list[int]:
        return [j.job_id for j in self.held.values() if leader in (j.het_job_id, j.job_id)]

    def _change(self, job_id: int, verb: str, **changes: Any) -> slurm_nodes.Outcome:
        self._answer()
        if self.outcome is not None:
            return self.outcome
        self.acts.append((verb, str(job_id)))
        self.held[job_id] = dataclasses.replace(self.held[job_id], **changes)
        return slurm_nodes.Outcome(state="done")

    def _act(self, verb: str, name: str, reason: str, flags: set[str]) -> slurm_nodes.Outcome:
        self._answer()
        if self.outcome is not None:
            return self.outcome
        self.acts.append((verb, name, reason) if reason else (verb, name))
        node = self.state[name]
        states = (node.states - {"DRAIN"}) | flags
        self.state[name] = view.Node(
            name=name,
            states=states,
            reason=reason,
            partitions=node.partitions,
            n_gpus=node.n_gpus,
            boot_at=node.boot_at,
        )
        return slurm_nodes.Outcome(state="done")

    def _answer(self) -> None:
        if self.down:
            raise errors.SlurmUnavailable("slurmctld is away")


class Sacct:
    """A runner that answers `sacct` with rows given as dictionaries."""

    FIELDS = "JobIDRaw,JobID,State,Submit,Eligible,Start,End,ExitCode,NodeList,AllocTRES,User,UID,Account,Partition,Reason,JobName,Cluster"

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []
        self.calls: list[Sequence[str]] = []
        self.down = False
        self.users = "eve|Operator\nalice|None\n"
        self.accounts = "lab|carol\n"
        self.waiting: str | None = None
        """What squeue says of a job and its tasks, without their dependency; None where it knows none."""
        self.dependency = "(null)"
        self.required, self.excluded = "(null)", "(null)"
        """Nodes that it asks for, and that it excludes, as squeue prints them."""
        self.listed_as = ""
        """Its id as squeue prints it; empty: as it was asked for."""
        self.job_name = "train"

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        del environment
        if self.down:
            raise errors.SlurmUnavailable("slurmdbd is away")
        if program == "squeue":
            if self.waiting is None:
                raise errors.SlurmUnavailable("slurm_load_jobs error: Invalid job id specified")
            rows = (line.split("|") for line in self.waiting.splitlines())
            job = self.listed_as or arguments[arguments.index("-j") + 1]
            return "".join(
                f"{state}|{user}|{job}|{account}|{self.dependency}|{job}|{self.required}|{self.excluded}|{reason}|{self.job_name}\n"
                for state, user, account, reason in rows
            ).encode()
        if program == "scontrol":
            return b"AccountingStorageTRES = cpu,gres/gpu\n"
        if program == "sacctmgr":
            return (self.users if "user" in arguments else self.accounts).encode()
        if "--format=SubmitLine" in arguments:
            return b"sbatch train.sh\n"
        if arguments == ("-e",):
            return self.FIELDS.replace(",", " ").encode()
        self.calls.append(arguments)
        delimiter = next(a.partition("=")[2] for a in arguments if a.startswith("--delimiter="))
        fields = next(a.partition("=")[2] for a in arguments if a.startswith("--format=")).split(",")
        given = dict(itertools.pairwise(arguments))
        rows = (row for row in self.rows if _selected(row, given))
        lines = [fields, *([row.get(f, "") for f in fields] for row in rows)]
        return "".join(delimiter.join(line) + "\n" for line in lines).encode()


def _selected(row: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Whether slurmdbd gives this row: by job id or its array's, or eligible before the window's end and not ended before its start."""
    if "-j" in given:
        return not {row["JobIDRaw"], row["JobID"].partition("_")[0]}.isdisjoint(given["-j"].split(","))
    if "-S" not in given:
        return True
    since, until = (datetime.fromisoformat(f"{given[k]}+00:00").timestamp() for k in ("-S", "-E"))
    end = row.get("End", "")
    return float(row["Eligible"]) <= until and (end in ("", "Unknown") or float(end) >= int(since))


def row(job_id: int, **changes: str) -> dict[str, str]:
    """One row of sacct: a COMPLETED job of 16 GPUs on two nodes, ten minutes long."""
    start = int((NOW - timedelta(minutes=20)).timestamp())
    values = {
        "JobIDRaw": str(job_id),
        "JobID": str(job_id),
        "State": "COMPLETED",
        "Submit": str(start - 60),
        "Eligible": str(start - 60),
        "Start": str(start),
        "End": str(start + 600),
        "ExitCode": "0:0",
        "NodeList": "n[1-2]",
        "AllocTRES": "cpu=16,gres/gpu=16,node=2",
        "User": "alice",
        "Account": "lab",
        "Partition": "gpu",
        "JobName": "train",
        "Cluster": "c",
    }
    return values | changes


def row_never_started(job_id: int, **changes: str) -> dict[str, str]:
    """One row of sacct: alice's job, which she cancelled while it waited."""
    values = {
        "State": "CANCELLED by 1001",
        "UID": "1001",
        "Start": "None",
        "NodeList": "None assigned",
        "AllocTRES": "",
    }
    return row(job_id, **values | changes)


def deliver(
    store: db_store.Store,
    node: str,
    *events: records.HealthEvent,
    faults: bool = True,
    jobs: tuple[int, ...] = (),
    allocations: Sequence[records.JobAllocation] = (),
    at: datetime = NOW,
    beat_s: float = 10.0,
) -> None:
    """What a node's agent does: events, and a heartbeat that confirms the grave ones."""
    active = {
        f"{e.kind}:{e.device or ''}": {
            "severity": str(e.severity), "event_id": str(e.event_id), "event_ids": [str(e.event_id)],
            "code": e.code, "gpu_uuid": e.gpu_uuid, "since": e.at.isoformat(), "confirmed_at": at.isoformat(),
            "message": e.message,
        }
        for e in events
        if e.severity is not records.Severity.INFO
    }  # fmt: skip
    beat = records.AgentHeartbeat(
        cluster="c",
        node=node,
        at=at,
        boot_id="b",
        beat_s=beat_s,
        jobs=jobs,
        faults=active if faults else {},
    )
    delivery.Delivery(store.connection_uri(), "c", node).deliver(
        events=list(events), heartbeat=beat, allocations=list(allocations)
    )


@contextlib.contextmanager
def answering(
    url: str,
    node: str,
    faults: Mapping[str, Any] | None = None,
    *,
    jobs: tuple[int, ...] = (),
    acknowledges: bool = True,
) -> Iterator[list[load.Request]]:
    """An agent that delivers a heartbeat with `faults` again and again, and says of every request that it is done; the requests."""
    stopped, stored = threading.Event(), threading.Event()
    calls: list[load.Request] = []

    def live() -> None:
        door = delivery.Delivery(url, "c", node)
        while not stopped.is_set():
            beat = records.AgentHeartbeat(
                cluster="c",
                node=node,
                at=datetime.now(UTC),
                boot_id="b",
                faults=dict(faults or {}),
                jobs=jobs,
            )
            done = [r.request_id for r in calls] if acknowledges else []
            known = {r.request_id for r in calls}
            ack = door.deliver(heartbeat=beat, acknowledged=done)
            calls.extend(r for r in ack.requests if r.request_id not in known)
            stored.set()
            stopped.wait(0.1)
        door.close()

    agent = threading.Thread(target=live)
    agent.start()
    try:
        assert stored.wait(30), "no heartbeat was stored"
        yield calls
    finally:
        stopped.set()
        agent.join()


class Killed(BaseException):
    """The process is gone: no handler of ours runs."""


def spend_budget_on_a_test(service: context.Context, node: str) -> None:
    """One node of ours may be out, and this one is: in our reservation, under test."""
    policy = dataclasses.replace(
        service.config.policy, budget_nodes=1, budget_frac=0.5, budget_partition_frac=0.5
    )
    service.config = dataclasses.replace(service.config, policy=policy)
    drained = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node=node, at=NOW - timedelta(minutes=10), action="drain",
        reason="probing: xid 79 gpu1", owner="probing", state="done",
    )  # fmt: skip
    service.store.save_drain(drained)
    made = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node=node, drain_id=drained.drain_id, reason=drained.reason,
        cause="gpu", state="testing", opened_at=NOW, changed_at=NOW,
    )  # fmt: skip
    assert service.store.open_incident(made)


def killed_at(step: str, service: context.Context, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the service die just before or just after one step."""
    when, _, name = step.partition(" ")
    owner: Any = slurm if hasattr(slurm, name) else service.store
    work: Callable[..., Any] = getattr(owner, name)

    def dying(*given: Any, **named: Any) -> Any:
        if when == "after":
            work(*given, **named)
        raise Killed

    monkeypatch.setattr(owner, name, dying)
