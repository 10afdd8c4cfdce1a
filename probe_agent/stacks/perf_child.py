"""Samples where a thread spends its CPU without stopping it: the kernel records its program counter some hundred times a second.

One JSON request on standard input (`tid`, `uid`, `gid`), one JSON answer: `{"samples", "evaluating", "interpreter",
"elsewhere", "unknown", "where"}`, or `{"refused": why}`. No ptrace, no signal: perf_event_open(2) on one thread, user
space only, for at most LONGEST_S. The counter is opened as root; then the process becomes the job's owner, and only as
that user reads which file each address lies in and where the interpreter's own loop is in it. Those files are the
user's: they are only read, boundedly, and only say where counters lie.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from probing_cluster.probe_agent.jobs import collect_child
from probing_cluster.probe_agent.stacks import elf, perf_event

PER_S = 499
ENOUGH = 100
USUAL_S = 1.5
LONGEST_S = 5.0
"""On a machine that gives the thread little CPU; not for one that has none at all, which sleeps."""
FEW = 30


def goes_on(passed_s: float, samples: int) -> bool:
    """Whether to count for longer: until there are enough, or after a while a few, or none."""
    wanted = ENOUGH if passed_s < USUAL_S else min(FEW, FEW * samples)
    return samples < wanted and passed_s < LONGEST_S


def counted_where(
    addresses: Sequence[int], known: Sequence[elf.Region], loops: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, Any]:
    """The reply: how many program counters lie where; `loops` has the offsets of the interpreter's loop by file."""
    counted: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for address in addresses:
        here = next((m for m in known if m.executable and m.start <= address < m.end), None)
        if here is None or not here.path.startswith("/"):
            counted["unknown"] += 1
        elif here.path in loops:
            offset = address - here.start + here.offset
            counted["evaluating" if any(a <= offset < b for a, b in loops[here.path]) else "interpreter"] += 1
        else:
            counted["elsewhere"] += 1
            files[os.path.basename(here.path)] += 1  # noqa: PTH119
    return {
        "samples": len(addresses),
        **{name: counted[name] for name in ("evaluating", "interpreter", "elsewhere", "unknown")},
        "where": files.most_common(1)[0][0] if files else "",
    }


def look(tid: int, uid: int, gid: int) -> dict[str, Any]:
    """Sample the thread and count where it was. Opening the counter needs root; all else runs as the job's user."""
    ring = perf_event.opened(tid, per_s=PER_S)
    try:
        collect_child.become(uid, gid)
        collect_child.limit(cpu_s=10)
        began_s = time.monotonic()
        while goes_on(time.monotonic() - began_s, perf_event.count(ring)):
            time.sleep(0.05)
        addresses = perf_event.counters(ring)
    finally:
        ring.close()
    with open(f"/proc/{tid}/maps", encoding="utf-8", errors="replace") as handle:  # noqa: PTH123
        known = elf.mappings(handle.read(8 << 20))
    program = os.readlink(f"/proc/{tid}/exe")  # noqa: PTH115
    python = {m.path for m in known if m.executable and (m.path == program or elf.is_interpreter(m.path))}
    return counted_where(addresses, known, {path: _loop(f"/proc/{tid}/root{path}") for path in python})


def _loop(path: str) -> list[tuple[int, int]]:
    """File offsets of the interpreter's loop; empty where the file does not name them."""
    try:
        return elf.evaluating(elf.opened(path))
    except (OSError, *elf.PARSE_ERRORS):
        return []


def main() -> int:
    """Answer one request."""
    request = json.load(sys.stdin)
    try:
        answer = look(int(request["tid"]), int(request["uid"]), int(request["gid"]))
    except collect_child.Refused as exc:
        answer = {"refused": str(exc)}
    except OSError as exc:
        answer = {"refused": f"{type(exc).__name__}: {exc.strerror}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
