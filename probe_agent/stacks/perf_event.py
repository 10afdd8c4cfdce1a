"""Samples of one thread while it runs, taken by the kernel (perf_event_open(2)): no ptrace, no signal, user space only."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Iterator

from probing_cluster.probe_agent.jobs import collect_child

SYSCALL = {"x86_64": 298, "aarch64": 241}
"""perf_event_open's number."""
IP, REGISTERS, STACK = 1, 1 << 12, 1 << 13
"""What a sample may tell: the program counter; the registers; a copy of the stack."""
REGISTER_MASK = 0x1FF | 0xFF << 16
"""The general registers and the program counter of x86-64."""
_ORDER = (0, 3, 2, 1, 4, 5, 6, 7, 16, 8, 9, 10, 11, 12, 13, 14, 15)
"""DWARF's numbers of the registers in the kernel's order."""
_TYPE_SOFTWARE, _CPU_CLOCK, _RECORD_SAMPLE = 1, 0, 9
_EXCLUDE_KERNEL, _EXCLUDE_HV, _FREQUENCY = 1 << 5, 1 << 6, 1 << 10
_CLOSE_ON_EXEC = 8
_PAGE = mmap.PAGESIZE
_DATA_HEAD = 1024


def opened(
    tid: int, *, per_s: int, sample_type: int = IP, stack_bytes: int = 0, pages: int = 16
) -> mmap.mmap:
    """The ring of a counter that is running on the thread; raises Refused where the kernel does not let us."""
    number = SYSCALL.get(platform.machine())
    if number is None:
        raise collect_child.Refused(f"not known how to ask the kernel of {platform.machine()}")
    wanted = bytearray(128)
    struct.pack_into("@IIQQQ", wanted, 0, _TYPE_SOFTWARE, len(wanted), _CPU_CLOCK, per_s, sample_type)
    struct.pack_into("@Q", wanted, 40, _EXCLUDE_KERNEL | _EXCLUDE_HV | _FREQUENCY)
    if sample_type & REGISTERS:
        struct.pack_into("@Q", wanted, 80, REGISTER_MASK)
    struct.pack_into("@I", wanted, 88, stack_bytes)
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = (ctypes.c_char * len(wanted)).from_buffer(wanted)
    fd = libc.syscall(number, attributes, tid, -1, -1, _CLOSE_ON_EXEC)
    if fd < 0:
        raise collect_child.Refused(f"perf_event_open: {os.strerror(ctypes.get_errno())}")
    try:
        return mmap.mmap(fd, (pages + 1) * _PAGE)
    except OSError as exc:
        raise collect_child.Refused(f"perf_event_open: {exc.strerror}") from exc
    finally:
        os.close(fd)  # the mapping keeps it


def samples(ring: mmap.mmap) -> Iterator[bytes]:
    """The body of each sample so far; the kernel stops when the ring is full."""
    head = struct.unpack_from("@Q", ring, _DATA_HEAD)[0]
    at, end = _PAGE, min(_PAGE + head, len(ring))
    while at + 16 <= end:
        kind, _, size = struct.unpack_from("@IHH", ring, at)
        if size < 8 or at + size > end:
            break
        if kind == _RECORD_SAMPLE:
            yield ring[at + 8 : at + size]
        at += size


def count(ring: mmap.mmap) -> int:
    """How many samples there are so far."""
    return sum(1 for _ in samples(ring))


def counters(ring: mmap.mmap) -> list[int]:
    """The program counters of a ring of IP."""
    return [struct.unpack_from("@Q", sample)[0] for sample in samples(ring)]


def stacks(ring: mmap.mmap) -> Iterator[tuple[dict[int, int], bytes]]:
    """The samples of a ring of REGISTERS and STACK: registers by DWARF's numbers, and the stack from its pointer on."""
    for sample in samples(ring):
        at = 8 + 8 * len(_ORDER)
        if len(sample) < at + 8 or not struct.unpack_from("@Q", sample)[0]:
            continue  # no registers: not in user space
        registers = struct.unpack_from(f"@{len(_ORDER)}Q", sample, 8)
        (size,) = struct.unpack_from("@Q", sample, at)
        if size and len(sample) >= at + 16 + size:
            (filled,) = struct.unpack_from("@Q", sample, at + 8 + size)
            yield dict(zip(_ORDER, registers, strict=True)), sample[at + 8 : at + 8 + min(filled, size)]
