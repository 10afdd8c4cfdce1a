"""How a function's caller is found: the tables that compilers put into `.eh_frame`, and the programs in them.

Sources: Linux Standard Base 5.0 (Exception Frames), DWARF 5 section 6.4, System V ABI for x86-64. The tables are users'
files: whatever is wrong in one raises one of elf.PARSE_ERRORS; Unknown is raised where they do not give the caller.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from probing_cluster.probe_agent.stacks import elf

RETURN_ADDRESS = 16
"""DWARF's number of the return address on x86-64."""
_WORD = (1 << 64) - 1
_MAX_ENTRY_BYTES = 1 << 16
_MAX_REMEMBERED = 64
_MAX_OPERATIONS = 256


class UnknownRule(Exception):
    """It rests on a register whose value is not known, or on something that is not understood."""


@dataclass(frozen=True, kw_only=True)
class RegisterRule:
    """The rule that finds a register of the caller, or the frame's address itself."""

    kind: str
    """`offset` and `value` from the frame's address, `register`, `expression` (an address), `computed`, `undefined`."""
    register: int = 0
    offset: int = 0
    code: bytes = b""


@dataclass
class CfiRow:
    """What holds at one instruction: how the frame's address is found, and from it the caller's registers."""

    cfa: RegisterRule | None = None
    registers: dict[int, RegisterRule] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CodeFunction:
    """One entry: link-time addresses [start, end) and its two programs."""

    start: int
    end: int
    is_signal: bool
    """The kernel put this frame there: its caller was interrupted and did not call."""
    return_column: int
    code_align: int
    data_align: int
    encoding: int
    initial: bytes
    program: bytes


class _Cursor:
    """Reads numbers from bytes that lie at `base` (link-time address of the first)."""

    def __init__(self, data: bytes, base: int = 0, at: int = 0) -> None:
        self.data, self.base, self.at = data, base, at

    def number(self, form: str) -> int:
        value: int = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError("longer than what it is in")
        self.at += size
        return self.data[self.at - size : self.at]

    def uleb(self) -> int:
        return self._leb()[0]

    def sleb(self) -> int:
        value, bits, negative = self._leb()
        return value - (1 << bits) if negative else value

    def _leb(self) -> tuple[int, int, bool]:
        value = bits = 0
        while bits < 70:
            byte = self.number("B")
            value |= (byte & 127) << bits
            bits += 7
            if byte < 128:
                return value, bits, bool(byte & 64)
        raise ValueError("a number without end")

    def encoded(self, encoding: int, data_base: int = 0) -> int:
        """A pointer in one of DWARF's encodings (no indirection)."""
        here = self.base + self.at
        forms = {0: "Q", 2: "H", 3: "I", 4: "Q", 10: "h", 11: "i", 12: "q"}
        kind = encoding & 15
        value = self.uleb() if kind == 1 else self.sleb() if kind == 9 else self.number(forms[kind])
        bases = {0x00: 0, 0x10: here, 0x30: data_base}
        return value + bases[encoding & 0x70] & _WORD


def find(image: elf.Image, pc: int) -> CodeFunction | None:
    """The entry of the function at a link-time address; None where the file has none."""
    if image.eh_frame_hdr is None:
        return None
    header = _Cursor(image.at(image.eh_frame_hdr, 64), image.eh_frame_hdr)
    version, frame_encoding, count_encoding, table_encoding = (header.number("B") for _ in range(4))
    if version != 1 or table_encoding != 0x3B:
        return None
    header.encoded(frame_encoding, image.eh_frame_hdr)
    count = header.encoded(count_encoding, image.eh_frame_hdr)
    table, wanted = header.base + header.at, pc - image.eh_frame_hdr
    low, high = 0, count  # the last entry that does not begin after it lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        if struct.unpack("<i", image.at(table + 8 * middle, 4))[0] <= wanted:
            low = middle
        else:
            high = middle
    place = struct.unpack("<ii", image.at(table + 8 * low, 8))[1]
    found = _entry(image, image.eh_frame_hdr + place)
    return found if found.start <= pc < found.end else None


def _block(image: elf.Image, at: int) -> _Cursor:
    """An entry without its length, which is bounded."""
    (size,) = struct.unpack("<I", image.at(at, 4))
    if not 4 <= size <= _MAX_ENTRY_BYTES:
        raise ValueError("no entry is that long")
    return _Cursor(image.at(at + 4, size), at + 4)


def _entry(image: elf.Image, at: int) -> CodeFunction:
    entry = _block(image, at)
    common = _block(image, entry.base - entry.number("I"))
    if common.number("I") != 0:
        raise ValueError("an entry without what is common to it")
    version = common.number("B")
    augmentation, _, _ = common.data[common.at : common.at + 16].partition(b"\0")
    common.at += len(augmentation) + 1
    code_align, data_align = common.uleb(), common.sleb()
    return_column = common.number("B") if version == 1 else common.uleb()
    encoding = 0
    initial = common.at
    if augmentation[:1] == b"z":
        size = common.uleb()
        initial = common.at + size
        encoding = _augmented(common, augmentation)
    elif augmentation:
        raise ValueError("an unknown kind of entry")
    start = entry.encoded(encoding)
    length = entry.encoded(encoding & 15)
    if augmentation[:1] == b"z":
        entry.take(entry.uleb())
    return CodeFunction(
        start=start,
        end=start + length,
        is_signal=b"S" in augmentation,
        return_column=return_column,
        code_align=code_align,
        data_align=data_align,
        encoding=encoding,
        initial=common.data[initial:],
        program=entry.data[entry.at :],
    )


def _augmented(common: _Cursor, augmentation: bytes) -> int:
    """The encoding of the entries' pointers."""
    found = 0
    for letter in augmentation[1:]:
        if letter == ord("R"):
            found = common.number("B")
        elif letter == ord("L"):
            common.number("B")
        elif letter == ord("P"):
            common.encoded(common.number("B") & 0x7F)
        elif letter not in b"SB":
            raise ValueError("an unknown kind of entry")
    return found


def row(function: CodeFunction, pc: int) -> CfiRow:
    """What holds at a link-time address of the function; raises Unknown for an instruction that is not understood."""
    initial = _run(function, function.initial, CfiRow(), CfiRow(), pc)
    first = CfiRow(initial.cfa, dict(initial.registers))
    return _run(function, function.program, initial, first, pc)


def _run(function: CodeFunction, program: bytes, now: CfiRow, first: CfiRow, pc: int) -> CfiRow:
    """Runs a program up to `pc`; `first` is what the common part has set, for what is to be as it was."""
    code = _Cursor(program)
    at, remembered = function.start, list[CfiRow]()
    unit = function.data_align
    while code.at < len(program):
        byte = code.number("B")
        top, low = byte & 0xC0, byte & 0x3F
        if top == 0x40 or byte in {1, 2, 3, 4}:
            forms = {2: "B", 3: "H", 4: "I"}
            if byte == 1:
                at = code.encoded(function.encoding)
            else:
                at += (low if top else code.number(forms[byte])) * function.code_align
            if at > pc:
                return now
        elif top == 0x80:
            now.registers[low] = RegisterRule(kind="offset", offset=code.uleb() * unit)
        elif top == 0xC0:
            _restore(now, first, low)
        elif byte == 0x0A:
            if len(remembered) >= _MAX_REMEMBERED:
                raise ValueError("too much to remember")
            remembered.append(CfiRow(now.cfa, dict(now.registers)))
        elif byte == 0x0B:
            now = remembered.pop()
        elif byte in {0x0C, 0x0D, 0x0E, 0x0F, 0x12, 0x13}:
            now.cfa = _frame_address(code, byte, now.cfa, unit)
        elif byte not in {0x00, 0x2E}:
            _register(code, byte, now, first, unit)
        elif byte == 0x2E:  # the size of arguments, which only an exception needs
            code.uleb()
    return now


def _restore(now: CfiRow, first: CfiRow, register: int) -> None:
    if register in first.registers:
        now.registers[register] = first.registers[register]
    else:
        now.registers.pop(register, None)


def _frame_address(code: _Cursor, byte: int, before: RegisterRule | None, unit: int) -> RegisterRule:
    if byte == 0x0F:
        return RegisterRule(kind="expression", code=code.take(code.uleb()))
    if byte in {0x0C, 0x12}:
        register = code.uleb()
        return RegisterRule(
            kind="value", register=register, offset=code.uleb() if byte == 0x0C else code.sleb() * unit
        )
    if before is None or before.kind != "value":
        raise ValueError("a change of nothing")
    if byte == 0x0D:
        return RegisterRule(kind="value", register=code.uleb(), offset=before.offset)
    offset = code.uleb() if byte == 0x0E else code.sleb() * unit
    return RegisterRule(kind="value", register=before.register, offset=offset)


def _register(code: _Cursor, byte: int, now: CfiRow, first: CfiRow, unit: int) -> None:
    register = code.uleb()
    if byte == 0x05:
        rule = RegisterRule(kind="offset", offset=code.uleb() * unit)
    elif byte == 0x06:
        return _restore(now, first, register)
    elif byte == 0x07:
        rule = RegisterRule(kind="undefined")
    elif byte == 0x08:
        now.registers.pop(register, None)
        return None
    elif byte == 0x09:
        rule = RegisterRule(kind="register", register=code.uleb())
    elif byte in {0x10, 0x16}:
        rule = RegisterRule(kind="expression" if byte == 0x10 else "computed", code=code.take(code.uleb()))
    elif byte == 0x11:
        rule = RegisterRule(kind="offset", offset=code.sleb() * unit)
    elif byte in {0x14, 0x15}:
        rule = RegisterRule(kind="value", offset=(code.uleb() if byte == 0x14 else code.sleb()) * unit)
    else:
        raise UnknownRule(f"call-frame instruction {byte:#x}")
    now.registers[register] = rule
    return None


_TWO: Mapping[int, Callable[[int, int], int]] = {
    0x1A: operator.and_, 0x1C: operator.sub, 0x1E: operator.mul, 0x21: operator.or_, 0x22: operator.add,
    0x24: lambda a, b: a << min(b, 64), 0x25: lambda a, b: a >> min(b, 64), 0x27: operator.xor,
    0x29: lambda a, b: int(a == b), 0x2A: lambda a, b: int(_signed(a) >= _signed(b)),
    0x2B: lambda a, b: int(_signed(a) > _signed(b)), 0x2C: lambda a, b: int(_signed(a) <= _signed(b)),
    0x2D: lambda a, b: int(_signed(a) < _signed(b)), 0x2E: lambda a, b: int(a != b),
}  # fmt: skip


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def evaluate(
    code: bytes, registers: Mapping[int, int], memory: Callable[[int], int], given: int | None = None
) -> int:
    """The value of a DWARF expression; `memory` gives the word at an address. Raises Unknown."""
    stack = [] if given is None else [given]
    at = _Cursor(code)
    for _ in range(_MAX_OPERATIONS):
        if at.at >= len(code):
            return stack[-1] & _WORD
        _operate(at, stack, registers, memory)
    raise UnknownRule("an expression that is too long")


def _operate(
    at: _Cursor, stack: list[int], registers: Mapping[int, int], memory: Callable[[int], int]
) -> None:
    byte = at.number("B")
    constants = {0x08: "B", 0x09: "b", 0x0A: "H", 0x0B: "h", 0x0C: "I", 0x0D: "i", 0x0E: "Q", 0x0F: "q"}
    if byte in constants:
        stack.append(at.number(constants[byte]))
    elif byte in {0x10, 0x11}:
        stack.append(at.uleb() if byte == 0x10 else at.sleb())
    elif 0x30 <= byte <= 0x4F:
        stack.append(byte - 0x30)
    elif 0x70 <= byte <= 0x8F:
        if byte - 0x70 not in registers:
            raise UnknownRule(f"register {byte - 0x70} is not known")
        stack.append(registers[byte - 0x70] + at.sleb() & _WORD)
    elif byte == 0x06:
        stack.append(memory(stack.pop() & _WORD))
    elif byte == 0x12:
        stack.append(stack[-1])
    elif byte == 0x23:
        stack.append(stack.pop() + at.uleb() & _WORD)
    elif byte in _TWO:
        second, first = stack.pop(), stack.pop()
        stack.append(_TWO[byte](first & _WORD, second & _WORD) & _WORD)
    else:
        raise UnknownRule(f"operation {byte:#x} of an expression")
