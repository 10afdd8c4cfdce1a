"""Verdicts on attempts about which nothing was seen that argues: how they ended is all there is to go by.

Of a day's ended attempts most are such. One attempt of each way to end is judged, with stand-ins for what its sentences
name (nodes, user, durations), and speaks for the others; who is such an attempt, `triage` says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import co_residency, judge, phrases, wording
from probing_cluster.core import hostlist, records

_END = datetime(2026, 1, 1, tzinfo=UTC)
# Characters for private use, and times no job takes: they stand in no sentence of their own.
_NODES = ("\ue000", "\ue001")
_USER = "\ue002"
_LIMIT_S = 300_003 * 86400.0
_EARLY_S, _LATE_S = 100_001 * 86400.0 + 3600, 0.99 * _LIMIT_S


class Ending(NamedTuple):
    """All that such a verdict depends on, but for the names and durations in its sentences."""

    state: str
    exit_code: int | None
    exit_signal: int | None
    reason: str
    cancelled_by: str | None
    one_node: bool
    has_gpus: bool
    limited: bool
    early: bool
    """True when it ended well before its time limit."""


@dataclass(frozen=True, kw_only=True)
class _Answer:
    fields: dict[str, Any]
    """The verdict's fields that are the same for all."""
    text: str
    """The summary, what is ruled out and the next step, with NUL between, which no name has."""
    node_list: str
    ran: str


class Quiet:
    """Answers for one pass: one policy, one time of making."""

    def __init__(self, policy: cases.WindowPolicy, made_at: datetime) -> None:
        self._policy, self._made_at = policy, made_at
        self._before, self._after = timedelta(seconds=policy.before_s), timedelta(seconds=policy.after_s)
        self._answers: dict[tuple[Any, ...], _Answer | None] = {}

    def verdict(
        self, row: Sequence[Any], preemptor: Mapping[str, Any] | None = None
    ) -> records.Verdict | None:
        """The verdict on an attempt (its fields as in COLUMNS); None where it cannot be told without its names.

        `preemptor` is who took its place, when that is known: job_id, name, user.
        """
        (cluster, job_id, submit_at, attempt, start_at, end_at, suspended_s, state, code, signal) = row[:10]
        (reason, nodes, n_gpus, user, limit_s, cancelled_by) = row[10:]
        ran_s = (end_at - start_at).total_seconds() - suspended_s
        ending = (
            state,
            code,
            signal,
            reason,
            # One answer for all who cancelled their own job.
            _USER if cancelled_by and cancelled_by == user else cancelled_by,
            len(nodes) == 1,
            bool(n_gpus),
            bool(limit_s),
            bool(limit_s) and ran_s < 0.98 * limit_s,
        )
        if ending not in self._answers:
            self._answers[ending] = self._judged(Ending(*ending))
        answer = self._answers[ending]
        if answer is None:
            return None
        node_list = nodes[0] if len(nodes) == 1 else hostlist.compress(nodes)
        text = answer.text.replace(answer.node_list, node_list).replace(_USER, user or "the user")
        if limit_s:
            text = text.replace(answer.ran, phrases.duration(ran_s))
            text = text.replace(_LIMIT, phrases.duration(limit_s))
        summary, *ruled_out, next_step = text.split("\0")
        # What the judge made and the database held needs no second check.
        return records.of_checked(
            records.Verdict,
            {
                **answer.fields,
                "cluster": cluster,
                "job_id": job_id,
                "submit_at": submit_at,
                "attempt": attempt,
                "summary": summary if preemptor is None else _by(preemptor),
                "ruled_out": tuple(ruled_out),
                "next_step": next_step,
                "onset_at": end_at,
                "window_start_at": end_at - self._before,
                "window_end_at": end_at + self._after,
            },
        )

    def _judged(self, ending: Ending) -> _Answer | None:
        nodes = _NODES[: 1 if ending.one_node else 2]
        ran_s = _EARLY_S if ending.early else _LATE_S
        attempt = records.JobAttempt(
            cluster="",
            job_id=1,
            submit_at=_END - timedelta(seconds=ran_s),
            start_at=_END - timedelta(seconds=ran_s),
            end_at=_END,
            state=ending.state,
            exit_code=ending.exit_code,
            exit_signal=ending.exit_signal,
            reason=ending.reason,
            cancelled_by=ending.cancelled_by,
            nodes=nodes,
            n_gpus=8 if ending.has_gpus else 0,
            user=_USER,
            time_limit_s=_LIMIT_S if ending.limited else None,
        )
        case = cases.Case(attempt=attempt, watched=dict.fromkeys(nodes, _END), policy=self._policy)
        made = judge.judge(case, made_at=self._made_at)
        if made is None or made.evidence or made.node or made.device:
            return None
        node_list = hostlist.compress(nodes)
        # A sentence that begins with a name is written by what the name looks like.
        if any(s.startswith((*_NODES, _USER)) for s in (made.summary, made.next_step, *made.ruled_out)):
            return None
        return _Answer(
            fields={name: getattr(made, name) for name in _SAME},
            text="\0".join((made.summary, *made.ruled_out, made.next_step)),
            node_list=node_list,
            ran=phrases.duration(ran_s),
        )


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table that has COLUMNS, as `Quiet.verdict` takes them."""
    columns = (
        co_residency.instants(table[n])
        if pa.types.is_timestamp(table.schema.field(n).type)
        else table[n].to_pylist()
        for n in COLUMNS
    )
    return zip(*columns, strict=True)


def _by(preemptor: Mapping[str, Any]) -> str:
    return wording.preempted_by(preemptor["job_id"], preemptor["name"], preemptor["user"])


_LIMIT = phrases.duration(_LIMIT_S)
_SAME = (
    "cause",
    "domain",
    "component",
    "node",
    "device",
    "confidence",
    "evidence",
    "incident_id",
    "author",
    "rules_version",
    "made_at",
)
COLUMNS = (
    "cluster",
    "job_id",
    "submit_at",
    "attempt",
    "start_at",
    "end_at",
    "suspended_s",
    "state",
    "exit_code",
    "exit_signal",
    "reason",
    "nodes",
    "n_gpus",
    "user",
    "time_limit_s",
    "cancelled_by",
)
"""What `sql/open_attempts.sql` gives of an attempt."""
