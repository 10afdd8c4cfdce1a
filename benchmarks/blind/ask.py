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
from probing_cluster.control_plane.imports import job_outputs, load
from probing_cluster.core import clock, errors, records
from probing_cluster.db import store as db_store
from probing_cluster.evidence import classify
from probing_cluster.evidence.flight_recorder import load as dump_files
from probing_cluster.evidence.flight_recorder import model
from probing_cluster.evidence.flight_recorder import verdict as flight

_DAY = re.compile(r"\b(20\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8]))T\d\d:")
_EPOCH = re.compile(r"(?<=\|)1[5-9]\d{8}(?=\||$)", re.MULTILINE)
"""An instant in seconds, as SLURM_TIME_FORMAT=%s prints it."""
_ORDER = [str(c) for c in records.Confidence]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was said of one case."""

    name: str
    kind: str
    right: bool
    answer: str
    expected: str
    certain: bool = False
    """The verdict's word was "certain"."""


class TextMissing(LookupError):
    """The case's text is not here, only its digest."""


def answer(case: cases.Case, database: str) -> Answer:
    """The product's answer; `database` is the URL of an empty database for incidents. Raises TextMissing."""
    return _ASK[case.kind](case, database)


def _text(case: cases.Case, part: str | None = None) -> str:
    found = case.text(part)
    if found is None:
        raise TextMissing(case.name)
    return found


def _found(case: cases.Case, reads: str) -> list[dict[str, Any]]:
    return list(classify.classify_stream(io.BytesIO(_text(case).encode()), reads))


_A_NAME = re.compile(r"[a-z0-9_]+")
"""A kind or a cause, in `also`."""


def _wanted(label: Mapping[str, Any]) -> list[str]:
    first = [str(label["expected"])] if "expected" in label else []
    return [*first, *map(str, label.get("also", ()))]


def _kernel(case: cases.Case, _: str) -> Answer:
    found = _found(case, "kernel")
    wanted = _wanted(case.label)
    reported = [f for f in found if f["severity"] != "info"]
    names = {n for f in found for n in (f["kind"], f"{f['kind']}/{f['code']}")}
    right = bool(names & set(wanted)) or ("harmless" in wanted and not reported)
    answer = ", ".join(f"{f['kind']}/{f['code']} {f['severity']}" for f in found) or "nothing"
    return _made(case, right, answer, " or ".join(wanted))


def _quoted(case: cases.Case, _: str) -> Answer:
    reads = str(case.given.get("reads", "kernel"))
    found = _found(case, reads)
    reported = [f for f in found if f.get("severity", "info") != "info" or f.get("first_cause")]
    answer = ", ".join(f"{f['kind']} in line {f['line']}" for f in reported) or "nothing"
    return _made(case, not reported, answer, "nothing")


def _healthy(case: cases.Case, _: str) -> Answer:
    reported = [f for f in _found(case, "joblog") if f["first_cause"]]
    answer = ", ".join(f"{f['kind']} in line {f['line']}" for f in reported) or "nothing"
    return _made(case, not reported, answer, "nothing")


def _joblog(case: cases.Case, _: str) -> Answer:
    first = next((f for f in _found(case, "joblog") if f["first_cause"]), None)
    label, lines = case.label, _text(case).split("\n")
    if first is None:
        # A label that says "unknown" and names no line says that the text shows none.
        right = "unknown" in _wanted(label) and not label.get("first")
        return _made(case, right, "no first cause", str(label.get("first") or " or ".join(_wanted(label))))
    line = lines[int(first["line"]) - 1] if 0 < int(first["line"]) <= len(lines) else ""
    cause = _cause_of(first, line)
    # A label's second answer may be the words of another line.
    others = [w for w in map(str, label.get("also", ())) if not _A_NAME.fullmatch(w)]
    right = any(words in line for words in (str(label.get("first", "")), *others))
    right = right and (not _wanted(label) or bool({cause, str(first["kind"])} & set(_wanted(label))))
    expected = " / ".join(s for s in (str(label.get("first", "")), " or ".join(_wanted(label))) if s)
    return _made(
        case, right, f"{first['kind']} ({cause}) in line {first['line']}: {line.strip()[:80]}", expected
    )


_ONE_END = {
    "slurm_timeout": "time_limit",
    "slurm_preempted": "preempted",
    "slurm_cancelled": "user_cancelled",
    "slurm_node_fail": "node_lost",
}
"""Slurm's words in a log, and the cause that a label means by them. The rules take it from the accounting, which a log does not
have: only there stands who cancelled. A requeue has several."""


def _cause_of(found: Mapping[str, Any], line: str) -> str:
    """The cause that the rules read from a finding: its kind, and what its own line says of whose it is."""
    if found["kind"] in _ONE_END:
        return _ONE_END[found["kind"]]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = records.HealthEvent(
        event_id=records.make_event_id("c", "n", "joblog", str(found["kind"])), cluster="c", node="n", at=at, observed_at=at,
        kind=str(found["kind"]), severity=records.Severity.INFO, source="joblog", message=line, job_id=1,
        detail={**found.get("detail", {}), "domains": list(found.get("domains", ())), "role": found.get("role")},
    )  # fmt: skip
    return findings.find(event).cause


def _dumps(case: cases.Case, _: str) -> Answer:
    parts = case.given["files"]
    dumps = []
    for name in parts:
        rank = dump_files.rank_of(name)
        if rank is None:
            raise cases.BadCase(f"{case.path}: {name} names no rank; dumps are called name_<rank>")
        dumps.append(model.parse(rank, _text(case, f"files/{name}").encode()))
    verdict = flight.judge(dumps)
    wanted = tuple(sorted(int(r) for r in case.label["ranks"]))
    kinds = _wanted(case.label)
    right = verdict.ranks == wanted and (not kinds or verdict.kind in kinds)
    return _made(
        case, right, f"{verdict.kind} {list(verdict.ranks)}", f"{' or '.join(kinds)} {list(wanted)}".strip()
    )


def _incident(case: cases.Case, database: str) -> Answer:
    label = case.label
    try:
        with db_store.Store.open(database, upgrade=True) as store:
            attempt, verdict = _verdict(case, store)
    except errors.MalformedInput as exc:
        # Files without a needed column are refused, and nobody is accused.
        return _made(case, "none" in _wanted(label), f"refused: {exc}", " or ".join(_wanted(label)))
    expected = " or ".join(_wanted(label)) + (f" on {label['node']}" if "node" in label else "")
    if verdict is None:
        state = attempt.state if attempt else "never started"
        return _made(case, "none" in _wanted(label), f"none ({state})", expected)
    right = verdict.cause in _wanted(label)
    right = right and label.get("node", verdict.node) == verdict.node
    right = right and str(verdict.domain) == label.get("domain", str(verdict.domain))
    right = right and _ORDER.index(verdict.confidence) >= _ORDER.index(label.get("most", "certain"))
    answer = f"{verdict.cause} on {verdict.node}, {verdict.confidence}, {verdict.domain}: {verdict.summary}"
    made = _made(case, right, answer, expected)
    return made if verdict.confidence != "certain" else Answer(**{**vars(made), "certain": True})


def _verdict(
    case: cases.Case, store: db_store.Store
) -> tuple[records.JobAttempt | None, records.Verdict | None]:
    """The import and the judgement, as `probing-ctl import` and `attribute` do them; no attempt for a job that never started."""
    with tempfile.TemporaryDirectory(prefix="blind-") as scratch:
        order = _order(case, Path(scratch))
        load.load(store, order)
    attempts = store.attempts()
    ends = [a.end_at for a in attempts if a.end_at]
    attribute.attribute(store, at=At(max(ends) + timedelta(hours=1)) if ends else clock.SYSTEM)
    job = str(case.label["job"])
    try:
        attempt = job_outputs.attempt_of(store, job)
    except errors.NotFound as exc:
        if re.search(rf"(?<!\w){re.escape(job)}(?!\w)", _text(case, "sacct")):
            return None, None
        raise cases.BadCase(f"{case.path}: its accounting has no job {job}; name one that it has") from exc
    verdicts = {v.submit_at: v for v in store.verdicts(job_ids=[attempt.job_id])}
    last = verdicts.get(attempt.submit_at)
    if last is None and "none" not in _wanted(case.label) and verdicts:
        # The label speaks of a start that failed; a later one went well.
        last = verdicts[max(verdicts)]
    return attempt, last


@dataclass(frozen=True)
class At(clock.SystemClock):
    """The hour after the last job's end."""

    at: datetime

    def now(self) -> datetime:
        return self.at


def _order(case: cases.Case, scratch: Path) -> load.LoadOrder:
    parts = case.given

    def file(part: str) -> Path:
        path = scratch / part.replace("/", "-")
        path.write_text(_text(case, part))
        return path

    zone = load.zone_of(parts.get("timezone"))
    boots = {
        node: at if at.tzinfo else at.replace(tzinfo=zone or UTC)
        for node, text in parts.get("boot", {}).items()
        for at in [datetime.fromisoformat(str(text))]
    }
    return load.LoadOrder(
        sacct=[file("sacct")],
        kernel=[(node, file(f"kernel/{node}")) for node in parts.get("kernel", {})],
        joblog=[(job, file(f"joblog/{job}")) for job in parts.get("joblog", {})],
        boots=boots,
        timezone=parts.get("timezone"),
        delimiter=parts.get("delimiter"),
        cluster="blind",
        now=_after(_text(case, "sacct")),
    )


def _after(accounting: str) -> datetime:
    """Now, or the day after the last instant of a case that labellers set in the future, which an import would leave out."""
    days = [datetime.fromisoformat(day).replace(tzinfo=UTC) for day in set(_DAY.findall(accounting))]
    days += [datetime.fromtimestamp(int(s), UTC) for s in set(_EPOCH.findall(accounting))]
    return max([clock.SYSTEM.now(), *(day + timedelta(days=2) for day in days)])


def _made(case: cases.Case, right: bool, answer: str, expected: str) -> Answer:
    return Answer(
        name=case.name, kind=case.kind, right=right, answer=json.dumps(answer)[1:-1], expected=expected
    )


_ASK: Mapping[str, Callable[[cases.Case, str], Answer]] = {
    "kernel": _kernel,
    "joblog": _joblog,
    "healthy": _healthy,
    "quoted": _quoted,
    "incident": _incident,
    "flight_recorder": _dumps,
}
