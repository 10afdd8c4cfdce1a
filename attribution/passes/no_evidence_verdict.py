"""Verdicts on attempts without evidence: they depend only on how the attempt ended.

Most of a day's ended attempts are such (`columnar_prefilter`). One attempt of each way to end is judged. Its sentences
become templates with parameters (nodes, user, job, durations), which are filled in for the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import (
    co_residency,
    eliminate,
    evidence_view,
    judge,
    phrases,
)
from probing_cluster.core import hostlist, records

_END = datetime(2026, 1, 1, tzinfo=UTC)
# Names and times that no real attempt can have: they stand for a template's parameters.
_NODES = ("{nodes}", "{more nodes}")
_USER = "{user}"
_JOB_ID = 999_999_000_017
_LIMIT_S = 300_003 * 86400.0
_EARLY_S, _LATE_S = 100_001 * 86400.0 + 3600, 0.99 * _LIMIT_S


class Ending(NamedTuple):
    """The facts that such a verdict depends on, apart from the names and durations in its sentences."""

    state: str
    exit_code: int | None
    exit_signal: int | None
    reason: str
    cancelled_by: str | None
    one_node: bool
    has_gpus: bool
    limited: bool
    early: bool
    """True if it ended well before its time limit."""


class _Template(NamedTuple):
    """Sentences with parameters (nodes, user, ran, limit), joined by NUL, which no database text holds."""

    text: str
    """The sentences with `%s` for each parameter."""
    names: tuple[str, ...]
    """The parameters in their order."""

    @classmethod
    def of(cls, sentences: Iterable[str], parameters: Mapping[str, str]) -> _Template:
        """The template of some sentences; `parameters` maps a text in them to the parameter's name."""
        longest_first = sorted(parameters, key=len, reverse=True)
        pieces = re.split(f"({'|'.join(map(re.escape, longest_first))})", "\0".join(sentences))
        return cls(
            "%s".join(p.replace("%", "%%") for p in pieces[::2]), tuple(parameters[p] for p in pieces[1::2])
        )

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """The sentences with these values inserted unchanged."""
        return (self.text % tuple([values[name] for name in self.names])).split("\0")


@dataclass(frozen=True, kw_only=True)
class _Answer:
    fields: dict[str, Any]
    """Fields of the verdict that are the same for all these attempts."""
    sentences: _Template
    """Summary, `ruled_out` sentences and next step."""


class NoEvidenceVerdicts:
    """Verdicts of one pass: one policy, one `made_at`."""

    def __init__(self, policy: cases.WindowPolicy, made_at: datetime) -> None:
        self._policy, self._made_at = policy, made_at
        self._before, self._after = timedelta(seconds=policy.before_s), timedelta(seconds=policy.after_s)
        self._answers: dict[tuple[Any, ...], _Answer | None] = {}

    def verdict(
        self,
        row: Sequence[Any],
        preemptor: Mapping[str, Any] | None = None,
        outside: Iterable[str] = (),
        struck: Iterable[str] = (),
    ) -> records.Verdict | None:
        """The verdict on an attempt (its fields as in COLUMNS); None if it depends on the attempt's names.

        `preemptor`: its job_id, if known. `outside`: sentences about faults outside the window.
        `struck`: first words of the `ruled_out` sentences to leave out.
        """
        (cluster, job_id, submit_at, attempt, start_at, end_at, suspended_s, state, code, signal) = row[:10]
        (reason, nodes, n_gpus, user, limit_s, cancelled_by, ref) = row[10:]
        ran_s = (end_at - start_at).total_seconds() - suspended_s
        ending = (
            state,
            code,
            signal,
            reason,
            # One answer for every user who cancelled an own job.
            _USER if cancelled_by and cancelled_by == user else cancelled_by,
            len(nodes) == 1,
            bool(n_gpus),
            bool(limit_s),
            bool(limit_s) and ran_s < evidence_view.NEARLY * limit_s,
        )
        if ending not in self._answers:
            self._answers[ending] = self._judged(Ending(*ending))
        answer = self._answers[ending]
        if answer is None:
            return None
        values = {
            "nodes": nodes[0] if len(nodes) == 1 else hostlist.compress(nodes),
            "user": user or "the user",
            "job": ref,
            "ran": phrases.duration(ran_s),
        }
        if limit_s:
            values["limit"] = phrases.duration(limit_s)
        summary, *ruled_out, next_step = answer.sentences.fill(values)
        if struck:
            ruled_out = [s for s in ruled_out if s.partition(" (")[0] not in struck]
        # A copy of a judged verdict needs no second check.
        return records.of_checked(
            records.Verdict,
            {
                **answer.fields,
                "cluster": cluster,
                "job_id": job_id,
                "submit_at": submit_at,
                "attempt": attempt,
                "summary": summary if preemptor is None else phrases.preempted_by(preemptor["job_id"]),
                "ruled_out": (*ruled_out, *outside)[: eliminate.MAX_SENTENCES],
                "next_step": next_step,
                "onset_at": end_at,
                "window_start_at": end_at - self._before,
                "window_end_at": end_at + self._after,
            },
        )

    def _judged(self, ending: Ending) -> _Answer | None:
        if any(name in ending.reason for name in (*_NODES, _USER)):
            return None
        nodes = _NODES[: 1 if ending.one_node else 2]
        ran_s = _EARLY_S if ending.early else _LATE_S
        attempt = records.JobAttempt(
            cluster="",
            job_id=_JOB_ID,
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
        # `phrases.sentence` decides by the first word's looks, so a sentence must not begin with a parameter.
        if any(s.startswith((*_NODES, _USER)) for s in (made.summary, made.next_step, *made.ruled_out)):
            return None
        parameters = {hostlist.compress(nodes): "nodes", _USER: "user", phrases.duration(ran_s): "ran"}
        parameters[str(_JOB_ID)] = "job"
        if ending.limited:
            parameters[_LIMIT] = "limit"
        return _Answer(
            fields={name: getattr(made, name) for name in _SAME},
            sentences=_Template.of((made.summary, *made.ruled_out, made.next_step), parameters),
        )


def rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """The rows of a table with COLUMNS, for `NoEvidenceVerdicts.verdict`."""
    columns = (
        co_residency.instants(table[n])
        if pa.types.is_timestamp(table.schema.field(n).type)
        else table[n].to_pylist()
        for n in COLUMNS
    )
    return zip(*columns, strict=True)


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
    "ref",
)
"""Columns of `sql/open_attempts.sql`."""
