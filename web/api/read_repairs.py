"""Tests of nodes and repairs: what was found, who is where, and what each waits for. For operators."""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec

from probing_cluster.control_plane.repair import engine, steps
from probing_cluster.core import errors, records
from probing_cluster.db import rows
from probing_cluster.web import documents
from probing_cluster.web.api import operation, read_nodes

Outcome = Annotated[str, msgspec.Meta(pattern=operation.one_of(records.Outcome))]
State = Annotated[str, msgspec.Meta(pattern=operation.one_of(engine.MEANINGS))]


class Diagnostics(operation.Paged, kw_only=True):
    """Which results; of the last seven days where not said."""

    node: operation.Word | None = None
    test: operation.Word | None = None
    outcome: Outcome | None = None
    round_id: uuid.UUID | None = None
    since: operation.Instant | None = None
    until: operation.Instant | None = None


def diagnostics(ask: operation.Ask) -> documents.Page[records.DiagnosticResult]:
    """Results of tests, latest first."""
    q: Diagnostics = ask.query
    since, until = read_nodes.span(q.since, q.until, ask)
    after = read_nodes.after(q.cursor)
    found = ask.rows("diagnostics", node=q.node, test=q.test, outcome=q.outcome, round_id=q.round_id, incident_id=None,
        since=None if q.round_id else since, until=None if q.round_id else until, after_at=after[0], after_id=after[1],
        n=q.limit + 1,
    )  # fmt: skip
    page = read_nodes.page(found, q.limit, None, "at", "result_id")
    return documents.Page(
        items=[rows.from_row(records.DiagnosticResult, row) for row in page.items], next=page.next
    )


class Repairs(operation.Paged, kw_only=True):
    """Which repairs."""

    node: operation.Word | None = None
    state: State | None = None
    open: bool | None = None
    since: operation.Instant | None = None


def repairs(ask: operation.Ask) -> documents.Page[records.RepairIncident]:
    """Repairs of nodes, latest opened first."""
    q: Repairs = ask.query
    after = read_nodes.after(q.cursor)
    found = ask.rows("repairs", node=q.node, state=q.state, open=q.open, since=q.since, after_at=after[0],
        after_id=after[1], n=q.limit + 1,
    )  # fmt: skip
    page = read_nodes.page(found, q.limit, None, "opened_at", "incident_id")
    return documents.Page(
        items=[rows.from_row(records.RepairIncident, row) for row in page.items], next=page.next
    )


def repair(ask: operation.Ask) -> documents.Repair:
    """A node's latest repair with its tests; raises NotFound."""
    node = ask.path["node"]
    page = repairs(
        operation.Ask(
            site=ask.site,
            viewer=ask.viewer,
            path=ask.path,
            query=Repairs(node=node, limit=1, cluster=ask.cluster),
        )
    )
    if not page.items:
        raise errors.NotFound(f"{node} was never under repair")
    one, config = page.items[0], ask.site.service.config.repair
    taken, left = steps.taken_and_left(one.cause, one.steps_done, config)
    found = ask.rows("diagnostics", node=None, test=None, outcome=None, round_id=None, incident_id=one.incident_id,
        since=None, until=None, after_at=None, after_id=None, n=operation.MOST_ROWS,
    )  # fmt: skip
    tests = [rows.from_row(records.DiagnosticResult, row) for row in found]
    return documents.Repair(repair=one, steps_taken=taken, steps_left=left, tests=tests)


def round_of(ask: operation.Ask) -> documents.Round:
    """A round of tests that was begun over the web, or whose results are stored; raises NotFound."""
    try:
        round_id = uuid.UUID(ask.path["round"])
    except ValueError as exc:
        raise errors.UsageError("a round's id is a UUID") from exc
    found = ask.rows("round_results", round_id=round_id)[0]["n"]
    try:
        ended = ask.site.rounds.state(round_id)
    except errors.NotFound:
        if not found:
            raise
        return documents.Round(round_id=round_id, state="ended", n_results=found)
    if ended is None:
        return documents.Round(round_id=round_id, state="running", n_results=found)
    state = "ended" if ended.found is not None else "failed"
    return documents.Round(round_id=round_id, state=state, why=ended.why, n_results=found)
