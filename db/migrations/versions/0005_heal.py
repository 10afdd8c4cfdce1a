"""restarts of ended attempts: what a decision is about, and who waits for whom"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_COMMENTS = (
    (
        "action",
        sa.Text(),
        False,
        "drain, requeue, resume, refuse, restart (of an attempt that ended), exclude (from one job)",
    ),
    ("job_id", sa.BigInteger(), True, "the job requeued, restarted or refused, when one was"),
    ("ended_at", sa.DateTime(timezone=True), True, "when the drain or the exclusion was lifted, UTC"),
)


def upgrade() -> None:
    op.add_column(
        "drain",
        sa.Column(
            "submit_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="submit time of the attempt that was requeued or restarted, UTC",
        ),
        schema="probing",
    )
    op.add_column(
        "drain",
        sa.Column(
            "detail",
            postgresql.JSONB(none_as_null=True),
            nullable=False,
            server_default=sa.text("'{}'::jsonb"),
            comment="of a restart: cause, step, run_key, restart, dependents set again, copy of the log, loop",
        ),
        schema="probing",
    )
    # The rows of before have their value now; new ones bring their own.
    op.alter_column("drain", "detail", server_default=None, schema="probing")
    for name, kind, nullable, comment in _COMMENTS:
        op.alter_column(
            "drain", name, existing_type=kind, existing_nullable=nullable, comment=comment, schema="probing"
        )
    op.create_table(
        "job_dependency",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="the job that waits"),
        sa.Column(
            "on_job_id",
            sa.BigInteger(),
            nullable=False,
            comment="the job it waits for: a raw id, or an array's number",
        ),
        sa.Column("user", sa.Text(), nullable=False, comment="owner of the job that waits"),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, comment="when we first saw it, UTC"),
        sa.PrimaryKeyConstraint("on_job_id", "job_id", "cluster"),
        schema="probing",
        comment="One job that waits, or waited, for another; Slurm forgets it the moment the wait is over.",
    )
    op.create_index("job_dependency_at", "job_dependency", ["at"], unique=False, schema="probing")
    op.drop_constraint("node_request_verb", "node_request", schema="probing", type_="check")
    op.create_check_constraint(
        "node_request_verb",
        "node_request",
        "verb IN ('collect', 'refusal_permission', 'recheck', 'keep_log')",
        schema="probing",
    )
    op.alter_column(
        "node_request",
        "verb",
        existing_type=sa.Text(),
        existing_nullable=False,
        comment="what is asked, from a fixed list: collect, refusal_permission, recheck, keep_log",
        schema="probing",
    )


def downgrade() -> None:
    op.execute("DELETE FROM probing.node_request WHERE verb = 'keep_log'")
    op.drop_constraint("node_request_verb", "node_request", schema="probing", type_="check")
    op.create_check_constraint(
        "node_request_verb",
        "node_request",
        "verb IN ('collect', 'refusal_permission', 'recheck')",
        schema="probing",
    )
    op.drop_table("job_dependency", schema="probing")
    op.drop_column("drain", "detail", schema="probing")
    op.drop_column("drain", "submit_at", schema="probing")
