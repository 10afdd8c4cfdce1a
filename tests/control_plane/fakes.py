"""Twins of what lies outside: Slurm's hands, sacct's output, the clock."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.control_plane.policy import view
from probing_cluster.core import errors, records
from probing_cluster.db import delivery, load
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes

NOW = datetime.now(UTC).replace(microsecond=0)


class Clock:
    """A clock that only tests move."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.at.timestamp()


class Hands:
    """Slurm as the policy sees it, in memory; `acts` is what it was told."""

    def __init__(self) -> None:
        names = ("n1", "n2", "n3", "n4")
        self.state = {
            n: view.Node(name=n, states=frozenset({"IDLE"}), partitions=("gpu",), n_gpus=8) for n in names
        }
        self.running: dict[int, view.Job] = {}
        self.acts: list[tuple[str, ...]] = []
        self.excluded: list[view.Exclusion] = []
        self.out: list[view.Outage] = []
        self.switches: dict[str, str] = {}
        self.down = False
        self.says: slurm_nodes.Outcome | None = None

    def nodes(self) -> list[view.Node]:
        self._answer()
        return list(self.state.values())

    def jobs(self) -> list[view.Job]:
        self._answer()
        return list(self.running.values())

    def node(self, name: str) -> view.Node | None:
        self._answer()
        return self.state.get(name)

    def job(self, job_id: int) -> view.Job | None:
        self._answer()
        return self.running.get(job_id)

    def exclusions(self) -> list[view.Exclusion]:
        self._answer()
        return self.excluded

    def outages(self, since: datetime, until: datetime) -> list[view.Outage]:
        self._answer()
        return [o for o in self.out if since <= o.start_at < until]

    def places(self) -> dict[str, str]:
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

    def requeue(self, job: view.Job) -> slurm_nodes.Outcome:
        self._answer()
        self.acts.append(("requeue", str(job.job_id)))
        del self.running[job.job_id]
        return slurm_nodes.Outcome(state="done")

    def _act(self, verb: str, name: str, reason: str, flags: set[str]) -> slurm_nodes.Outcome:
        self._answer()
        if self.says is not None:
            return self.says
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

    FIELDS = "JobIDRaw,JobID,State,Submit,Eligible,Start,End,ExitCode,NodeList,AllocTRES,User,Account,Partition,JobName,Cluster"

    def __init__(self) -> None:
        self.rows: list[dict[str, str]] = []
        self.asked: list[Sequence[str]] = []
        self.down = False
        self.users = "eve|Operator\nalice|None\n"
        self.accounts = "lab|carol\n"

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        del environment
        if self.down:
            raise errors.SlurmUnavailable("slurmdbd is away")
        if program == "scontrol":
            return b"AccountingStorageTRES = cpu,gres/gpu\n"
        if program == "sacctmgr":
            return (self.users if "user" in arguments else self.accounts).encode()
        if arguments == ("-e",):
            return self.FIELDS.replace(",", " ").encode()
        self.asked.append(arguments)
        delimiter = next(a.partition("=")[2] for a in arguments if a.startswith("--delimiter="))
        fields = next(a.partition("=")[2] for a in arguments if a.startswith("--format=")).split(",")
        lines = [fields, *([row.get(f, "") for f in fields] for row in self.rows)]
        return "".join(delimiter.join(line) + "\n" for line in lines).encode()


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
    standing = {
        f"{e.kind}:{e.device or ''}": {
            "severity": str(e.severity), "event_id": str(e.event_id), "event_ids": [str(e.event_id)],
            "code": e.code, "gpu_uuid": e.gpu_uuid, "since": e.at.isoformat(), "message": e.message,
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
        faults=standing if faults else {},
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
    stopped, heard = threading.Event(), threading.Event()
    asked: list[load.Request] = []

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
            done = [r.request_id for r in asked] if acknowledges else []
            known = {r.request_id for r in asked}
            ack = door.deliver(heartbeat=beat, acknowledged=done)
            asked.extend(r for r in ack.requests if r.request_id not in known)
            heard.set()
            stopped.wait(0.1)
        door.close()

    agent = threading.Thread(target=live)
    agent.start()
    try:
        assert heard.wait(30), "no heartbeat was stored"
        yield asked
    finally:
        stopped.set()
        agent.join()
