"""events of jobs that never started, by Slurm's own number of an array's task or a component; verdicts without the preemptor's name and owner"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "raw_id"
down_revision = "log_read"
branch_labels = None
depends_on = None

_PREEMPTED = "^A job of higher priority took its place; the next to start there was job [0-9]+"


def upgrade() -> None:
    op.create_index(
        "health_event_raw_id",
        "health_event",
        [sa.text("(detail -> 'raw_id')")],
        unique=False,
        schema="probing",
        postgresql_where=sa.text("kind = 'never_started'"),
    )
    # The preempted job's owner may know the preemptor's number only; earlier releases wrote its name and its owner behind it.
    verdict = sa.table("verdict", sa.column("cause"), sa.column("summary", sa.Text()), schema="probing")
    named = verdict.c.summary.regexp_match(f"{_PREEMPTED} [(]")
    begins = sa.func.substring(verdict.c.summary, _PREEMPTED)
    op.execute(verdict.update().where(verdict.c.cause == "preempted", named).values(summary=begins + "."))


def downgrade() -> None:
    op.drop_index("health_event_raw_id", "health_event", schema="probing")
