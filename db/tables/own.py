"""Tables beside the records': the key that makes delivery exactly-once, requests to nodes, roles and quotas, the web's keys, bookkeeping."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.db.tables.derive import NOW, SUMMARIZED, at_column, id_column, metadata, text_column

event_key = sa.Table(
    "event_key",
    metadata,
    sa.Column(
        "event_id", sa.Uuid(), primary_key=True, comment="the event's identity, unique over all partitions"
    ),
    at_column("at", "the event's own time, UTC; with the id it finds the row", nullable=False),
    at_column(
        "received_at",
        "when it was stored, or its times were corrected, UTC",
        nullable=False,
        server_default=NOW,
    ),
    sa.Column(
        "ahead_s",
        sa.Double(),
        comment="seconds taken off the event's times, because its node's clock was ahead by so much; null = none, 0 = never, its node did not date it or an earlier release stored it",
    ),
    sa.Index("event_key_received_brin", "received_at", postgresql_using="brin", postgresql_with=SUMMARIZED),
    sa.Index("event_key_moved", "received_at", postgresql_where=sa.text("ahead_s <> 0")),
    comment="One row per event ever accepted: written first, so that a second delivery adds nothing.",
)
node_request = sa.Table(
    "node_request",
    metadata,
    sa.Column("request_id", sa.Uuid(), primary_key=True, comment="identity"),
    text_column("cluster", "Slurm cluster name"),
    text_column("node", "the node asked"),
    text_column(
        "verb", "what is asked, from a fixed list: collect, refusal_permission, recheck, keep_log, ask"
    ),
    sa.Column("job_id", sa.BigInteger(), comment="the job it is about, when it is about one"),
    sa.Column(
        "detail", pg.JSONB(), nullable=False, server_default=sa.text("'{}'::jsonb"), comment="further fields"
    ),
    at_column("made_at", "when the service made it, UTC", nullable=False, server_default=NOW),
    at_column("expires_at", "after this nobody acts on it, UTC", nullable=False),
    at_column("delivered_at", "when the node first received it, UTC"),
    at_column("acknowledged_at", "when the node said it is done, UTC"),
    sa.CheckConstraint(
        "verb IN ('collect', 'refusal_permission', 'recheck', 'keep_log', 'ask')", name="node_request_verb"
    ),
    sa.Index("node_request_made_at", "made_at"),
    sa.Index("node_request_expires", "expires_at", postgresql_where=sa.text("acknowledged_at IS NULL")),
    sa.Index("node_request_open", "node", postgresql_where=sa.text("acknowledged_at IS NULL")),
    comment="What the control plane asks of a node; handed over with the acknowledgement of its next delivery.",
)
node_answer = sa.Table(
    "node_answer",
    metadata,
    sa.Column("request_id", sa.Uuid(), primary_key=True, comment="the request it answers"),
    text_column("cluster", "Slurm cluster name"),
    text_column("node", "the node that answers"),
    sa.Column(
        "body", sa.LargeBinary(), nullable=False, comment="rows of a running job, packed (live/packing.py)"
    ),
    at_column("made_at", "when it came, UTC", nullable=False, server_default=NOW),
    sa.Index("node_answer_node", "node", "made_at"),
    comment="What a node answers to a question about a running job; kept ten minutes.",
)
node_clock = sa.Table(
    "node_clock",
    metadata,
    text_column("cluster", "Slurm cluster name", primary_key=True),
    text_column("node", "node name", primary_key=True),
    at_column("from_at", "first heartbeat with that offset, by the server's clock, UTC", primary_key=True),
    at_column("to_at", "last heartbeat with that offset, by the server's clock, UTC", nullable=False),
    sa.Column(
        "offset_s",
        sa.Double(),
        nullable=False,
        comment="seconds by which the node's clock was ahead of the server's; negative = behind",
    ),
    sa.Column("n_beats", sa.Integer(), nullable=False, comment="heartbeats with that offset"),
    sa.Column(
        "is_sure",
        sa.Boolean(),
        sa.Computed(
            "offset_s > 0::double precision OR (n_beats >= 3 AND to_at - from_at >= '00:01:00'::interval)",
            persisted=True,
        ),
        nullable=False,
        comment="counts: a heartbeat that waited looks behind, so that takes three of at least a minute",
    ),
    comment="A time in which a node's clock was off: ahead by more than 5 s, or behind by more than 30 s.",
)
slurm_drain = sa.Table(
    "slurm_drain",
    metadata,
    text_column("cluster", "Slurm cluster name", primary_key=True),
    text_column("node", "node name", primary_key=True),
    text_column("states", "Slurm's base state and flags, joined by +"),
    text_column("reason", "Slurm's reason, empty for none"),
    at_column("since_at", "when that reason was set, by Slurm, UTC"),
    comment="One node that Slurm shows drained, whoever drained it, as of the last look.",
)
arrival = sa.Table(
    "arrival",
    metadata,
    id_column("arrival_id"),
    text_column("cluster", "Slurm cluster name"),
    text_column("node", "the node the events are about"),
    at_column("first_at", "time of the earliest new event, UTC", nullable=False),
    at_column("last_at", "time of the latest new event, UTC", nullable=False),
    sa.Column("n_events", sa.BigInteger(), nullable=False, comment="new events in the delivery"),
    at_column("received_at", "when they were stored, UTC", nullable=False, server_default=NOW),
    sa.Column(
        "job_id",
        sa.BigInteger(),
        comment="the one job they concern: its output was read; null = all on the node",
    ),
    comment="Deliveries whose new events have not yet been held against verdicts; late evidence re-opens those.",
)
rejection = sa.Table(
    "rejection",
    metadata,
    text_column("role_name", "the login role that sent it", primary_key=True),
    text_column("node", "the node the row claimed to be about", primary_key=True),
    text_column("reason", "why it was refused", primary_key=True),
    at_column("day", "the day it came in, midnight UTC", primary_key=True),
    sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="rows refused"),
    at_column("last_at", "the last time, UTC", nullable=False),
    text_column("sample", "the first such row, shortened"),
    sa.Index("rejection_day", "day"),
    comment="Rows that delivery refused, counted per sender, reason and day.",
)
agent_role = sa.Table(
    "agent_role",
    metadata,
    text_column("role_name", "login role of the node's agent (its certificate's CN)", primary_key=True),
    text_column("cluster", "Slurm cluster name"),
    text_column("node", "the only node it may speak for"),
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
    text_column("role_name", "login role of the node's agent", primary_key=True),
    at_column("hour", "the clock hour, UTC", primary_key=True),
    sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="new rows taken in that hour"),
    comment="How much each agent's role has delivered per hour: what its quota is held against.",
)
reader_scope = sa.Table(
    "reader_scope",
    metadata,
    text_column("role_name", "a login role in probing_reader", primary_key=True),
    text_column("kind", "cluster, account or user", primary_key=True),
    text_column("value", "the cluster, account or user it may read; * = every one", primary_key=True),
    sa.CheckConstraint("kind IN ('cluster', 'account', 'user', 'web')", name="reader_scope_kind"),
    comment="What a dashboard's login role may read of jobs, by row-level security.",
)
web_key = sa.Table(
    "web_key",
    metadata,
    text_column(
        "key_hash",
        "SHA-256 of what the key's holder proves to have; the key itself is nowhere",
        primary_key=True,
    ),
    text_column("kind", "link (a one-time login), session (a browser) or token (a machine)"),
    text_column("user_name", "whose it is"),
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
    text_column("label", "its owner's word for it; empty for links and sessions"),
    at_column("made_at", "when it was made, UTC", nullable=False, server_default=NOW),
    at_column("expires_at", "until when it is good, UTC", nullable=False),
    sa.CheckConstraint("kind IN ('link', 'session', 'token')", name="web_key_kind"),
    sa.Index("web_key_user", "user_name", "kind"),
    comment="Who is known to the web: login links, sessions and tokens, hashed.",
)
web_request = sa.Table(
    "web_request",
    metadata,
    text_column("user_name", "who asked", primary_key=True),
    text_column("idempotency_key", "the asker's own name for the request", primary_key=True),
    text_column("request_hash", "SHA-256 of method, path and body"),
    sa.Column("status", sa.Integer(), comment="the answer's status; null while it is being done"),
    sa.Column("answer", pg.JSONB(none_as_null=True), comment="the answer, given again to the same request"),
    at_column("made_at", "when it came, UTC", nullable=False, server_default=NOW),
    sa.Index("web_request_made_at", "made_at"),
    comment="Actions asked for over the web, each done once however often it is asked.",
)
state = sa.Table(
    "state",
    metadata,
    text_column("key", "name of the thing remembered", primary_key=True),
    sa.Column("value", pg.JSONB(), nullable=False, comment="its value"),
    at_column("updated_at", "when it was last written, UTC", nullable=False, server_default=NOW),
    comment="Cursors and facts the service keeps between runs.",
)
