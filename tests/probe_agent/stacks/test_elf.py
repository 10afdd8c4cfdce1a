"""What ELF files say of themselves: real ones, and hostile ones that lie."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import deep_stack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from probing_cluster.probe_agent.stacks import elf

MAPS = """\
55d000000000-55d000001000 r--p 00000000 08:01 17 /usr/bin/python3.11
55d000001000-55d000009000 r-xp 00001000 08:01 17 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 08:01 2 /opt/my lib/libfoo.so
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
7fff00000000-7fff00001000 r-xp 00000000 00:00 0 [vdso]
garbage
"""


def test_mappings_are_read_by_line() -> None:
    """Paths with blanks stay whole; which are executable, and the files' numbers, are told."""
    known = elf.mappings(MAPS)
    assert [m.path for m in known if m.executable] == [
        "/usr/bin/python3.11",
        "/opt/my lib/libfoo.so",
        "[vdso]",
    ]
    assert (known[1].start, known[1].end, known[1].offset) == (0x55D000001000, 0x55D000009000, 0x1000)
    assert (known[1].inode, known[3].path) == (17, "[stack]")


def test_the_interpreter_is_known_by_its_name() -> None:
    """The program and its library, no module of it."""
    assert elf.is_interpreter("/usr/bin/python3.11")
    assert elf.is_interpreter("/opt/lib/libpython3.13t.so.1.0")
    assert not elf.is_interpreter("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so")


def test_the_loop_is_found_in_this_interpreter_or_not_claimed() -> None:
    """Its symbol lies within the file; a stripped static build has none."""
    path = os.path.realpath(sys.executable)
    for start, end in elf.evaluating(elf.opened(path)):
        assert 0 < start < end <= Path(path).stat().st_size


@deep_stack.compiler
def test_functions_have_their_names() -> None:
    """By where they begin, or by an address in the middle; an address of nothing has none."""
    image = elf.in_memory(deep_stack.library())
    starts = deep_stack.functions()
    calls, enters = starts["calls"], starts["enters"]
    wanted: list[tuple[int, int | None]] = [(calls + 5, calls), (enters + 1, None), (1, None)]
    assert elf.named(image, wanted) == {calls + 5: "calls", enters + 1: "enters"}
    assert image.address(image.offset(calls)) == calls


@deep_stack.compiler
def test_another_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """By its number; so is what is no file, and what is no ELF file."""
    path = tmp_path / "libfoo.so"
    path.write_bytes(deep_stack.library())
    assert elf.opened(str(path), path.stat().st_ino).segments
    with pytest.raises(ValueError, match="not the file"):
        elf.opened(str(path), path.stat().st_ino + 1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not the file"):
        elf.opened(str(tmp_path / "pipe"))
    with pytest.raises(ValueError, match="not a 64-bit"):
        elf.in_memory(b"#!/bin/sh")


@given(st.binary(max_size=300), st.binary(max_size=300))
@example(bytes(28), b"\0\0\0\0\0\x80" + bytes(17) + b"\1" + bytes(4))  # sections beyond any file
def test_files_that_lie_about_themselves(header: bytes, rest: bytes) -> None:
    """They are the user's: whatever they say, there is an answer, or one of PARSE_ERRORS."""
    at_rest = struct.pack("<QQ", 64, 64) + b"\0" * 6 + struct.pack("<HHHH", 56, 2, 64, 2)
    for image in (
        b"\x7fELF\x02\x01" + header + rest,
        b"\x7fELF\x02\x01".ljust(32, b"\0") + at_rest + header + rest,
    ):
        try:
            parsed = elf.in_memory(image)
            assert isinstance(elf.evaluating(parsed), list)
            elf.named(parsed, [(0x1000, 0x1000), (0x2000, None)])
        except elf.PARSE_ERRORS:
            continue


@deep_stack.compiler
@given(data=st.data())
def test_files_with_some_wrong_bytes(data: st.DataObject) -> None:
    """Headers and sections that point anywhere, of any size."""
    broken = bytearray(deep_stack.library())
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(
            st.integers(0, 63) | st.integers(len(deep_stack.library()) - 2048, len(deep_stack.library()) - 1)
        )
        broken[place] = data.draw(st.integers(0, 255))
    try:
        parsed = elf.in_memory(bytes(broken))
        elf.evaluating(parsed)
        elf.named(parsed, [(0x1130, 0x1130), (0x1150, None)])
    except elf.PARSE_ERRORS:
        pass
