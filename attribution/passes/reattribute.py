"""Judges a whole history again: the judge runs once per distinct situation.

Nearly all of millions of failed attempts have no event in their windows that can convict. Their verdict follows from how
they ended, so one attempt of each such kind is judged for all. Attempts with a fault in the window are judged one by one
with all its events. docs/attribution.md lists what the history lacks.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.passes import bulk
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.attribution.verdict import findings, judge, onset, window
from probing_cluster.core import clock, records

CHUNK = 5000
"""Attempts whose events are held at once."""

VERDICT_SCHEMA = pa.schema(
    [
        ("attempt_id", pa.int64()),
        ("cause", pa.string()),
        ("domain", pa.string()),
        ("component", pa.string()),
        ("node", pa.string()),
        ("device", pa.string()),
        ("confidence", pa.string()),
        ("event_row", pa.int64()),
    ]
)
"""The core of a verdict; event_row is its strongest evidence, null without any."""

_KIND = ("state", "exit_code", "exit_signal", "reason", "one_node", "has_failed_node", "has_own")
"""Columns that decide the verdict of an attempt without a fault in its window."""


def judge_slice(source: bulk.Bulk, part: bulk.Slice) -> pa.Table:
    """The verdict cores of one slice, by attempt_id."""
    attempts = source.attempts(part)
    summary = source.summary(part)
    joined = attempts.join(summary, "attempt_id", join_type="left outer")
    faulty = pc.or_(pc.greater(pc.fill_null(joined["n_root"], 0), 0), _whose_gpu_matters(joined))
    faulty = pc.or_(faulty, _given_up(joined, source))
    without_evidence = _without_evidence(joined.filter(pc.invert(faulty)), source)
    with_evidence = list(_with_evidence(joined.filter(faulty), source, part))
    table = pa.concat_tables([without_evidence, pa.Table.from_pylist(with_evidence, schema=VERDICT_SCHEMA)])
    return table.sort_by("attempt_id")


def _whose_gpu_matters(joined: pa.Table) -> pa.ChunkedArray:
    """Flags attempts with a user-type GPU error whose own GPUs are known (or none): the error may be a neighbour's."""
    own = pc.is_valid(joined["last_own_row"])
    known = pc.equal(pc.fill_null(joined["n_gpus"], 1), 0)
    if "gpus" in joined.column_names:
        known = pc.or_(known, pc.is_valid(joined["gpus"]))
    return pc.and_(own, known)


def _given_up(attempts: pa.Table, source: bulk.Bulk) -> pa.ChunkedArray:
    """Flags attempts that ended with a lost node: their windows begin earlier than those of the summary."""
    states = sorted(window.GIVEN_UP) if not source.policy.paper else []
    return pc.is_in(attempts["state"], value_set=pa.array(states, pa.string()))


def _without_evidence(attempts: pa.Table, source: bulk.Bulk) -> pa.Table:
    """Cores of attempts without evidence: one judgement per kind of end."""
    with_kind = _with_kind(attempts)
    kinds = with_kind.group_by(list(_KIND)).aggregate([]).to_pylist()
    answers = [{**k, **_core(_typical(k, source))} for k in kinds]
    schema = pa.schema(
        [
            *(with_kind.schema.field(n) for n in _KIND),
            *(f for f in VERDICT_SCHEMA if f.name not in ("attempt_id", "event_row", "node")),
        ]
    )
    answered = pa.Table.from_pylist(answers, schema=schema) if answers else schema.empty_table()
    # Null keys never join, so "none" is a value.
    joined = _keyed(with_kind).join(_keyed(answered), "kind_key", join_type="inner", right_suffix="_of_kind")
    node = (
        joined["failed_node"]
        if "failed_node" in joined.column_names
        else pa.nulls(joined.num_rows, pa.string())
    )
    lost = pc.equal(joined["cause"], "node_lost")
    columns = {n: joined[n] for n in VERDICT_SCHEMA.names if n in joined.column_names}
    columns["node"] = pc.if_else(lost, node, None)
    own = pc.and_(pc.equal(joined["cause"], "user_error"), pc.equal(joined["state"], "FAILED"))
    columns["event_row"] = pc.if_else(own, joined["last_own_row"], None)
    return pa.table({n: columns[n] for n in VERDICT_SCHEMA.names}).cast(VERDICT_SCHEMA)


def _with_kind(attempts: pa.Table) -> pa.Table:
    """The attempts with the columns of _KIND added."""
    n = attempts.num_rows
    # A history may hold earlier verdicts: their columns must not be taken for the new ones.
    earlier = [c for c in attempts.column_names if c in VERDICT_SCHEMA.names and c != "attempt_id"]
    attempts = attempts.drop_columns(earlier) if earlier else attempts
    for name, kind in (("reason", pa.string()), ("failed_node", pa.string())):
        if name not in attempts.column_names:
            attempts = attempts.append_column(name, pa.nulls(n, kind))
    extra = {
        "one_node": pc.equal(attempts["n_nodes"], 1),
        "has_failed_node": pc.is_valid(attempts["failed_node"]),
        "has_own": pc.is_valid(attempts["last_own_row"]),
    }
    for name, column in extra.items():
        attempts = attempts.append_column(name, column)
    return attempts


def _keyed(table: pa.Table) -> pa.Table:
    parts = [pc.fill_null(pc.cast(table[n], pa.string()), "\x00") for n in _KIND]
    return table.append_column("kind_key", pc.binary_join_element_wise(*parts, "\x1f"))


def _typical(kind: Mapping[str, Any], source: bulk.Bulk) -> cases.Case:
    """A case that represents every attempt of its kind."""
    end = clock.from_us(1_000_000_000_000_000)
    nodes = ("n0",) if kind["one_node"] else ("n0", "n1")
    attempt = records.JobAttempt(
        cluster="",
        job_id=1,
        submit_at=end - timedelta(hours=2),
        start_at=end - timedelta(hours=1),
        end_at=end,
        state=kind["state"],
        exit_code=kind["exit_code"],
        exit_signal=kind["exit_signal"],
        reason=kind["reason"] or "",
        nodes=nodes,
        failed_node="n0" if kind["has_failed_node"] else None,
    )
    own = records.HealthEvent(
        event_id=uuid.UUID(int=1),
        cluster="",
        node="n0",
        at=end - timedelta(seconds=1),
        observed_at=end,
        kind="xid",
        code="31",
        severity=records.Severity.INFO,
        source="kernel",
        message="",
    )
    return cases.Case(
        attempt=attempt,
        events=(own,) if kind["has_own"] else (),
        watched=dict.fromkeys(nodes, end),
        policy=source.policy,
    )


def _core(case: cases.Case) -> dict[str, Any]:
    verdict = judge.judge(case, made_at=case.attempt.end_at or case.attempt.submit_at)
    assert verdict is not None, "only attempts with a state that gets a verdict are asked for"
    rows = {e.event_id: e.detail.get("row") for e in case.events}
    first = verdict.evidence[0] if verdict.evidence else None
    return {
        "cause": verdict.cause,
        "domain": str(verdict.domain),
        "component": verdict.component,
        "node": verdict.node,
        "device": verdict.device,
        "confidence": str(verdict.confidence),
        "event_row": None if first is None else rows[first],
    }


def _with_evidence(attempts: pa.Table, source: bulk.Bulk, part: bulk.Slice) -> Iterator[dict[str, Any]]:
    """Cores of attempts with a fault in the window, judged one by one."""
    rows = attempts.to_pylist()
    for at in range(0, len(rows), CHUNK):
        chunk = rows[at : at + CHUNK]
        ids = [r["attempt_id"] for r in chunk]
        wide = [r["attempt_id"] for r in chunk if r["state"] in window.GIVEN_UP and not source.policy.paper]
        events = _grouped(source.candidates(part, sorted(set(ids) - set(wide))))
        if wide:
            events |= _grouped(source.candidates(part, wide, window.SLURMD_TIMEOUT))
        nodes = _nodes(source, part, ids)
        for row in chunk:
            case = make_case(row, nodes[row["attempt_id"]], events.get(row["attempt_id"], []), source)
            case = _hung(case, row, source)
            yield {"attempt_id": row["attempt_id"], **_core(case)}


def _hung(case: cases.Case, row: Mapping[str, Any], source: bulk.Bulk) -> cases.Case:
    """The case with the events of its whole window, if a hang moves that before the fixed one."""
    attempt = case.attempt
    assert attempt.end_at is not None
    job_side = [e for e in case.events if findings.is_finding(e) and e.job_id == attempt.job_id]
    began = onset.onset(attempt, job_side)
    waited_s = onset.unanswered_s(attempt, job_side)
    if source.policy.paper or (began >= attempt.end_at and not waited_s):
        return case
    stretch = window.window(attempt, began, source.policy, waited_s)
    events = source.around(
        row["attempt_id"], row["end_us"], clock.to_us(stretch.start_at), clock.to_us(stretch.end_at)
    )
    return dataclasses.replace(case, events=tuple(event_of(e, source) for e in events.to_pylist()))


def make_case(
    row: Mapping[str, Any], nodes: tuple[str, ...], events: Iterable[Mapping[str, Any]], source: bulk.Bulk
) -> cases.Case:
    """The case of one row of the history and the events in its window."""
    attempt = attempt_of(row, nodes)
    assert attempt.end_at is not None
    return cases.Case(
        attempt=attempt,
        events=tuple(event_of(e, source) for e in events),
        watched=dict.fromkeys(nodes, attempt.end_at),
        policy=source.policy,
    )


def attempt_of(row: Mapping[str, Any], nodes: tuple[str, ...]) -> records.JobAttempt:
    """The attempt of one row of the history."""
    gpus = json.loads(row["gpus"]) if row.get("gpus") else None
    start, end = clock.from_us(row["start_us"]), clock.from_us(row["end_us"])
    return records.JobAttempt(
        cluster=row.get("cluster") or "",
        job_id=row["job_id"],
        submit_at=clock.from_us(row["submit_us"]) if row.get("submit_us") is not None else start,
        start_at=start,
        end_at=end,
        state=row["state"],
        exit_code=row["exit_code"],
        exit_signal=row["exit_signal"],
        reason=row.get("reason") or "",
        failed_node=row.get("failed_node"),
        nodes=nodes,
        n_gpus=row["n_gpus"],
        gpus={n: tuple(g) for n, g in gpus.items()} if gpus is not None else None,
        user=row.get("user") or "",
        work_dir=row.get("work_dir"),
        stdout_path=row.get("stdout_path"),
    )


def event_of(row: Mapping[str, Any], source: bulk.Bulk) -> records.HealthEvent:
    """The event of one row of the history; `detail["row"]` is its number there."""
    sort = source.sort(row["sort_idx"])
    at = clock.from_us(row["at_us"])
    given = row.get("event_id")
    detail = json.loads(row["detail"]) if row.get("detail") else {}
    return records.HealthEvent(
        event_id=uuid.UUID(given) if given else uuid.UUID(int=row["row"] + 1),
        cluster="",
        node=source.nodes[row["node_idx"]],
        at=at,
        observed_at=at,
        kind=sort["kind"],
        code=sort["code"],
        severity=records.Severity(sort["severity"]),
        source=sort["source"],
        device=row.get("device"),
        gpu_uuid=row.get("gpu_uuid"),
        pci_bus_id=row.get("pci_bus_id"),
        job_id=row.get("job_id"),
        message=row.get("message") or "",
        measured=row.get("measured"),
        detail={**detail, "row": row["row"], **({"recovered": True} if sort["recovered"] else {})},
    )


def _grouped(events: pa.Table) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for row in events.to_pylist():
        found.setdefault(row["attempt_id"], []).append(row)
    return found


def _nodes(source: bulk.Bulk, part: bulk.Slice, ids: list[int]) -> dict[int, tuple[str, ...]]:
    places = source.places(part, ids).sort_by([("attempt_id", "ascending"), ("node_idx", "ascending")])
    found: dict[int, list[str]] = {i: [] for i in ids}
    for attempt_id, node_idx in zip(
        places["attempt_id"].to_pylist(), places["node_idx"].to_pylist(), strict=True
    ):
        found[attempt_id].append(source.nodes[node_idx])
    return {i: tuple(n) for i, n in found.items()}
