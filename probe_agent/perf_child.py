"""Where a thread spends its CPU, without stopping it: the kernel notes its program counter some hundred times a second.

One JSON request on standard input (`tid`, `uid`, `gid`), one JSON answer: `{"samples", "evaluating", "interpreter",
"elsewhere", "unknown", "where"}`, or `{"refused": why}`. No ptrace, no signal: perf_event_open(2) on one thread, user
space only, for at most LONGEST_S. The counter is opened as root; then the process becomes the job's owner, and only as
that user reads which file each address lies in and where the interpreter's own loop is in it. Those files are the
user's: they are only read, boundedly, and only say where counters lie.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import re
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.probe_agent import collect_child

SYSCALL = {"x86_64": 298, "aarch64": 241}
"""perf_event_open's number."""
PER_S = 499
ENOUGH = 100
USUAL_S = 1.5
LONGEST_S = 5.0
"""On a machine that gives the thread little CPU; not for one that has none at all, which sleeps."""
FEW = 30
EVALUATING = b"_PyEval_EvalFrameDefault"
"""The function of CPython (all versions since 3.6) in which Python code runs; compilers split parts off it."""
_INTERPRETER = re.compile(r"/(python[0-9.]*[a-z]*|libpython[^/]*)$")
_TYPE_SOFTWARE, _CPU_CLOCK, _SAMPLE_IP, _RECORD_SAMPLE = 1, 0, 1, 9
_EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQUENCY = 1 << 5, 1 << 6, 1 << 10
_CLOSE_ON_EXEC = 8
_PAGES = 16
_PAGE = mmap.PAGESIZE
_DATA_HEAD = 1024
_MAX_SYMBOLS_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Region:
    """One executable mapping of the process."""

    start: int
    end: int
    offset: int
    path: str


def sample(tid: int) -> mmap.mmap:
    """The ring of a counter that is running on the thread; raises Refused where the kernel does not let us."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise collect_child.Refused(f"not known how to ask the kernel of {platform.machine()}")
    wanted = bytearray(128)
    struct.pack_into("@IIQQQ", wanted, 0, _TYPE_SOFTWARE, len(wanted), _CPU_CLOCK, PER_S, _SAMPLE_IP)
    struct.pack_into("@Q", wanted, 40, _EXCLUDE_KERNEL | _EXCLUDE_HV | _FREQUENCY)
    libc = ctypes.CDLL(None, use_errno=True)
    told = (ctypes.c_char * len(wanted)).from_buffer(wanted)
    fd = libc.syscall(number, told, tid, -1, -1, _CLOSE_ON_EXEC)
    if fd < 0:
        raise collect_child.Refused(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    try:
        return mmap.mmap(fd, (_PAGES + 1) * _PAGE)
    except OSError as exc:
        raise collect_child.Refused(f"perf_event_open: {exc.strerror}") from exc
    finally:
        os.close(fd)  # the mapping keeps it


def counters(ring: mmap.mmap) -> list[int]:
    """The program counters noted so far; far fewer than would go round."""
    head = struct.unpack_from("@Q", ring, _DATA_HEAD)[0]
    at, end = _PAGE, _PAGE + min(head, _PAGES * _PAGE)
    found = []
    while at + 16 <= end:
        kind, _, size = struct.unpack_from("@IHH", ring, at)
        if size < 8:
            break
        if kind == _RECORD_SAMPLE:
            found.append(struct.unpack_from("@Q", ring, at + 8)[0])
        at += size
    return found


def goes_on(passed_s: float, samples: int) -> bool:
    """Whether to count for longer: until there are enough, or after a while a few, or none."""
    wanted = ENOUGH if passed_s < USUAL_S else min(FEW, FEW * samples)
    return samples < wanted and passed_s < LONGEST_S


def mappings(maps: str) -> list[Region]:
    """The executable ones of /proc/<pid>/maps."""
    found = []
    for line in maps.splitlines():
        row = line.split(None, 5)
        if len(row) < 5 or "x" not in row[1]:
            continue
        start, _, end = row[0].partition("-")
        path = row[5] if len(row) > 5 else ""
        found.append(Region(start=int(start, 16), end=int(end, 16), offset=int(row[2], 16), path=path))
    return found


def evaluating(image: bytes) -> list[tuple[int, int]]:
    """File offsets [from, to) of the interpreter's loop in a 64-bit little-endian ELF file; empty where it is not told."""
    if image[:6] != b"\x7fELF\x02\x01":
        return []
    try:
        return list(_ranges(image))
    except (struct.error, IndexError, OverflowError):
        return []  # the user's file, and not what it says it is


def _ranges(image: bytes) -> Iterator[tuple[int, int]]:
    segments_at, sections_at = struct.unpack_from("<QQ", image, 32)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", image, 54)
    loaded = []
    for i in range(segments):
        kind, _, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", image, segments_at + i * segment_size
        )
        if kind == 1:
            loaded.append((address, size, offset))
    rows = [struct.unpack_from("<IIQQQQIIQQ", image, sections_at + i * section_size) for i in range(sections)]
    for row in rows:
        if row[1] not in (2, 11):  # .symtab, .dynsym
            continue
        names = image[rows[row[6]][4] : rows[row[6]][4] + rows[row[6]][5]]
        wanted = {m.start() + 1 for m in re.finditer(b"\0" + EVALUATING + rb"(?=[\0.])", names)}
        table = image[row[4] : row[4] + row[5] // 24 * 24]
        for name, _, _, _, value, length in struct.iter_unpack("<IBBHQQ", table):
            if name in wanted and length:
                for address, size, offset in loaded:
                    if address <= value < address + size:
                        yield value - address + offset, value - address + offset + length


def told(
    addresses: Sequence[int], known: Sequence[Region], loops: Mapping[str, Sequence[tuple[int, int]]]
) -> dict[str, Any]:
    """The answer: how many counters lie where; `loops` holds the interpreter's loop per file."""
    counted: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for address in addresses:
        here = next((m for m in known if m.start <= address < m.end), None)
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
    """Samples the thread and says where it was; from half-way on as the job's user."""
    ring = sample(tid)
    try:
        collect_child.become(uid, gid)
        collect_child.limit(cpu_s=10)
        began_s = time.monotonic()
        while goes_on(time.monotonic() - began_s, len(counters(ring))):
            time.sleep(0.05)
        addresses = counters(ring)
    finally:
        ring.close()
    with open(f"/proc/{tid}/maps", encoding="utf-8", errors="replace") as handle:  # noqa: PTH123
        known = mappings(handle.read(8 << 20))
    program = os.readlink(f"/proc/{tid}/exe")  # noqa: PTH115
    python = {m.path for m in known if m.path == program or _INTERPRETER.search(m.path)}
    return told(addresses, known, {path: evaluating(_read(f"/proc/{tid}/root{path}")) for path in python})


def _read(path: str) -> bytes:
    """The file, if it is one of a bearable size; else nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as handle:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > _MAX_SYMBOLS_BYTES:
            return b""
        return handle.read(_MAX_SYMBOLS_BYTES)


def main() -> int:
    """Answer one request."""
    asked = json.load(sys.stdin)
    try:
        answer = look(int(asked["tid"]), int(asked["uid"]), int(asked["gid"]))
    except collect_child.Refused as exc:
        answer = {"refused": str(exc)}
    except OSError as exc:
        answer = {"refused": f"{type(exc).__name__}: {exc.strerror}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
