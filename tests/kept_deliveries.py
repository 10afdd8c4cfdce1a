"""Deliveries of a test's agents by one connection: each new one costs the server more than what it delivers."""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Iterator
from unittest import mock

from probing_cluster.db import delivery


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Meanwhile the main thread's deliveries to one database share a connection, which ends with the block."""
    opened: dict[str, delivery.PatientConnection] = {}
    open_one, close_one = delivery.Delivery._open, delivery.Delivery.close

    def open_shared(self: delivery.Delivery) -> delivery.PatientConnection:
        if self._connection is None and threading.current_thread() is threading.main_thread():
            shared = opened.get(self._url)
            if shared is not None and _is_over(shared):
                opened.pop(self._url).close()
            if self._url not in opened:
                opened[self._url] = open_one(self)
            self._connection = opened[self._url]
        return open_one(self)

    def close(self: delivery.Delivery) -> None:
        if self._connection is not None and self._connection is opened.get(self._url):
            self._connection = None
        close_one(self)

    with mock.patch.multiple(delivery.Delivery, _open=open_shared, close=close):
        try:
            yield
        finally:
            for connection in opened.values():
                connection.close()


def _is_over(connection: delivery.PatientConnection) -> bool:
    """Whether the server has ended it: between two deliveries it has nothing to say but that."""
    return connection.closed or bool(select.select([connection.fileno()], [], [], 0)[0])
