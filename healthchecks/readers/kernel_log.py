"""The node's kernel log of this boot, by cursor: each message once."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from probing_cluster.core import digits
from probing_cluster.healthchecks import findings, nodeview

KMSG = "/dev/kmsg"

MAX_BYTES = 32 << 20
"""Read at most this much of a log file at once; the rest has its turn in the next sweep."""


@dataclass(frozen=True, kw_only=True)
class KernelLine:
    """One kernel message."""

    seq: int
    at_s: float
    """Seconds since boot."""
    text: str


def fresh(node: nodeview.NodeView) -> list[KernelLine]:
    """Messages of the kernel itself since this check's last look (since boot at the first).

    Raises Absent where the node has no kernel log, Undetermined where we may not read it.
    """
    after = int(node.memory.get("seq", -1))
    try:
        found = [line for raw in _records(node) if (line := parse(raw)) is not None and line.seq > after]
    except FileNotFoundError as exc:
        raise findings.Absent("no kernel log") from exc
    except PermissionError as exc:
        raise findings.Undetermined(f"the kernel log may not be read: {exc.strerror}") from exc
    if found:
        node.memory["seq"] = found[-1].seq
    return found


def parse(raw: str) -> KernelLine | None:
    """A /dev/kmsg record; None when it is a continuation or was written by a process (facility not 0)."""
    head, sep, text = raw.partition(";")
    fields = head.split(",")
    if not sep or len(fields) < 3 or not all(digits.is_number(f) for f in fields[:3]):
        return None
    if int(fields[0]) >> 3 != 0:
        return None
    return KernelLine(seq=int(fields[1]), at_s=int(fields[2]) / 1e6, text=text.partition("\n")[0])


def _records(node: nodeview.NodeView) -> Iterator[str]:
    fd = os.open(node.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISCHR(os.fstat(fd).st_mode):
            yield from _device(fd)
        else:
            with os.fdopen(os.dup(fd), "rb") as log:
                yield from (line.decode("utf-8", "replace") for line in log.read(MAX_BYTES).splitlines())
    finally:
        os.close(fd)


def _device(fd: int) -> Iterator[str]:
    while True:
        try:
            yield os.read(fd, 8192).decode("utf-8", "replace")
        except BlockingIOError:
            return
        except OSError as exc:
            if exc.errno != errno.EPIPE:  # EPIPE: the ring overtook us; the next read goes on behind the gap
                raise
