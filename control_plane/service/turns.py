"""One at a time across services: two `probing-ctl serve` on one database never act twice.

The turn is the lock of a row that only the service's role may lock. Advisory locks would do as well, were they not
everybody's: any login of the database may take them, and keep the service waiting.

A lock dies with its connection (a failover, a restart, a person who ends the backend), and its holder hears nothing of it.
So it is looked at again right before every act on Slurm.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from probing_cluster.core import errors
from probing_cluster.db import engines

if TYPE_CHECKING:
    from probing_cluster.control_plane import context

OF_DATABASE = frozenset({"attribution", "export"})
"""The turns of work on the rows of all clusters; every other is one cluster's, and no service of another cluster waits for it."""
NAMES = ("actions", "attribution", "export", "lemon", "notices", "owners", "repair", "restarts", "resume")
"""Every turn there is. `actions` is that of whoever takes nodes out of service, which one budget bounds."""
_LOCK = sa.text("SELECT key FROM probing.state WHERE key = :key FOR UPDATE SKIP LOCKED")
_MAKE = sa.text("INSERT INTO probing.state (key, value) VALUES (:key, '{}') ON CONFLICT DO NOTHING")
# No time limit of the server's ends the transaction while Slurm is waited for: Postgres 17 has two.
_WITHOUT_LIMIT = sa.text(
    "SELECT set_config(name, '0', true) FROM pg_settings"
    " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_ALIVE = sa.text("SELECT 1")
_HELD: contextvars.ContextVar[tuple[sa.Connection, ...]] = contextvars.ContextVar("held", default=())
"""The connections whose transactions are the turns that this thread holds."""


def check() -> None:
    """Raises DatabaseUnavailable if a turn that this thread holds was lost: whoever has it now acts, within the same budget."""
    with engines.translated():
        for connection in _HELD.get():
            # Within its transaction a connection is never made anew: one that answers still holds its lock.
            if connection.invalidated:
                raise errors.DatabaseUnavailable("the turn was lost: its connection to the database is gone")
            connection.execute(_ALIVE)


@contextlib.contextmanager
def take(service: context.Context, name: str) -> Iterator[bool]:
    """Holds a turn while the block runs, and yields whether it is ours; the lock is the transaction's, so it dies with the connection."""
    key = {"key": f"turn:{name}" if name in OF_DATABASE else f"turn:{name}:{service.cluster}"}
    with engines.translated(), service.store.engine.connect() as connection:
        mine = _lock_row(connection, key)
        service.journal.note_turn(name, taken=mine)
        before = _HELD.set((*_HELD.get(), connection) if mine else _HELD.get())
        try:
            yield mine
        finally:
            _HELD.reset(before)
            connection.rollback()


def _lock_row(connection: sa.Connection, key: dict[str, str]) -> bool:
    connection.execute(_WITHOUT_LIMIT)
    if connection.scalar(_LOCK, key) is not None:
        return True
    # It is another's, or nobody has had it yet. Made in a transaction of its own: whoever makes it is waited for.
    connection.rollback()
    connection.execute(_MAKE, key)
    connection.commit()
    connection.execute(_WITHOUT_LIMIT)
    return connection.scalar(_LOCK, key) is not None
