"""a user's attempts, latest start first"""

from __future__ import annotations

from alembic import op

revision = "users_attempts"
down_revision = "live"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("job_attempt_user", "job_attempt", schema="probing")
    op.create_index("job_attempt_user", "job_attempt", ["user", "start_at"], unique=False, schema="probing")


def downgrade() -> None:
    op.drop_index("job_attempt_user", "job_attempt", schema="probing")
    op.create_index("job_attempt_user", "job_attempt", ["user", "end_at"], unique=False, schema="probing")
