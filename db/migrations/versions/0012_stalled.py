"""since when a job that hung had made no progress; what a verdict does not exclude"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "stalled"
down_revision = "event_ends"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "verdict",
        sa.Column(
            "stalled_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="since when it made no progress until it ended, UTC; null where nothing shows that it hung",
        ),
        schema="probing",
    )
    op.create_index(
        "verdict_stalled",
        "verdict",
        ["job_id"],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("stalled_at IS NOT NULL"),
    )
    op.alter_column(
        "run_account",
        "lost_to_replay_s",
        comment="training since the last checkpoint before a failure, and what it then hung until its end, seconds",
        existing_comment="training since the last checkpoint before a failure, seconds",
        schema="probing",
    )
    op.alter_column(
        "verdict",
        "ruled_out",
        comment="other causes and why not, one sentence each; not excluded are those that begin with `less likely: `",
        existing_comment="other causes and why not, one sentence each",
        schema="probing",
    )


def downgrade() -> None:
    op.alter_column(
        "verdict",
        "ruled_out",
        comment="other causes and why not, one sentence each",
        existing_comment="other causes and why not, one sentence each; not excluded are those that begin with `less likely: `",
        schema="probing",
    )
    op.alter_column(
        "run_account",
        "lost_to_replay_s",
        comment="training since the last checkpoint before a failure, seconds",
        existing_comment="training since the last checkpoint before a failure, and what it then hung until its end, seconds",
        schema="probing",
    )
    op.drop_index("verdict_stalled", "verdict", schema="probing")
    op.drop_column("verdict", "stalled_at", schema="probing")
