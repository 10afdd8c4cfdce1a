"""One at a time across services: two `probing-ctl serve` on one database never act twice."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

import sqlalchemy as sa

from probing_cluster.db import engines
from probing_cluster.db import store as db_store

_SPACE = 0x70726F62


@contextlib.contextmanager
def taken(store: db_store.Store, name: str) -> Iterator[bool]:
    """Whether it is our turn; the lock is the transaction's, so it dies with the connection."""
    with engines.translated(), store.engine.begin() as connection:
        statement = sa.text("SELECT pg_try_advisory_xact_lock(:space, :key)")
        key = zlib.crc32(name.encode()) & 0x7FFFFFFF
        yield bool(connection.scalar(statement, {"space": _SPACE, "key": key}))
