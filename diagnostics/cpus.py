"""The processor's name, by which equal nodes are compared, how long a quota has kept this process from it, and which lie at which memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from probing_cluster.core import digits, sanitize

_MOST_CPUS = 8192


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
    return max((_throttled_of(group) for group in _groups(root)), default=0.0)


def quota_times(root: Path = Path("/")) -> float:
    """How many times as long one thread takes under the narrowest quota of this process's control groups; 1 without one."""
    return max((_times_of(group) for group in _groups(root)), default=1.0)


def at_each_memory_node(root: Path = Path("/")) -> Iterator[str]:
    """Moves this thread to the processors at each of the machine's memory nodes in turn; its name, empty where there is one only."""
    allowed = os.sched_getaffinity(0)
    found = {
        path.name: _listed(_text(path / "cpulist")) & allowed
        for path in sorted((root / "sys/devices/system/node").glob("node[0-9]*"))
    }
    usable = {name: near for name, near in found.items() if near}
    if len(usable) < 2:
        yield ""
        return
    try:
        for name, near in usable.items():
            os.sched_setaffinity(0, near)
            yield name
    finally:
        os.sched_setaffinity(0, allowed)


def _listed(text: str) -> set[int]:
    """The numbers of `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if digits.is_number(first) and digits.is_number(last or first):
            found |= set(range(int(first), min(int(last or first), int(first) + _MOST_CPUS) + 1))
    return found


def _groups(root: Path) -> Iterator[Path]:
    """The directories of this process's control groups for processors, and of those above them."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Version 1 has a directory per controller, version 2 names none.
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        while group.is_relative_to(top):
            yield group
            group = group.parent


def _throttled_of(group: Path) -> float:
    words = _text(group / "cpu.stat").split()
    found = {
        name: int(value)
        for name, value in zip(words[::2], words[1::2], strict=False)
        if digits.is_number(value)
    }
    return found.get("throttled_time", 0) / 1e9 + found.get("throttled_usec", 0) / 1e6


def _times_of(group: Path) -> float:
    words = _text(group / "cpu.max").split() or [
        _text(group / "cpu.cfs_quota_us").strip(),
        _text(group / "cpu.cfs_period_us").strip(),
    ]
    if len(words) != 2 or not all(digits.is_number(word) and int(word) for word in words):
        return 1.0  # "max" or -1: no quota
    return max(1.0, int(words[1]) / int(words[0]))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
