"""the events of a node that end its conditions, and those that are high or go on"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "event_ends"
down_revision = "cause_account"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "health_event_ends",
        "health_event",
        ["node", "at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text(
            "kind IN ('node_boot', 'driver_load') OR detail -> 'recovered' = 'true'::jsonb"
        ),
    )
    op.create_index(
        "health_event_lasting",
        "health_event",
        ["node", "at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("severity = 'high' OR last_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("health_event_lasting", "health_event", schema="probing")
    op.drop_index("health_event_ends", "health_event", schema="probing")
