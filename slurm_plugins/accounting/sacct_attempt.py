"""One row of `sacct -P` as an attempt: identity, times, exits and counts out of their columns."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from typing import Any

from probing_cluster.core import digits, errors, hostlist, records, sanitize
from probing_cluster.slurm_plugins import job_ids, slurm_times, tres
from probing_cluster.slurm_plugins.accounting import attempt_rows

RUN_KEY_IN_COMMENT = re.compile(r"(?:^|[\s,;])probing-run=([\w.:/@+-]{1,128})")
NO_NODES = frozenset({"", "None assigned", "(null)", "None"})
NO_START = ("1970-01-01", "1969-12-31")
"""How exports of exports write a start that Slurm did not know, by the zone they were made in."""


@dataclass(kw_only=True)
class AttemptReading:
    """How one dump is read, and what turned up on the way."""

    zone: tzinfo
    cluster: str | None
    unnamed: str = "cluster"
    naive: int = 0
    ambiguous: int = 0
    stand_ins: int = 0
    no_submit: int = 0
    no_nodes: bool = False
    running_until: datetime | None = None
    """The latest start plus elapsed time of a job that still ran."""


def is_step(fields: Mapping[str, str]) -> bool:
    """Whether a row is of a job step (123.batch) and not of a job."""
    return "." in fields.get("jobid", "") or "." in fields.get("jobidraw", "")


def attempt_of(
    fields: Mapping[str, str], reading: AttemptReading
) -> records.JobAttempt | attempt_rows.NotStarted:
    """The attempt that one row describes; NotStarted when the job never ran. Raises MalformedInput."""
    written = fields.get("jobid") or fields["jobidraw"]
    ref = job_ids.parse(written)
    state, cancelled_by = state_of(fields["state"])
    attempt_rows.require_state(state)
    times = _times(fields, reading)
    cluster = reading.cluster or _text(fields, "cluster") or reading.unnamed
    if _never_started(fields, state, ref, times):
        return attempt_rows.NotStarted(
            cluster=cluster,
            job_id=written,
            raw_id=job_ids.parse(raw).job if (raw := fields.get("jobidraw")) else None,
            state=state,
            submit_at=times["submit"],
            end_at=times["end"],
            user=_text(fields, "user"),
            account=_text(fields, "account"),
            name=_text(fields, "jobname"),
            partition=_text(fields, "partition"),
            reason=_text(fields, "reason"),
            cancelled_by=_name_of(cancelled_by, fields),
        )
    if fields["start"].startswith(NO_START):
        raise errors.MalformedInput(
            f"start {fields['start']!r} is the beginning of Unix time: it is not known"
        )
    if state in attempt_rows.ACTIVE and (made_at := _ran_until(fields, times)):
        reading.running_until = max(made_at, reading.running_until or made_at)
    reading.no_submit += times["submit"] is None
    reading.no_nodes |= "nodelist" not in fields
    return records.JobAttempt(
        cluster=cluster,
        submit_at=times["submit"] or _required(times["start"]),
        eligible_at=times["eligible"],
        start_at=times["start"],
        end_at=_end(fields, state, times),
        suspended_s=slurm_times.span_s(fields.get("suspended", "")) or 0.0,
        time_limit_s=slurm_times.limit_s(_time_limit_s(fields)),
        state=state,
        cancelled_by=_name_of(cancelled_by, fields),
        **_identity(fields, ref, reading),
        **_exits(fields, state),
        **_resources(fields),
        **_words(fields),
    )


def _name_of(cancelled_by: str | None, fields: Mapping[str, str]) -> str | None:
    """Slurm's text names a uid: the owner's and root's are names, others stay the number that they are."""
    if cancelled_by == "0":
        return "root"
    owner = _text(fields, "user")
    return owner if owner and cancelled_by == fields.get("uid", "").strip() else cancelled_by


def _identity(fields: Mapping[str, str], ref: job_ids.SlurmJobId, reading: AttemptReading) -> dict[str, Any]:
    """Which job this is, and which run it belongs to."""
    job_id = _job_id(fields, ref, reading)
    leader = ref.job if ref.offset is not None else None
    array = ref.job if ref.task is not None else None
    named = run_key_in(fields.get("comment", ""))
    return {
        "job_id": job_id,
        "array_job_id": array,
        "array_task_id": ref.task,
        "het_job_id": leader,
        "het_offset": ref.offset,
        "run_key": named or job_ids.default_run_key(job_id, array, ref.task, leader),
    }


def _exits(fields: Mapping[str, str], state: str) -> dict[str, Any]:
    """Exit status and signal; what stands there while a job runs is no exit."""
    code, signal = (None, None) if state in attempt_rows.ACTIVE else _exit(fields.get("exitcode", ""))
    return {
        "exit_code": code,
        "exit_signal": signal,
        "derived_exit_code": attempt_rows.shell_status(*_exit(fields.get("derivedexitcode", ""))),
        "restart_count": tres.number(fields.get("restarts", "")),
        "priority": tres.number(fields.get("priority", "")),
    }


def _resources(fields: Mapping[str, str]) -> dict[str, Any]:
    nodes = nodes_in(fields.get("nodelist", ""))
    return {
        "nodes": nodes,
        "n_gpus": _gpus(fields, len(nodes)),
        "n_cpus": _cpus(fields),
    }


def _words(fields: Mapping[str, str]) -> dict[str, Any]:
    """The columns that are words: a person's, made safe, or Slurm's."""
    return {
        "user": _text(fields, "user") or _text(fields, "uid"),
        "account": _text(fields, "account"),
        "partition": _text(fields, "partition"),
        "qos": _text(fields, "qos"),
        "name": _text(fields, "jobname"),
        "reason": _text(fields, "reason"),
        "failed_node": _text(fields, "failednode") or None,
        "work_dir": _text(fields, "workdir") or None,
        "stdout_path": _text(fields, "stdout") or None,
    }


def state_of(text: str) -> tuple[str, str | None]:
    """Base state and who cancelled it: `CANCELLED by 1000`; a state cut short (`CANCELLED+`) is completed."""
    word, _, rest = text.strip().partition(" ")
    if word.endswith("+"):
        whole = [state for state in attempt_rows.STATES if state.startswith(word[:-1])]
        if len(whole) == 1:
            word = whole[0]
    return word, sanitize.clean(rest.removeprefix("by ").strip()) or None


@functools.lru_cache(maxsize=4096)
def nodes_in(nodelist: str) -> tuple[str, ...]:
    """Node names of a hostlist; a job's steps, restarts and neighbours repeat the same few thousand lists."""
    return tuple(hostlist.expand(nodelist))


def run_key_in(comment: str) -> str | None:
    """The run named by `probing-run=KEY` in a job's comment, for sites without our SPANK plugin."""
    match = RUN_KEY_IN_COMMENT.search(comment)
    return match[1] if match else None


def _times(fields: Mapping[str, str], reading: AttemptReading) -> dict[str, datetime | None]:
    possible = {name: slurm_times.instants(fields.get(name, ""), reading.zone) for name in slurm_times.ORDER}
    reading.naive += any(slurm_times.is_naive(fields.get(name, "")) for name in slurm_times.ORDER)
    elapsed_s = _elapsed_s(fields)
    if elapsed_s is not None:
        elapsed_s += slurm_times.span_s(fields.get("suspended", "")) or 0.0
    times, unsure = slurm_times.choose(possible, elapsed_s)
    reading.ambiguous += unsure
    return times


def _elapsed_s(fields: Mapping[str, str]) -> float | None:
    raw = fields.get("elapsedraw", "")
    return float(raw) if digits.is_number(raw) else slurm_times.span_s(fields.get("elapsed", ""))


def _never_started(
    fields: Mapping[str, str], state: str, ref: job_ids.SlurmJobId, times: Mapping[str, datetime | None]
) -> bool:
    if times["start"] is None or state in attempt_rows.WAITING or ref.pending_tasks is not None:
        return True
    # Before 22.05 a job cancelled while pending shows its end as its start, on no node.
    nowhere = "nodelist" in fields and fields["nodelist"] in NO_NODES
    return nowhere and times["start"] == times["end"]


def _end(fields: Mapping[str, str], state: str, times: Mapping[str, datetime | None]) -> datetime | None:
    if state in attempt_rows.ACTIVE:
        return None
    if times["end"] is None and "end" not in fields:
        return _ran_until(fields, times)
    if times["end"] is not None and times["end"] < _required(times["start"]):
        raise errors.MalformedInput("it ends before it starts")
    return times["end"]


def _ran_until(fields: Mapping[str, str], times: Mapping[str, datetime | None]) -> datetime | None:
    """The start and the time since, with the suspended part that Slurm leaves out of Elapsed; None where that is not given."""
    elapsed_s = _elapsed_s(fields)
    if elapsed_s is None:
        return None
    suspended_s = slurm_times.span_s(fields.get("suspended", "")) or 0.0
    return _required(times["start"]) + timedelta(seconds=elapsed_s + suspended_s)


def _required(at: datetime | None) -> datetime:
    assert at is not None, "rows without a start are no attempts"
    return at


def _job_id(fields: Mapping[str, str], ref: job_ids.SlurmJobId, reading: AttemptReading) -> int:
    raw = fields.get("jobidraw", "")
    if raw:
        return job_ids.parse(raw).job
    reading.stand_ins += ref.task is not None
    return ref.stand_in_id


def _exit(text: str) -> tuple[int | None, int | None]:
    code, _, signal = text.partition(":")
    return (int(code), int(signal)) if digits.is_number(code) and digits.is_number(signal) else (None, None)


def _gpus(fields: Mapping[str, str], n_nodes: int) -> int | None:
    """GPUs allocated, from the best column that names any."""
    nodes = tres.number(fields.get("allocnodes", "")) or n_nodes
    tries: tuple[Callable[[], int | None], ...] = (
        lambda: tres.gpus(fields.get("alloctres", "")),
        lambda: tres.gpus_of_gres(fields.get("allocgres", ""), nodes),
        lambda: tres.gpus(fields.get("reqtres", "")),
        lambda: tres.gpus_of_gres(fields.get("reqgres", ""), nodes),
    )
    return next((count for count in (read() for read in tries) if count is not None), None)


def _cpus(fields: Mapping[str, str]) -> int | None:
    """CPUs allocated, from a column of their own or else from AllocTRES."""
    own = tres.number(fields.get("alloccpus") or fields.get("ncpus", ""))
    return own if own is not None else tres.count("cpu", fields.get("alloctres", ""))


def _time_limit_s(fields: Mapping[str, str]) -> float | None:
    minutes = fields.get("timelimitraw", "")
    return (
        60.0 * int(minutes) if digits.is_number(minutes) else slurm_times.span_s(fields.get("timelimit", ""))
    )


def _text(fields: Mapping[str, str], name: str) -> str:
    """A column's cleaned text; empty for Slurm's words for nothing: None, (null), Unknown."""
    text = sanitize.clean(fields.get(name, "").strip())
    return "" if text in {"None", "(null)", "Unknown"} else text
