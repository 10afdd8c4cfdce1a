"""events of jobs that never started, by Slurm's own number of an array's task or a component"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "raw_id"
down_revision = "log_read"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "health_event_raw_id",
        "health_event",
        [sa.text("(detail -> 'raw_id')")],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("kind = 'never_started'"),
    )


def downgrade() -> None:
    op.drop_index("health_event_raw_id", "health_event", schema="probing")
