"""tests of nodes and their repairs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "diagnostic_result",
        sa.Column(
            "result_id",
            sa.Uuid(),
            nullable=False,
            comment="identity: hash of the round, the test, the node, the peer and the device",
        ),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column(
            "round_id",
            sa.Uuid(),
            nullable=False,
            comment="the round of tests; results of two rounds are never judged together",
        ),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column(
            "peer",
            sa.Text(),
            nullable=False,
            comment="the other node of a test between two; empty for a test of one",
        ),
        sa.Column("test", sa.Text(), nullable=False, comment="the test's registered name"),
        sa.Column("outcome", sa.Text(), nullable=False, comment="ok, warn, fail, error or absent"),
        sa.Column(
            "device", sa.Text(), nullable=True, comment="the part tested, when it is one: gpu3, cpu, /scratch"
        ),
        sa.Column("measured", sa.Double(), nullable=True, comment="the measured value, in `unit`"),
        sa.Column(
            "threshold", sa.Double(), nullable=True, comment="the limit it was held against, in `unit`"
        ),
        sa.Column(
            "baseline",
            sa.Double(),
            nullable=True,
            comment="what this node, else its model, measured before, in `unit`",
        ),
        sa.Column("unit", sa.Text(), nullable=True, comment="unit of measured, threshold and baseline"),
        sa.Column("message", sa.Text(), nullable=False, comment="one sentence: what was found"),
        sa.Column(
            "model",
            sa.Text(),
            nullable=False,
            comment="model of the part tested; only equal models are compared",
        ),
        sa.Column("version", sa.Text(), nullable=False, comment="version of the test and of what it ran on"),
        sa.Column("job_id", sa.BigInteger(), nullable=True, comment="the Slurm job it ran in"),
        sa.Column(
            "incident_id",
            sa.Uuid(),
            nullable=True,
            comment="the repair it belongs to; null when a person asked",
        ),
        sa.Column("duration_s", sa.Double(), nullable=False, comment="wall time it took, seconds"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when it ended, UTC"),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="further figures of the test",
        ),
        sa.PrimaryKeyConstraint("node", "test", "at", "result_id"),
        schema="probing",
        comment="What one test found on one node, or between two.",
    )
    op.create_index("diagnostic_result_at", "diagnostic_result", ["at"], unique=False, schema="probing")
    op.create_index(
        "diagnostic_result_round", "diagnostic_result", ["round_id"], unique=False, schema="probing"
    )
    op.create_table(
        "repair_incident",
        sa.Column("incident_id", sa.Uuid(), nullable=False, comment="identity"),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="Slurm node name"),
        sa.Column("drain_id", sa.Uuid(), nullable=False, comment="the drain it began with"),
        sa.Column("reason", sa.Text(), nullable=False, comment="that drain's reason, as written to Slurm"),
        sa.Column(
            "cause",
            sa.Text(),
            nullable=False,
            comment="the row of the table of repair steps (docs/repair.md) that applies",
        ),
        sa.Column(
            "state",
            sa.Text(),
            nullable=False,
            comment="queued, reserving, opening, testing, judging, closing, acting, returning, ticketing; returned, ticket, lifted or closed at its end",
        ),
        sa.Column("why", sa.Text(), nullable=False, comment="what it waits for, or why it is in that state"),
        sa.Column(
            "steps_done", sa.BigInteger(), nullable=False, comment="repair steps of the cause that were taken"
        ),
        sa.Column(
            "reservation",
            sa.Text(),
            nullable=False,
            comment="name of its reservation; empty before there is one",
        ),
        sa.Column(
            "reference_nodes",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="idle nodes that joined the reservation to test against",
        ),
        sa.Column("round_id", sa.Uuid(), nullable=True, comment="the round of tests that counts now"),
        sa.Column(
            "n_rounds", sa.BigInteger(), nullable=False, comment="rounds begun since the last repair step"
        ),
        sa.Column("held_by", sa.Text(), nullable=False, comment="who took it over; empty for nobody"),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False, comment="when it was opened, UTC"),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="when its state last changed, UTC",
        ),
        sa.Column(
            "acted_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the latest repair step began, UTC",
        ),
        sa.Column(
            "closed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when it ended, UTC; null while it goes on",
        ),
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=False,
            comment="failing tests, the bundle's path, what became of steps",
        ),
        sa.PrimaryKeyConstraint("incident_id"),
        schema="probing",
        comment="One node on its way from a drain of ours through tests and repair steps back into service, or to a ticket.",
    )
    op.create_index(
        "repair_incident_node", "repair_incident", ["node", "opened_at"], unique=False, schema="probing"
    )
    op.create_index(
        "repair_incident_open",
        "repair_incident",
        ["cluster", "node"],
        unique=True,
        schema="probing",
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    op.alter_column(
        "operator_note",
        "action",
        existing_type=sa.Text(),
        existing_nullable=False,
        comment="confirm, deny, repaired, verdict, ack, ticket, note, hold, release, done",
        existing_comment="confirm, deny, repaired, verdict, ack, ticket, note",
        schema="probing",
    )


def downgrade() -> None:
    op.alter_column(
        "operator_note",
        "action",
        existing_type=sa.Text(),
        existing_nullable=False,
        comment="confirm, deny, repaired, verdict, ack, ticket, note",
        existing_comment="confirm, deny, repaired, verdict, ack, ticket, note, hold, release, done",
        schema="probing",
    )
    op.drop_table("repair_incident", schema="probing")
    op.drop_table("diagnostic_result", schema="probing")
