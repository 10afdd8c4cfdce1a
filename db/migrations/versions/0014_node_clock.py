"""times in which a node's clock was off"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "node_clock"
down_revision = "event_kinds"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_clock",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="node name"),
        sa.Column(
            "from_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="first heartbeat with that offset, by the server's clock, UTC",
        ),
        sa.Column(
            "to_at",
            sa.DateTime(timezone=True),
            nullable=False,
            comment="last heartbeat with that offset, by the server's clock, UTC",
        ),
        sa.Column(
            "offset_s",
            sa.Double(),
            nullable=False,
            comment="seconds by which the node's clock was ahead of the server's; negative = behind",
        ),
        sa.Column("n_beats", sa.Integer(), nullable=False, comment="heartbeats with that offset"),
        sa.Column(
            "is_sure",
            sa.Boolean(),
            sa.Computed(
                "offset_s > 0::double precision OR (n_beats >= 3 AND to_at - from_at >= '00:01:00'::interval)",
                persisted=True,
            ),
            nullable=False,
            comment="counts: a heartbeat that waited looks behind, so that takes three of at least a minute",
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "from_at"),
        schema="probing",
        comment="A time in which a node's clock was off: ahead by more than 5 s, or behind by more than 30 s.",
    )


def downgrade() -> None:
    op.drop_table("node_clock", schema="probing")
