"""where nodes are, and what the nodes of an incident share"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "node_place",
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="node name"),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="what it shares: leaf, spine, block, or a column of the site's table such as rack, row, pdu",
        ),
        sa.Column("place", sa.Text(), nullable=False, comment="which one of that kind"),
        sa.Column(
            "since_at", sa.DateTime(timezone=True), nullable=False, comment="when this was first known, UTC"
        ),
        sa.Column(
            "until_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when it was first known to be otherwise, UTC; null while it holds",
        ),
        sa.PrimaryKeyConstraint("cluster", "node", "kind", "place", "since_at"),
        schema="probing",
        comment="Where one node is: a switch, rack, power feed or file server that it shares with others.",
    )
    op.add_column(
        "verdict",
        sa.Column(
            "place",
            sa.Text(),
            nullable=True,
            comment="what the nodes of its wide incident share, in words, with the odds against chance; null where it is nothing",
        ),
        schema="probing",
    )


def downgrade() -> None:
    op.drop_column("verdict", "place", schema="probing")
    op.drop_table("node_place", schema="probing")
