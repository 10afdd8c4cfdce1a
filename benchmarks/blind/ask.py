"""What the product says of a stranger's case, and whether that is the label's."""

from __future__ import annotations

import io
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.blind import case as cases
from probing_cluster.attribution.passes import attribute
from probing_cluster.attribution.verdict import findings
from probing_cluster.control_plane.imports import load
from probing_cluster.core import clock, errors, records
from probing_cluster.db import store as db_store
from probing_cluster.evidence import classify
from probing_cluster.evidence.flight_recorder import load as dump_files
from probing_cluster.evidence.flight_recorder import model
from probing_cluster.evidence.flight_recorder import verdict as flight

_ORDER = [str(c) for c in records.Confidence]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was said of one case."""

    name: str
    kind: str
    right: bool
    said: str
    expected: str
    certain: bool = False
    """The verdict's word was "certain"."""


class TextMissing(LookupError):
    """The case's text is not here, only its digest."""


def answer(given: cases.Case, database: str) -> Answer:
    """The product's answer; `database` is the URL of an empty database for incidents. Raises TextMissing."""
    return _ASK[given.kind](given, database)


def _text(given: cases.Case, part: str | None = None) -> str:
    found = given.text(part)
    if found is None:
        raise TextMissing(given.name)
    return found


def _found(given: cases.Case, reads: str) -> list[dict[str, Any]]:
    return list(classify.classify_stream(io.BytesIO(_text(given).encode()), reads))


def _wanted(label: Mapping[str, Any]) -> list[str]:
    first = [str(label["expected"])] if "expected" in label else []
    return [*first, *map(str, label.get("also", ()))]


def _kernel(given: cases.Case, _: str) -> Answer:
    found = _found(given, "kernel")
    wanted = _wanted(given.label)
    loud = [f for f in found if f["severity"] != "info"]
    names = {n for f in found for n in (f["kind"], f"{f['kind']}/{f['code']}")}
    right = bool(names & set(wanted)) or ("harmless" in wanted and not loud)
    said = ", ".join(f"{f['kind']}/{f['code']} {f['severity']}" for f in found) or "nothing"
    return _made(given, right, said, " or ".join(wanted))


def _quoted(given: cases.Case, _: str) -> Answer:
    reads = str(given.given.get("reads", "kernel"))
    found = _found(given, reads)
    loud = [f for f in found if f.get("severity", "info") != "info" or f.get("first_cause")]
    said = ", ".join(f"{f['kind']} in line {f['line']}" for f in loud) or "nothing"
    return _made(given, not loud, said, "nothing")


def _healthy(given: cases.Case, _: str) -> Answer:
    loud = [f for f in _found(given, "joblog") if f["first_cause"]]
    said = ", ".join(f"{f['kind']} in line {f['line']}" for f in loud) or "nothing"
    return _made(given, not loud, said, "nothing")


def _joblog(given: cases.Case, _: str) -> Answer:
    first = next((f for f in _found(given, "joblog") if f["first_cause"]), None)
    label, lines = given.label, _text(given).split("\n")
    if first is None:
        return _made(given, False, "no first cause", str(label.get("first") or label["expected"]))
    cause = _cause_of(str(first["kind"]))
    line = lines[int(first["line"]) - 1] if 0 < int(first["line"]) <= len(lines) else ""
    right = str(label.get("first", "")) in line
    right = right and (not _wanted(label) or bool({cause, str(first["kind"])} & set(_wanted(label))))
    expected = " / ".join(s for s in (str(label.get("first", "")), " or ".join(_wanted(label))) if s)
    return _made(
        given, right, f"{first['kind']} ({cause}) in line {first['line']}: {line.strip()[:80]}", expected
    )


def _cause_of(kind: str) -> str:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = records.HealthEvent(
        event_id=records.make_event_id("c", "n", "joblog", kind), cluster="c", node="n", at=at, observed_at=at,
        kind=kind, severity=records.Severity.INFO, source="joblog", message="", job_id=1,
    )  # fmt: skip
    return findings.find(event).cause


def _dumps(given: cases.Case, _: str) -> Answer:
    parts = given.given["files"]
    dumps = []
    for name in parts:
        rank = dump_files.rank_of(name)
        if rank is None:
            raise cases.BadCase(f"{given.path}: {name} names no rank; dumps are called name_<rank>")
        dumps.append(model.parse(rank, _text(given, f"files/{name}").encode()))
    said = flight.judge(dumps)
    wanted = tuple(sorted(int(r) for r in given.label["ranks"]))
    kinds = _wanted(given.label)
    right = said.ranks == wanted and (not kinds or said.kind in kinds)
    return _made(
        given, right, f"{said.kind} {list(said.ranks)}", f"{' or '.join(kinds)} {list(wanted)}".strip()
    )


def _incident(given: cases.Case, database: str) -> Answer:
    with db_store.Store.open(database, upgrade=True) as store:
        attempt, verdict = _verdict(given, store)
    label = given.label
    expected = " or ".join(_wanted(label)) + (f" on {label['node']}" if "node" in label else "")
    if verdict is None:
        state = attempt.state if attempt else "never started"
        return _made(given, "none" in _wanted(label), f"none ({state})", expected)
    right = verdict.cause in _wanted(label)
    right = right and label.get("node", verdict.node) == verdict.node
    right = right and str(verdict.domain) == label.get("domain", str(verdict.domain))
    right = right and _ORDER.index(verdict.confidence) >= _ORDER.index(label.get("most", "certain"))
    said = f"{verdict.cause} on {verdict.node}, {verdict.confidence}, {verdict.domain}: {verdict.summary}"
    made = _made(given, right, said, expected)
    return made if verdict.confidence != "certain" else Answer(**{**vars(made), "certain": True})


def _verdict(
    given: cases.Case, store: db_store.Store
) -> tuple[records.JobAttempt | None, records.Verdict | None]:
    """The import and the judgement, as `probing-ctl import` and `attribute` do them; no attempt for a job that never started."""
    with tempfile.TemporaryDirectory(prefix="blind-") as scratch:
        order = _order(given, Path(scratch))
        load.load(store, order)
    attempts = store.attempts()
    ends = [a.end_at for a in attempts if a.end_at]
    attribute.attribute(store, at=_At(max(ends) + timedelta(hours=1)) if ends else clock.SYSTEM)
    job = str(given.label["job"])
    try:
        attempt = load.attempt_of(store, job)
    except errors.NotFound as exc:
        if re.search(rf"(?<!\w){re.escape(job)}(?!\w)", _text(given, "sacct")):
            return None, None
        raise cases.BadCase(f"{given.path}: its accounting has no job {job}; name one that it has") from exc
    made = [v for v in store.verdicts(job_ids=[attempt.job_id]) if v.submit_at == attempt.submit_at]
    return attempt, made[0] if made else None


@dataclass(frozen=True)
class _At(clock.SystemClock):
    """The hour after the last job's end."""

    at: datetime

    def now(self) -> datetime:
        return self.at


def _order(given: cases.Case, scratch: Path) -> load.Order:
    parts = given.given

    def file(part: str) -> Path:
        path = scratch / part.replace("/", "-")
        path.write_text(_text(given, part))
        return path

    zone = load.zone_of(parts.get("timezone"))
    boots = {
        node: at if at.tzinfo else at.replace(tzinfo=zone or UTC)
        for node, text in parts.get("boot", {}).items()
        for at in [datetime.fromisoformat(str(text))]
    }
    return load.Order(
        sacct=[file("sacct")],
        kernel=[(node, file(f"kernel/{node}")) for node in parts.get("kernel", {})],
        joblog=[(job, file(f"joblog/{job}")) for job in parts.get("joblog", {})],
        boots=boots,
        timezone=parts.get("timezone"),
        delimiter=parts.get("delimiter"),
        cluster="blind",
        now=clock.SYSTEM.now(),
    )


def _made(given: cases.Case, right: bool, said: str, expected: str) -> Answer:
    return Answer(
        name=given.name, kind=given.kind, right=right, said=json.dumps(said)[1:-1], expected=expected
    )


_ASK: Mapping[str, Callable[[cases.Case, str], Answer]] = {
    "kernel": _kernel,
    "joblog": _joblog,
    "healthy": _healthy,
    "quoted": _quoted,
    "incident": _incident,
    "flight_recorder": _dumps,
}
