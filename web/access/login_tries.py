"""How often an address may try to log in, and which tries it cannot use up for others who share it.

Behind a proxy or a translating router many people have one address: wrong keys of one must not keep the links of the others out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web.access import rates

COST = 10.0
"""A try to log in counts as so many requests: keys cannot be guessed, and neither can the database be kept busy."""
READ_AGAIN_S = 0.5
"""So often the links that are open are read at most, however many keys are tried."""


class LoginTries:
    """Tries of one web server."""

    def __init__(
        self, keys: web_keys.Keys, buckets: rates.Rates, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = keys
        self._rates = buckets
        self._now_s = now_s
        self._lock = threading.Lock()
        self._links: frozenset[str] = frozenset()
        self._read_s = float("-inf")

    def wait_s(self, address: str, key: str) -> float:
        """0 where `key` may be tried from `address` now; else the seconds until the address may try again.

        An address that has used up its tries may still try a link that is open: it can do so once, and only its user has it.
        """
        wait_s = self._rates.wait_s(f"login {address}", COST)
        return 0.0 if wait_s and web_keys.hash_of(key) in self._open_links() else wait_s

    def _open_links(self) -> frozenset[str]:
        with self._lock:
            if self._now_s() - self._read_s >= READ_AGAIN_S:
                self._read_s = self._now_s()
                try:
                    self._links = self._keys.links()
                except errors.DatabaseUnavailable:
                    self._links = frozenset()
            return self._links
