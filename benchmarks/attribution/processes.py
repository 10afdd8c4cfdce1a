"""What processes used: this one's memory, the database server's processor time."""

from __future__ import annotations

import os
import re
from pathlib import Path


def peak_mb() -> int:
    """The most memory this process had resident since its program began, MB.

    Not getrusage's figure: that one begins with the memory of the process that started this one.
    """
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) // 1024


def server_cpu_s(home: Path) -> float:
    """Processor seconds of the server in `home` since it started, its ended backends included."""
    ticks = 0
    postmaster = (home / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if (stat.parent / "cwd").readlink().is_relative_to(home):
                used = list(map(int, stat.read_text().rpartition(")")[2].split()[11:15]))
                ticks += sum(used if stat.parent.name == postmaster else used[:2])
        except OSError:  # it has ended meanwhile
            continue
    return ticks / os.sysconf("SC_CLK_TCK")
