"""The rows of one report, and how they are read from JSON (from Postgres, or over the service's socket)."""

from __future__ import annotations

import functools
import re
import types
import typing
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import digits, records, sanitize, vocabulary
from probing_cluster.core.catalogue import slurm_lines

_T = TypeVar("_T")
_TROUBLE = re.compile(
    r"(?<!no )(?<!0 )\b(?:error|fatal|failed|failure|cannot|could not|denied|killed|not found|no such|segmentation fault)\b|\w(?:Error|Exception)\b|\[Errno|Traceback",
    re.IGNORECASE,
)
"""Words of a line that tells of trouble."""
_WRITTEN_LATE = timedelta(seconds=2)
"""Clocks of nodes, controller and file server may differ by this much."""
_THERE_BEFORE = re.compile(re.escape(vocabulary.there_before(0)).replace("0", r"(\d{1,18})"))


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
    component: str | None = records.doc("the verdict's component", default=None)
    summary: str | None = records.doc("the verdict's summary", default=None)
    task_failed: bool = records.doc(
        "whether a task of this het component ended with an error code, by srun's line", default=False
    )

    @property
    def ref(self) -> str:
        """The owner's name for it: `123_4`, `123+1`, or the job id."""
        if self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        return f"{self.het_job_id}+{self.het_offset}" if self.het_offset is not None else str(self.job_id)

    @property
    def name(self) -> str:
        """The cause's name; empty where it is not judged."""
        return taxonomy.name(self.cause, self.component) if self.cause else ""

    @property
    def reason(self) -> str:
        """Why it ended: the verdict's summary, or the cause's name; empty where it is not judged."""
        return sanitize.clean(self.summary or "", 400) or self.name


@records.record
class NeverStartedTasks:
    """Tasks of an array that ended before they began, as one row of accounting has them."""

    job: str = records.doc("as Slurm writes them: 123_4, 123_[5-8%2]")
    state: str = records.doc("the state they ended in")
    cancelled_by: str | None = records.doc("the user who cancelled them; null if not known", default=None)


@records.record
class ReturnedNode:
    """A node that a repair of ours brought back into service, or that a person noted as repaired."""

    node: str = records.doc("the node")
    at: datetime = records.doc("when it came back")
    by_hand: bool = records.doc("whether that is a person's word; else every test passed", default=False)
    submit_at: datetime | None = records.doc(
        "submission of the attempt after which it came back; null from a service that does not say",
        default=None,
    )


@records.record
class JobLog:
    """One file of a job's output as a node's agent read it after the end; the user controls every word of it."""

    node: str = records.doc("the node it was read on")
    at: datetime = records.doc("when the attempt's Prolog ran there")
    restart_count: int | None = records.doc(
        "of which start it is, by that Prolog; null if not known", default=None
    )
    stream: str = records.doc("stdout, stderr or output (of a step)", default="stdout")
    path: str = records.doc("absolute path, or the pattern that could not be filled in", default="")
    tail: tuple[str, ...] = records.doc("its last lines", default=())
    error: str = records.doc("the line of the first cause in it; empty for none", default="")
    error_place: str = records.doc(
        "where that line stands: `line 12`, or `byte 4096` of a file that was not read from its beginning",
        default="",
    )
    why: str = records.doc("why it was not read; empty when it was", default="")
    open_directory: bool = records.doc(
        "whether a file that is not there could have been made: its owner may write to its directory",
        default=False,
    )
    note: str = records.doc("which part of it was not read", default="")
    written_s: float | None = records.doc(
        "time of the last write to it when it was read, seconds since 1970; null where only this start's part was read",
        default=None,
    )
    copy: str = records.doc("its copy, made before a restart truncated it; empty for none", default="")

    def shown(self, most: int) -> tuple[str, ...]:
        """Its last `most` lines, the program's last ones among them; before them the line of the first cause with its place, or the first one that tells of trouble, if that is not among them."""
        last = slurm_lines.last_lines(self.tail, most, max(1, most // 2))
        if self.error:
            return last if self.error in last else (f"{self.error_place}: {self.error}", "…", *last)
        above = self.tail[: self.tail.index(last[0])] if last else ()
        lines = enumerate(above)
        at = next(
            (i for i, line in lines if _TROUBLE.search(line) and not slurm_lines.is_closing(line)), None
        )
        if at is None:
            return last
        gap = () if at == len(above) - 1 else ("…",)
        return (above[at], *gap, *last)

    def before(self, until: datetime | None, others: Iterable[JobLog]) -> JobLog:
        """The file; without its lines where the job's next start, at `until`, had written into it when it was read: then with where they end, if that start's file, among `others`, shows it."""
        why = self.why
        if until is not None and (self.written_s or 0.0) > (until + _WRITTEN_LATE).timestamp():
            why = vocabulary.LATER_START_WROTE
        if not why.startswith(vocabulary.LATER_START_WROTE):
            return self
        later = sorted((o for o in others if o.path == self.path and o.at > self.at), key=lambda o: o.at)
        if later and (found := _THERE_BEFORE.search(later[0].note)):
            why += f", behind byte {found[1]}: `head -c {found[1]} FILE | tail` shows its own end"
        return replace(self, tail=(), error="", note="", why=why)


def by_state(tasks: Iterable[Sibling]) -> str:
    """`22 FAILED, 5 COMPLETED`: the most frequent state first."""
    counts = Counter(t.state for t in tasks)
    return ", ".join(f"{n} {state}" for state, n in sorted(counts.items(), key=lambda c: (-c[1], c[0])))


@records.record
class ReportRows:
    """Everything stored about one job that its report may need."""

    attempts: tuple[records.JobAttempt, ...] = records.doc("the job's attempts, oldest first", default=())
    verdicts: tuple[records.Verdict, ...] = records.doc(
        "the current verdict of each judged attempt", default=()
    )
    evidence: tuple[records.HealthEvent, ...] = records.doc("the events those verdicts rest on", default=())
    others: tuple[records.HealthEvent, ...] = records.doc(
        "further low and high events on its nodes, the most severe and of those the last, oldest first",
        default=(),
    )
    left_out: Mapping[datetime, int] = records.doc(
        "submission of the attempt to how many such events are not among `others`", default_factory=dict
    )
    tested: tuple[records.HealthEvent, ...] = records.doc(
        "failed tests on its nodes within a day of its end", default=()
    )
    unwatched: frozenset[tuple[datetime, str]] = records.doc(
        "(submission of the attempt, node) for nodes that nobody watched during it",
        default=frozenset(),
    )
    pace: tuple[records.HealthEvent, ...] = records.doc(
        "slow ranks and slow-downs that the probe's pages showed, oldest first", default=()
    )
    own_errors: tuple[records.HealthEvent, ...] = records.doc(
        "errors in the output of a start that completed, oldest first", default=()
    )
    moved: tuple[records.HealthEvent, ...] = records.doc(
        "what Slurm wrote of hosts on which it ran a start in /tmp, oldest first", default=()
    )
    gangs: tuple[records.GangVerdict, ...] = records.doc(
        "stalls of its ranks while it ran, oldest first", default=()
    )
    drains: tuple[records.Drain, ...] = records.doc("actions on its nodes or on the job", default=())
    returned: tuple[ReturnedNode, ...] = records.doc(
        "nodes that a verdict names and that came back, oldest first", default=()
    )
    account: records.RunAccount | None = records.doc("the run's seconds; null until computed", default=None)
    has_steps: bool | None = records.doc(
        "whether the probe saw a step or checkpoint of the run; null from a service that does not report it",
        default=None,
    )
    heartbeats: tuple[records.AgentHeartbeat, ...] = records.doc(
        "latest beat of each node of the last attempt", default=()
    )
    other_submits: tuple[datetime, ...] = records.doc(
        "when other jobs to which Slurm gave the same id were submitted, oldest first", default=()
    )
    other_clusters: tuple[str, ...] = records.doc("other clusters that have a job of this id", default=())
    listening_since: datetime | None = records.doc(
        "since when agents can be heard without a gap; null if there was no gap", default=None
    )
    read_at: datetime | None = records.doc(
        "when the database read this, by its own clock; null from a service that does not say", default=None
    )
    exported_until: datetime | None = records.doc(
        "the last instant in imported accounting; null if a service reads accounting", default=None
    )
    logs: tuple[JobLog, ...] = records.doc("its output files, oldest attempt first", default=())
    run_jobs: tuple[int, ...] = records.doc("job ids of the same run, at most 100", default=())
    siblings: tuple[Sibling, ...] = records.doc(
        "array tasks or het components, failed first, at most 1000", default=()
    )
    never_started: tuple[NeverStartedTasks, ...] = records.doc(
        "tasks of the array that ended before they began", default=()
    )
    n_siblings: int = records.doc("number of siblings in all", default=0)
    waits: str = records.doc(
        "what a job that was requeued waits for, by Slurm, as one clause; empty where nobody asked or it says nothing",
        default="",
    )


def record_from_json(cls: type[_T], row: Mapping[str, Any]) -> _T:
    """The record whose fields `row` holds as JSON values; unknown keys are ignored."""
    converters = _converters(cls)
    return cls(**{name: converters[name](value) for name, value in row.items() if name in converters})


def _converters(cls: type[Any]) -> Mapping[str, Callable[[Any], Any]]:
    """The function from a JSON value to the field's type, by field; made once per class."""
    if cls not in _CONVERTERS:
        hints = typing.get_type_hints(cls)
        _CONVERTERS[cls] = {item.name: _converter(hints[item.name]) for item in fields(cls)}
    return _CONVERTERS[cls]


_CONVERTERS: dict[type[Any], Mapping[str, Callable[[Any], Any]]] = {}


def _converter(hint: Any) -> Callable[[Any], Any]:
    if typing.get_origin(hint) is tuple:
        convert = _converter(typing.get_args(hint)[0])
        return lambda value: () if value is None else tuple(map(convert, value))
    is_union = typing.get_origin(hint) in {types.UnionType, typing.Union}
    kinds = typing.get_args(hint) if is_union else (hint,)
    for kind, from_text in _FROM_TEXT.items():
        if kind in kinds:
            return functools.partial(_unless_none, from_text)
    return lambda value: value


def _unless_none(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


_FROM_TEXT: Mapping[Any, Callable[[Any], Any]] = {
    datetime: datetime.fromisoformat,
    uuid.UUID: uuid.UUID,
    records.Severity: records.Severity,
    records.Domain: records.Domain,
    records.Confidence: records.Confidence,
}


def _logs(found: Iterable[Mapping[str, Any]]) -> Iterator[JobLog]:
    """The well-formed logs of every node's row; an agent's report is untrusted like a user's text."""
    for row in found:
        for log in row["logs"]:
            if not isinstance(log, Mapping):
                continue
            words: dict[str, Any] = {
                k: str(log[k])[:2000]
                for k in ("stream", "path", "error", "error_place", "why", "note", "copy")
                if log.get(k)
            }
            tail = log.get("tail")
            lines = tuple(str(line)[:500] for line in tail[:50]) if isinstance(tail, list) else ()
            words |= {"open_directory": log.get("open_directory") is True, "tail": lines}
            words["written_s"] = digits.number(log.get("written_s"))
            words["restart_count"] = digits.index(row.get("restart_count"))
            yield JobLog(node=row["node"], at=datetime.fromisoformat(row["at"]), **words)


def _readable(cls: type[_T], found: Iterable[Mapping[str, Any]]) -> Iterator[_T]:
    """The rows that can be read; one bad row, written by hand, does not hide the others."""
    for row in found:
        try:
            yield record_from_json(cls, row)
        except (ValueError, TypeError, OverflowError):
            continue


_QUOTING = frozenset({"verdicts", "evidence", "own_errors", "gangs"})
"""Keys of the rows that hold text of the job."""


def from_json(document: Mapping[str, Any]) -> ReportRows:
    """The rows of the JSON document that `sql/report.sql` builds.

    What the job printed is without secrets also where an agent or a verdict of an earlier release stored them.
    """

    def many(key: str, cls: type[_T]) -> tuple[_T, ...]:
        found = document.get(key) or ()
        return tuple(_readable(cls, sanitize.without_secrets_in(found) if key in _QUOTING else found))

    account, since = document.get("account"), document.get("listening_since")
    exported, read_at = document.get("exported_until"), document.get("read_at")
    return ReportRows(
        attempts=many("attempts", records.JobAttempt),
        verdicts=many("verdicts", records.Verdict),
        evidence=many("evidence", records.HealthEvent),
        others=many("others", records.HealthEvent),
        left_out={
            datetime.fromisoformat(row["submit_at"]): int(row["n"]) for row in document.get("left_out") or ()
        },
        tested=many("tested", records.HealthEvent),
        unwatched=frozenset(
            (datetime.fromisoformat(u["submit_at"]), u["node"]) for u in document.get("unwatched") or ()
        ),
        pace=many("pace", records.HealthEvent),
        own_errors=many("own_errors", records.HealthEvent),
        moved=many("moved", records.HealthEvent),
        gangs=many("gangs", records.GangVerdict),
        drains=many("drains", records.Drain),
        returned=many("returned", ReturnedNode),
        account=record_from_json(records.RunAccount, account) if account else None,
        has_steps=document.get("has_steps"),
        other_submits=tuple(map(datetime.fromisoformat, document.get("other_submits") or ())),
        other_clusters=tuple(map(str, document.get("other_clusters") or ())),
        heartbeats=many("heartbeats", records.AgentHeartbeat),
        listening_since=datetime.fromisoformat(since) if since else None,
        read_at=datetime.fromisoformat(read_at) if read_at else None,
        exported_until=datetime.fromisoformat(exported) if exported else None,
        logs=tuple(_logs(sanitize.without_secrets_in(document.get("logs") or ()))),
        run_jobs=tuple(document.get("run_jobs") or ()),
        siblings=many("siblings", Sibling),
        never_started=many("never_started", NeverStartedTasks),
        n_siblings=int(document.get("n_siblings") or 0),
        waits=str(document.get("waits") or ""),
    )
