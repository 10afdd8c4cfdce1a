"""Whether a command may start the threads that it needs; DataFusion's panic, or wait for ever, where they are refused."""

from __future__ import annotations

import functools
import os
import threading

from probing_cluster.core import errors

REFUSED = "can't start new thread"
"""What Python says then."""
LIMITS = "ulimit -u, or the limit of tasks of a container or a unit"
_STACK_BYTES = 64 * 1024


class TooFewThreads(errors.ProbingError):
    """Fewer threads than needed may be started."""


@functools.cache
def require() -> None:
    """Raises TooFewThreads unless as many threads may be started as DataFusion has workers, and some more; asked once a process."""
    needed = 16 + (os.cpu_count() or 1)
    ending, started = threading.Event(), list[threading.Thread]()
    # A child with little memory has room for few stacks of the usual size, and none of these is used.
    usual = threading.stack_size(_STACK_BYTES)
    try:
        for _ in range(needed):
            thread = threading.Thread(target=ending.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as exc:
        raise TooFewThreads(
            f"only {len(started)} threads may be started here and this needs {needed}; allow more ({LIMITS})"
        ) from exc
    finally:
        threading.stack_size(usual)
        ending.set()
        for thread in started:
            thread.join()
