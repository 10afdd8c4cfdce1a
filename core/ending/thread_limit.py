"""Whether a command may start the threads that it needs; DataFusion's panic, or wait for ever, where they are refused."""

from __future__ import annotations

import functools
import os
import resource
import threading

from probing_cluster.core import errors

REFUSED = "can't start new thread"
"""What Python says then."""
LIMITS = "ulimit -u, or the limit of tasks of a container or a unit"


class TooFewThreads(errors.ProbingError):
    """Fewer threads than needed may be started."""


@functools.cache
def require() -> None:
    """Raises TooFewThreads unless as many threads may be started as DataFusion has workers, and some more; asked once a process."""
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return  # where memory is bounded, threads that are only counted take what the work needs: 64 MiB of addresses each
    needed = 16 + (os.cpu_count() or 1)
    ending, started = threading.Event(), list[threading.Thread]()
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
        ending.set()
        for thread in started:
            thread.join()
