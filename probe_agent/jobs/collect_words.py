"""What job-side bytes mean, through evidence.joblog and evidence.flight_recorder; runs in the collecting child only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import errors
from probing_cluster.evidence.flight_recorder import digest, flight_verdict, load, model, verdict
from probing_cluster.evidence.joblog import grammar, reader
from probing_cluster.evidence.joblog.messages import slurm

MAX_FINDINGS = 200
"""Findings of one log that are kept: the first half and the last half of what it says."""


def log_findings(data: bytes, start: int, began: datetime | None = None) -> list[dict[str, Any]]:
    """The findings of a log's tail that begins at byte `start` of the file, each with its line's byte `offset`.

    What an attempt before `began` (naive, this node's zone) wrote into the same file is left out.
    """
    engine = reader.JobLogReader()
    offsets: dict[int, int] = {}
    found: list[grammar.JobFinding] = []
    at = start
    for number, raw in enumerate(data.split(b"\n"), 1):
        offsets[number] = at
        at += len(raw) + 1
        if number == 1 and start:
            continue  # the tail begins in the middle of a line
        text = raw.decode("utf-8", "replace").rstrip("\r")
        if slurm.ended_before(text, began):
            found, engine = [], reader.JobLogReader()
            continue
        found += engine.feed(number, text)
    found += engine.close()
    kept = _both_ends(found)
    return [_row(f, offsets.get(f.line, start), left_out=len(found) - len(kept)) for f in kept]


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
