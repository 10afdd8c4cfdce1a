"""answers of nodes to questions about running jobs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "live"
down_revision = "0006"
branch_labels = None
depends_on = None

_VERBS = "verb IN ('collect', 'refusal_permission', 'recheck', 'keep_log'"


def upgrade() -> None:
    op.create_table(
        "node_answer",
        sa.Column("request_id", sa.Uuid(), nullable=False, comment="the request it answers"),
        sa.Column("cluster", sa.Text(), nullable=False, comment="Slurm cluster name"),
        sa.Column("node", sa.Text(), nullable=False, comment="the node that answers"),
        sa.Column(
            "body",
            sa.LargeBinary(),
            nullable=False,
            comment="rows of a running job, packed (live/packing.py)",
        ),
        sa.Column(
            "made_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it came, UTC",
        ),
        sa.PrimaryKeyConstraint("request_id"),
        schema="probing",
        comment="What a node answers to a question about a running job; kept ten minutes.",
    )
    op.create_index("node_answer_node", "node_answer", ["node", "made_at"], unique=False, schema="probing")
    op.drop_constraint("node_request_verb", "node_request", schema="probing", type_="check")
    op.create_check_constraint("node_request_verb", "node_request", f"{_VERBS}, 'ask')", schema="probing")
    _comment("what is asked, from a fixed list: collect, refusal_permission, recheck, keep_log, ask")


def downgrade() -> None:
    op.execute("DELETE FROM probing.node_request WHERE verb = 'ask'")
    op.drop_constraint("node_request_verb", "node_request", schema="probing", type_="check")
    op.create_check_constraint("node_request_verb", "node_request", f"{_VERBS})", schema="probing")
    _comment("what is asked, from a fixed list: collect, refusal_permission, recheck, keep_log")
    op.drop_table("node_answer", schema="probing")


def _comment(text: str) -> None:
    op.alter_column("node_request", "verb", comment=text, existing_type=sa.Text(), schema="probing")
