"""whether a verdict was made before the job's output was read; arrivals of one job; the jobs that one waited for"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "log_read"
down_revision = "corrected_times"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Before the columns: building it keeps only the service's writes to its own table waiting, the columns keep all agents waiting.
    op.create_index("job_dependency_job", "job_dependency", ["job_id"], unique=False, schema="probing")
    op.add_column(
        "verdict",
        sa.Column(
            "log_read",
            sa.Boolean(),
            nullable=True,
            comment="whether the job's output had been read when it was made; false = it may change with what is read, null = nothing will be read: no agent has it, none could read it, or it is a later component of a heterogeneous job, whose output is in the first one's",
        ),
        schema="probing",
    )
    op.add_column(
        "arrival",
        sa.Column(
            "job_id",
            sa.BigInteger(),
            nullable=True,
            comment="the one job they concern: its output was read; null = all on the node",
        ),
        schema="probing",
    )


def downgrade() -> None:
    op.drop_index("job_dependency_job", "job_dependency", schema="probing")
    # Without its job a row would stand for all on the node.
    op.execute("DELETE FROM probing.arrival WHERE job_id IS NOT NULL")
    op.drop_column("arrival", "job_id", schema="probing")
    # The views that read it are made anew with every upgrade.
    op.execute("DROP VIEW IF EXISTS ops.failures_24h, ops.attempt_verdicts")
    op.drop_column("verdict", "log_read", schema="probing")
