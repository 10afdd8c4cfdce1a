"""the events of a node that end its conditions"""

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


def downgrade() -> None:
    op.drop_index("health_event_ends", "health_event", schema="probing")
