"""A job's output file as evidence of what the job said (source `joblog`)."""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, tzinfo
from typing import Any

from probing_cluster.control_plane.imports import log_stall
from probing_cluster.core import records, sanitize, storable
from probing_cluster.evidence import sifted
from probing_cluster.evidence.joblog import appended, grammar, reader, standstill
from probing_cluster.evidence.joblog.messages import slurm

_OF_SLURM = re.compile(rb"slurm|srun|\*\*\* |CANCELLED AT")
"""In every line of Slurm's that `slurm.OtherJobs` and `slurm.ended_before` recognise."""
_BATCH_LINES = 1024
_LAST_LINES = 256
_LAST_CHARS = 200
_COLUMNS = frozenset({"kind", "message", "pid", "detail", "meaning", "labelled"})


Again = Callable[[], Iterable[bytes]]
"""Gives a file's lines once more, from the first."""


def read(
    lines: Iterable[bytes],
    attempt: records.JobAttempt,
    read_at: datetime,
    zone: tzinfo | None = None,
    again: Again | None = None,
    written_at: datetime | None = None,
) -> list[records.HealthEvent]:
    """The findings of one attempt's output, placed at its end: a job's own clock is not evidence.

    What former attempts and jobs wrote into the same file is left out; Slurm dates their ends in the cluster's `zone`. Lines have
    their ends. With `again` they are read a second time if the log may have stood still, else never more than once. `written_at`: the
    file's own time of its last write; without it a log that names no times dates no standstill.
    """
    kept = None if again else list[bytes]()
    output = _OwnOutput(attempt, zone)
    for batch in _batches(lines):
        output.feed(batch)
        if kept is not None:
            kept += batch
    found = output.close()
    events = [_event(f, attempt, read_at) for f in found]
    stall = None
    if log_stall.may_stand(output.last_lines, _steps(zone), attempt, found):
        steps = _steps(zone)
        for number, line in output.own_lines(again() if again else kept or ()):
            steps.feed(number, line)
        stall = log_stall.finding(steps, attempt, found, read_at)
    if stall is None and written_at is not None:
        stall = log_stall.by_file_time(_last_words(output.last_lines), attempt, written_at, read_at)
    went_on = None if stall else log_stall.progress(output.last_lines, _steps(zone), attempt, read_at)
    return [event for event in (*events, *filter(None, (stall, went_on))) if storable.why_not(event) is None]


def _last_words(lines: Sequence[bytes]) -> str:
    """The end of the last line that the job itself wrote; empty for none."""
    texts = (line.decode("utf-8", "replace").strip() for line in reversed(lines))
    last = next((text for text in texts if text and not standstill.is_of_slurm(text)), "")
    return sanitize.without_secrets(last)[-_LAST_CHARS:]


class _OwnOutput:
    """Reads a file's lines and finds those of one attempt; what other jobs and earlier attempts wrote is left out."""

    def __init__(self, attempt: records.JobAttempt, zone: tzinfo | None) -> None:
        self._appended = appended.AppendedLog(attempt.start_at, zone or UTC)
        self._began = attempt.start_at.astimezone(zone).replace(tzinfo=None) if attempt.start_at else None
        numbers = (attempt.job_id, attempt.array_job_id, attempt.het_job_id)
        self._job_ids = [n for n in numbers if n is not None]
        self._others, self._after_slurm = slurm.OtherJobs(self._job_ids), False
        self._engine, self._sieve = reader.JobLogReader(), sifted.Sieve()
        self._found: list[grammar.JobFinding] = []
        self._first, self._n_lines = 1, 0
        self.last_lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        """The last lines of the file."""

    def feed(self, batch: list[bytes]) -> None:
        """Take the next lines."""
        begin = 0
        marked = _OF_SLURM.search(b"".join(batch)) is not None
        for index, raw in enumerate(batch if marked or self._after_slurm or self._appended.may_begin else ()):
            of_slurm = _OF_SLURM.search(raw) is not None
            if not (of_slurm or self._after_slurm or self._appended.may_begin):
                continue
            self._after_slurm = of_slurm
            number, text = self._n_lines + index + 1, raw.decode("utf-8", "replace").rstrip("\r\n")
            ended = slurm.ended_before(text, self._began)
            if ended or self._appended.begins(text):
                self._engine, self._found, self._first = reader.JobLogReader(), [], number
                begin = index
            if ended or self._others.wrote(text):
                self._read(batch, begin, index)
                begin = index + 1
        self._read(batch, begin, len(batch))
        self._n_lines += len(batch)
        self.last_lines.extend(batch)

    def close(self) -> list[grammar.JobFinding]:
        """The findings of the attempt's lines."""
        return [*self._found, *self._engine.close()]

    def own_lines(self, lines: Iterable[bytes]) -> Iterator[tuple[int, str]]:
        """The attempt's lines of the same file, read once more, with their numbers."""
        others = slurm.OtherJobs(self._job_ids)
        for number, raw in enumerate(lines, 1):
            line = raw.decode("utf-8", "replace")
            text = line.rstrip("\r\n")
            if number < self._first or slurm.ended_before(text, self._began) or others.wrote(text):
                continue
            yield number, line

    def _read(self, batch: list[bytes], begin: int, end: int) -> None:
        if begin < end:
            number = self._n_lines + begin + 1
            self._found += self._sieve.feed(self._engine, number, batch[begin:end])


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    given = iter(lines)
    while batch := list(itertools.islice(given, _BATCH_LINES)):
        yield batch


def _steps(zone: tzinfo | None) -> standstill.LogSteps:
    return standstill.LogSteps(zone or UTC, is_sure=zone is not None)


def _event(
    finding: grammar.JobFinding, attempt: records.JobAttempt, read_at: datetime
) -> records.HealthEvent:
    at = attempt.end_at or attempt.start_at or attempt.submit_at
    node = finding.host if finding.host in attempt.nodes else next(iter(attempt.nodes), "")
    position = f"{attempt.job_id}:{attempt.submit_at.isoformat()}:{finding.line}:{finding.kind}"
    return records.HealthEvent(
        event_id=records.make_event_id(attempt.cluster, node or "", "joblog", position),
        cluster=attempt.cluster,
        node=node or "",
        at=at,
        observed_at=read_at,
        kind=finding.kind,
        severity=records.Severity.INFO,
        pid=finding.pid,
        job_id=attempt.job_id,
        source="joblog",
        message=sanitize.without_secrets(sanitize.clean(finding.message)),
        detail=sanitize.without_secrets_in(_detail(finding)),
    )


def _detail(finding: grammar.JobFinding) -> dict[str, Any]:
    detail = {f.name: getattr(finding, f.name) for f in fields(finding) if f.name not in _COLUMNS}
    detail["role"] = finding.role.name.lower()
    detail["domains"] = list(finding.domains)
    return {**finding.detail, **{k: v for k, v in detail.items() if v is not None}}
