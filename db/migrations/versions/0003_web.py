"""keys and requests of the web"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_constraint("reader_scope_kind", "reader_scope", schema="probing")
    op.create_check_constraint(
        "reader_scope_kind", "reader_scope", "kind IN ('cluster', 'account', 'user', 'web')", schema="probing"
    )
    op.create_table(
        "web_key",
        sa.Column(
            "key_hash",
            sa.Text(),
            nullable=False,
            comment="SHA-256 of what the key's holder proves to have; the key itself is nowhere",
        ),
        sa.Column(
            "kind",
            sa.Text(),
            nullable=False,
            comment="link (a one-time login), session (a browser) or token (a machine)",
        ),
        sa.Column("user_name", sa.Text(), nullable=False, comment="whose it is"),
        sa.Column("operator", sa.Boolean(), nullable=False, comment="whether it reads every job and node"),
        sa.Column(
            "accounts",
            postgresql.ARRAY(sa.Text(), dimensions=1),
            nullable=False,
            comment="accounts whose jobs it reads",
        ),
        sa.Column(
            "acts",
            sa.Boolean(),
            nullable=False,
            comment="whether it may be used to drain, resume, note and judge",
        ),
        sa.Column(
            "label",
            sa.Text(),
            nullable=False,
            comment="its owner's word for it; empty for links and sessions",
        ),
        sa.Column(
            "made_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it was made, UTC",
        ),
        sa.Column(
            "expires_at", sa.DateTime(timezone=True), nullable=False, comment="until when it is good, UTC"
        ),
        sa.CheckConstraint("kind IN ('link', 'session', 'token')", name="web_key_kind"),
        sa.PrimaryKeyConstraint("key_hash"),
        schema="probing",
        comment="Who is known to the web: login links, sessions and tokens, hashed.",
    )
    op.create_index("web_key_user", "web_key", ["user_name", "kind"], unique=False, schema="probing")
    op.create_table(
        "web_request",
        sa.Column("user_name", sa.Text(), nullable=False, comment="who asked"),
        sa.Column(
            "idempotency_key", sa.Text(), nullable=False, comment="the asker's own name for the request"
        ),
        sa.Column("request_hash", sa.Text(), nullable=False, comment="SHA-256 of method, path and body"),
        sa.Column(
            "status",
            sa.Integer(),
            nullable=True,
            comment="the answer's status; null while it is being done",
        ),
        sa.Column(
            "answer",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="the answer, given again to the same request",
        ),
        sa.Column(
            "made_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it came, UTC",
        ),
        sa.PrimaryKeyConstraint("user_name", "idempotency_key"),
        schema="probing",
        comment="Actions asked for over the web, each done once however often it is asked.",
    )
    op.create_index("web_request_made_at", "web_request", ["made_at"], unique=False, schema="probing")


def downgrade() -> None:
    op.drop_table("web_request", schema="probing")
    op.drop_table("web_key", schema="probing")
    op.drop_constraint("reader_scope_kind", "reader_scope", schema="probing")
    op.create_check_constraint(
        "reader_scope_kind", "reader_scope", "kind IN ('cluster', 'account', 'user')", schema="probing"
    )
