"""What an ELF file records: where it is loaded, what its functions are called, where the interpreter's loop is.

The files are users': only read, piece by piece and boundedly, never mapped into memory. A file that is not what it says
it is raises one of PARSE_ERRORS, which every reader of one has to expect.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

PARSE_ERRORS = (ValueError, IndexError, KeyError, OverflowError, struct.error, MemoryError)
"""What reading a broken or hostile file raises."""
EVALUATING = b"_PyEval_EvalFrameDefault"
"""The function of CPython (all versions since 3.6) in which Python code runs; compilers split parts off it."""
_INTERPRETER = re.compile(r"/(python[0-9.]*[a-z]*|libpython[^/]*)$")
_SYMTAB, _DYNSYM = 2, 11
_LOAD, _EH_FRAME = 1, 0x6474E550
_MAX_SEGMENTS, _MAX_SECTIONS = 256, 8192
_MAX_NAMES_BYTES = 16 << 20
_MAX_NAME = 4096
_SYMBOL_BYTES = 24
_MAX_SYMBOLS = 8 << 20
_AT_ONCE = 1 << 15
_CODE = frozenset({0, 2, 10})
"""Types of symbols that are code: none (assembler), function, indirect function."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """One mapping of a process."""

    start: int
    end: int
    offset: int
    path: str
    executable: bool = True
    inode: int = 0


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a file that is loaded: link-time address, bytes in the file, place in the file."""

    address: int
    size: int
    offset: int


@dataclass(frozen=True, kw_only=True)
class ElfSection:
    """One section: its type, place and size in the file, and the section that belongs to it."""

    kind: int
    offset: int
    size: int
    link: int


@dataclass(kw_only=True)
class Image:
    """A 64-bit little-endian ELF file behind `read(offset, most bytes)`."""

    read: Callable[[int, int], bytes]
    segments: list[Segment] = field(default_factory=list)
    eh_frame_hdr: int | None = None
    """Link-time address of the table by which unwinders find functions."""
    sections: list[ElfSection] = field(default_factory=list)

    def at(self, address: int, size: int) -> bytes:
        """At most `size` bytes from a link-time address on; raises ValueError where the file has none there."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                past = address - segment.address
                return self.read(segment.offset + past, min(size, segment.size - past))
        raise ValueError(f"nothing is loaded at {address:#x}")

    def address(self, offset: int) -> int:
        """The link-time address of a place in the file; raises ValueError where none is loaded from there."""
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                return segment.address + offset - segment.offset
        raise ValueError(f"{offset:#x} is not loaded")

    def offset(self, address: int) -> int:
        """The place in the file of a link-time address; raises ValueError where it has none."""
        for segment in self.segments:
            if segment.address <= address < segment.address + segment.size:
                return segment.offset + address - segment.address
        raise ValueError(f"nothing is loaded at {address:#x}")

    def symbols(self, kind: int) -> Iterator[tuple[array[int], ElfSection]]:
        """Symbols of the tables of a kind, three words each (name and type, value, size), and where their names are."""
        for section in self.sections:
            if section.kind != kind:
                continue
            names = self.sections[section.link]
            for i in range(0, min(section.size // _SYMBOL_BYTES, _MAX_SYMBOLS), _AT_ONCE):
                most = min(_AT_ONCE, section.size // _SYMBOL_BYTES - i) * _SYMBOL_BYTES
                data = self.read(section.offset + i * _SYMBOL_BYTES, most)
                words = array("Q")
                words.frombytes(data[: len(data) // _SYMBOL_BYTES * _SYMBOL_BYTES])
                yield words, names

    def name(self, names: ElfSection, at: int) -> bytes:
        """The name that begins `at` bytes into a section of names."""
        return self.read(names.offset + at, _MAX_NAME).partition(b"\0")[0]


def parse(read: Callable[[int, int], bytes]) -> Image:
    """The image in a file; raises one of PARSE_ERRORS where it is none."""
    header = read(0, 64)
    if header[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    image = Image(read=read)
    segments_at, sections_at = struct.unpack_from("<QQ", header, 32)
    segment_size, segments, section_size, sections = struct.unpack_from("<HHHH", header, 54)
    raw = read(segments_at, segment_size * min(segments, _MAX_SEGMENTS))
    for i in range(min(segments, _MAX_SEGMENTS)):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", raw, i * segment_size)
        if kind == _LOAD:
            image.segments.append(Segment(address=address, size=size, offset=offset))
        elif kind == _EH_FRAME:
            image.eh_frame_hdr = address
    raw = read(sections_at, section_size * min(sections, _MAX_SECTIONS)) if sections_at else b""
    for i in range(min(sections, _MAX_SECTIONS) if raw else 0):
        _, kind, _, _, offset, size, link, _, _, _ = struct.unpack_from("<IIQQQQIIQQ", raw, i * section_size)
        image.sections.append(ElfSection(kind=kind, offset=offset, size=size, link=link))
    return image


def opened(path: str, inode: int = 0) -> Image:
    """The image in a file that stays open; raises OSError, or one of PARSE_ERRORS where it is no image or not the file `inode`."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        file_stat = os.fstat(fd)
        if not stat.S_ISREG(file_stat.st_mode) or inode not in {0, file_stat.st_ino}:
            raise ValueError("not the file that is mapped")  # noqa: TRY301
        return parse(lambda offset, most: _pread(fd, offset, most))
    except BaseException:
        os.close(fd)
        raise


def _pread(fd: int, offset: int, most: int) -> bytes:
    """Shorter at the end of the file; raises OverflowError for places no file has."""
    if not 0 <= offset < 1 << 62 or most > _MAX_NAMES_BYTES:
        raise OverflowError("beyond any file")
    return os.pread(fd, most, offset)


def in_memory(data: bytes) -> Image:
    """The image in these bytes, e.g. the vDSO's; raises one of PARSE_ERRORS where it is none."""
    return parse(lambda offset, most: data[offset : offset + most])


def is_interpreter(path: str) -> bool:
    """Whether a file is CPython by its name."""
    return _INTERPRETER.search(path) is not None


def mappings(maps: str) -> list[Region]:
    """All of /proc/<pid>/maps, by their addresses."""
    found = []
    for line in maps.splitlines():
        row = line.split(None, 5)
        if len(row) < 5:
            continue
        start, _, end = row[0].partition("-")
        found.append(
            Region(
                start=int(start, 16),
                end=int(end, 16),
                offset=int(row[2], 16),
                path=row[5] if len(row) > 5 else "",
                executable="x" in row[1],
                inode=int(row[4]),
            )
        )
    return found


def evaluating(image: Image) -> list[tuple[int, int]]:
    """File offsets [from, to) of the interpreter's loop; empty where the file does not name it."""
    try:
        return list(_ranges(image))
    except PARSE_ERRORS:
        return []


def _ranges(image: Image) -> Iterator[tuple[int, int]]:
    for kind in (_SYMTAB, _DYNSYM):
        wanted: set[int] | None = None
        for words, names in image.symbols(kind):
            if wanted is None:
                text = image.read(names.offset, min(names.size, _MAX_NAMES_BYTES))
                wanted = {m.start() + 1 for m in re.finditer(b"\0" + EVALUATING + rb"(?=[\0.])", text)}
            for i in range(0, len(words), 3):
                if words[i] & 0xFFFFFFFF in wanted and words[i + 2]:
                    try:
                        start = image.offset(words[i + 1])
                    except ValueError:
                        continue  # not in the file, as symbols of other files
                    yield start, start + words[i + 2]


def named(image: Image, places: Iterable[tuple[int, int | None]]) -> dict[int, str]:
    """The functions' names at these link-time addresses, each with its function's beginning where that is known.

    A symbol at the function's beginning is its name; without one, a symbol that says it extends over the address.
    The dynamic table is small and read first, the whole one only for what is not in it.
    """
    left = dict(places)
    found: dict[int, str] = {}
    for spans in (False, True):
        for kind in (_DYNSYM, _SYMTAB):
            if left:
                best = _spanning(image, kind, left) if spans else _beginning(image, kind, left)
                found |= best
                left = {pc: start for pc, start in left.items() if pc not in best}
    return found


def _beginning(image: Image, kind: int, left: dict[int, int | None]) -> dict[int, str]:
    starts = {start for start in left.values() if start is not None}
    best: dict[int, tuple[int, int, int, str]] = {}
    for words, names in image.symbols(kind):
        for i in [i for i, value in enumerate(words[1::3]) if value in starts]:
            _weigh(image, words[3 * i], names, words[3 * i + 1], best)
    return {pc: best[start][-1] for pc, start in left.items() if start in best}


def _spanning(image: Image, kind: int, left: dict[int, int | None]) -> dict[int, str]:
    best: dict[int, tuple[int, int, int, str]] = {}
    low, high = min(left), max(left)
    for words, names in image.symbols(kind):
        values, sizes = words[1::3], words[2::3]
        near = [i for i, value in enumerate(values) if value <= high and value + sizes[i] > low]
        for i in near:
            for pc in left:
                if values[i] <= pc < values[i] + sizes[i]:
                    _weigh(image, words[3 * i], names, pc, best)
    return {pc: found[-1] for pc, found in best.items()}


def extent(image: Image, pc: int) -> tuple[int, int] | None:
    """Link-time addresses [from, to) of the function at one of them, by the smallest symbol that extends over it."""
    found: list[tuple[int, int]] = []
    for kind in (_DYNSYM, _SYMTAB):
        for words, _ in image.symbols(kind):
            sizes = words[2::3]
            found += [(v, v + sizes[i]) for i, v in enumerate(words[1::3]) if v <= pc < v + sizes[i]]
    return min(found, key=lambda e: e[1] - e[0], default=None)


def _weigh(
    image: Image, head: int, names: ElfSection, key: int, best: dict[int, tuple[int, int, int, str]]
) -> None:
    """Keeps in `best` the name meant for people of several for one address: few underscores, not local, short."""
    kind, binding, section = head >> 32 & 15, head >> 36 & 15, head >> 48
    if kind not in _CODE or not section:
        return
    name = image.name(names, head & 0xFFFFFFFF).decode("utf-8", "replace")
    plain = name.lstrip("_")
    if plain:
        weight = (len(name) - len(plain), int(binding == 0), len(name), name)
        best[key] = min(best.get(key, weight), weight)
