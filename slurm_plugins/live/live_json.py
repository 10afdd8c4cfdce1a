"""Slurm's JSON of jobs (`squeue --json`) and nodes (`scontrol show node --json`, `sinfo --json`), 21.08 to 26.05."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from probing_cluster.core import errors, hostlist
from probing_cluster.slurm_plugins import slurm_json, tres
from probing_cluster.slurm_plugins.live import live_records

LOG = logging.getLogger("probing.slurm")
_Record = TypeVar("_Record")
_INDICES = re.compile(r"IDX:([\d,\-]+)")


def jobs(data: bytes) -> list[live_records.LiveJob]:
    """Every job in `data`; raises MalformedInput."""
    return _each(job, slurm_json.rows(slurm_json.load(data), "jobs"))


def nodes(data: bytes) -> list[live_records.LiveNode]:
    """Every node in `data`; raises MalformedInput."""
    return _each(node, slurm_json.rows(slurm_json.load(data), "nodes"))


def _each(read: Callable[[Any], _Record], items: list[Any]) -> list[_Record]:
    """One odd entry costs only itself."""
    found: list[_Record] = []
    for item in items:
        try:
            found.append(read(item))
        except errors.MalformedInput as exc:
            LOG.warning("an entry of Slurm's JSON is left out: %s", exc)
    return found


def job(item: Any) -> live_records.LiveJob:
    """One job object; raises MalformedInput."""
    fields = slurm_json.table(item)
    job_id = slurm_json.number(fields.get("job_id"))
    if job_id is None:
        raise errors.MalformedInput("a job without job_id")
    state, flags = live_records.job_state(slurm_json.words(fields.get("job_state")))
    names = tuple(hostlist.expand(slurm_json.text(fields.get("nodes"))))
    minutes = slurm_json.number(fields.get("time_limit"))
    limit_s = None if minutes is None else 60.0 * minutes
    details = [text for text in fields.get("gres_detail") or [] if isinstance(text, str)]
    return live_records.LiveJob(
        job_id=job_id,
        state=state,
        flags=flags,
        submit_at=slurm_json.instant(fields.get("submit_time")),
        eligible_at=slurm_json.instant(fields.get("eligible_time")),
        start_at=live_records.started(state, names, slurm_json.instant(fields.get("start_time"))),
        time_limit_s=limit_s,
        restart_count=slurm_json.number(fields.get("restart_cnt")) or 0,
        nodes=names,
        n_gpus=_gpus(fields, details, len(names)),
        gpus=gpu_indices(names, details),
        requeue=_flag(fields.get("requeue")),
        batch=_flag(fields.get("batch_flag")),
        priority=slurm_json.number(fields.get("priority")),
        dependency=slurm_json.text(fields.get("dependency")),
        description=slurm_json.text(fields.get("state_description")),
        command=slurm_json.text(fields.get("command")),
        expedite="EXPEDITED_REQUEUE" in slurm_json.words(fields.get("flags")),
        end_at=live_records.ended(state, limit_s, slurm_json.instant(fields.get("end_time"))),
        excluded_nodes=tuple(hostlist.expand(slurm_json.text(fields.get("excluded_nodes")))),
        required_nodes=tuple(hostlist.expand(slurm_json.text(fields.get("required_nodes")))),
        **_family(fields),
        **_places(fields),
        **slurm_json.job_words(fields),
    )


def _family(fields: Mapping[str, Any]) -> dict[str, Any]:
    array = slurm_json.number(fields.get("array_job_id")) or None
    het = slurm_json.number(fields.get("het_job_id")) or None
    return {
        "array_job_id": array,
        "array_task_id": slurm_json.number(fields.get("array_task_id")) if array else None,
        "het_job_id": het,
        "het_offset": slurm_json.number(fields.get("het_job_offset")) if het else None,
    }


def _places(fields: Mapping[str, Any]) -> dict[str, Any]:
    stdout = slurm_json.text(fields.get("stdout_expanded")) or slurm_json.text(fields.get("standard_output"))
    return {
        "failed_node": slurm_json.text(fields.get("failed_node")) or None,
        "work_dir": slurm_json.text(fields.get("current_working_directory")) or None,
        # From 24.05 on standard_output is the pattern as written.
        "stdout_path": stdout if stdout and "%" not in stdout else None,
    }


def _flag(value: Any) -> bool:
    return value is True or bool(slurm_json.number(value))


def _gpus(fields: Mapping[str, Any], details: Iterable[str], n_nodes: int) -> int | None:
    """GPUs allocated: what is accounted, else the sum over its nodes; null when Slurm does not say."""
    held = slurm_json.text(fields.get("tres_alloc_str"))
    counted = tres.gpus(held)
    if counted is not None:
        return counted
    # What it holds is counted, and no gres of any kind is named.
    if fields.get("gres_detail") == [] and tres.count("cpu", held) and "gres/" not in held:
        return 0
    each = [tres.gpus_of_gres(text, n_nodes) for text in details]
    known = [count for count in each if count is not None]
    return sum(known) if known else None


def gpu_indices(names: tuple[str, ...], details: list[str]) -> dict[str, tuple[int, ...]] | None:
    """Node to GPU indices from texts like `gpu:h100:4(IDX:0-3)`, one per node; None when they do not say."""
    if not details or len(details) != len(names):
        return None
    found: dict[str, tuple[int, ...]] = {}
    for name, text in zip(names, details, strict=True):
        indices: set[int] = set()
        for item in text.split("),"):
            match = _INDICES.search(item)
            if match and item.strip().startswith("gpu"):
                indices |= {int(host) for host in hostlist.expand(f"[{match[1].strip(',')}]")}
        found[name] = tuple(sorted(indices))
    return found


def node(item: Any) -> live_records.LiveNode:
    """One node object; raises MalformedInput."""
    fields = slurm_json.table(item)
    name = slurm_json.text(fields.get("name"))
    if not name:
        raise errors.MalformedInput("a node without name")
    state, flags = live_records.node_state(
        (*slurm_json.words(fields.get("state")), *slurm_json.words(fields.get("state_flags")))
    )
    gres = slurm_json.text(fields.get("gres"))
    counted = tres.gpus(slurm_json.text(fields.get("tres")))
    return live_records.LiveNode(
        name=name,
        state=state,
        flags=flags,
        reason=slurm_json.text(fields.get("reason")),
        reason_at=slurm_json.instant(fields.get("reason_changed_at")),
        reason_by=slurm_json.text(fields.get("reason_set_by_user")),
        boot_at=slurm_json.instant(fields.get("boot_time")),
        gres=gres,
        n_gpus=counted if counted is not None else configured_gpus(gres),
        features=slurm_json.words(fields.get("features")),
        active_features=slurm_json.words(fields.get("active_features")),
        partitions=slurm_json.words(fields.get("partitions")),
        reservation=slurm_json.text(fields.get("reservation")),
        version=slurm_json.text(fields.get("version")) or slurm_json.text(fields.get("slurmd_version")),
        address=slurm_json.text(fields.get("address")),
    )


def configured_gpus(gres: str) -> int:
    """GPUs in a node's gres text; a node's gres is its configuration, so naming none means none."""
    return tres.gpus_of_gres(gres, 1) or 0
