"""Nodes, what happened on them, and what was decided about them: for operators."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from probing_cluster.core import errors
from probing_cluster.web import documents
from probing_cluster.web.api import operation

SPAN = timedelta(days=7)


class Nodes(operation.Paged, kw_only=True):
    """Which nodes."""

    state: (
        Annotated[str, msgspec.Meta(pattern="^(ok|not ok|silent|faulty|drained|failing checks)$")] | None
    ) = None


def nodes(ask: operation.Ask) -> documents.Page[documents.Node]:
    """Nodes by name, as they are now."""
    q: Nodes = ask.query
    after = operation.cursor_values(q.cursor, (str,)) or [None]
    found = ask.rows("nodes", state=q.state, node=None, after=after[0], n=q.limit + 1)
    shown = found[: q.limit]
    return documents.Page(
        items=[msgspec.convert(_known(row), documents.Node) for row in shown],
        next=operation.cursor_of([shown[-1]["node"]]) if len(found) > q.limit else None,
    )


def _known(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: row[name] or [] for name in ("jobs", "failing")} | {"faults": row["faults"] or {}}


def node(ask: operation.Ask) -> documents.NodeDetail:
    """One node: what its agent, its checks and Slurm say."""
    name = ask.path["node"]
    own = ask.cluster == ask.site.service.cluster
    slurm = _slurm(ask, name) if own else None
    found = ask.rows("nodes", state=None, node=name, after=None, n=1)
    if not found and slurm is None:
        raise errors.NotFound(
            f"{name} is not known: Slurm does not list it, and no agent was ever heard there"
        )
    cluster = ask.cluster
    row = _known(found[0]) if found else {"cluster": cluster, "node": name, "state": "silent", "age_s": 0.0}
    store = ask.site.service.store
    beats, age_s = (
        store.heartbeats([name], cluster=cluster),
        store.heartbeat_ages_s(cluster=cluster).get(name),
    )
    more = {
        "slurm_state": None if slurm is None else "+".join(sorted(slurm.states)),
        "slurm_reason": "" if slurm is None else slurm.reason,
        "partitions": [] if slurm is None else list(slurm.partitions),
        "agent_version": beats[0].version if beats else "",
        "heard_at": None if age_s is None else ask.site.service.clock.now() - timedelta(seconds=age_s),
        "checks": ask.rows("checks", node=name),
        "gpus": ask.rows("gpus", node=name),
    }
    return msgspec.convert(row | more, documents.NodeDetail)


def _slurm(ask: operation.Ask, name: str) -> Any:
    try:
        return next((n for n in ask.site.service.slurm.nodes() if n.name == name), None)
    except errors.SlurmUnavailable:
        return None


class Span(operation.OfCluster, kw_only=True, forbid_unknown_fields=True):
    """When; the last seven days where not said."""

    since: operation.Instant | None = None
    until: operation.Instant | None = None
    limit: operation.Limit = operation.MOST_ROWS


def timeline(ask: operation.Ask) -> list[documents.Moment]:
    """Everything known about one node in a span, latest first: events, checks, attempts, drains, notes."""
    since, until = span(ask.query.since, ask.query.until, ask)
    found = ask.rows("timeline", node=ask.path["node"], since=since, until=until, n=ask.query.limit)
    return [msgspec.convert(row | {"message": row["message"] or ""}, documents.Moment) for row in found]


def span(since: datetime | None, until: datetime | None, ask: operation.Ask) -> tuple[datetime, datetime]:
    """The span asked for, else the last seven days; raises UsageError."""
    end = until or ask.site.service.clock.now() + timedelta(hours=1)
    try:
        return since or end - SPAN, end
    except OverflowError as exc:
        raise errors.UsageError("the span begins before the calendar does") from exc


class Events(operation.Paged, kw_only=True):
    """Which events; of the last seven days where not said."""

    node: operation.Word | None = None
    kind: operation.Word | None = None
    code: operation.Word | None = None
    severity: Annotated[str, msgspec.Meta(pattern="^(info|low|high)$")] | None = None
    job_id: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    gpu_uuid: operation.Word | None = None
    since: operation.Instant | None = None
    until: operation.Instant | None = None


def events(ask: operation.Ask) -> documents.Page[documents.Event]:
    """Faults and signs of faults, latest first."""
    q: Events = ask.query
    since, until = span(q.since, q.until, ask)
    last = after(q.cursor)
    found = ask.rows("events", node=q.node, kind=q.kind, code=q.code, severity=q.severity, job_id=q.job_id,
        gpu_uuid=q.gpu_uuid, since=since, until=until, after_at=last[0], after_id=last[1], n=q.limit + 1,
    )  # fmt: skip
    return page(found, q.limit, documents.Event, "at", "event_id")


class Span24(operation.Paged, kw_only=True):
    """When; the last seven days where not said."""

    since: operation.Instant | None = None
    until: operation.Instant | None = None


def incidents(ask: operation.Ask) -> documents.Page[documents.Incident]:
    """Faults that ended several attempts or were seen on many nodes, latest first."""
    q: Span24 = ask.query
    since, until = span(q.since, q.until, ask)
    last = after(q.cursor)
    found = ask.rows("incidents", since=since, until=until, after_at=last[0], after_id=last[1], n=q.limit + 1)
    return page(found, q.limit, documents.Incident, "onset_at", "incident_id")


Action = Annotated[
    str,
    msgspec.Meta(pattern=operation.one_of(("drain", "exclude", "refuse", "requeue", "restart", "resume"))),
]


class Drains(operation.Paged, kw_only=True):
    """Which decisions."""

    node: operation.Word | None = None
    action: Action | None = None
    open: bool | None = None
    since: operation.Instant | None = None


def drains(ask: operation.Ask) -> documents.Page[documents.Decision]:
    """Decisions about nodes and what became of them, latest first."""
    q: Drains = ask.query
    last = after(q.cursor)
    found = ask.rows("drains", node=q.node, action=q.action, open=q.open, since=q.since,
        after_at=last[0], after_id=last[1], n=q.limit + 1,
    )  # fmt: skip
    return page(found, q.limit, documents.Decision, "at", "drain_id")


def lemons(ask: operation.Ask) -> documents.Page[documents.Lemon]:
    """Nodes that are likely to keep killing jobs, likeliest first."""
    q: operation.Paged = ask.query
    after = operation.cursor_values(q.cursor, (float, str)) or (None, None)
    found = ask.rows("lemons", after_score=after[0], after_node=after[1], n=q.limit + 1)
    return page(found, q.limit, documents.Lemon, "score", "node")


def after(cursor: str | None) -> tuple[Any, Any]:
    """Time and id of the last row of the page before; raises UsageError."""
    found = operation.cursor_values(cursor, (datetime, str))
    if found is None:
        return None, None
    try:
        return found[0], uuid.UUID(found[1])
    except ValueError as exc:
        raise errors.UsageError("the cursor is none that a page gave; ask again from the first page") from exc


def page(found: list[dict[str, Any]], limit: int, kind: Any, key: str, tie: str) -> documents.Page[Any]:
    """The rows as documents of a kind, or as they are; and where they end."""
    shown = found[:limit]
    end = shown[-1] if len(found) > limit else None
    tail = end[tie] if end else None
    return documents.Page(
        items=shown if kind is None else [msgspec.convert(row, kind) for row in shown],
        next=operation.cursor_of([end[key], str(tail)]) if end else None,
    )
