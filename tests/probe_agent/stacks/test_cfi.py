"""How a function's caller is found: by hand-written programs, by a compiler's, and by ones that lie."""

from __future__ import annotations

import struct

import deep_stack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.probe_agent.stacks import cfi, elf

COMMON = bytes([0x0C, 7, 8, 0x90, 1])
"""The frame's address is rsp + 8; the return address lies 8 below it."""
PUSHES = bytes([0x41, 0x0E, 16, 0x86, 2, 0x43, 0x0D, 6, 0x4A, 0x0C, 7, 8])
"""push rbp; mov rbp, rsp; …; pop rbp, as every compiler describes it."""


def function(program: bytes, initial: bytes = COMMON) -> cfi.CodeFunction:
    """One at 0x1000."""
    return cfi.CodeFunction(
        start=0x1000, end=0x1100, is_signal=False, return_column=16, code_align=1, data_align=-8,
        encoding=0x1B, initial=initial, program=program,
    )  # fmt: skip


def frame_address(past: int) -> tuple[int, int]:
    """Register and offset at an instruction."""
    rule = cfi.row(function(PUSHES), 0x1000 + past).cfa
    assert rule is not None
    return rule.register, rule.offset


def test_the_frame_of_each_instruction() -> None:
    """Before the push, after it, in the body, and after the pop."""
    assert [frame_address(n) for n in (0, 1, 4, 13, 14)] == [(7, 8), (7, 16), (6, 16), (6, 16), (7, 8)]
    saved = cfi.row(function(PUSHES), 0x1004).registers
    assert saved == {
        16: cfi.RegisterRule(kind="offset", offset=-8),
        6: cfi.RegisterRule(kind="offset", offset=-16),
    }


def test_what_was_remembered_comes_back() -> None:
    """As where a function has two ends; `restore` goes back to what was at first."""
    program = bytes([0x0A, 0x42, 0x0E, 32, 0x86, 2, 0x42, 0x0B, 0x42, 0x86, 3, 0x42, 0xC6])
    found = [cfi.row(function(program), 0x1000 + n) for n in (2, 4, 6, 8)]
    assert [r.cfa.offset for r in found if r.cfa is not None] == [32, 8, 8, 8]
    assert [6 in r.registers for r in found] == [True, False, True, False]


def test_expressions() -> None:
    """The one of a procedure linkage table, one that reads memory, and what rests on nothing known."""
    linkage = bytes([0x77, 8, 0x80, 0, 0x3F, 0x1A, 0x3B, 0x2A, 0x33, 0x24, 0x22])
    for pc, wanted in ((0x1000, 0x7008), (0x100B, 0x7010)):
        assert cfi.evaluate(linkage, {7: 0x7000, 16: pc}, lambda _: 0) == wanted
    assert cfi.evaluate(bytes([0x76, 0x78, 0x06]), {6: 0x100}, lambda at: at * 2) == 0x1F0
    assert cfi.evaluate(bytes([0x23, 8]), {}, lambda _: 0, 0x500) == 0x508
    for unknown in (bytes([0x76, 0]), bytes([0x28, 0, 0]), bytes([0x30] * 400)):
        with pytest.raises(cfi.UnknownRule):
            cfi.evaluate(unknown, {}, lambda _: 0)


@deep_stack.compiler
@deep_stack.x86_64
def test_a_compilers_tables() -> None:
    """Each function is found from an address in it; what lies outside of all of them has no entry."""
    image = elf.in_memory(deep_stack.library())
    found = {name: cfi.find(image, at + 1) for name, at in deep_stack.functions().items()}
    for name in deep_stack.CHAIN:
        entry = found[name]
        assert entry is not None
        assert entry.start < entry.end
    grows = found["grows"]
    assert grows is not None
    in_its_body = cfi.row(grows, grows.end - 8).cfa
    assert in_its_body is not None
    assert in_its_body.register == 6  # alloca: by the frame pointer
    assert cfi.find(image, 0x7000000) is None
    assert cfi.find(image, 0) is None


@given(st.binary(max_size=80), st.binary(max_size=20), st.integers(0, 0x100))
def test_programs_that_lie(program: bytes, initial: bytes, past: int) -> None:
    """Any bytes: a row, Unknown, or one of PARSE_ERRORS."""
    try:
        row = cfi.row(function(program, initial), 0x1000 + past)
        if row.cfa is not None and row.cfa.kind == "expression":
            cfi.evaluate(row.cfa.code, {7: 8}, lambda at: at)
    except (cfi.UnknownRule, *elf.PARSE_ERRORS):
        pass


@given(st.binary(max_size=60))
def test_expressions_that_lie(code: bytes) -> None:
    """They end, and in a 64-bit word."""
    try:
        assert 0 <= cfi.evaluate(code, dict.fromkeys(range(17), 1), lambda at: at, 1) < 1 << 64
    except (cfi.UnknownRule, *elf.PARSE_ERRORS):
        pass


@deep_stack.compiler
@deep_stack.x86_64
@given(data=st.data())
def test_tables_with_wrong_bytes(data: st.DataObject) -> None:
    """The whole of a library's tables may say anything."""
    image = elf.in_memory(deep_stack.library())
    assert image.eh_frame_hdr is not None
    began = image.offset(image.eh_frame_hdr)
    broken = bytearray(deep_stack.library())
    for _ in range(data.draw(st.integers(1, 12))):
        broken[began + data.draw(st.integers(0, 700))] = data.draw(st.integers(0, 255))
    hostile = elf.in_memory(bytes(broken))
    for pc in (0x1000, 0x1130, 0x1180, 0x1230, struct.unpack_from("<I", broken, began + 12)[0]):
        try:
            found = cfi.find(hostile, pc)
            if found is not None:
                cfi.row(found, pc)
        except (cfi.UnknownRule, *elf.PARSE_ERRORS):
            pass
