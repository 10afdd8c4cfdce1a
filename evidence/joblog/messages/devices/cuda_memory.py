"""Finds by PyTorch's message whether a GPU was full, and whether this process or others held its memory."""

from __future__ import annotations

import re
from typing import Any

_SIZE = r"\d{1,8}(?:\.\d{1,4})? [KMGT]?i?B(?:ytes)?"
_NAMED = re.compile(
    rf"total capacity of (?P<total>{_SIZE}) of which (?P<free>{_SIZE}) is free\.(?P<others>(?: Process \d{{1,10}} has {_SIZE} memory in use\.){{1,32}})(?:.{{0,60}}?this process has | Of the allocated memory )(?P<own>{_SIZE})"
)
"""In a container PyTorch does not recognise itself among the processes; its own allocation then shows whose memory it is."""
_OLDER = re.compile(
    rf"\(GPU \d{{1,3}}; (?P<total>{_SIZE}) total capacity; (?P<allocated>{_SIZE}) already allocated; (?P<free>{_SIZE}) free; (?P<own>{_SIZE}) (?:reserved|cached)"
)
_OTHER = re.compile(rf"Process (?P<pid>\d{{1,10}}) has (?P<size>{_SIZE})")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HALF = 0.5
"""Less of a GPU, held by others, leaves the program's own wish as the reason."""


def _bytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * _UNITS[unit[0] if unit[0] in _UNITS else ""]


_RAISED = re.compile(
    r"[Ee]rror|ERROR|[Ee]xception|FATAL|[Ff]atal|RESOURCE|what\(\)|allocat|\breserve|[Aa]bort|\bfail|failed|\(2\)|code[ =]2\b"
)


def about(text: str) -> dict[str, Any]:
    """Weak where nothing but the words says so, as a program prints them of its own accord; else `held_by_others`."""
    return held_by_others(text) if _RAISED.search(text) else {"weak": True}


def held_by_others(text: str) -> dict[str, Any]:
    """What other processes held of a GPU, in GiB, its size, and who held most; empty unless they held most of it.

    Older releases name no process: what is neither free nor the program's own is others'.
    """
    found = _NAMED.search(text) or _OLDER.search(text)
    if found is None:
        return {}
    total, free, own = (_bytes(found[name]) for name in ("total", "free", "own"))
    others = sorted(
        (_bytes(o["size"]), int(o["pid"])) for o in _OTHER.finditer(found.groupdict().get("others") or "")
    )
    held = sum(size for size, _ in others) if others else total - free - own
    if held < _HALF * total or held <= own:
        return {}
    if others and "this process has" not in text and own >= _HALF * held:
        # PyTorch does not know itself among the processes: the one it names is its own.
        return {}
    pid = {"held_by": others[-1][1]} if others else {}
    return {"held_gib": round(held / 2**30, 2), "gpu_gib": round(total / 2**30, 2), **pid}


_OF_HOST = re.compile(r"\bby allocator (?:cpu|mklcpu)\b|/device:CPU:\d", re.IGNORECASE)


def is_of_host(text: str) -> bool:
    """Whether TensorFlow speaks of main memory."""
    return _OF_HOST.search(text) is not None
