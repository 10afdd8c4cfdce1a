"""The processor's name, by which equal nodes are compared, and how long a quota has kept this process from it."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.core import sanitize


def model() -> str:
    """`model name` of /proc/cpuinfo; empty where the kernel gives none."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return sanitize.clean(value.strip(), 80)
    except OSError:
        return ""
    return ""


def throttled_s(root: Path = Path("/")) -> float:
    """Seconds for which a CPU quota has held this process's control groups back so far, those above them included; 0 where none does."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0.0
    held = [0.0]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 1 has a directory per controller and nanoseconds, version 2 (no controller named) microseconds.
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        while group.is_relative_to(top):
            held.append(_throttled_of(group))
            group = group.parent
    return max(held)


def _throttled_of(group: Path) -> float:
    try:
        words = (group / "cpu.stat").read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return 0.0
    found = {
        name: int(value) for name, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()
    }
    return found.get("throttled_time", 0) / 1e9 + found.get("throttled_usec", 0) / 1e6
