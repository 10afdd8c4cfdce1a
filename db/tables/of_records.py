"""The tables of the records, with their keys and indexes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from probing_cluster.core import records
from probing_cluster.db.tables.derive import (
    NOW,
    SCHEMA,
    SUMMARIZED,
    at_column,
    id_column,
    metadata,
    of_record,
    table_name,
)

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
health_event = of_record(
    records.HealthEvent,
    ("node", "at", "event_id"),  # a node's events in a span: the order in which attribution asks
    sa.Index(
        "health_event_at_brin",
        "at",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 32, **SUMMARIZED},
    ),
    sa.Index("health_event_job_id", "job_id", "at", postgresql_where=sa.text("job_id IS NOT NULL")),
    sa.Index("health_event_high", "at", postgresql_where=sa.text("severity = 'high'")),
    sa.Index(
        "health_event_ends",
        "node",
        "at",
        postgresql_where=sa.text(
            "kind IN ('node_boot', 'driver_load') OR detail -> 'recovered' = 'true'::jsonb"
        ),
    ),
    sa.Index(
        "health_event_lasting",
        "node",
        "at",
        postgresql_where=sa.text("severity = 'high' OR last_at IS NOT NULL"),
    ),
    # One entry per event in these two together: faults of a shared part are sought by kind and time, and Xids, of
    # which there are many, by code and node.
    sa.Index("health_event_kind", "kind", "at", postgresql_where=sa.text("kind <> 'xid'")),
    sa.Index("health_event_xid", "code", "node", "at", postgresql_where=sa.text("kind = 'xid'")),
    # A job that nothing knows is sought by this too, in every month.
    sa.Index(
        "health_event_raw_id",
        sa.text("(detail -> 'raw_id')"),
        postgresql_where=sa.text("kind = 'never_started'"),
    ),
    postgresql_partition_by="RANGE (at)",
)
check_result = of_record(
    records.CheckResult,
    ("node", "name", "at", "cluster"),
    comment="What one health check found on one node, a row per change.",
)
check_now = of_record(
    records.CheckResult,
    ("cluster", "node", "name"),
    name="check_now",
    comment="The latest result of every health check on every node.",
    postgresql_with={"fillfactor": 70},
)
job_attempt = of_record(
    records.JobAttempt,
    ("job_id", "submit_at", "cluster"),
    at_column("judged_at", "when its current verdict was stored, UTC; null = to be judged (again)"),
    sa.Index("job_attempt_run_key", "run_key"),
    sa.Index("job_attempt_end_at", "end_at"),
    sa.Index("job_attempt_start_at", "start_at"),
    sa.Index("job_attempt_user", "user", "start_at"),
    sa.Index("job_attempt_partition", "partition", "start_at"),
    sa.Index("job_attempt_account", "account", "start_at"),
    sa.Index(
        "job_attempt_rare_state",
        "state",
        "start_at",
        postgresql_where=sa.text("state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"),
    ),
    sa.Index("job_attempt_nodes", "nodes", postgresql_using="gin"),
    sa.Index("job_attempt_array", "array_job_id", postgresql_where=sa.text("array_job_id IS NOT NULL")),
    sa.Index("job_attempt_het", "het_job_id", postgresql_where=sa.text("het_job_id IS NOT NULL")),
    sa.Index(
        "job_attempt_unjudged",
        "end_at",
        postgresql_where=sa.text("judged_at IS NULL AND end_at IS NOT NULL AND state <> 'COMPLETED'"),
    ),
)
verdict = of_record(
    records.Verdict,
    (),
    id_column("verdict_id"),
    at_column("superseded_at", "when a newer verdict on the attempt replaced it, UTC; null = current"),
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
    sa.Index("verdict_stalled", "job_id", postgresql_where=sa.text("stalled_at IS NOT NULL")),
    sa.Index("verdict_job_id", "job_id", "submit_at", "made_at"),
    sa.Index("verdict_node", "node", "window_end_at", postgresql_where=sa.text("superseded_at IS NULL")),
    sa.Index("verdict_cause", "cause", postgresql_where=sa.text("superseded_at IS NULL")),
    sa.Index("verdict_domain", "domain", postgresql_where=sa.text("superseded_at IS NULL")),
    comment="Why one attempt ended, how sure we are, and on what evidence; a row per verdict, history kept.",
)
gang_verdict = of_record(
    records.GangVerdict,
    ("gang_id",),
    sa.Index("gang_verdict_job_id", "job_id", "submit_at", "made_at"),
    sa.Index("gang_verdict_made_at", "made_at"),
)
run_account = of_record(
    records.RunAccount, ("run_key", "user", "cluster"), sa.Index("run_account_end_at", "end_at")
)
lemon_score = of_record(
    records.LemonScore,
    ("node", "day", "cluster"),
    sa.Index("lemon_score_day", "day"),
    # One in a hundred of every node's nights; the words as ops.lemons asks for them.
    sa.Index(
        "lemon_score_named", "cluster", "day", postgresql_where=sa.text("verdict IN ('lemon', 'suspect')")
    ),
)
operator_note = of_record(
    records.OperatorNote, ("note_id",), sa.Index("operator_note_subject", "subject", "at")
)
drain = of_record(
    records.Drain, ("drain_id",), sa.Index("drain_node", "node", "at"), sa.Index("drain_at", "at")
)
agent_heartbeat = of_record(
    records.AgentHeartbeat,
    ("node", "cluster"),
    at_column(
        "received_at",
        "when the database received it, by the server's clock, UTC",
        nullable=False,
        server_default=NOW,
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
job_allocation = of_record(
    records.JobAllocation,
    ("job_id", "node", "at", "cluster"),
    at_column("received_at", "when the first report of it was stored, by the server's clock, UTC"),
    at_column("updated_at", "when the latest report of it was stored, by the server's clock, UTC"),
    sa.Index("job_allocation_node", "node", "at"),
)
node_place = of_record(records.NodePlace, ("cluster", "node", "kind", "place", "since_at"))
job_exclusion = of_record(
    records.JobExclusion, ("job_id", "node", "cluster"), sa.Index("job_exclusion_at", "at")
)
job_dependency = of_record(
    records.JobDependency,
    ("on_job_id", "job_id", "cluster"),
    sa.Index("job_dependency_at", "at"),
    sa.Index("job_dependency_job", "job_id"),
)
diagnostic_result = of_record(
    records.DiagnosticResult,
    ("node", "test", "at", "result_id"),
    sa.Index("diagnostic_result_round", "round_id"),
    sa.Index("diagnostic_result_at", "at"),
)
repair_incident = of_record(
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

BY_RECORD: dict[type[Any], sa.Table] = {
    cls: metadata.tables[f"{SCHEMA}.{table_name(cls)}"] for cls in RECORDS
}
