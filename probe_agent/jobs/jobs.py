"""The running and the recently ended jobs of this node, as Prolog and Epilog reported them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, errors, records, sanitize
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.spool import codec, spool

MAX_JOBS = 4096
"""Running jobs remembered; a node never runs that many. Of more, the oldest is forgotten."""
MAX_LOGS = 32
"""Files of one job's output on one node that are remembered and read."""
MAX_PATH_BYTES, MAX_PATHS_BYTES = 1024, 16 * 1024
"""Longest path of such a file, and all of a job's together: a process chooses them, and they are stored at each change of the job."""
MAX_UNREAD, _UNREAD_CHARS = 8, 200
"""Longer paths of a job that its report names, and characters of each."""
MAX_ENDED = 64
"""Ended jobs remembered, so that a later request can still collect what they left."""


@dataclass(frozen=True, kw_only=True)
class NodeJob:
    """One start of one job on this node."""

    job_id: int
    started_at: datetime
    restart_count: int = 0
    uid: int | None = None
    gid: int | None = None
    gpus: str = ""
    gpu_uuids: tuple[str, ...] | None = None
    stdout: str = ""
    """As Slurm gives it: a filename pattern, or a path."""
    stderr: str = ""
    """Empty where both go to one file."""
    logs: tuple[str, ...] = ()
    """Further files that its processes on this node write their output to, as /proc showed them."""
    unread: tuple[str, ...] = ()
    """Beginnings of the paths of further ones that are not read, because their paths are too long."""
    before: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Output file to (inode, size, log_parts.mark) of what it held before the job began; without files that were empty."""
    work_dir: str = ""
    partition: str = ""
    nodelist: str = ""
    job_name: str = ""
    released_at: datetime | None = None
    collected: bool = False
    """Everything it left has been stored since its release; only its page directory may still be there."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slurm_ids(self) -> list[int]:
        """The job's own id, and those of its array and of its het job: Slurm's messages use any of them."""
        return [
            self.job_id,
            *(n for k in ("array_job_id", "het_job_id") if isinstance(n := self.extra.get(k), int)),
        ]

    def allocation(self, identity: identity.Identity) -> records.JobAllocation:
        """The row of this start."""
        given = {
            "stdout": self.stdout,
            "stderr": self.stderr,
            "work_dir": self.work_dir,
            "partition": self.partition,
            "job_name": self.job_name,
            "gid": self.gid,
            **self.extra,
        }
        return records.JobAllocation(
            cluster=identity.cluster,
            node=identity.node,
            job_id=self.job_id,
            restart_count=self.restart_count,
            at=self.started_at,
            uid=self.uid,
            gpu_uuids=self.gpu_uuids,
            gpu_indices=self.gpus,
            released_at=self.released_at,
            detail=sanitize.clean_all({k: v for k, v in given.items() if v not in ("", None)}),
        )

    def item(self, identity: identity.Identity) -> spool.SpoolItem:
        """The row as a spool item. Start and release are two items, so that neither replaces the other in the spool."""
        ended = self.released_at is not None
        position = f"{self.job_id}:{self.restart_count}:{self.started_at.timestamp():.6f}:{ended}"
        return spool.SpoolItem(
            id=records.make_event_id(identity.cluster, identity.node, "allocation", position).bytes,
            lane="allocation",
            rank=spool.RANK[records.Severity.HIGH],
            body=codec.encode(self.allocation(identity)),
        )

    def logs_item(
        self, identity: identity.Identity, logs: Sequence[Mapping[str, Any]], *, mark: str = "logs"
    ) -> spool.SpoolItem:
        """The row of this start with `logs` added, which reports show; `mark` tells such rows of one start apart."""
        allocation = self.allocation(identity)
        # A job is collected again once its array's numbers are known. With the same identity, the second row would be dropped.
        part = f"{mark}:ids" if self.extra.get("ids_known") else mark
        position = f"{self.job_id}:{self.restart_count}:{self.started_at.timestamp():.6f}:{part}"
        return spool.SpoolItem(
            id=records.make_event_id(identity.cluster, identity.node, "allocation", position).bytes,
            lane="allocation",
            rank=spool.RANK[records.Severity.INFO],
            body=codec.encode(replace(allocation, detail={**allocation.detail, "logs": list(logs)})),
        )


class JobBook:
    """The running jobs and the last ended ones. Running jobs survive a restart of the agent, not of the node."""

    def __init__(self, boot_id: str, states: Mapping[str, Any] | None = None) -> None:
        """`states`: see `stored_states`."""
        self._boot_id = boot_id
        self._jobs: dict[int, NodeJob] = {}
        self._ended: dict[int, NodeJob] = {}
        self._stored: dict[str, NodeJob | None] = dict.fromkeys(states or ())
        """State to the job it was last given for; None for a state of another agent."""
        for state in _states_of_jobs(states or {}):
            job = _from_row(state["job"])
            if job.released_at is not None:
                self._ended[job.job_id] = job
            elif state["boot_id"] == boot_id:
                self._jobs[job.job_id] = job
        self._ended = dict(
            sorted(self._ended.items(), key=lambda one: one[1].released_at or one[1].started_at)
        )

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(sorted(self._jobs))

    def running_since(self, at: datetime) -> list[NodeJob]:
        """The running jobs that began after `at`."""
        return [job for job in self._jobs.values() if job.started_at > at]

    @property
    def ended(self) -> frozenset[int]:
        """The jobs that ended here lately and do not run here again."""
        return frozenset(self._ended.keys() - self._jobs.keys())

    def get(self, job_id: int) -> NodeJob | None:
        """The job as last known, running or lately ended."""
        return self._jobs.get(job_id) or self._ended.get(job_id)

    def allocated(self) -> dict[int, tuple[str, ...]]:
        """Running job to the UUIDs of its GPUs here, where they are known."""
        return {j.job_id: j.gpu_uuids for j in self._jobs.values() if j.gpu_uuids is not None}

    def sluids(self) -> dict[str, int]:
        """SLUID to job id, of the jobs whose Prolog was told one (Slurm 25.11 and later); cgroups bear it from 26.05 on."""
        jobs = (*self._ended.values(), *self._jobs.values())
        return {str(j.extra["sluid"]): j.job_id for j in jobs if "sluid" in j.extra}

    def uids(self) -> frozenset[int]:
        """Owners of the running jobs."""
        return frozenset(j.uid for j in self._jobs.values() if j.uid is not None)

    def reboot(self, boot_id: str) -> None:
        """Forget the running jobs: none of them has survived the reboot."""
        self._boot_id = boot_id
        self._jobs.clear()

    def start(self, job: NodeJob) -> NodeJob:
        """Record a start and return it. A repeated Prolog of the same start (slurmd retries) keeps the first time."""
        known = self._jobs.get(job.job_id)
        if known is not None and known.restart_count == job.restart_count:
            job = replace(job, started_at=known.started_at)
        elif len(self._jobs) >= MAX_JOBS:
            del self._jobs[min(self._jobs, key=lambda j: self._jobs[j].started_at)]
        self._jobs[job.job_id] = job
        return job

    def updated_after(self, job_id: int, at: datetime) -> bool:
        """Whether the book has a start or an end of the job that is later than `at`."""
        job = self.get(job_id)
        return job is not None and (job.released_at or job.started_at) > at

    def includes(self, op: str, job: NodeJob) -> bool:
        """Whether the book has what a hook asked about `job` at its `started_at`: its answer came too late for the hook."""
        running, ended = self._jobs.get(job.job_id), self._ended.get(job.job_id)
        if op == "prolog":
            return any(
                k.restart_count == job.restart_count and k.started_at >= job.started_at
                for k in (running, ended)
                if k is not None and k.extra.get("prolog_seen") is not False
            )
        return (
            ended is not None
            and ended.released_at is not None
            and _is_epilog_of(job, ended)
            and job.started_at <= ended.released_at
            and (ended.started_at <= job.started_at or ended.extra.get("prolog_seen") is False)
        )

    def add_output_files(self, job: NodeJob, logs: Collection[str], ids: Mapping[str, Any]) -> None:
        """Add output files and ids found after the job's start; no effect once that start has ended."""
        known = self._jobs.get(job.job_id)
        if known is not None and known.restart_count == job.restart_count:
            listed, too_long = _bounded(dict.fromkeys((*known.logs, *logs)))
            unread = tuple(dict.fromkeys((*known.unread, *(path[:_UNREAD_CHARS] for path in too_long))))
            added = replace(
                known, logs=listed, unread=unread[:MAX_UNREAD], extra={**known.extra, **_slurm_ids(ids)}
            )
            self._jobs[job.job_id] = added if added != known else known

    def set_preexisting_output(self, job: NodeJob, before: Mapping[str, Sequence[Any]]) -> None:
        """Set what stood in the job's output files before it began; `before` as in NodeJob."""
        for kept in (self._jobs, self._ended):
            known = kept.get(job.job_id)
            if known is not None and known.restart_count == job.restart_count:
                kept[job.job_id] = replace(known, before=before)

    def set_accounting_ids(self, job_id: int, ids: Mapping[str, Any]) -> NodeJob | None:
        """Add the ids and names that accounting has for an ended job, so that its files can be named; returns the job.

        `ids` of another start of the job, and values of a wrong type, are ignored. None where the job is not in the book.
        """
        known = self.get(job_id)
        if known is None or known.released_at is None or ids.get("restart_count") != known.restart_count:
            return known
        self._ended[job_id] = replace(known, extra={**known.extra, **_slurm_ids(ids), "ids_known": True})
        return self._ended[job_id]

    def end(self, job: NodeJob, now: datetime) -> NodeJob:
        """Move a job from the running ones to the ended ones; returns it with the time of its release.

        A job whose Prolog was not seen is made of the Epilog's request, with `prolog_seen` false in its `extra`.
        """
        known = self._jobs.pop(job.job_id, None)
        if known is None or not _is_epilog_of(job, known):
            ended = replace(job, released_at=now, extra={**job.extra, "prolog_seen": False})
        else:
            paths = {k: v for k, v in vars(job).items() if k in {"stdout", "stderr", "work_dir"} and v}
            ended = replace(known, released_at=now, **paths)
        self._ended.pop(job.job_id, None)
        self._ended[job.job_id] = ended
        while len(self._ended) > MAX_ENDED:
            # The oldest whose collection has finished: the others are collected again after a crash.
            del self._ended[
                next((j.job_id for j in self._ended.values() if j.collected), next(iter(self._ended)))
            ]
        return ended

    def uncollected(self) -> list[NodeJob]:
        """Ended jobs whose collection has not finished, because the agent was restarted for example."""
        return [j for j in self._ended.values() if not j.collected]

    def finished(self) -> list[int]:
        """Ids of jobs that have been collected and do not run here again: nothing of theirs is needed any more."""
        return [j.job_id for j in self._ended.values() if j.collected and j.job_id not in self._jobs]

    def mark_collected(self, job: NodeJob) -> None:
        """Record that everything an ended job left is stored, so that its collection is not repeated."""
        known = self._ended.get(job.job_id)
        if known is not None and known.released_at == job.released_at:
            self._ended[job.job_id] = replace(known, collected=True)

    def changed_states(self) -> dict[str, Any]:
        """The spool's states that differ from the last call's, to be stored: one for each job, None for a job no longer known.

        One job's paths are bounded, those of all jobs are not: a Prolog must not wait until all of them are written.
        """
        now = {f"{STATES}running:{k}": job for k, job in self._jobs.items()}
        now |= {f"{STATES}ended:{k}": job for k, job in self._ended.items()}
        changed: dict[str, Any] = dict.fromkeys(self._stored.keys() - now.keys())
        for name, job in now.items():
            if self._stored.get(name) is not job:
                changed[name] = {"boot_id": self._boot_id, "job": _row(job)}
        self._stored = dict(now)
        return changed


STATES = "job:"
"""What the names of the spool's states of single jobs begin with."""
_ALL_JOBS = "jobs"
"""The state of all jobs together that an earlier release keeps."""


def stored_states(stored: spool.Spool) -> dict[str, Any]:
    """The states of jobs in a spool, those of an earlier release included."""
    earlier = stored.state(_ALL_JOBS)
    return stored.states(STATES) | ({} if earlier is None else {_ALL_JOBS: earlier})


def _states_of_jobs(states: Mapping[str, Any]) -> list[dict[str, Any]]:
    earlier = states.get(_ALL_JOBS)
    if earlier is None:
        return [*states.values()]
    # This release removes that state with its first change. If it is there, the earlier release ran last, and knew of no other state.
    rows = (*earlier["jobs"].values(), *earlier["ended"].values())
    return [{"boot_id": earlier["boot_id"], "job": row} for row in rows]


def _bounded(paths: Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """Of these paths the first MAX_LOGS that are within the bounds, and those that are too long."""
    listed: list[str] = []
    too_long: list[str] = []
    left = MAX_PATHS_BYTES
    for path in paths:
        n_bytes = len(path.encode("utf-8", "surrogatepass"))
        if n_bytes > min(MAX_PATH_BYTES, left):
            too_long.append(path)
        elif len(listed) < MAX_LOGS:
            listed.append(path)
            left -= n_bytes
    return tuple(listed), too_long


def _slurm_ids(ids: Mapping[str, Any]) -> dict[str, Any]:
    """Ids and names that Slurm gave a job and filename patterns use, without values of a wrong type."""
    numbers = {k: ids[k] for k in ("array_job_id", "array_task_id") if _is_id(ids.get(k))}
    words = {k: ids[k][:1024] for k in ("user", "job_name") if isinstance(ids.get(k), str)}
    return {**numbers, **words, **({"ids_known": True} if ids.get("ids_known") is True else {})}


_OURS = frozenset(
    {"started_at", "released_at", "gpu_uuids", "collected", "extra", "logs", "unread", "before"}
)
"""Fields of a job that no request may set."""


def job_of(request: Mapping[str, Any], now: datetime) -> NodeJob:
    """The job that a hook's request names; raises MalformedInput naming the field that is wrong."""
    known = set(NodeJob.__dataclass_fields__) - _OURS
    fields = {k: v for k, v in request.items() if k in known}
    for name in ("job_id", "restart_count", "uid", "gid"):
        value = fields.get(name)
        if value is not None and not _is_id(value):
            raise errors.MalformedInput(f"{name} must be a number, not {value!r}")
    for name in ("gpus", "stdout", "stderr", "work_dir", "partition", "nodelist", "job_name"):
        if not isinstance(fields.get(name, ""), str):
            raise errors.MalformedInput(f"{name} must be a string")
    if not fields.get("job_id"):
        raise errors.MalformedInput("job_id is missing")
    extra = {
        k: v
        for k in (
            "run_key",
            "user",
            "probing",
            "on_hang",
            "array_job_id",
            "array_task_id",
            "het_job_id",
            "sluid",
        )
        if (v := request.get(k)) or v == 0
    }
    return NodeJob(
        **{**fields, "restart_count": fields.get("restart_count") or 0}, started_at=now, extra=extra
    )


def _is_epilog_of(request: NodeJob, start: NodeJob) -> bool:
    # Slurm counts a requeue before it runs the Epilog of the ended start, which therefore has the next start's count.
    return request.restart_count in {start.restart_count, start.restart_count + 1}


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**32


def _row(job: NodeJob) -> dict[str, Any]:
    row = {k: v for k, v in asdict(job).items() if v is not None}
    return {k: clock.iso_z(v) if isinstance(v, datetime) else v for k, v in row.items()}


def _from_row(row: Mapping[str, Any]) -> NodeJob:
    fields = records.known_fields(NodeJob, row)
    for name in ("started_at", "released_at"):
        if fields.get(name):
            fields[name] = datetime.fromisoformat(fields[name])
    for name in ("logs", "unread"):
        fields[name] = tuple(fields.get(name) or ())
    if fields.get("gpu_uuids") is not None:
        fields["gpu_uuids"] = tuple(fields["gpu_uuids"])
    return NodeJob(**fields)
