"""an account's attempts, latest start first, and the verdicts of one cause or domain"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "cause_account"
down_revision = "rare_attempts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "job_attempt_account", "job_attempt", ["account", "start_at"], unique=False, schema="probing"
    )
    for column in ("cause", "domain"):
        op.create_index(
            f"verdict_{column}",
            "verdict",
            [column],
            unique=False,
            schema="probing",
            postgresql_where=sa.text("superseded_at IS NULL"),
        )


def downgrade() -> None:
    op.drop_index("verdict_domain", "verdict", schema="probing")
    op.drop_index("verdict_cause", "verdict", schema="probing")
    op.drop_index("job_attempt_account", "job_attempt", schema="probing")
