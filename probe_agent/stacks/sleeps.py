"""How often a thread has gone to sleep: two looks at one that has not slept in between saw it in the same place."""

from __future__ import annotations

import re
from pathlib import Path

from probing_cluster.probe_agent.jobs import processes

_SLEEPS = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)


def parse(status: str) -> int | None:
    """The number of sleeps in a thread's `status` of /proc; None where it is not there."""
    found = _SLEEPS.search(status)
    return int(found[1]) if found is not None else None


def read(pid: int, proc: Path = processes.PROC) -> int | None:
    """The number of sleeps of a process's main thread; None when it is gone."""
    try:
        status = (proc / str(int(pid)) / "task" / str(int(pid)) / "status").read_text("ascii", "replace")
    except OSError:
        return None
    return parse(status)
