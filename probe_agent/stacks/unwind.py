"""Unwinds a stack: from a program counter and a copy of the stack to the functions that called each other (x86-64).

A thread that sleeps tells its program counter and stack pointer only. Most functions' frames are found from these alone,
and exactly. One that keeps its frame in a register which is not known is left by a search: upward for a word that is a
return address, from which every frame leads exactly, each with the call that made it, to the interpreter's loop. What
earlier calls have left on the stack may do so, too: where two such ways meet, the call there says which one it made, if
it is no call through a pointer. A caller of a third function, which jumped here, may be passed over. The first frame
after a search is marked.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from probing_cluster.probe_agent.stacks import cfi, elf

MAX_FRAMES = 40
SP, BP = 7, 6
"""DWARF's numbers of the stack pointer and the frame pointer."""
_KEPT = (3, BP, 12, 13, 14, 15)
"""Registers that a function leaves as they were."""
_SEARCHED_BYTES = 64 << 10
_MAX_CANDIDATES = 48
_MAX_SEARCHES = 2
_MAX_STEPS = 4000
_MAX_EXTENTS = 8


class UnwindEnded(Exception):
    """The stack leads no further."""


@dataclass(frozen=True, kw_only=True)
class MachineFrame:
    """One function on the stack."""

    pc: int
    """Where the thread is or, of a caller, where the call returns to."""
    region: elf.Region
    image: elf.Image | None
    at: int
    """Link-time address; of a caller, of its call."""
    extent: tuple[int, int] | None
    """Link-time addresses [from, to) of the function; None where its file does not tell."""
    scanned: bool = False


@dataclass(frozen=True, kw_only=True)
class State:
    """What is known at one frame."""

    pc: int
    registers: Mapping[int, int]
    called: bool = True
    """`pc` is where a call returns to, not where the thread was."""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Frames innermost first, and whether they end at the interpreter's loop; else why not."""

    frames: tuple[MachineFrame, ...]
    reached: bool
    why: str = ""


@dataclass(kw_only=True)
class AddressSpace:
    """A process as the unwinder needs it: what is mapped where, the files behind it, a word of memory."""

    regions: Sequence[elf.Region]
    """By their addresses."""
    opened: Callable[[elf.Region], elf.Image | None]
    loops: Callable[[elf.Region], Sequence[tuple[int, int]] | None]
    """File offsets of the interpreter's loop; None for a file that is not the interpreter."""
    word: Callable[[int], int]
    """Eight bytes at an address; raises OSError, or one of elf.PARSE_ERRORS."""
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.regions = sorted((r for r in self.regions if r.executable), key=lambda r: r.start)
        self._starts = [r.start for r in self.regions]

    def region(self, address: int) -> elf.Region | None:
        """The executable mapping an address lies in."""
        i = bisect.bisect_right(self._starts, address) - 1
        return self.regions[i] if i >= 0 and address < self.regions[i].end else None

    def link(self, address: int) -> tuple[elf.Region, elf.Image, int]:
        """The mapping, file and link-time address of an address of code; raises Lost."""
        region = self.region(address)
        if region is None:
            raise UnwindEnded("an address without code")
        image = self.opened(region)
        if image is None:
            raise UnwindEnded(f"{region.path or 'code without a file'} cannot be read")
        return region, image, image.address(address - region.start + region.offset)


@dataclass(kw_only=True)
class Unwinder:
    """One stack: its bytes and where they were."""

    space: AddressSpace
    base: int
    stack: bytes
    _steps: int = 0
    _walked: dict[tuple[object, ...], Walk] = field(default_factory=dict)
    _extents: dict[tuple[int, int], tuple[int, int] | None] = field(default_factory=dict)

    def walk(self, state: State) -> Walk:
        """Follows it to the interpreter's loop, or as far as it leads."""
        try:
            return self._walk(state, 0)
        except (UnwindEnded, cfi.UnknownRule, OSError, *elf.PARSE_ERRORS) as exc:
            return Walk(frames=(), reached=False, why=f"it cannot be followed ({type(exc).__name__})")

    def _walk(self, state: State, searches: int) -> Walk:
        frames: list[MachineFrame] = []
        while True:
            try:
                frame, function = self._frame(state)
                if self._evaluates(frame, state):
                    return Walk(frames=tuple(frames), reached=True)
                frames.append(frame)
                if len(frames) >= MAX_FRAMES:
                    raise UnwindEnded("more frames than are told")  # noqa: TRY301
                state = self._caller(state, frame, function)
                if searches and state.called:
                    self._link(state.pc, frame)
            except cfi.UnknownRule as exc:
                return self._search(frames, state, searches, str(exc))
            except UnwindEnded as exc:
                return Walk(frames=tuple(frames), reached=False, why=str(exc))
            except (OSError, *elf.PARSE_ERRORS) as exc:
                why = f"a file or the stack is not what it should be ({type(exc).__name__})"
                return Walk(frames=tuple(frames), reached=False, why=why)

    def _frame(self, state: State) -> tuple[MachineFrame, cfi.CodeFunction | None]:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise UnwindEnded("too much to try")
        region, image, at = self.space.link(state.pc - state.called)
        function = cfi.find(image, at)
        extent = (function.start, function.end) if function is not None else self._extent(image, at)
        return MachineFrame(pc=state.pc, region=region, image=image, at=at, extent=extent), function

    def _extent(self, image: elf.Image, at: int) -> tuple[int, int] | None:
        """Start and end of a function without unwind information, by its symbol; a few only, since each reads a table of symbols."""
        key = (id(image), at)
        if key not in self._extents and len(self._extents) < _MAX_EXTENTS:
            self._extents[key] = elf.extent(image, at)
        return self._extents.get(key)

    def _evaluates(self, frame: MachineFrame, state: State) -> bool:
        """Whether the address is in the interpreter's loop; in an interpreter without a symbol for it, anywhere in the interpreter."""
        loops = self.space.loops(frame.region)
        if loops is None:
            return False
        offset = state.pc - state.called - frame.region.start + frame.region.offset
        return not loops or any(a <= offset < b for a, b in loops)

    def _caller(
        self, state: State, frame: MachineFrame, function: cfi.CodeFunction | None, cfa: int | None = None
    ) -> State:
        """The frame that called, by the tables or from where it is known to end; raises Unknown and Lost."""
        if function is None:
            if cfa is None:
                raise cfi.UnknownRule("a function without unwind information")
            return State(pc=self._word(cfa - 8), registers={SP: cfa})
        row = cfi.row(function, frame.at)
        known = dict(state.registers) | {cfi.RETURN_ADDRESS: state.pc}
        if cfa is None:
            cfa = self._frame_address(row, known)
        if cfa <= state.registers[SP] or cfa % 8:
            raise UnwindEnded("the stack does not lead upward")
        found = {SP: cfa}
        for register in _KEPT:
            value = self._register(row.registers.get(register), register, cfa, known)
            if value is not None:
                found[register] = value
        if row.registers.get(function.return_column, cfi.RegisterRule(kind="undefined")).kind == "undefined":
            raise UnwindEnded("the thread begins here")
        back = self._register(row.registers[function.return_column], function.return_column, cfa, known)
        if not back:
            raise UnwindEnded("the thread begins here")
        return State(pc=back, registers=found, called=not function.is_signal)

    def _frame_address(self, row: cfi.CfiRow, known: Mapping[int, int]) -> int:
        if row.cfa is None:
            raise UnwindEnded("a function that does not tell its frame")
        if row.cfa.kind == "expression":
            return cfi.evaluate(row.cfa.code, known, self._word)
        if row.cfa.register not in known:
            raise cfi.UnknownRule(f"register {row.cfa.register} is not known")
        return known[row.cfa.register] + row.cfa.offset

    def _register(
        self, rule: cfi.RegisterRule | None, register: int, cfa: int, known: Mapping[int, int]
    ) -> int | None:
        """A register of the caller; None where it is not known."""
        if rule is None:
            return known.get(register)
        try:
            match rule.kind:
                case "offset" if cfa + rule.offset < known[SP] and register in _KEPT:
                    return known.get(register)  # taken off the stack again: the function is about to return
                case "offset":
                    return self._word(cfa + rule.offset)
                case "value":
                    return cfa + rule.offset
                case "register":
                    return known.get(rule.register)
                case "expression":
                    return self._word(cfi.evaluate(rule.code, known, self._word, cfa))
                case "computed":
                    return cfi.evaluate(rule.code, known, self._word, cfa)
        except cfi.UnknownRule:
            return None
        return None

    def _word(self, address: int) -> int:
        at = address - self.base
        if at < 0:
            raise UnwindEnded("below the stack")
        if at + 8 > len(self.stack):
            raise UnwindEnded("beyond the copy of the stack")
        value: int = struct.unpack_from("<Q", self.stack, at)[0]
        return value

    def _link(self, back: int, frame: MachineFrame) -> int:
        """Whether the call before a return address is one of this function: 1; 0 where only its registers knew; -1.

        A function that was jumped to by the one that was called is -1, too. Raises Lost where there is no call.
        """
        target = self._call(back)
        if target is None:
            raise UnwindEnded("no call stands before where it returns to")
        if not target or frame.extent is None:
            return 0
        try:
            region, _, at = self.space.link(target)
        except (UnwindEnded, OSError, *elf.PARSE_ERRORS):
            return 0
        within = region.path == frame.region.path and frame.extent[0] <= at < frame.extent[1]
        return 1 if within else -1

    def _search(self, frames: list[MachineFrame], state: State, searches: int, why: str) -> Walk:
        """Goes on from a word further up that leads to the interpreter's loop; see the module. Without such a word no guess is returned."""
        frame, function = self._frame(state)
        found = list(self._candidates(state, frame)) if searches < _MAX_SEARCHES else []
        for likely in (
            True,
            False,
        ):  # who called another function, which may have jumped here, only where nobody else is
            best: Sequence[MachineFrame] | None = None
            for slot, link in found:
                if (link >= 0) is likely:
                    rest = self._way(state, frame, function, slot + 8, searches + 1)
                    way = (frame, *rest.frames)
                    if rest.reached:
                        best = way if best is None else self._better(best, way)
            if self._steps > _MAX_STEPS:
                break
            if best is not None:
                first = [replace(f, scanned=True) for f in best[1:2]]
                return Walk(frames=(*frames, *first, *best[2:])[:MAX_FRAMES], reached=True)
        return Walk(frames=tuple(frames), reached=False, why=f"its caller is not told: {why}")

    def _better(self, best: Sequence[MachineFrame], way: Sequence[MachineFrame]) -> Sequence[MachineFrame]:
        """The better of two ways from the same function (innermost first): the one that the call where they meet has made.

        Where neither can be shown, it is the one that begins with a call of this very function; else what both share is
        left. A way that is part of the other is no doubt about it: a function that is called through a pointer has such ways.
        """
        shared = 0
        while shared < min(len(way), len(best)) - 1 and way[-1 - shared].pc == best[-1 - shared].pc:
            shared += 1
        if not shared:
            return best
        inner, other = best[-1 - shared], way[-1 - shared]
        try:
            order = self._link(way[-shared].pc, other) - self._link(way[-shared].pc, inner)
            if not order and len(way) > shared + 1 and len(best) > shared + 1:
                order = self._link(way[1].pc, way[0]) - self._link(best[1].pc, best[0])
                if not order:
                    return (way[0], *way[-shared:])
        except UnwindEnded:
            return best  # the kernel put that frame there
        return way if order > 0 else best

    def _way(
        self, state: State, frame: MachineFrame, function: cfi.CodeFunction | None, cfa: int, searches: int
    ) -> Walk:
        """The way that the stack leads if the function's frame ends there; each state is followed once."""
        try:
            caller = self._caller(state, frame, function, cfa)
        except (UnwindEnded, cfi.UnknownRule, OSError, *elf.PARSE_ERRORS) as exc:
            return Walk(frames=(), reached=False, why=str(exc))
        key = (searches, caller.pc, *sorted(caller.registers.items()))
        if key not in self._walked:
            self._walked[key] = self._walk(caller, searches)
        return self._walked[key]

    def _candidates(self, state: State, frame: MachineFrame) -> Iterator[tuple[int, int]]:
        """Places on the stack that may hold where this function returns to, and what kind of call stands there."""
        tried = 0
        begin = state.registers[SP]
        for slot in range(
            begin - begin % -8, min(self.base + len(self.stack), begin + _SEARCHED_BYTES) - 7, 8
        ):
            value = self._word(slot)
            if self.space.region(value) is None:
                continue
            try:
                link = self._link(value, frame)
            except UnwindEnded:
                continue
            tried += 1
            if tried > _MAX_CANDIDATES:
                break
            yield slot, link

    def _call(self, back: int) -> int | None:
        """What the call before a return address calls: 0 where only its registers knew; None where there is no call."""
        try:
            _, image, at = self.space.link(back - 1)
            code = image.at(at - 7, 8)[:8]
        except (UnwindEnded, OSError, *elf.PARSE_ERRORS):
            return None
        if len(code) < 8:
            return None
        if code[3] == 0xE8:
            return self._through(back + struct.unpack_from("<i", code, 4)[0])
        for length in (2, 3, 4, 6, 7):
            if code[8 - length] == 0xFF and _call_length(code[9 - length :]) == length:
                if length == 6 and code[3] == 0x15:
                    return self._pointed(back + struct.unpack_from("<i", code, 4)[0])
                return 0
        return None

    def _through(self, target: int) -> int:
        """The target of a call that may go through a stub of the procedure linkage table."""
        try:
            _, image, at = self.space.link(target)
            code = image.at(at, 16)
        except (UnwindEnded, OSError, *elf.PARSE_ERRORS):
            return target
        jump = 4 if code[:4] == b"\xf3\x0f\x1e\xfa" else 0
        jump += code[jump : jump + 1] == b"\xf2"
        if code[jump : jump + 2] != b"\xff\x25" or len(code) < jump + 6:
            return target
        return self._pointed(target + jump + 6 + struct.unpack_from("<i", code, jump + 2)[0])

    def _pointed(self, pointer: int) -> int:
        try:
            return self.space.word(pointer)
        except (OSError, *elf.PARSE_ERRORS):
            return 0


def _call_length(operand: bytes) -> int | None:
    """Bytes of an indirect call by those after its first; None for another instruction."""
    if not operand or operand[0] >> 3 & 7 != 2:
        return None
    mode, base = operand[0] >> 6, operand[0] & 7
    sib = base == 4 and mode != 3
    if mode == 0:
        far = base == 5 or (sib and len(operand) > 1 and operand[1] & 7 == 5)
        return 2 + sib + (4 if far else 0)
    return 2 + sib + {1: 1, 2: 4, 3: 0}[mode]
