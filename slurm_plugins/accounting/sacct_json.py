"""`sacct --json` of Slurm 21.08 to 26.05 as attempts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.core import errors, records, storable
from probing_cluster.slurm_plugins import job_ids, slurm_json, slurm_times
from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_attempt, sacct_rows


def parse_sacct_json(
    data: bytes,
    *,
    cluster: str | None = None,
    unnamed: str = "cluster",
    gpus_accounted: bool | None = None,
) -> attempt_rows.ParseResult:
    """Every attempt in `data`; raises MalformedInput when it is not the JSON of sacct at all.

    It may be several dumps one after another, or what `jq '.jobs'` and `jq '.jobs[]'` make of them.
    `cluster` is the name all rows get, None: the one they tell, `unnamed` where they tell none. A rejected job's `line_no` is its place in the list, from 1.
    """
    documents = slurm_json.documents(data) or [slurm_json.load(data)]
    jobs = [job for document in documents for job in _jobs(document)]
    started: list[records.JobAttempt] = []
    waiting: list[attempt_rows.NotStarted] = []
    rejected: list[sacct_rows.RejectedRow] = []
    steps = 0
    for place, job in enumerate(jobs, 1):
        steps += _n_steps(job)
        try:
            found = storable.require(attempt_of(job, cluster, unnamed))
        except errors.MalformedInput as exc:
            rejected.append(sacct_rows.refused(place, _text(job), str(exc.args[0])))
            continue
        except (ValueError, OverflowError) as exc:
            rejected.append(sacct_rows.refused(place, _text(job), f"a number in it is too large: {exc}"))
            continue
        (started if isinstance(found, records.JobAttempt) else waiting).append(found)  # type: ignore[arg-type]
    whole = attempt_rows.assemble(attempt_rows.with_zero_gpus(started, gpus_accounted))
    return attempt_rows.ParseResult(
        attempts=whole.attempts,
        rejected=tuple(rejected),
        not_started=tuple(waiting),
        steps=steps,
        duplicates=whole.duplicates,
        merged=whole.merged,
        running_until=max(filter(None, map(_ran_until, jobs)), default=None),
        notes=tuple(dict.fromkeys(note for document in documents for note in _notes(document))),
    )


def _text(job: Any) -> str:
    """A job as it stands in the dump; cut where it is nested too deeply to be written again."""
    try:
        return json.dumps(job)
    except RecursionError:
        return f"job {slurm_json.number(slurm_json.table(job).get('job_id'))}, nested deeply"


def _jobs(document: Any) -> list[Any]:
    if isinstance(document, list):
        return document
    return [document] if "job_id" in document else slurm_json.rows(document, "jobs")


def _notes(document: Any) -> Iterator[str]:
    failed = [job for job in _jobs(document) if isinstance(job, dict) and "FAILED" in slurm_json.words(slurm_json.table(job.get("state")).get("current"))]  # fmt: skip
    if failed and all(_exit(job.get("exit_code"))[0] == 0 for job in failed):
        yield "this release's JSON has no exit codes of failed jobs; `sacct -P` has them"
    for error in slurm_json.error_texts(slurm_json.table(document)):
        yield f"Slurm said: {error}"


def _n_steps(job: Any) -> int:
    listed = slurm_json.table(job).get("steps")
    return len(listed) if isinstance(listed, list) else 0


def attempt_of(
    job: Any, cluster: str | None, unnamed: str = "cluster"
) -> records.JobAttempt | attempt_rows.NotStarted:
    """The attempt that one job object describes; NotStarted when it never ran. Raises MalformedInput."""
    job_id = slurm_json.number(job.get("job_id")) if isinstance(job, dict) else None
    if job_id is None:
        raise errors.MalformedInput("it has no job_id")
    state, times = _state(job), slurm_json.table(job.get("time"))
    submit_at, start_at, end_at = (slurm_json.instant(times.get(k)) for k in ("submission", "start", "end"))
    nodes = slurm_json.text(job.get("nodes"))
    nowhere = nodes in sacct_attempt.NO_NODES and start_at == end_at
    cluster = cluster or slurm_json.text(job.get("cluster")) or unnamed
    if start_at is None or state in attempt_rows.WAITING or nowhere:
        by = slurm_json.text(job.get("kill_request_user")) if state == "CANCELLED" else ""
        return attempt_rows.NotStarted(
            cluster=cluster,
            job_id=_written(job, job_id),
            raw_id=job_id,
            state=state,
            submit_at=submit_at,
            end_at=end_at,
            user=_user(job),
            account=slurm_json.text(job.get("account")),
            name=slurm_json.text(job.get("name")),
            partition=slurm_json.text(job.get("partition")),
            reason=slurm_json.text(slurm_json.table(job.get("state")).get("reason")),
            cancelled_by=by or None,
        )
    if end_at is not None and end_at < start_at:
        raise errors.MalformedInput("it ends before it starts")
    return records.JobAttempt(
        cluster=cluster,
        submit_at=submit_at or start_at,
        eligible_at=slurm_json.instant(times.get("eligible")),
        start_at=start_at,
        end_at=None if state in attempt_rows.ACTIVE else end_at,
        suspended_s=float(slurm_json.number(times.get("suspended")) or 0),
        time_limit_s=slurm_times.limit_s(_minutes_s(times.get("limit"))),
        state=state,
        nodes=sacct_attempt.nodes_in(nodes),
        n_gpus=_tres(job, "gpu"),
        n_cpus=_tres(job, "cpu"),
        **_identity(job, job_id),
        **_exits(job, state),
        **_words(job, state),
    )


def _ran_until(job: Any) -> datetime | None:
    """When the row of a job that still ran was made; None for others."""
    times = slurm_json.table(slurm_json.table(job).get("time"))
    elapsed_s, suspended_s = (slurm_json.number(times.get(k)) or 0 for k in ("elapsed", "suspended"))
    try:
        start_at = slurm_json.instant(times.get("start"))
        if start_at is None or not elapsed_s or slurm_json.instant(times.get("end")) is not None:
            return None
        return start_at + timedelta(seconds=elapsed_s + suspended_s)
    except (OverflowError, errors.MalformedInput):
        # The job itself is kept aside for such a time.
        return None


def _written(job: Mapping[str, Any], job_id: int) -> str:
    """The job as people name it: 123, 123_4, 123+1."""
    found = _identity(job, job_id)
    if found["array_job_id"] is not None:
        return f"{found['array_job_id']}_{found['array_task_id']}"
    return str(job_id) if found["het_offset"] is None else f"{found['het_job_id']}+{found['het_offset']}"


def _identity(job: Mapping[str, Any], job_id: int) -> dict[str, Any]:
    """Which job this is, and which run it belongs to."""
    array, het = slurm_json.table(job.get("array")), slurm_json.table(job.get("het"))
    array_job = slurm_json.number(array.get("job_id")) or None
    task = slurm_json.number(array.get("task_id")) if array_job else None
    leader = slurm_json.number(het.get("job_id")) or None
    return {
        "job_id": job_id,
        "array_job_id": array_job if task is not None else None,
        "array_task_id": task,
        "het_job_id": leader,
        "het_offset": slurm_json.number(het.get("job_offset")) if leader else None,
        "run_key": _run_key(job) or job_ids.default_run_key(job_id, array_job, task, leader),
    }


def _exits(job: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Exit status and signal; what stands there while a job runs is no exit."""
    code, signal = (None, None) if state in attempt_rows.ACTIVE else _exit(job.get("exit_code"))
    if state == "FAILED" and code == 0 and not signal:
        # 22.05 writes so for whatever a job ended with.
        code = signal = None
    return {
        "exit_code": code,
        "exit_signal": signal,
        "derived_exit_code": attempt_rows.shell_status(*_exit(job.get("derived_exit_code"))),
    }


def _state(job: Mapping[str, Any]) -> str:
    """The base state; later releases list it with flags behind it."""
    listed = slurm_json.words(slurm_json.table(job.get("state")).get("current"))
    if not listed:
        raise errors.MalformedInput("it has no state")
    base = [word.upper() for word in listed]
    # A flag decides where it says how this row ended: the base beside REQUEUED is only PENDING.
    deciding = next((word for word in ("REQUEUED", "RESIZING", "REVOKED") if word in base), base[0])
    return attempt_rows.require_state(deciding)


def _words(job: Mapping[str, Any], state: str) -> dict[str, Any]:
    """The columns that are words, numbers as they stand, or nothing."""
    by = slurm_json.text(job.get("kill_request_user"))
    stdout = slurm_json.text(job.get("stdout_expanded")) or slurm_json.text(job.get("stdout"))
    return {
        "user": _user(job),
        "account": slurm_json.text(job.get("account")),
        "partition": slurm_json.text(job.get("partition")),
        "qos": slurm_json.text(job.get("qos")),
        "name": slurm_json.text(job.get("name")),
        "priority": slurm_json.number(job.get("priority")),
        "reason": slurm_json.text(slurm_json.table(job.get("state")).get("reason")),
        "failed_node": slurm_json.text(job.get("failed_node")) or None,
        "cancelled_by": (by or None) if state == "CANCELLED" else None,
        "work_dir": slurm_json.text(job.get("working_directory")) or None,
        "stdout_path": stdout or None,
        "restart_count": slurm_json.number(job.get("restart_cnt")),
    }


def _user(job: Mapping[str, Any]) -> str:
    return slurm_json.text(job.get("user")) or slurm_json.text(
        slurm_json.table(job.get("association")).get("user")
    )


def _exit(value: Any) -> tuple[int | None, int | None]:
    exit_code = slurm_json.table(value)
    signal = slurm_json.table(exit_code.get("signal"))
    raw_signal = signal.get("signal_id") if "signal_id" in signal else signal.get("id")
    code = slurm_json.number(exit_code.get("return_code"))
    return code, slurm_json.number(raw_signal) or (0 if code is not None else None)


def _tres(job: Mapping[str, Any], what: str) -> int | None:
    """Allocated count of `cpu` or `gpu`; what was asked for where Slurm forgot the allocation."""
    tres = slurm_json.table(job.get("tres"))
    for key in ("allocated", "requested"):
        listed = tres.get(key)
        entries = [slurm_json.table(entry) for entry in listed] if isinstance(listed, list) else []
        named = {_tres_name(entry): slurm_json.number(entry.get("count")) for entry in entries}
        typed = [count for name, count in named.items() if name.startswith(f"{what}:") and count is not None]
        whole = named.get(what)
        if whole is not None or typed:
            return whole if whole is not None else sum(typed)
    return None


def _tres_name(entry: Mapping[str, Any]) -> str:
    """`gpu:a100` for {type: gres, name: gpu:a100}, `cpu` for {type: cpu, name: ""}."""
    kind = slurm_json.text(entry.get("type"))
    return slurm_json.text(entry.get("name")) if kind == "gres" else kind


def _minutes_s(value: Any) -> float | None:
    minutes = slurm_json.number(value)
    return None if minutes is None else 60.0 * minutes


def _run_key(job: Mapping[str, Any]) -> str | None:
    comment = slurm_json.table(job.get("comment")).get("job")
    return sacct_attempt.run_key_in(comment) if isinstance(comment, str) else None
