"""Every table of schema `probing`, derived from the records; a record's field is a column, its `doc` the comment.

Beside the records' tables stand a few of our own: the key that makes delivery exactly-once,
the requests to nodes, and bookkeeping. Columns a record does not have are named in `_EXTRA`.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import typing
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records

SCHEMA = "probing"
metadata = sa.MetaData(schema=SCHEMA)

RECORDS: tuple[type[Any], ...] = (
    records.HealthEvent,
    records.CheckResult,
    records.JobAttempt,
    records.Verdict,
    records.GangVerdict,
    records.RunAccount,
    records.LemonScore,
    records.OperatorNote,
    records.Drain,
    records.AgentHeartbeat,
    records.JobAllocation,
    records.JobExclusion,
    records.NodePlace,
    records.JobDependency,
    records.DiagnosticResult,
    records.RepairIncident,
)

_UTC = sa.DateTime(timezone=True)
_SCALARS: dict[type[Any], sa.types.TypeEngine[Any]] = {
    bool: sa.Boolean(),
    int: sa.BigInteger(),
    float: sa.Double(),
    str: sa.Text(),
    datetime: _UTC,
    uuid.UUID: sa.Uuid(),
}


def table_name(cls: type[Any]) -> str:
    """`HealthEvent` -> `health_event`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


def meaning(cls: type[Any]) -> str:
    """The sentence that says what one row of this record is."""
    return (cls.__doc__ or "").strip().splitlines()[0]


def split_optional(hint: Any) -> tuple[Any, bool]:
    """The type inside `X | None` and whether None is allowed."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(inner) != 1:
            raise TypeError(f"{hint} has no single column type")
        return inner[0], True
    return hint, False


def column_type(kind: Any) -> sa.types.TypeEngine[Any]:
    """The column type of a record field's type, None already taken off."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        return pg.ARRAY(column_type(typing.get_args(kind)[0]), dimensions=1)
    if origin in (Mapping, dict):
        return pg.JSONB(none_as_null=True)
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return sa.Text()
    return _SCALARS[kind]


def record_columns(cls: type[Any]) -> list[sa.Column[Any]]:
    """The columns of a record, in its field order."""
    hints = typing.get_type_hints(cls)
    columns = []
    for item in dataclasses.fields(cls):
        kind, optional = split_optional(hints[item.name])
        columns.append(
            sa.Column(
                item.name,
                column_type(kind),
                nullable=optional,
                comment=item.metadata["doc"],
            )
        )
    return columns


def _of_record(cls: type[Any], key: tuple[str, ...], *extra: Any, name: str = "", **options: Any) -> sa.Table:
    """A record's table; `key` in the order of its index, what is asked for first leading."""
    comment = options.pop("comment", None) or meaning(cls)
    keyed = [sa.PrimaryKeyConstraint(*key)] if key else []
    return sa.Table(
        name or table_name(cls), metadata, *record_columns(cls), *keyed, *extra, comment=comment, **options
    )


def _at(name: str, comment: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, _UTC, comment=comment, **options)


def _text(name: str, comment: str, **options: Any) -> sa.Column[Any]:
    options.setdefault("nullable", False)
    return sa.Column(name, sa.Text(), comment=comment, **options)


def _id(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger(), sa.Identity(always=True), primary_key=True, comment="identity")


_NOW = sa.text("now()")
_SUMMARIZED = {"autosummarize": "true"}
"""For indexes of ranges: without, the pages since the last vacuum (up to a fifth of a month) are read for every question."""

health_event = _of_record(
    records.HealthEvent,
    ("node", "at", "event_id"),  # a node's events in a span: the order in which attribution asks
    sa.Index(
        "health_event_at_brin",
        "at",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 32, **_SUMMARIZED},
    ),
    sa.Index("health_event_job_id", "job_id", "at", postgresql_where=sa.text("job_id IS NOT NULL")),
    sa.Index("health_event_high", "at", postgresql_where=sa.text("severity = 'high'")),
    postgresql_partition_by="RANGE (at)",
)
event_key = sa.Table(
    "event_key",
    metadata,
    sa.Column(
        "event_id", sa.Uuid(), primary_key=True, comment="the event's identity, unique over all partitions"
    ),
    _at("at", "the event's own time, UTC; with the id it finds the row", nullable=False),
    _at("received_at", "when it was stored, UTC", nullable=False, server_default=_NOW),
    sa.Index("event_key_received_brin", "received_at", postgresql_using="brin", postgresql_with=_SUMMARIZED),
    comment="One row per event ever accepted: written first, so that a second delivery adds nothing.",
)
check_result = _of_record(
    records.CheckResult,
    ("node", "name", "at", "cluster"),
    comment="What one health check found on one node, a row per change.",
)
check_now = _of_record(
    records.CheckResult,
    ("cluster", "node", "name"),
    name="check_now",
    comment="The latest result of every health check on every node.",
    postgresql_with={"fillfactor": 70},
)
job_attempt = _of_record(
    records.JobAttempt,
    ("job_id", "submit_at", "cluster"),
    _at("judged_at", "when its current verdict was stored, UTC; null = to be judged (again)"),
    sa.Index("job_attempt_run_key", "run_key"),
    sa.Index("job_attempt_end_at", "end_at"),
    sa.Index("job_attempt_start_at", "start_at"),
    sa.Index("job_attempt_user", "user", "end_at"),
    sa.Index("job_attempt_nodes", "nodes", postgresql_using="gin"),
    sa.Index("job_attempt_array", "array_job_id", postgresql_where=sa.text("array_job_id IS NOT NULL")),
    sa.Index("job_attempt_het", "het_job_id", postgresql_where=sa.text("het_job_id IS NOT NULL")),
    sa.Index(
        "job_attempt_unjudged",
        "end_at",
        postgresql_where=sa.text("judged_at IS NULL AND end_at IS NOT NULL AND state <> 'COMPLETED'"),
    ),
)
verdict = _of_record(
    records.Verdict,
    (),
    _id("verdict_id"),
    _at("superseded_at", "when a newer verdict on the attempt replaced it, UTC; null = current"),
    sa.Index(
        "verdict_current_key",
        "job_id",
        "submit_at",
        "cluster",
        unique=True,
        postgresql_where=sa.text("superseded_at IS NULL"),
    ),
    sa.Index(
        "verdict_incident",
        "incident_id",
        "onset_at",
        "verdict_id",
        postgresql_where=sa.text("superseded_at IS NULL AND incident_id IS NOT NULL"),
    ),
    sa.Index(
        "verdict_onset",
        "onset_at",
        postgresql_where=sa.text("superseded_at IS NULL AND incident_id IS NOT NULL"),
    ),
    sa.Index("verdict_job_id", "job_id", "submit_at", "made_at"),
    sa.Index("verdict_node", "node", "window_end_at", postgresql_where=sa.text("superseded_at IS NULL")),
    comment="Why one attempt ended, how sure we are, and on what evidence; a row per verdict, history kept.",
)
gang_verdict = _of_record(
    records.GangVerdict,
    ("gang_id",),
    sa.Index("gang_verdict_job_id", "job_id", "submit_at", "made_at"),
    sa.Index("gang_verdict_made_at", "made_at"),
)
run_account = _of_record(
    records.RunAccount, ("run_key", "user", "cluster"), sa.Index("run_account_end_at", "end_at")
)
lemon_score = _of_record(
    records.LemonScore,
    ("node", "day", "cluster"),
    sa.Index("lemon_score_day", "day"),
    # One in a hundred of every node's nights; the words as ops.lemons asks for them.
    sa.Index(
        "lemon_score_named", "cluster", "day", postgresql_where=sa.text("verdict IN ('lemon', 'suspect')")
    ),
)
operator_note = _of_record(
    records.OperatorNote, ("note_id",), sa.Index("operator_note_subject", "subject", "at")
)
drain = _of_record(
    records.Drain, ("drain_id",), sa.Index("drain_node", "node", "at"), sa.Index("drain_at", "at")
)
agent_heartbeat = _of_record(
    records.AgentHeartbeat,
    ("node", "cluster"),
    _at(
        "received_at",
        "when the database received it, by the server's clock, UTC",
        nullable=False,
        server_default=_NOW,
    ),
    sa.Column(
        "unwatched",
        pg.TSTZMULTIRANGE(),
        nullable=False,
        server_default=sa.text("'{}'"),
        comment="when no agent ran: before the first one, and from the last word of one to the start of the next",
    ),
    comment="The latest state of the agent on every node.",
    postgresql_with={"fillfactor": 50},
)
job_allocation = _of_record(
    records.JobAllocation,
    ("job_id", "node", "at", "cluster"),
    sa.Index("job_allocation_node", "node", "at"),
)
node_place = _of_record(records.NodePlace, ("cluster", "node", "kind", "place", "since_at"))
job_exclusion = _of_record(
    records.JobExclusion, ("job_id", "node", "cluster"), sa.Index("job_exclusion_at", "at")
)
job_dependency = _of_record(
    records.JobDependency, ("on_job_id", "job_id", "cluster"), sa.Index("job_dependency_at", "at")
)
diagnostic_result = _of_record(
    records.DiagnosticResult,
    ("node", "test", "at", "result_id"),
    sa.Index("diagnostic_result_round", "round_id"),
    sa.Index("diagnostic_result_at", "at"),
)
repair_incident = _of_record(
    records.RepairIncident,
    ("incident_id",),
    sa.Index(
        "repair_incident_open",
        "cluster",
        "node",
        unique=True,
        postgresql_where=sa.text("closed_at IS NULL"),
    ),
    sa.Index("repair_incident_node", "node", "opened_at"),
)
node_request = sa.Table(
    "node_request",
    metadata,
    sa.Column("request_id", sa.Uuid(), primary_key=True, comment="identity"),
    _text("cluster", "Slurm cluster name"),
    _text("node", "the node asked"),
    _text("verb", "what is asked, from a fixed list: collect, refusal_permission, recheck, keep_log"),
    sa.Column("job_id", sa.BigInteger(), comment="the job it is about, when it is about one"),
    sa.Column(
        "detail", pg.JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb"), comment="further fields"
    ),
    _at("made_at", "when the service made it, UTC", nullable=False, server_default=_NOW),
    _at("expires_at", "after this nobody acts on it, UTC", nullable=False),
    _at("delivered_at", "when the node first received it, UTC"),
    _at("acknowledged_at", "when the node said it is done, UTC"),
    sa.CheckConstraint(
        "verb IN ('collect', 'refusal_permission', 'recheck', 'keep_log')", name="node_request_verb"
    ),
    sa.Index("node_request_made_at", "made_at"),
    sa.Index("node_request_expires", "expires_at", postgresql_where=sa.text("acknowledged_at IS NULL")),
    sa.Index("node_request_open", "node", postgresql_where=sa.text("acknowledged_at IS NULL")),
    comment="What the control plane asks of a node; handed over with the acknowledgement of its next delivery.",
)
slurm_drain = sa.Table(
    "slurm_drain",
    metadata,
    _text("cluster", "Slurm cluster name", primary_key=True),
    _text("node", "node name", primary_key=True),
    _text("states", "Slurm's base state and flags, joined by +"),
    _text("reason", "Slurm's reason, empty for none"),
    _at("since_at", "when that reason was set, by Slurm, UTC"),
    comment="One node that Slurm shows drained, whoever drained it, as of the last look.",
)
arrival = sa.Table(
    "arrival",
    metadata,
    _id("arrival_id"),
    _text("cluster", "Slurm cluster name"),
    _text("node", "the node the events are about"),
    _at("first_at", "time of the earliest new event, UTC", nullable=False),
    _at("last_at", "time of the latest new event, UTC", nullable=False),
    sa.Column("n_events", sa.BigInteger(), nullable=False, comment="new events in the delivery"),
    _at("received_at", "when they were stored, UTC", nullable=False, server_default=_NOW),
    comment="Deliveries whose new events have not yet been held against verdicts; late evidence re-opens those.",
)
rejection = sa.Table(
    "rejection",
    metadata,
    _text("role_name", "the login role that sent it", primary_key=True),
    _text("node", "the node the row claimed to be about", primary_key=True),
    _text("reason", "why it was refused", primary_key=True),
    _at("day", "the day it came in, midnight UTC", primary_key=True),
    sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="rows refused"),
    _at("last_at", "the last time, UTC", nullable=False),
    _text("sample", "the first such row, shortened"),
    sa.Index("rejection_day", "day"),
    comment="Rows that delivery refused, counted per sender, reason and day.",
)
agent_role = sa.Table(
    "agent_role",
    metadata,
    _text("role_name", "login role of the node's agent (its certificate's CN)", primary_key=True),
    _text("cluster", "Slurm cluster name"),
    _text("node", "the only node it may speak for"),
    sa.Column(
        "rows_per_hour",
        sa.BigInteger(),
        nullable=False,
        server_default=sa.text("100000"),
        comment="most new rows taken from it in one clock hour; further ones wait in its spool",
    ),
    comment="Which node an agent's login role speaks for.",
)
intake = sa.Table(
    "intake",
    metadata,
    _text("role_name", "login role of the node's agent", primary_key=True),
    _at("hour", "the clock hour, UTC", primary_key=True),
    sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="new rows taken in that hour"),
    comment="How much each agent's role has delivered per hour: what its quota is held against.",
)
reader_scope = sa.Table(
    "reader_scope",
    metadata,
    _text("role_name", "a login role in probing_reader", primary_key=True),
    _text("kind", "cluster, account or user", primary_key=True),
    _text("value", "the cluster, account or user it may read; * = every one", primary_key=True),
    sa.CheckConstraint("kind IN ('cluster', 'account', 'user', 'web')", name="reader_scope_kind"),
    comment="What a dashboard's login role may read of jobs, by row-level security.",
)
web_key = sa.Table(
    "web_key",
    metadata,
    _text(
        "key_hash",
        "SHA-256 of what the key's holder proves to have; the key itself is nowhere",
        primary_key=True,
    ),
    _text("kind", "link (a one-time login), session (a browser) or token (a machine)"),
    _text("user_name", "whose it is"),
    sa.Column("operator", sa.Boolean(), nullable=False, comment="whether it reads every job and node"),
    sa.Column(
        "accounts", pg.ARRAY(sa.Text(), dimensions=1), nullable=False, comment="accounts whose jobs it reads"
    ),
    sa.Column(
        "acts",
        sa.Boolean(),
        nullable=False,
        comment="whether it may be used to drain, resume, note and judge",
    ),
    _text("label", "its owner's word for it; empty for links and sessions"),
    _at("made_at", "when it was made, UTC", nullable=False, server_default=_NOW),
    _at("expires_at", "until when it is good, UTC", nullable=False),
    sa.CheckConstraint("kind IN ('link', 'session', 'token')", name="web_key_kind"),
    sa.Index("web_key_user", "user_name", "kind"),
    comment="Who is known to the web: login links, sessions and tokens, hashed.",
)
web_request = sa.Table(
    "web_request",
    metadata,
    _text("user_name", "who asked", primary_key=True),
    _text("idempotency_key", "the asker's own name for the request", primary_key=True),
    _text("request_hash", "SHA-256 of method, path and body"),
    sa.Column("status", sa.Integer(), comment="the answer's status; null while it is being done"),
    sa.Column("answer", pg.JSONB(none_as_null=True), comment="the answer, given again to the same request"),
    _at("made_at", "when it came, UTC", nullable=False, server_default=_NOW),
    sa.Index("web_request_made_at", "made_at"),
    comment="Actions asked for over the web, each done once however often it is asked.",
)
state = sa.Table(
    "state",
    metadata,
    _text("key", "name of the thing remembered", primary_key=True),
    sa.Column("value", pg.JSONB(), nullable=False, comment="its value"),
    _at("updated_at", "when it was last written, UTC", nullable=False, server_default=_NOW),
    comment="Cursors and facts the service keeps between runs.",
)

BY_RECORD: dict[type[Any], sa.Table] = {
    cls: metadata.tables[f"{SCHEMA}.{table_name(cls)}"] for cls in RECORDS
}
