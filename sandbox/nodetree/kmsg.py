"""A node's kernel log: a growing file of raw /dev/kmsg records."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

WARNING, ERROR, INFO = 4, 3, 6
"""Kernel log levels; the facility is 0, the kernel's own."""

PATH = "dev/kmsg"


def append(root: Path, *messages: str, level: int = WARNING) -> None:
    """Adds kernel lines, stamped now by the node's boot clock; sequence numbers go on from the last."""
    btime_s = _btime_s(root)
    with (root / PATH).open("ab+") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        sequence = _next_sequence(log.fileno())
        stamp_us = int((time.time() - btime_s) * 1e6)
        for i, message in enumerate(messages):
            # One write per record, as the kernel hands out one record per read.
            os.write(log.fileno(), f"{level},{sequence + i},{stamp_us + i},-;{message}\n".encode())


def start(root: Path, *messages: str) -> None:
    """Begins the log anew, as a boot does."""
    (root / PATH).unlink(missing_ok=True)
    (root / PATH).touch()
    append(root, *messages, level=INFO)


def _btime_s(root: Path) -> int:
    lines = (root / "proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))


def _next_sequence(fd: int) -> int:
    size = os.fstat(fd).st_size
    tail = os.pread(fd, 65_536, max(0, size - 65_536)).splitlines()
    return int(tail[-1].split(b",", 2)[1]) + 1 if tail else 0
