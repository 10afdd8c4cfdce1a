"""Free TCP ports on the loopback address, below the range that outgoing connections use."""

from __future__ import annotations

import contextlib
import random
import socket

from probing_cluster.core import errors

_FIRST, _LAST = 18_000, 32_000
"""Above every standard port of Slurm, MariaDB and Postgres, below Linux's ephemeral range."""
_TRIES = 2_000


def choose(count: int) -> list[int]:
    """`count` distinct ports nobody listens on now; raises UsageError when there are not so many."""
    chosen: list[int] = []
    with contextlib.ExitStack() as held:
        for port in random.sample(range(_FIRST, _LAST), _TRIES):
            if len(chosen) == count:
                break
            if _bind(port, held):
                chosen.append(port)
    if len(chosen) < count:
        msg = f"only {len(chosen)} of {count} TCP ports are free between {_FIRST} and {_LAST}"
        raise errors.UsageError(msg)
    return chosen


def _bind(port: int, held: contextlib.ExitStack) -> bool:
    """Binds every address, so that a listener on any of them is noticed."""
    sock = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        sock.bind(("0.0.0.0", port))  # noqa: S104  # only to see that the port is free; nothing listens
    except OSError:
        return False
    return True


def answers(port: int) -> bool:
    """Whether something on the loopback address accepts connections on `port`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0
