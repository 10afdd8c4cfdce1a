"""One job's rows out of Postgres in one round trip, over any psycopg connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from probing_cluster.core import digits, errors, sanitize, vocabulary
from probing_cluster.core.catalogue import pending_reasons, unlisted
from probing_cluster.reports import job_ref, phrase

_NEVER_STARTED = """
SELECT job_id, detail ->> 'job', detail ->> 'state', detail ->> 'cancelled_by', detail ->> 'user', detail ->> 'account',
       detail ->> 'reason', at, detail ->> 'end_known', cluster
FROM probing.health_event
WHERE {of_job} AND kind = '{kind}' AND node = '' -- a node's agent can write no event of no node
ORDER BY cluster = %(cluster)s DESC, detail ->> 'job' = %(written)s DESC, at DESC
LIMIT 1000
"""
_BY_NUMBER = _NEVER_STARTED.format(kind=vocabulary.NEVER_STARTED, of_job="job_id = %(base)s")
_BY_RAW_ID = _NEVER_STARTED.format(
    kind=vocabulary.NEVER_STARTED, of_job="detail -> 'raw_id' = to_jsonb(%(base)s::bigint)"
)
"""Of a task or component, which is stored under its array's or leader's number: the second question. An index of its own (`health_event_raw_id`) needs the kind in the text."""
_OF_ARRAY = """
SELECT "user", account, count(DISTINCT array_task_id), min(array_task_id), max(array_task_id)
FROM probing.job_attempt
WHERE array_job_id = %(base)s AND array_task_id IS NOT NULL
GROUP BY cluster, "user", account
ORDER BY cluster = %(cluster)s DESC, max(submit_at) DESC
LIMIT 1
"""
_LAST_READ = """
SELECT value #>> '{}', extract(epoch FROM now() - (value #>> '{}')::timestamptz)::float
FROM probing.state WHERE key = %(key)s
"""
_DEPENDENCY = "Dependency"
_INVALID_DEPENDENCY = (
    "a job that it waited for ended in a way that its --dependency does not accept (afterok asks for success, afternotok for failure). Nobody cancelled it: "
    "Slurm removed it, as --kill-on-invalid-dep=yes or the site's kill_invalid_depend asks. {predecessors}"
)
_PASSED_DEADLINE = (
    "Slurm ends a job in the queue that would no longer end before the deadline that it was submitted with (sbatch --deadline). "
    "A later --deadline or a shorter --time (or --time-min) leaves it time"
)
_NO_PREDECESSOR = "Which job that was is not on record here; `sacct -j {job} -o SubmitLine%200` shows it if the command line named it"
_MOST_PREDECESSORS = 3
_SUMMARY_CHARS = 300
_SQL = Path(__file__).parent / "sql"
SQL = (_SQL / "report.sql").read_text(encoding="utf-8")
_PREDECESSORS = (_SQL / "predecessors.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class NeverStarted:
    """What became of a job that ended before it began; its texts name people."""

    job: str
    """As Slurm writes it: 123, 123_4, 123_[5-9]."""
    how: str
    """`it was cancelled by bob at …, while it waited`."""
    why: str
    """Slurm's reason and what it means; empty where it gives none."""
    user: str
    account: str

    @property
    def words(self) -> str:
        """All of it in one sentence."""
        return f"job {self.job} never started: {self.how}{f' ({self.why})' if self.why else ''}"


@dataclass(frozen=True, kw_only=True)
class NoSuchTask:
    """Of a task that an array has no start of: which tasks of it started."""

    words: str
    user: str
    account: str


class Connection(Protocol):
    """The little of a psycopg connection that is used here."""

    def execute(self, query: Any, params: Any = None) -> Any:
        """Runs one statement and gives its cursor."""
        ...


def fetch(connection: Connection, cluster: str, ref: job_ref.JobRef) -> Mapping[str, Any]:
    """The JSON document of `ref`'s rows; raises NotFound when no such attempt is stored."""
    row = connection.execute(SQL, parameters(cluster, ref)).fetchone()
    if row is None or row[0] is None:
        if ref.until is not None:
            msg = f"job {ref} is not known: no job of that id that was submitted by then is on record; probing-report {ref.name} shows its latest"
            raise errors.NotFound(msg)
        msg = f"job {ref} is not known: no start of it is in the accounting read so far; where it still waits, squeue says why; if it runs or has just ended, ask again in half a minute (jobs that test nodes for us have no report)"
        raise errors.NotFound(msg)
    document: Mapping[str, Any] = row[0]
    return document


def never_started(
    connection: Connection, cluster: str, ref: job_ref.JobRef, *, is_whole: bool = True
) -> NeverStarted | None:
    """Of a job without a start that accounting shows as over: what became of it, and by whom; else None.

    With `is_whole` a plain number is also an array's, which is answered by some of its tasks.
    """
    given = {"cluster": cluster, "base": ref.base, "written": str(ref)}
    found = connection.execute(_BY_NUMBER, given).fetchall()
    found = [row for row in found if covers(row[1], ref, is_whole=is_whole)]
    by_raw_id = not found and ref.plain and ref.until is None
    if by_raw_id:
        found = connection.execute(_BY_RAW_ID, given).fetchall()
    if not found:
        return None
    number, written, state, by, user, account, reason, at, end_known, its_cluster = found[0]
    by_words = f" by {'its owner ' if by == user else ''}{by}" if by else ""
    unnamed = "accounting does not say by whom" if state == "CANCELLED" and not by else ""
    ended = "was cancelled" if state == "CANCELLED" else f"ended {state}"
    known = pending_reasons.of(reason or "")
    meaning = f": {known.why_past}" if known is not None else ""
    if unnamed and (reason or "").startswith(_DEPENDENCY):
        job = {"cluster": its_cluster, "job_id": number, "user": user, "account": account, "at": at}
        predecessors = _predecessors(connection, job) or _NO_PREDECESSOR.format(job=ref)
        meaning, unnamed = f": {_INVALID_DEPENDENCY.format(predecessors=predecessors)}", ""
    why = f"Slurm's reason: {reason}{meaning}" if reason else ""
    when = "" if end_known == "false" else f" at {phrase.stamp_z(at)}"
    waited = "; sbatch mostly refused it and said why" if state == "FAILED" else ", while it waited"
    return NeverStarted(
        job=written if by_raw_id or (ref.plain and is_whole) else str(ref),
        how=f"it {ended}{by_words}{when}{waited}",
        why="; ".join(
            text for text in (why, unnamed, _PASSED_DEADLINE if state == "DEADLINE" else "") if text
        ),
        user=user or "",
        account=account or "",
    )


def no_such_task(connection: Connection, cluster: str, ref: job_ref.JobRef) -> NoSuchTask | None:
    """Of a task of an array of which other tasks started: these; None for another job, or where none did."""
    if ref.task is None or ref.until is not None:
        return None
    row = connection.execute(_OF_ARRAY, {"cluster": cluster, "base": ref.base}).fetchone()
    if row is None:
        return None
    user, account, n, first, last = row
    started = f"task {first}" if first == last else f"{n} tasks of {first} to {last}"
    words = (
        f"job {ref} is not known: of array {ref.base} {started} started, and none with the number {ref.task}; "
        f"probing-report {ref.base} lists them, squeue -j {ref.base} those that wait"
    )
    return NoSuchTask(words=words, user=user or "", account=account or "")


def last_read(connection: Connection, cluster: str) -> tuple[datetime, float] | None:
    """When the cluster's accounting was last read and how many seconds ago, by the database's clock; None if it never was."""
    key = vocabulary.key_of(vocabulary.ACCOUNTING_READ, cluster)
    row = connection.execute(_LAST_READ, {"key": key}).fetchone()
    return None if row is None else (datetime.fromisoformat(row[0]), row[1])


def _predecessors(connection: Connection, job: Mapping[str, Any]) -> str:
    """`It waited for job 14, which ended FAILED: …`; empty if no look at the queue found what it waited for."""
    rows = connection.execute(_PREDECESSORS, job).fetchall()
    words = [_predecessor(*row) for row in rows[:_MOST_PREDECESSORS]]
    more = f" and {len(rows) - len(words)} more" if len(rows) > len(words) else ""
    return f"It waited for {'; for '.join(words)}{more}" if words else ""


def _predecessor(
    number: int,
    ref: str | None,
    state: str | None,
    ended: bool | None,
    cause: str | None,
    confidence: str | None,
    summary: str | None,
) -> str:
    if state is None:
        return f"job {number}"
    if ref is None:
        return f"job {number}, which never started either ({state}; probing-report {number} shows why)"
    whose = "which" if ref == str(number) else f"of which {ref}"
    how = f"job {number}, {whose} {'ended' if ended else 'is'} {state}"
    why = (
        f": {cause}, {confidence}: {sanitize.clean(summary or '', _SUMMARY_CHARS).rstrip('.')}"
        if cause
        else ""
    )
    return f"{how}{why} (probing-report {ref})"


def covers(written: str, ref: job_ref.JobRef, *, is_whole: bool) -> bool:
    """Whether a row of accounting of the job's number is of this job: with its own id, as its component, or with its task among others.

    With `is_whole` a plain number is also an array's, and any of its tasks will do.
    """
    if ref.until is not None:
        return False
    if ref.task is not None:
        return written == ref.name or _holds(written, ref.task)
    return written == ref.name or (ref.plain and (is_whole or written.startswith(f"{ref.base}+")))


def _holds(written: str, task: int) -> bool:
    """Whether `123_[1-9:2,12%2]` names the task (every second of 1 to 9, and 12): a pending array's rest is one row of accounting."""
    _, bracket, rest = written.partition("_[")
    if not bracket:
        return False
    for part in rest.rstrip("]").partition("%")[0].split(","):
        tasks, _, step = part.partition(":")
        first, _, last = tasks.partition("-")
        if not digits.is_number(first):
            continue
        numbers = range(int(first), int(last if digits.is_number(last) else first) + 1)
        if task in numbers[:: (int(step) if digits.is_number(step) else 1) or 1]:
            return True
    return False


def parameters(cluster: str, ref: job_ref.JobRef) -> dict[str, Any]:
    """The inputs of report.sql for one reference."""
    return {
        "cluster": cluster,
        "job_id": ref.base if ref.plain else None,
        "array_id": None if ref.offset is not None else ref.base,
        "task": ref.task,
        "het_id": None if ref.offset is None else ref.base,
        "component": ref.offset,
        "until": ref.until,
        "listed_xids": sorted(unlisted.tables()["xid"]),
        "listed_sxids": sorted(unlisted.tables()["sxid"]),
    }
