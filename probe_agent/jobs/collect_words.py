"""What job-side bytes mean, through evidence.joblog and evidence.flight_recorder; runs in the collecting child only."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from probing_cluster.core import errors, vocabulary
from probing_cluster.evidence.flight_recorder import digest, flight_verdict, load, model, verdict
from probing_cluster.evidence.joblog import appended, grammar, reader, standstill
from probing_cluster.evidence.joblog.messages import slurm
from probing_cluster.probe_agent.jobs import log_parts

MAX_SAME = 100
"""So often the same line is read, one below the other: what a program repeats a hundred thousand times says no more, and costs a minute."""
MAX_FINDINGS = 200
"""Findings of one log that are kept: the first half and the last half of what it says."""


@dataclasses.dataclass(kw_only=True)
class LogWords:
    """What one log says."""

    findings: list[dict[str, Any]]
    """Each with its line's byte `offset`."""
    goes_on: bool
    """It has steps, and does not show that they stopped before the job's end."""


def log_findings(data: bytes, start: int, began: datetime | None = None) -> list[dict[str, Any]]:
    """The findings of a log's tail that begins at byte `start` of the file."""
    return read_log([log_parts.LogPart(start, data, is_first=not start)], began).findings


def read_log(
    parts: Sequence[log_parts.LogPart],
    began: datetime | None = None,
    span: tuple[datetime, datetime] | None = None,
    head: bytes = b"",
    job_ids: Collection[int] = (),
) -> LogWords:
    """What the parts of a log say, the last of which is its end; its beginning is `head`.

    What an attempt before `began` (naive, this node's zone) wrote into the same file is left out, and so is what other jobs did, and what
    Slurm says of others than `job_ids`, the job's own numbers. Of an
    attempt with an end (`span`) also that it stood still until then: whether somebody ended it from outside, only accounting knows.
    """
    own = appended.AppendedLog(span[0] if span is not None else began, None)
    engine, others = reader.JobLogReader(), slurm.OtherJobs(job_ids)
    # Most jobs print until their end: a look at the last lines costs nothing, the time of each line as much as its meaning.
    last = standstill.LogSteps(None, is_sure=False)
    dated = span is not None and last.may_stand(reversed(parts[-1].data.split(b"\n")), span[1])
    steps = standstill.LogSteps(None, is_sure=False)
    for raw in head.split(b"\n")[:-1]:
        steps.feed_head(raw.decode("utf-8", "replace"))
    ended: datetime | None = None
    offsets: dict[int, int] = {}
    found: list[grammar.JobFinding] = []
    before, same = b"", 0
    for number, (at, raw, is_whole) in enumerate(_lines(parts), 1):
        offsets[number] = at
        before, same = raw, same + 1 if raw == before else 0
        if same > MAX_SAME and is_whole:
            continue
        text = raw.decode("utf-8", "replace").rstrip("\r")
        of_another = slurm.ended_before(text, began)
        if of_another or own.begins(text):
            found, engine, ended = [], reader.JobLogReader(), None
            steps = standstill.LogSteps(None, is_sure=False)
        if of_another or others.wrote(text):
            continue
        found += engine.feed(number, text)
        if dated:
            steps.feed(number, f"{text}\n" if is_whole else text)
            ended = slurm.cancelled_at(text) or ended
    found += engine.close()
    kept = _both_ends(found)
    rows = [_row(f, offsets.get(f.line, parts[0].start), left_out=len(found) - len(kept)) for f in kept]
    stood = _stood(steps, found, span, ended) if dated and span is not None else None
    if stood is not None:
        rows.append({**stood, "offset": offsets[stood["detail"]["line"]]})
    return LogWords(findings=rows, goes_on=last.has_steps and stood is None)


def _lines(parts: Sequence[log_parts.LogPart]) -> Iterator[tuple[int, bytes, bool]]:
    """(offset, line, whether its end was read) of every line whose beginning was read; a line that a gap cuts is left out."""
    for part in parts:
        at = part.start
        lines = part.data.split(b"\n")
        for i, raw in enumerate(lines):
            is_whole = i < len(lines) - 1
            if (i or part.is_first) and (is_whole or part is parts[-1]):
                yield at, raw, is_whole
            at += len(raw) + 1


def _stood(
    steps: standstill.LogSteps,
    found: list[grammar.JobFinding],
    span: tuple[datetime, datetime],
    ended: datetime | None,
) -> dict[str, Any] | None:
    """The finding that the log stood still until the end: Slurm's word of it, else when the node was released."""
    start_at, end_at = span
    if ended is not None:
        end_at = max(start_at, min(end_at, ended.astimezone(UTC)))
    stood = steps.standstill(start_at, end_at, found)
    if stood is None:
        return None
    over_at = stood.error_at or end_at
    return {
        "kind": vocabulary.LOG_STALL,
        "message": stood.words,
        "at_s": over_at.timestamp(),
        "measured": (over_at - stood.last_at).total_seconds(),
        "unit": "s",
        "detail": stood.detail,
    }


def _both_ends(found: list[grammar.JobFinding]) -> list[grammar.JobFinding]:
    if len(found) <= MAX_FINDINGS:
        return found
    middle = [f for f in found[MAX_FINDINGS // 2 : -MAX_FINDINGS // 2] if f.first_cause]
    return [*found[: MAX_FINDINGS // 2], *middle, *found[-MAX_FINDINGS // 2 :]]


def _row(found: grammar.JobFinding, offset: int, *, left_out: int) -> dict[str, Any]:
    fields = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    detail = {
        **fields.pop("detail"),
        **{k: v for k, v in fields.items() if k not in {"kind", "message", "role"}},
    }
    detail["role"] = found.role.name.lower()
    if left_out:
        detail["findings_left_out"] = left_out
    return {
        "offset": offset,
        "kind": found.kind,
        "message": found.message,
        "pid": found.pid,
        "detail": {k: v for k, v in detail.items() if v not in (None, "", ())},
    }


def dump_findings(dumps: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """One digest per rank's dump, and the verdict over them when they are all the dumps there are.

    Dumps of one node say nothing sure about a job on several: only when no rank is elsewhere is a verdict made
    here. The digests carry what a verdict over all nodes needs.
    """
    parsed: list[model.RankDump] = []
    refused: dict[str, str] = {}
    for name, data in dumps.items():
        rank = load.rank_of(name)
        try:
            parsed.append(model.parse(rank if rank is not None else 0, data))
        except errors.MalformedInput as exc:
            refused[name] = str(exc)
    rows = [_digest(d) for d in parsed]
    if parsed and _complete(parsed):
        rows.append(_verdict(verdict.judge(parsed)))
    rows += [
        {"kind": "dump", "message": f"{n}: {why}", "detail": {"refused": True}} for n, why in refused.items()
    ]
    return rows


def _complete(parsed: list[model.RankDump]) -> bool:
    """True when every rank that any dump names as a member left a dump here."""
    named = {r for d in parsed for members in d.members.values() for r in members}
    return bool(named) and named <= {d.rank for d in parsed}


def _digest(dump: model.RankDump) -> dict[str, Any]:
    detail = digest.make(dump)
    message = (
        f"rank {dump.rank} left a flight-recorder dump: {len(detail['outstanding'])} operations outstanding"
    )
    return {"kind": "dump", "message": message, "detail": detail}


def _verdict(found: flight_verdict.FlightVerdict) -> dict[str, Any]:
    detail = {k: v for k, v in dataclasses.asdict(found).items() if v not in (None, "", ())}
    detail.pop("kind")
    return {"kind": found.kind, "message": detail.pop("meaning"), "detail": detail}
