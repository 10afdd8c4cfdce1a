"""events by kind and time; a node's Xids by code"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "event_kinds"
down_revision = "stalled"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(
        "health_event_kind",
        "health_event",
        ["kind", "at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("kind <> 'xid'"),
    )
    op.create_index(
        "health_event_xid",
        "health_event",
        ["code", "node", "at"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("kind = 'xid'"),
    )


def downgrade() -> None:
    op.drop_index("health_event_xid", "health_event", schema="probing")
    op.drop_index("health_event_kind", "health_event", schema="probing")
