"""a partition's attempts, and those of rare states, latest start first"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "rare_attempts"
down_revision = "users_attempts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "job_attempt_partition", "job_attempt", ["partition", "start_at"], unique=False, schema="probing"
    )
    op.create_index(
        "job_attempt_rare_state",
        "job_attempt",
        ["state", "start_at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED')"),
    )


def downgrade() -> None:
    op.drop_index("job_attempt_rare_state", "job_attempt", schema="probing")
    op.drop_index("job_attempt_partition", "job_attempt", schema="probing")
