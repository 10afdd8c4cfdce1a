"""the first schema"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "agent_heartbeat",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when the agent made it, UTC"),
        sa.Column("boot_id", sa.Text(), nullable=False, comment="the node's boot id"),
        sa.Column("version", sa.Text(), nullable=False, comment="agent version"),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when this agent process started, UTC",
        ),
        sa.Column("beat_s", sa.Double(), nullable=False, comment="the interval it promises, seconds"),
        sa.Column("spool_depth", sa.BigInteger(), nullable=False, comment="events waiting in the spool"),
        sa.Column("spool_bytes", sa.BigInteger(), nullable=False, comment="bytes in the spool"),
        sa.Column(
            "lag_s", sa.Double(), nullable=False, comment="age of the oldest undelivered event, seconds"
        ),
        sa.Column(
            "dropped_total",
            sa.BigInteger(),
            nullable=False,
            comment="events dropped by spool policy since installation",
        ),
        sa.Column(
            "coalesced_total",
            sa.BigInteger(),
            nullable=False,
            comment="events folded into others since installation",
        ),
        sa.Column(
            "rejected_total",
            sa.BigInteger(),
            nullable=False,
            comment="inputs refused as malformed since installation",
        ),
        sa.Column(
            "hung_children",
            sa.BigInteger(),
            nullable=False,
            comment="children that outlived their deadline in D state",
        ),
        sa.Column(
            "rss_bytes", sa.BigInteger(), nullable=False, comment="resident memory of the agent, bytes"
        ),
        sa.Column(
            "cpu_s", sa.Double(), nullable=False, comment="CPU seconds the agent has used since it started"
        ),
        sa.Column(
            "sources",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="per source: last read (ISO), state, error",
        ),
        sa.Column(
            "faults",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="faults the agent confirms right now: 'kind:device' to {severity, since, event_id, gpu_uuid, message}",
        ),
        sa.Column(
            "jobs",
            postgresql.ARRAY(sa.BigInteger(), dimensions=1),
            nullable=False,
            comment="job ids on the node right now, from Prolog and Epilog",
        ),
        sa.Column(
            "ranks",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="training ranks on the node by the probe's pages: '<job id>:<rank>' to phase, steps, collective, step times",
        ),
        sa.Column(
            "received_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the database received it, by the server's clock, UTC",
        ),
        sa.Column(
            "unwatched",
            postgresql.TSTZMULTIRANGE(),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="when no agent ran: before the first one, and from the last word of one to the start of the next",
        ),
        sa.PrimaryKeyConstraint("node", "cluster"),
        schema="probing",
        comment="The latest state of the agent on every node.",
        postgresql_with={"fillfactor": 50},
    )
    op.create_table(
        "agent_role",
        sa.Column(
            "role_name",
            sa.Text(),
            nullable=False,
            comment="login role of the node's agent (its certificate's CN)",
        ),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="the only node it may speak for"),
        sa.Column(
            "rows_per_hour",
            sa.BigInteger(),
            server_default=sa.text("100000"),
            nullable=False,
            comment="most new rows taken from it in one clock hour; further ones wait in its spool",
        ),
        sa.PrimaryKeyConstraint("role_name"),
        schema="probing",
        comment="Which node an agent's login role speaks for.",
    )
    op.create_table(
        "arrival",
        sa.Column(
            "arrival_id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="identity"
        ),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="the node the events are about"),
        sa.Column(
            "first_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="time of the earliest new event, UTC",
        ),
        sa.Column(
            "last_at", sa.DateTime(timezone=True), nullable=False, comment="time of the latest new event, UTC"
        ),
        sa.Column("n_events", sa.BigInteger(), nullable=False, comment="new events in the delivery"),
        sa.Column(
            "received_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when they were stored, UTC",
        ),
        sa.PrimaryKeyConstraint("arrival_id"),
        schema="probing",
        comment="Deliveries whose new events have not yet been held against verdicts; late evidence re-opens those.",
    )
    op.create_table(
        "check_now",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("name", sa.Text(), nullable=False, comment="the check's registered name"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="ok, warn, fail, error or absent"),
        sa.Column(
            "severity", sa.Text(), nullable=False, comment="how bad a failure of this check is on this site"
        ),
        sa.Column("message", sa.Text(), nullable=False, comment="one sentence: what was found"),
        sa.Column("device", sa.Text(), nullable=True, comment="the part that failed, when one did"),
        sa.Column("measured", sa.Double(), nullable=True, comment="the measured value, in `unit`"),
        sa.Column("threshold", sa.Double(), nullable=True, comment="the limit, in `unit`"),
        sa.Column("unit", sa.Text(), nullable=True, comment="unit of measured and threshold"),
        sa.Column("duration_s", sa.Double(), nullable=False, comment="wall time the check took, seconds"),
        sa.Column("timed_out", sa.Boolean(), nullable=False, comment="true when the deadline ended it"),
        sa.Column("version", sa.Text(), nullable=False, comment="version of the check's logic"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when the check ended, UTC"),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="further facts of the check",
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "name"),
        schema="probing",
        comment="The latest result of every health check on every node.",
        postgresql_with={"fillfactor": 70},
    )
    op.create_table(
        "check_result",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("name", sa.Text(), nullable=False, comment="the check's registered name"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="ok, warn, fail, error or absent"),
        sa.Column(
            "severity", sa.Text(), nullable=False, comment="how bad a failure of this check is on this site"
        ),
        sa.Column("message", sa.Text(), nullable=False, comment="one sentence: what was found"),
        sa.Column("device", sa.Text(), nullable=True, comment="the part that failed, when one did"),
        sa.Column("measured", sa.Double(), nullable=True, comment="the measured value, in `unit`"),
        sa.Column("threshold", sa.Double(), nullable=True, comment="the limit, in `unit`"),
        sa.Column("unit", sa.Text(), nullable=True, comment="unit of measured and threshold"),
        sa.Column("duration_s", sa.Double(), nullable=False, comment="wall time the check took, seconds"),
        sa.Column("timed_out", sa.Boolean(), nullable=False, comment="true when the deadline ended it"),
        sa.Column("version", sa.Text(), nullable=False, comment="version of the check's logic"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when the check ended, UTC"),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="further facts of the check",
        ),
        sa.PrimaryKeyConstraint("node", "name", "at", "cluster"),
        schema="probing",
        comment="What one health check found on one node, a row per change.",
    )
    op.create_table(
        "drain",
        sa.Column("drain_id", sa.Uuid(), nullable=False, comment="identity"),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when it was decided, UTC"),
        sa.Column("action", sa.Text(), nullable=False, comment="drain, requeue, resume, refuse"),
        sa.Column(
            "reason",
            sa.Text(),
            nullable=False,
            comment="the reason as written to Slurm, starting with probing:",
        ),
        sa.Column("owner", sa.Text(), nullable=False, comment="probing, or the operator's name"),
        sa.Column(
            "state", sa.Text(), nullable=False, comment="done, simulated, denied, failed, skipped or resumed"
        ),
        sa.Column("why_state", sa.Text(), nullable=False, comment="why it was denied, skipped or failed"),
        sa.Column("severity", sa.Text(), nullable=False, comment="severity of what caused it"),
        sa.Column(
            "job_id", sa.BigInteger(), nullable=True, comment="the job requeued or refused, when one was"
        ),
        sa.Column(
            "event_ids", postgresql.ARRAY(sa.Uuid(), dimensions=1), nullable=False, comment="the evidence"
        ),
        sa.Column(
            "ended_at", sa.DateTime(timezone=True), nullable=True, comment="when the drain was lifted, UTC"
        ),
        sa.PrimaryKeyConstraint("drain_id"),
        schema="probing",
        comment="One decision about a node and what became of it; the audit of every action.",
    )
    op.create_index("drain_at", "drain", ["at"], unique=False, schema="probing")
    op.create_index("drain_node", "drain", ["node", "at"], unique=False, schema="probing")
    op.create_table(
        "event_key",
        sa.Column(
            "event_id", sa.Uuid(), nullable=False, comment="the event's identity, unique over all partitions"
        ),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="the event's own time, UTC; with the id it finds the row",
        ),
        sa.Column(
            "received_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it was stored, UTC",
        ),
        sa.PrimaryKeyConstraint("event_id"),
        schema="probing",
        comment="One row per event ever accepted: written first, so that a second delivery adds nothing.",
    )
    op.create_index(
        "event_key_received_brin",
        "event_key",
        ["received_at"],
        unique=False,
        schema="probing",
        postgresql_using="brin",
        postgresql_with={"autosummarize": "true"},
    )
    op.create_table(
        "gang_verdict",
        sa.Column(
            "gang_id",
            sa.Uuid(),
            nullable=False,
            comment="identity: the same stall judged again replaces its row",
        ),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Slurm job id"),
        sa.Column(
            "submit_at", sa.DateTime(timezone=True), nullable=False, comment="submit time of the attempt, UTC"
        ),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="what it is, a word of docs/probe.md: rank_dead, rank_stopped, python_loop, gil_held, dataloader …",
        ),
        sa.Column(
            "ranks",
            postgresql.ARRAY(sa.BigInteger(), dimensions=1),
            nullable=False,
            comment="the ranks at fault; empty when none stands out",
        ),
        sa.Column("nodes", postgresql.ARRAY(sa.Text(), dimensions=1), nullable=False, comment="their nodes"),
        sa.Column(
            "domain", sa.Text(), nullable=False, comment="user_program, system_software, hardware or unknown"
        ),
        sa.Column(
            "confidence",
            sa.Text(),
            nullable=False,
            comment="likely, possible or unknown: job-side evidence alone is never certain",
        ),
        sa.Column("summary", sa.Text(), nullable=False, comment="one sentence for a person"),
        sa.Column(
            "location",
            sa.Text(),
            nullable=False,
            comment="the line of the program the (first) rank at fault is in; empty when not seen",
        ),
        sa.Column(
            "proof",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="what it rests on, one sentence each",
        ),
        sa.Column(
            "evidence",
            postgresql.ARRAY(sa.Uuid(), dimensions=1),
            nullable=False,
            comment="event ids it rests on",
        ),
        sa.Column(
            "onset_at", sa.DateTime(timezone=True), nullable=False, comment="when the gang last got on, UTC"
        ),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, comment="when it was named, UTC"),
        sa.Column(
            "ended_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the gang got on again or its attempt ended, UTC; null while it stands",
        ),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="further facts: merged stacks, ranks seen …",
        ),
        sa.PrimaryKeyConstraint("gang_id"),
        schema="probing",
        comment="Why the ranks of one attempt do not get on, named while it still runs.",
    )
    op.create_index(
        "gang_verdict_job_id",
        "gang_verdict",
        ["job_id", "submit_at", "made_at"],
        unique=False,
        schema="probing",
    )
    op.create_index("gang_verdict_made_at", "gang_verdict", ["made_at"], unique=False, schema="probing")
    op.create_table(
        "health_event",
        sa.Column(
            "event_id",
            sa.Uuid(),
            nullable=False,
            comment="128-bit hash of cluster, node, source and source position; see make_event_id",
        ),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column(
            "node", sa.Text(), nullable=False, comment="Slurm node name (SLURMD_NODENAME, not the host name)"
        ),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="when it happened, by the node's clock, UTC; the first time when coalesced",
        ),
        sa.Column(
            "observed_at", sa.DateTime(timezone=True), nullable=False, comment="when our agent read it, UTC"
        ),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="what sort of fact, a word of docs/evidence.md: xid, pcie_aer, ib_link, gpu_lost …",
        ),
        sa.Column(
            "code",
            sa.Text(),
            nullable=True,
            comment="the kind's own code: Xid number, AER class, check name …",
        ),
        sa.Column(
            "severity",
            sa.Text(),
            nullable=False,
            comment="info, low or high; the mapping is data, editable per site",
        ),
        sa.Column(
            "device",
            sa.Text(),
            nullable=True,
            comment="the part concerned as the source names it: gpu3, mlx5_0, /scratch, nvme0n1",
        ),
        sa.Column(
            "pci_bus_id",
            sa.Text(),
            nullable=True,
            comment="PCI address, lower case, domain:bus:device[.function] as 0000:3b:00",
        ),
        sa.Column(
            "gpu_uuid",
            sa.Text(),
            nullable=True,
            comment="GPU UUID when the event concerns one GPU and it is known",
        ),
        sa.Column("pid", sa.BigInteger(), nullable=True, comment="process id named by the source"),
        sa.Column("process", sa.Text(), nullable=True, comment="process name named by the source"),
        sa.Column(
            "job_id",
            sa.BigInteger(),
            nullable=True,
            comment="Slurm job id when the source itself ties the event to a job",
        ),
        sa.Column(
            "count",
            sa.BigInteger(),
            nullable=False,
            comment="how many times it was seen when equal events were coalesced",
        ),
        sa.Column(
            "last_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="the last time when coalesced, UTC; null for a single event",
        ),
        sa.Column(
            "source",
            sa.Text(),
            nullable=False,
            comment="who saw it: kernel, nvml, amdsmi, sysfs, mount, service, check, agent, joblog, probe, import",
        ),
        sa.Column(
            "message", sa.Text(), nullable=False, comment="the source's text, control characters removed"
        ),
        sa.Column("measured", sa.Double(), nullable=True, comment="the measured value, in `unit`"),
        sa.Column("threshold", sa.Double(), nullable=True, comment="the limit it crossed, in `unit`"),
        sa.Column(
            "unit",
            sa.Text(),
            nullable=True,
            comment="unit of measured and threshold: c, w, count, frac, bytes, s …",
        ),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="further decoded fields of the source",
        ),
        sa.PrimaryKeyConstraint("node", "at", "event_id"),
        schema="probing",
        comment="One fault (or sign of one) that a node, or a job on it, showed.",
        postgresql_partition_by="RANGE (at)",
    )
    op.create_index(
        "health_event_at_brin",
        "health_event",
        ["at"],
        unique=False,
        schema="probing",
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 32, "autosummarize": "true"},
    )
    op.create_index(
        "health_event_high",
        "health_event",
        ["at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("severity = 'high'"),
    )
    op.create_index(
        "health_event_job_id",
        "health_event",
        ["job_id", "at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("job_id IS NOT NULL"),
    )
    op.create_table(
        "intake",
        sa.Column("role_name", sa.Text(), nullable=False, comment="login role of the node's agent"),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False, comment="the clock hour, UTC"),
        sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="new rows taken in that hour"),
        sa.PrimaryKeyConstraint("role_name", "hour"),
        schema="probing",
        comment="How much each agent's role has delivered per hour: what its quota is held against.",
    )
    op.create_table(
        "job_allocation",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Slurm job id"),
        sa.Column(
            "restart_count", sa.BigInteger(), nullable=False, comment="Slurm's restart count at that start"
        ),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when the Prolog ran, UTC"),
        sa.Column("uid", sa.BigInteger(), nullable=True, comment="the job's owner"),
        sa.Column(
            "gpu_uuids",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=True,
            comment="UUIDs of its GPUs here; null when they could not be resolved",
        ),
        sa.Column("gpu_indices", sa.Text(), nullable=False, comment="SLURM_JOB_GPUS as given"),
        sa.Column(
            "released_at", sa.DateTime(timezone=True), nullable=True, comment="when the Epilog ran, UTC"
        ),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="stdout path, working directory, partition",
        ),
        sa.PrimaryKeyConstraint("job_id", "node", "at", "cluster"),
        schema="probing",
        comment="Which GPUs a job got on one node, as the Prolog saw it.",
    )
    op.create_index("job_allocation_node", "job_allocation", ["node", "at"], unique=False, schema="probing")
    op.create_table(
        "job_attempt",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Slurm's raw job id (JobIDRaw)"),
        sa.Column(
            "submit_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="submit time of this attempt, UTC; part of the key, since requeues keep the id",
        ),
        sa.Column(
            "attempt",
            sa.BigInteger(),
            nullable=False,
            comment="1 for the first start of this job id, counted by submit time",
        ),
        sa.Column(
            "array_job_id", sa.BigInteger(), nullable=True, comment="array master id, for tasks of an array"
        ),
        sa.Column("array_task_id", sa.BigInteger(), nullable=True, comment="array task index"),
        sa.Column("het_job_id", sa.BigInteger(), nullable=True, comment="heterogeneous job leader id"),
        sa.Column(
            "het_offset", sa.BigInteger(), nullable=True, comment="component index in the heterogeneous job"
        ),
        sa.Column(
            "eligible_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when it could first have started, UTC",
        ),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=True, comment="when it started, UTC"),
        sa.Column(
            "end_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when it ended, UTC; null while running",
        ),
        sa.Column("suspended_s", sa.Double(), nullable=False, comment="seconds it was suspended"),
        sa.Column(
            "state",
            sa.Text(),
            nullable=False,
            comment="Slurm's base state: COMPLETED, FAILED, NODE_FAIL, REQUEUED, RUNNING …",
        ),
        sa.Column("exit_code", sa.BigInteger(), nullable=True, comment="exit status of the batch script"),
        sa.Column(
            "exit_signal", sa.BigInteger(), nullable=True, comment="signal that ended it, 0 or null for none"
        ),
        sa.Column(
            "derived_exit_code", sa.BigInteger(), nullable=True, comment="highest exit status of its steps"
        ),
        sa.Column(
            "nodes",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="node names in Slurm's order",
        ),
        sa.Column(
            "n_gpus",
            sa.BigInteger(),
            nullable=True,
            comment="GPUs allocated in total; null when the site does not account them",
        ),
        sa.Column(
            "gpus",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="node to GPU UUIDs as recorded at Prolog; null when unknown",
        ),
        sa.Column("n_cpus", sa.BigInteger(), nullable=True, comment="CPUs allocated in total"),
        sa.Column("user", sa.Text(), nullable=False, comment="user name"),
        sa.Column("account", sa.Text(), nullable=False, comment="Slurm account"),
        sa.Column("partition", sa.Text(), nullable=False, comment="partition"),
        sa.Column("qos", sa.Text(), nullable=False, comment="quality of service"),
        sa.Column("name", sa.Text(), nullable=False, comment="job name, control characters removed"),
        sa.Column("priority", sa.BigInteger(), nullable=True, comment="priority at start"),
        sa.Column(
            "time_limit_s", sa.Double(), nullable=True, comment="wall-time limit, seconds; null for unlimited"
        ),
        sa.Column("reason", sa.Text(), nullable=False, comment="Slurm's pending or end reason"),
        sa.Column(
            "failed_node", sa.Text(), nullable=True, comment="node Slurm names as failed (23.02 and later)"
        ),
        sa.Column("cancelled_by", sa.Text(), nullable=True, comment="uid or name behind CANCELLED by …"),
        sa.Column("work_dir", sa.Text(), nullable=True, comment="working directory"),
        sa.Column(
            "stdout_path",
            sa.Text(),
            nullable=True,
            comment="standard output file, expanded, when Slurm tells it",
        ),
        sa.Column(
            "restart_count", sa.BigInteger(), nullable=True, comment="Slurm's restart count when known"
        ),
        sa.Column(
            "run_key",
            sa.Text(),
            nullable=False,
            comment="the logical training this attempt belongs to; default the job id",
        ),
        sa.Column(
            "judged_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when its current verdict was stored, UTC; null = to be judged (again)",
        ),
        sa.PrimaryKeyConstraint("job_id", "submit_at", "cluster"),
        schema="probing",
        comment="One start of a job; a requeue keeps the job id and makes another attempt.",
    )
    op.create_index(
        "job_attempt_array",
        "job_attempt",
        ["array_job_id"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("array_job_id IS NOT NULL"),
    )
    op.create_index("job_attempt_end_at", "job_attempt", ["end_at"], unique=False, schema="probing")
    op.create_index(
        "job_attempt_het",
        "job_attempt",
        ["het_job_id"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("het_job_id IS NOT NULL"),
    )
    op.create_index(
        "job_attempt_nodes", "job_attempt", ["nodes"], unique=False, schema="probing", postgresql_using="gin"
    )
    op.create_index("job_attempt_run_key", "job_attempt", ["run_key"], unique=False, schema="probing")
    op.create_index("job_attempt_start_at", "job_attempt", ["start_at"], unique=False, schema="probing")
    op.create_index(
        "job_attempt_unjudged",
        "job_attempt",
        ["end_at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("judged_at IS NULL AND end_at IS NOT NULL AND state <> 'COMPLETED'"),
    )
    op.create_index("job_attempt_user", "job_attempt", ["user", "end_at"], unique=False, schema="probing")
    op.create_table(
        "job_exclusion",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="the node left out"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Slurm job id"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when we first saw it, UTC"),
        sa.Column("user", sa.Text(), nullable=False, comment="the job's owner"),
        sa.PrimaryKeyConstraint("job_id", "node", "cluster"),
        schema="probing",
        comment="One node that one job's user told Slurm to leave out; accounting does not keep it, the controller does while the job lives.",
    )
    op.create_index("job_exclusion_at", "job_exclusion", ["at"], unique=False, schema="probing")
    op.create_table(
        "lemon_score",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column(
            "day", sa.DateTime(timezone=True), nullable=False, comment="the day scored (its midnight, UTC)"
        ),
        sa.Column(
            "excl_jobid_count",
            sa.BigInteger(),
            nullable=False,
            comment="distinct jobs whose user excluded this node, 28 days",
        ),
        sa.Column("xid_cnt", sa.BigInteger(), nullable=False, comment="distinct Xid codes seen, 28 days"),
        sa.Column("tickets", sa.BigInteger(), nullable=False, comment="repair tickets opened, 28 days"),
        sa.Column(
            "out_count", sa.BigInteger(), nullable=False, comment="times taken out of scheduling, 28 days"
        ),
        sa.Column(
            "multi_node_node_fails",
            sa.BigInteger(),
            nullable=False,
            comment="multi-node attempts failed because of this node, 28 days",
        ),
        sa.Column(
            "single_node_node_fails",
            sa.BigInteger(),
            nullable=False,
            comment="single-node attempts failed on it, 28 days",
        ),
        sa.Column(
            "single_node_node_failure_rate",
            sa.Double(),
            nullable=True,
            comment="failed / all single-node attempts on it, 0..1; null without any",
        ),
        sa.Column("score", sa.Double(), nullable=False, comment="probability of being a lemon, 0..1"),
        sa.Column(
            "reasons",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="the signals in words, strongest first",
        ),
        sa.Column("verdict", sa.Text(), nullable=False, comment="lemon, suspect, recovered or ok"),
        sa.Column(
            "signals",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="every further signal used",
        ),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, comment="when it was computed, UTC"),
        sa.PrimaryKeyConstraint("node", "day", "cluster"),
        schema="probing",
        comment="How likely a node is to be one that keeps killing jobs, on one day.",
    )
    op.create_index("lemon_score_day", "lemon_score", ["day"], unique=False, schema="probing")
    op.create_index(
        "lemon_score_named",
        "lemon_score",
        ["cluster", "day"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("verdict IN ('lemon', 'suspect')"),
    )
    op.create_table(
        "node_request",
        sa.Column("request_id", sa.Uuid(), nullable=False, comment="identity"),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="the node asked"),
        sa.Column(
            "verb",
            sa.Text(),
            nullable=False,
            comment="what is asked, from a fixed list: collect, refusal_permission, recheck",
        ),
        sa.Column(
            "job_id", sa.BigInteger(), nullable=True, comment="the job it is about, when it is about one"
        ),
        sa.Column(
            "detail",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
            comment="further fields",
        ),
        sa.Column(
            "made_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the service made it, UTC",
        ),
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="after this nobody acts on it, UTC",
        ),
        sa.Column(
            "delivered_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the node first received it, UTC",
        ),
        sa.Column(
            "acknowledged_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the node said it is done, UTC",
        ),
        sa.CheckConstraint("verb IN ('collect', 'refusal_permission', 'recheck')", name="node_request_verb"),
        sa.PrimaryKeyConstraint("request_id"),
        schema="probing",
        comment="What the control plane asks of a node; handed over with the acknowledgement of its next delivery.",
    )
    op.create_index(
        "node_request_expires",
        "node_request",
        ["expires_at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("acknowledged_at IS NULL"),
    )
    op.create_index("node_request_made_at", "node_request", ["made_at"], unique=False, schema="probing")
    op.create_index(
        "node_request_open",
        "node_request",
        ["node"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("acknowledged_at IS NULL"),
    )
    op.create_table(
        "operator_note",
        sa.Column("note_id", sa.Uuid(), nullable=False, comment="identity"),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when it was said, UTC"),
        sa.Column("author", sa.Text(), nullable=False, comment="who said it"),
        sa.Column(
            "subject",
            sa.Text(),
            nullable=False,
            comment="node:<name>, attempt:<job id>:<submit epoch> or gpu:<uuid>",
        ),
        sa.Column(
            "action", sa.Text(), nullable=False, comment="confirm, deny, repaired, verdict, ack, ticket, note"
        ),
        sa.Column("note", sa.Text(), nullable=False, comment="their words, control characters removed"),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="what was set, and what it replaced",
        ),
        sa.PrimaryKeyConstraint("note_id"),
        schema="probing",
        comment="What a person confirmed, denied, repaired or corrected.",
    )
    op.create_index(
        "operator_note_subject", "operator_note", ["subject", "at"], unique=False, schema="probing"
    )
    op.create_table(
        "reader_scope",
        sa.Column("role_name", sa.Text(), nullable=False, comment="a login role in probing_reader"),
        sa.Column("kind", sa.Text(), nullable=False, comment="cluster, account or user"),
        sa.Column(
            "value",
            sa.Text(),
            nullable=False,
            comment="the cluster, account or user it may read; * = every one",
        ),
        sa.CheckConstraint("kind IN ('cluster', 'account', 'user')", name="reader_scope_kind"),
        sa.PrimaryKeyConstraint("role_name", "kind", "value"),
        schema="probing",
        comment="What a dashboard's login role may read of jobs, by row-level security.",
    )
    op.create_table(
        "rejection",
        sa.Column("role_name", sa.Text(), nullable=False, comment="the login role that sent it"),
        sa.Column("node", sa.Text(), nullable=False, comment="the node the row claimed to be about"),
        sa.Column("reason", sa.Text(), nullable=False, comment="why it was refused"),
        sa.Column(
            "day", sa.DateTime(timezone=True), nullable=False, comment="the day it came in, midnight UTC"
        ),
        sa.Column("n_rows", sa.BigInteger(), nullable=False, comment="rows refused"),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False, comment="the last time, UTC"),
        sa.Column("sample", sa.Text(), nullable=False, comment="the first such row, shortened"),
        sa.PrimaryKeyConstraint("role_name", "node", "reason", "day"),
        schema="probing",
        comment="Rows that delivery refused, counted per sender, reason and day.",
    )
    op.create_index("rejection_day", "rejection", ["day"], unique=False, schema="probing")
    op.create_table(
        "run_account",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("run_key", sa.Text(), nullable=False, comment="the run"),
        sa.Column("user", sa.Text(), nullable=False, comment="its owner"),
        sa.Column("start_at", sa.DateTime(timezone=True), nullable=False, comment="first submission, UTC"),
        sa.Column(
            "end_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="end of the last attempt (or now), UTC",
        ),
        sa.Column("n_gpus", sa.BigInteger(), nullable=True, comment="GPUs of its largest attempt"),
        sa.Column("n_attempts", sa.BigInteger(), nullable=False, comment="attempts that started"),
        sa.Column("wall_s", sa.Double(), nullable=False, comment="end_at - start_at, seconds"),
        sa.Column("queued_s", sa.Double(), nullable=False, comment="eligible and waiting, seconds"),
        sa.Column("productive_s", sa.Double(), nullable=False, comment="training that was kept, seconds"),
        sa.Column(
            "lost_to_replay_s",
            sa.Double(),
            nullable=False,
            comment="training since the last checkpoint before a failure, seconds",
        ),
        sa.Column(
            "restart_s",
            sa.Double(),
            nullable=False,
            comment="from attempt start to first training step, seconds",
        ),
        sa.Column(
            "checkpoint_s", sa.Double(), nullable=False, comment="blocked on writing checkpoints, seconds"
        ),
        sa.Column("suspended_s", sa.Double(), nullable=False, comment="suspended by Slurm, seconds"),
        sa.Column(
            "idle_s",
            sa.Double(),
            nullable=False,
            comment="not eligible, or no job of the run submitted, seconds",
        ),
        sa.Column(
            "measured",
            sa.Boolean(),
            nullable=False,
            comment="true when checkpoints and first steps were seen, false when assumed",
        ),
        sa.Column(
            "ettr_measured",
            sa.Double(),
            nullable=True,
            comment="productive / (wall - suspended - idle), 0..1",
        ),
        sa.Column(
            "ettr_expected", sa.Double(), nullable=True, comment="the model's expectation for this run, 0..1"
        ),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, comment="when it was computed, UTC"),
        sa.PrimaryKeyConstraint("run_key", "user", "cluster"),
        schema="probing",
        comment="Where one run's wall time went, in seconds; the parts add up to `wall_s` exactly.",
    )
    op.create_index("run_account_end_at", "run_account", ["end_at"], unique=False, schema="probing")
    op.create_table(
        "state",
        sa.Column("key", sa.Text(), nullable=False, comment="name of the thing remembered"),
        sa.Column("value", postgresql.JSONB(astext_type=sa.Text()), nullable=False, comment="its value"),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it was last written, UTC",
        ),
        sa.PrimaryKeyConstraint("key"),
        schema="probing",
        comment="Cursors and facts the service keeps between runs.",
    )
    op.create_table(
        "verdict",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Slurm job id"),
        sa.Column(
            "submit_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="submit time of the attempt judged, UTC",
        ),
        sa.Column("attempt", sa.BigInteger(), nullable=False, comment="attempt number"),
        sa.Column(
            "cause", sa.Text(), nullable=False, comment="stable snake_case word listed in docs/causes.md"
        ),
        sa.Column(
            "domain", sa.Text(), nullable=False, comment="user_program, system_software, hardware or unknown"
        ),
        sa.Column(
            "component",
            sa.Text(),
            nullable=True,
            comment="the part: gpu, nvlink, ib, pcie, filesystem, memory, node …",
        ),
        sa.Column("node", sa.Text(), nullable=True, comment="the node at fault, when one is"),
        sa.Column("device", sa.Text(), nullable=True, comment="the device at fault on that node"),
        sa.Column("confidence", sa.Text(), nullable=False, comment="certain, likely, possible or unknown"),
        sa.Column("summary", sa.Text(), nullable=False, comment="one sentence for a person"),
        sa.Column(
            "evidence",
            postgresql.ARRAY(sa.Uuid(), dimensions=1),
            nullable=False,
            comment="event ids the verdict rests on, strongest first",
        ),
        sa.Column(
            "ruled_out",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="other causes and why not, one sentence each",
        ),
        sa.Column("next_step", sa.Text(), nullable=False, comment="what to do now"),
        sa.Column(
            "incident_id",
            sa.Uuid(),
            nullable=True,
            comment="the fault it died of, shared by all its victims: the first evidence, or a wide incident's own id",
        ),
        sa.Column(
            "onset_at", sa.DateTime(timezone=True), nullable=True, comment="when the trouble began, UTC"
        ),
        sa.Column(
            "window_start_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="start of the evidence window, UTC",
        ),
        sa.Column(
            "window_end_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="end of the evidence window, UTC",
        ),
        sa.Column("author", sa.Text(), nullable=False, comment="'rules', or the operator who set it"),
        sa.Column("rules_version", sa.Text(), nullable=False, comment="version of the rules that made it"),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False, comment="when it was made, UTC"),
        sa.Column(
            "verdict_id", sa.BigInteger(), sa.Identity(always=True), nullable=False, comment="identity"
        ),
        sa.Column(
            "superseded_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when a newer verdict on the attempt replaced it, UTC; null = current",
        ),
        sa.PrimaryKeyConstraint("verdict_id"),
        schema="probing",
        comment="Why one attempt ended, how sure we are, and on what evidence; a row per verdict, history kept.",
    )
    op.create_index(
        "verdict_current_key",
        "verdict",
        ["job_id", "submit_at", "cluster"],
        unique=True,
        schema="probing",
        postgresql_where=sa.text("superseded_at IS NULL"),
    )
    op.create_index(
        "verdict_incident",
        "verdict",
        ["incident_id", "onset_at", "verdict_id"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("superseded_at IS NULL AND incident_id IS NOT NULL"),
    )
    op.create_index(
        "verdict_job_id", "verdict", ["job_id", "submit_at", "made_at"], unique=False, schema="probing"
    )
    op.create_index(
        "verdict_onset",
        "verdict",
        ["onset_at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("superseded_at IS NULL AND incident_id IS NOT NULL"),
    )
    op.create_index(
        "verdict_node",
        "verdict",
        ["node", "window_end_at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("superseded_at IS NULL"),
    )
    op.execute("CREATE TABLE probing.health_event_default PARTITION OF probing.health_event DEFAULT")


def downgrade() -> None:
    op.execute("DROP SCHEMA probing CASCADE")
