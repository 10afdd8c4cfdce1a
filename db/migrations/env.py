"""Alembic's entry: runs on the connection that `db/migrate.py` hands over."""

from __future__ import annotations

from alembic import context

from probing_cluster.db import migrate

migrate.run_in(context)
