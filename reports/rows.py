"""The rows one report is made of, and their way through JSON (Postgres' own, and the service's socket)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from probing_cluster.core import records

_T = TypeVar("_T")


@records.record
class Sibling:
    """One task of the same array, or one component of the same heterogeneous job."""

    job_id: int = records.doc("Slurm's raw job id")
    array_job_id: int | None = records.doc("array master id", default=None)
    array_task_id: int | None = records.doc("array task index", default=None)
    het_job_id: int | None = records.doc("heterogeneous leader id", default=None)
    het_offset: int | None = records.doc("component index", default=None)
    state: str = records.doc("state of its last attempt")
    n_attempts: int = records.doc("attempts that started")
    cause: str | None = records.doc("cause of its last verdict, when it has one", default=None)

    @property
    def ref(self) -> str:
        """How its owner names it."""
        if self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        return f"{self.het_job_id}+{self.het_offset}" if self.het_offset is not None else str(self.job_id)


@records.record
class NeverStartedTasks:
    """Tasks of an array that ended before they began, as one row of accounting has them."""

    job: str = records.doc("as Slurm writes them: 123_4, 123_[5-8%2]")
    state: str = records.doc("the state they ended in")
    cancelled_by: str | None = records.doc("who cancelled them, where that is known", default=None)


@records.record
class JobLog:
    """One file of a job's output, as the agent of a node read it after the end; every word of it is the user's."""

    node: str = records.doc("the node it was read on")
    at: datetime = records.doc("when the attempt's Prolog ran there")
    stream: str = records.doc("stdout, stderr or output (of a step)", default="stdout")
    path: str = records.doc("absolute path, or the pattern that could not be filled in", default="")
    tail: tuple[str, ...] = records.doc("its last lines", default=())
    why: str = records.doc("why it was not read; empty when it was", default="")
    note: str = records.doc("what of it was not read", default="")
    copy: str = records.doc("its copy, made before a restart truncated it; empty for none", default="")


@records.record
class ReportRows:
    """Everything stored about one job that its report may need."""

    attempts: tuple[records.JobAttempt, ...] = records.doc("the job's attempts, oldest first", default=())
    verdicts: tuple[records.Verdict, ...] = records.doc(
        "the current verdict of each judged attempt", default=()
    )
    evidence: tuple[records.HealthEvent, ...] = records.doc("the events those verdicts rest on", default=())
    others: tuple[records.HealthEvent, ...] = records.doc(
        "further low and high events on its nodes", default=()
    )
    tested: tuple[records.HealthEvent, ...] = records.doc(
        "what tests of ours found on its nodes within a day of its end", default=()
    )
    unwatched: frozenset[tuple[datetime, str]] = records.doc(
        "nodes that nobody watched while an attempt ran there, with when that was submitted",
        default=frozenset(),
    )
    pace: tuple[records.HealthEvent, ...] = records.doc(
        "slow ranks and slow-downs that the probe's pages showed, oldest first", default=()
    )
    own_errors: tuple[records.HealthEvent, ...] = records.doc(
        "errors that the output of a start names which completed all the same, oldest first", default=()
    )
    gangs: tuple[records.GangVerdict, ...] = records.doc(
        "why its ranks did not get on while it ran, oldest first", default=()
    )
    drains: tuple[records.Drain, ...] = records.doc("what was done to its nodes, or to the job", default=())
    account: records.RunAccount | None = records.doc("the run's seconds; null until computed", default=None)
    heartbeats: tuple[records.AgentHeartbeat, ...] = records.doc(
        "latest beat of each node of the last attempt", default=()
    )
    other_submits: tuple[datetime, ...] = records.doc(
        "when other jobs to which Slurm gave the same id were submitted, oldest first", default=()
    )
    listening_since: datetime | None = records.doc(
        "since when agents can be heard without a gap; null where there was none", default=None
    )
    exported_until: datetime | None = records.doc(
        "the last instant that imported accounting shows; null where a service reads accounting", default=None
    )
    logs: tuple[JobLog, ...] = records.doc("its output files, oldest attempt first", default=())
    run_jobs: tuple[int, ...] = records.doc("job ids of the same run, at most 100", default=())
    siblings: tuple[Sibling, ...] = records.doc(
        "array tasks or het components, failed first, at most 1000", default=()
    )
    never_started: tuple[NeverStartedTasks, ...] = records.doc(
        "tasks of the array that ended before they began", default=()
    )
    n_siblings: int = records.doc("how many there are in all", default=0)


def record_from_json(cls: type[_T], row: Mapping[str, Any]) -> _T:
    """The record whose fields `row` holds as JSON values; unknown keys are ignored."""
    values: dict[str, Any] = {}
    for item in fields(cls):  # type: ignore[arg-type]
        if item.name in row:
            values[item.name] = _value(str(item.type), row[item.name])
    return cls(**values)


def _value(kind: str, value: Any) -> Any:
    if value is None:
        return () if kind.startswith("tuple[") else None
    if kind.startswith("tuple["):
        return tuple(uuid.UUID(v) for v in value) if "UUID" in kind else tuple(value)
    for word, convert in _CONVERTERS:
        if word in kind:
            return convert(value)
    return value


_CONVERTERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("datetime", datetime.fromisoformat),
    ("UUID", uuid.UUID),
    ("Severity", records.Severity),
    ("Domain", records.Domain),
    ("Confidence", records.Confidence),
)


def _logs(found: Iterable[Mapping[str, Any]]) -> Iterator[JobLog]:
    """The logs in every node's row that are well formed; what an agent reports is checked like a user's words."""
    for row in found:
        for log in row["logs"]:
            if not isinstance(log, Mapping):
                continue
            words = {k: str(log[k])[:2000] for k in ("stream", "path", "why", "note", "copy") if log.get(k)}
            tail = log.get("tail")
            lines = tuple(str(line)[:500] for line in tail[:50]) if isinstance(tail, list) else ()
            yield JobLog(node=row["node"], at=datetime.fromisoformat(row["at"]), tail=lines, **words)


def _readable(cls: type[_T], found: Iterable[Mapping[str, Any]]) -> Iterator[_T]:
    """The rows that are what their columns promise: one that a person wrote by hand costs nobody the others."""
    for row in found:
        try:
            yield record_from_json(cls, row)
        except (ValueError, TypeError, OverflowError):
            continue


def from_json(document: Mapping[str, Any]) -> ReportRows:
    """The rows of the JSON document that `sql/report.sql` builds."""

    def many(key: str, cls: type[_T]) -> tuple[_T, ...]:
        return tuple(_readable(cls, document.get(key) or ()))

    account, since = document.get("account"), document.get("listening_since")
    exported = document.get("exported_until")
    return ReportRows(
        attempts=many("attempts", records.JobAttempt),
        verdicts=many("verdicts", records.Verdict),
        evidence=many("evidence", records.HealthEvent),
        others=many("others", records.HealthEvent),
        tested=many("tested", records.HealthEvent),
        unwatched=frozenset(
            (datetime.fromisoformat(u["submit_at"]), u["node"]) for u in document.get("unwatched") or ()
        ),
        pace=many("pace", records.HealthEvent),
        own_errors=many("own_errors", records.HealthEvent),
        gangs=many("gangs", records.GangVerdict),
        drains=many("drains", records.Drain),
        account=record_from_json(records.RunAccount, account) if account else None,
        other_submits=tuple(map(datetime.fromisoformat, document.get("other_submits") or ())),
        heartbeats=many("heartbeats", records.AgentHeartbeat),
        listening_since=datetime.fromisoformat(since) if since else None,
        exported_until=datetime.fromisoformat(exported) if exported else None,
        logs=tuple(_logs(document.get("logs") or ())),
        run_jobs=tuple(document.get("run_jobs") or ()),
        siblings=many("siblings", Sibling),
        never_started=many("never_started", NeverStartedTasks),
        n_siblings=int(document.get("n_siblings") or 0),
    )
