"""What Prolog and Epilog left beside the agent's socket where nobody answered them: one file a hook, its request as it was or would have been sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import errors

SUFFIX = ".missed"
"""Behind the socket's path: the directory of the notes; slurm_plugins.hooks.agent_call writes there."""
MAX_BYTES = 65536

_log = logging.getLogger(__name__)


def prepare(socket: Path) -> None:
    """Make the directory, for its owner alone: hooks write into no other. What stands there stays."""
    directory = _beside(socket)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
    except OSError as exc:
        # Hooks go on without; only jobs that end while no agent runs show less for it.
        _log.warning("Prolog and Epilog can leave no notes for the next agent: %s", exc)


async def take(
    socket: Path,
    receive: Callable[[Mapping[str, Any], datetime], Awaitable[None]],
    *,
    only: Collection[Path] | None = None,
) -> list[Path]:
    """Hand every note, or those of `only`, to `receive`, oldest first, with the time of its question, and remove it; returns the others.

    A note that nobody can read is logged and removed: it would be no better the next time.
    """
    found = sorted(_beside(socket).glob("*.*.*"), key=lambda path: path.lstat().st_mtime_ns)
    taken = [path for path in found if only is None or path in only]
    for path in taken:
        try:
            request, at = _read(path)
            await receive(request, at)
        except (errors.ProbingError, ValueError, OSError) as exc:
            _log.warning("the note %s cannot be used: %s", path, exc)
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            _log.warning("the note %s cannot be removed: %s", path, exc)
    return [path for path in found if path not in taken]


def _read(path: Path) -> tuple[dict[str, Any], datetime]:
    with path.open("rb") as file:
        request = json.loads(file.read(MAX_BYTES))
    if not isinstance(request, dict):
        raise errors.MalformedInput("it is no object")
    return request, datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _beside(socket: Path) -> Path:
    return socket.with_name(socket.name + SUFFIX)
