"""events whose times were corrected; when reports of an allocation were stored"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "corrected_times"
down_revision = "node_clock"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "event_key",
        sa.Column(
            "ahead_s",
            sa.Double(),
            server_default=sa.text("0"),
            comment="seconds taken off the event's times, because its node's clock was ahead by so much; null = none, 0 = never, its node did not date it or an earlier release stored it",
        ),
        schema="probing",
    )
    # Who dated the events that are there is in no column: 0 for them, without a write of any row; null for those to come.
    op.alter_column("event_key", "ahead_s", server_default=None, schema="probing")
    # Few: the history asks which of its rows lie elsewhere now.
    op.create_index(
        "event_key_moved",
        "event_key",
        ["received_at"],
        schema="probing",
        postgresql_where=sa.text("ahead_s <> 0"),
    )
    op.alter_column(
        "event_key",
        "received_at",
        comment="when it was stored, or its times were corrected, UTC",
        existing_comment="when it was stored, UTC",
        schema="probing",
    )
    for name, report in (("received_at", "first"), ("updated_at", "latest")):
        op.add_column(
            "job_allocation",
            sa.Column(
                name,
                sa.DateTime(timezone=True),
                comment=f"when the {report} report of it was stored, by the server's clock, UTC",
            ),
            schema="probing",
        )


def downgrade() -> None:
    op.drop_column("job_allocation", "updated_at", schema="probing")
    op.drop_column("job_allocation", "received_at", schema="probing")
    op.alter_column("event_key", "received_at", comment="when it was stored, UTC", schema="probing")
    op.drop_index("event_key_moved", "event_key", schema="probing")
    op.drop_column("event_key", "ahead_s", schema="probing")
