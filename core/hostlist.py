"""Slurm hostlist expressions: `n[1-3,7]`, `rack[01-02]-gpu[1-8]`, comma-separated."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from probing_cluster.core import digits
from probing_cluster.core.errors import MalformedInput

MAX_HOSTS = 200_000
"""An expression that expands to more is a mistake or an attack, not a cluster."""
MAX_NAME_CHARS = 253
"""A longer host name is none (RFC 1035)."""
_MAX_BRACKETS = 16
_MAX_DIGITS = 18


def expand(expression: str) -> list[str]:
    """Host names in the order written, duplicates kept; raises MalformedInput.

    `""` and Slurm's words for "none yet" give an empty list.
    """
    text = expression.strip()
    if text in {"", "None assigned", "(null)", "None"}:
        return []
    hosts: list[str] = []
    for part in _split_top_level(text):
        for host in _expand_one(part, text):
            if len(hosts) >= MAX_HOSTS:
                raise MalformedInput(f"hostlist expands to more than {MAX_HOSTS} hosts: {text[:80]!r}")
            if len(host) > MAX_NAME_CHARS:
                raise MalformedInput(f"a host name longer than {MAX_NAME_CHARS} characters: {host[:80]!r}")
            hosts.append(host)
    return hosts


def _split_top_level(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for i, ch in enumerate(text):
        if ch == "[":
            depth += 1
        elif ch == "]":
            depth -= 1
        elif ch == "," and depth == 0:
            if text[start:i]:
                yield text[start:i]
            start = i + 1
        if depth not in (0, 1):
            raise MalformedInput(f"unbalanced brackets in hostlist {text[:80]!r}")
    if depth:
        raise MalformedInput(f"unbalanced brackets in hostlist {text[:80]!r}")
    if text[start:]:
        yield text[start:]


def _expand_one(part: str, whole: str) -> Iterator[str]:
    head, bracket, rest = part.partition("[")
    if not bracket:
        yield head
        return
    if rest.count("[") >= _MAX_BRACKETS:
        raise MalformedInput(f"more than {_MAX_BRACKETS} brackets in one name of hostlist {whole[:80]!r}")
    inside, _, tail = rest.partition("]")
    for item in inside.split(","):
        for number in _numbers(item, whole):
            for suffix in _expand_one(tail, whole):
                yield f"{head}{number}{suffix}"


def _numbers(item: str, whole: str) -> Iterator[str]:
    low, dash, high = item.strip().partition("-")
    numbers = digits.is_number(low) and (not dash or digits.is_number(high))
    if not numbers or max(len(low), len(high)) > _MAX_DIGITS:
        raise MalformedInput(f"bad range {item[:80]!r} in hostlist {whole[:80]!r}")
    if not dash:
        yield low
        return
    if int(high) < int(low) or int(high) - int(low) > MAX_HOSTS:
        raise MalformedInput(f"bad range {item!r} in hostlist {whole[:80]!r}")
    width = len(low)
    for n in range(int(low), int(high) + 1):
        yield f"{n:0{width}d}"


def compress(hosts: Iterable[str]) -> str:
    """The shortest usual expression for a set of hosts, sorted: `n[1-3,7]`.

    Only the last number of a name is folded; `expand(compress(h))` has exactly the set `h`.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    plain: list[str] = []
    distinct = dict.fromkeys(hosts)
    last: tuple[str, int] | None = None
    numbers: list[int] = []
    for host, place in zip(distinct, map(_place, distinct), strict=True):
        if place is None:
            plain.append(host)
            continue
        if place[0] != last:  # neighbours in a list are mostly of one group
            last = place[0]
            numbers = groups.setdefault(last, [])
        numbers.append(place[1])
    parts = [_fold(prefix, width, sorted(ns)) for (prefix, width), ns in groups.items()]
    return ",".join(sorted(parts + plain))


@functools.lru_cache(maxsize=1 << 15)
def _place(host: str) -> tuple[tuple[str, int], int] | None:
    """(prefix, fixed width or 0) and the number a name ends in; None for a name that cannot be folded."""
    prefix = host.rstrip("0123456789")
    number = host[len(prefix) :]
    if not number or "[" in host or len(number) > 9:
        return None
    # A leading zero fixes the width; without one, 9 and 10 fold together.
    width = len(number) if number.startswith("0") and len(number) > 1 else 0
    return (prefix, width), int(number)


def _fold(prefix: str, width: int, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{width}d}"
    ranges: list[str] = []
    start = previous = numbers[0]
    for n in [*numbers[1:], None]:
        if n is not None and n == previous + 1:
            previous = n
            continue
        ranges.append(
            f"{start:0{width}d}" if start == previous else f"{start:0{width}d}-{previous:0{width}d}"
        )
        if n is not None:
            start = previous = n
    return f"{prefix}[{','.join(ranges)}]"
