"""nodes that Slurm shows drained, whoever drained them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "slurm_drain",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="node name"),
        sa.Column("states", sa.Text(), nullable=False, comment="Slurm's base state and flags, joined by +"),
        sa.Column("reason", sa.Text(), nullable=False, comment="Slurm's reason, empty for none"),
        sa.Column(
            "since_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when that reason was set, by Slurm, UTC",
        ),
        sa.PrimaryKeyConstraint("cluster", "node"),
        schema="probing",
        comment="One node that Slurm shows drained, whoever drained it, as of the last look.",
    )


def downgrade() -> None:
    # The view that reads it is made anew with every upgrade.
    op.execute("DROP VIEW IF EXISTS ops.node_now")
    op.drop_table("slurm_drain", schema="probing")
