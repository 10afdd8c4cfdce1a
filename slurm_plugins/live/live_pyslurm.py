"""pyslurm's jobs and nodes (22.5 to 25.11, its new-style API) as our records; `live.py` imports the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from probing_cluster.core import hostlist
from probing_cluster.slurm_plugins import commands, slurm_json
from probing_cluster.slurm_plugins.live import live_records

_Answer = TypeVar("_Answer")


class PyslurmLive:
    """The controller through pyslurm; `library` is the module, so that a test can pass its twin.

    Raises SlurmAway where the controller does not answer, and the library's own errors otherwise.
    """

    def __init__(self, library: Any) -> None:
        self._library = library

    def nodes(self) -> list[live_records.LiveNode]:
        return [node(item.to_dict()) for item in self._ask(self._library.Nodes.load).values()]

    def node(self, name: str) -> live_records.LiveNode | None:
        try:
            return node(self._ask(self._library.Node.load, name).to_dict())
        except self._library.RPCError as exc:
            return self._nothing(exc, "invalid node", "does not exist")

    def jobs(self) -> list[live_records.LiveJob]:
        return [self._job(item) for item in self._ask(self._library.Jobs.load).values()]

    def job(self, job_id: int) -> live_records.LiveJob | None:
        try:
            return self._job(self._ask(self._library.Job.load, job_id))
        except self._library.RPCError as exc:
            return self._nothing(exc, "invalid job")

    def _ask(self, load: Callable[..., _Answer], *arguments: Any) -> _Answer:
        try:
            return load(*arguments)
        except self._library.RPCError as exc:
            if commands.NO_ANSWER.search(str(exc)):
                raise commands.SlurmAway(f"pyslurm: {exc}") from exc
            raise

    def _job(self, item: Any) -> live_records.LiveJob:
        return job(item.to_dict(), item.get_resource_layout_per_node())

    @staticmethod
    def _nothing(exc: Exception, *words: str) -> None:
        """None where Slurm says there is no such thing; its other errors go on."""
        if not any(word in str(exc).lower() for word in words):
            raise exc


def job(fields: Mapping[str, Any], layout: Mapping[str, Any]) -> live_records.LiveJob:
    """One job of `Job.to_dict()` and its resource layout per node."""
    state, flags = live_records.job_state([slurm_json.text(fields.get("state"))])
    names = tuple(hostlist.expand(slurm_json.text(fields.get("allocated_nodes"))))
    minutes = slurm_json.number(fields.get("time_limit"))
    limit_s = None if minutes is None else 60.0 * minutes
    gpus = {name: _indices(layout.get(name, {})) for name in names}
    return live_records.LiveJob(
        job_id=int(fields["id"]),
        state=state,
        flags=flags,
        submit_at=slurm_json.instant(fields.get("submit_time")),
        eligible_at=slurm_json.instant(fields.get("eligible_time")),
        start_at=live_records.started(state, names, slurm_json.instant(fields.get("start_time"))),
        time_limit_s=limit_s,
        restart_count=slurm_json.number(fields.get("requeue_count")) or 0,
        nodes=names,
        n_gpus=sum(len(indices) for indices in gpus.values()) if layout else None,
        gpus=gpus if layout else None,
        requeue=bool(fields.get("is_requeueable")),
        batch=bool(fields.get("is_batch_job")),
        priority=slurm_json.number(fields.get("priority")),
        dependency=_dependency(fields.get("dependencies")),
        description=slurm_json.text(fields.get("state_description")),
        command=slurm_json.text(fields.get("command")),
        end_at=live_records.ended(state, limit_s, slurm_json.instant(fields.get("end_time"))),
        excluded_nodes=tuple(hostlist.expand(slurm_json.text(fields.get("excluded_nodes")))),
        required_nodes=tuple(hostlist.expand(slurm_json.text(fields.get("required_nodes")))),
        work_dir=slurm_json.text(fields.get("working_directory")) or None,
        stdout_path=slurm_json.text(fields.get("standard_output")) or None,
        **_family(fields),
        **slurm_json.job_words(fields),
    )


def _dependency(value: Any) -> str:
    """pyslurm's table of dependencies as Slurm writes them: {"afterok": [12], "satisfy": "all"} is `afterok:12`."""
    table = slurm_json.table(value)
    parts = [
        f"{kind}:{':'.join(str(job) for job in jobs)}"
        for kind, jobs in table.items()
        if isinstance(jobs, list) and jobs
    ]
    parts += ["singleton"] if table.get("singleton") is True else []
    return ("?" if table.get("satisfy") == "any" else ",").join(parts)


def _family(fields: Mapping[str, Any]) -> dict[str, Any]:
    array = slurm_json.number(fields.get("array_id")) or None
    task = slurm_json.number(fields.get("array_task_id"))
    if array and task is None and not fields.get("array_tasks_waiting"):
        task = 0  # pyslurm takes Slurm's task 0 for "not set"
    het = slurm_json.number(fields.get("heterogeneous_id")) or None
    return {
        "array_job_id": array,
        "array_task_id": task if array else None,
        "het_job_id": het,
        "het_offset": slurm_json.number(fields.get("heterogeneous_offset")) or 0 if het else None,
    }


def _indices(layout: Any) -> tuple[int, ...]:
    """GPU indices of one node's layout: {"gres": {"gpu:h100": {"count": 2, "indexes": "0-1"}}}."""
    found: set[int] = set()
    for name, value in slurm_json.table(slurm_json.table(layout).get("gres")).items():
        indices = slurm_json.table(value).get("indexes")
        if name.partition(":")[0] == "gpu" and isinstance(indices, str) and indices not in {"", "N/A"}:
            found |= {int(index) for index in hostlist.expand(f"[{indices}]")}
    return tuple(sorted(found))


def node(fields: Mapping[str, Any]) -> live_records.LiveNode:
    """One node of `Node.to_dict()`."""
    state, flags = live_records.node_state([slurm_json.text(fields.get("state"))])
    if state in {"IDLE", "ALLOCATED"} and fields.get("allocated_cpus") and fields.get("idle_cpus"):
        state = "MIXED"  # older releases of pyslurm show the controller's word, which knows no MIXED
    gres = {
        name: slurm_json.number(count)
        for name, count in slurm_json.table(fields.get("configured_gres")).items()
    }
    return live_records.LiveNode(
        name=slurm_json.text(fields.get("name")),
        state=state,
        flags=flags,
        reason=slurm_json.text(fields.get("reason")),
        reason_at=slurm_json.instant(fields.get("reason_time")),
        reason_by=slurm_json.text(fields.get("reason_user")),
        boot_at=slurm_json.instant(fields.get("boot_time")),
        gres=",".join(f"{name}:{count}" for name, count in gres.items()),
        n_gpus=sum(count or 0 for name, count in gres.items() if name.partition(":")[0] == "gpu"),
        features=slurm_json.words(fields.get("available_features")),
        active_features=slurm_json.words(fields.get("active_features")),
        partitions=slurm_json.words(fields.get("partitions")),
        version=slurm_json.text(fields.get("slurm_version")),
    )
