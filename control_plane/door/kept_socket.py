"""A Unix socket that everybody may knock at: taken only where nobody listens, made anew where it was removed, and removed only by whoever made it."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from probing_cluster.core import peer

LOG = logging.getLogger("probing.door")
LOOK_S = 5.0
"""How often it is looked for."""


@contextlib.contextmanager
def kept(path: Path, serve: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """`serve()` binds the socket and answers on it; while the block runs, wherever that can be done (logged where it cannot)."""
    held, ended = _Held(path, serve), threading.Event()

    def stay() -> None:
        while not ended.wait(LOOK_S):
            held.look()

    held.look()
    looking = threading.Thread(target=stay, name="report-socket", daemon=True)
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()
        held.leave()


class _Held:
    def __init__(self, path: Path, serve: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        self._path, self._serve = path, serve
        self._serving = contextlib.ExitStack()
        self._mine: tuple[int, int] | None = None
        self._why = ""

    def look(self) -> None:
        """Listens there unless it does already, or somebody else does."""
        if self._mine is not None and peer.identity(self._path) == self._mine:
            return
        fields = {"path": str(self._path)}
        try:
            if peer.is_listened_at(self._path):
                raise FileExistsError(
                    errno.EEXIST, "another service listens there; this one does once it ends"
                )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            self._serving.close()
            self._serving.enter_context(self._serve())
            self._path.chmod(0o666)  # everybody may knock; who may read is decided per request
        except OSError as exc:
            if str(exc) != self._why:
                LOG.warning("no report socket", extra={"fields": {**fields, "why": str(exc)}})
            self._why = str(exc)
            return
        if self._mine is not None or self._why:
            LOG.warning("the report socket was not there; it is made anew", extra={"fields": fields})
        self._mine, self._why = peer.identity(self._path), ""

    def leave(self) -> None:
        """Ends what answers, and removes the socket where it is ours."""
        if self._mine is not None and peer.identity(self._path) == self._mine:
            self._path.unlink(missing_ok=True)
        self._serving.close()
