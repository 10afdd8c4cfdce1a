"""Dumps from bytes: a pickle whose every opcode is checked before it runs, or JSON; nothing else is accepted.

Dumps are written by a user's process. A pickle is a program: only opcodes that build plain values are let
through, no name is ever looked up, and size, opcodes and memo are bounded before anything is built.
"""

from __future__ import annotations

import io
import json
import pickle
import pickletools
import re
from typing import Any, NoReturn

from probing_cluster.core.errors import MalformedInput

MAX_BYTES = 64 << 20
MAX_OPCODES = 8_000_000
MAX_MEMO = 4_000_000
_FORBIDDEN = frozenset({
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID",
    "BINPERSID", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER",
})  # fmt: skip
_MEMO_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
_RANK = re.compile(r"(?P<rank>\d{1,9})(?:\.(?:json|pickle|pkl|bin))?$")
_RENAMED = re.compile(r"(?:^|[^a-z])rank[-_.]?(?P<rank>\d{1,9})(?!\d)", re.IGNORECASE)
"""A renamed dump has the word `rank` before its number."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds plain values only."""

    def find_class(self, module: str, name: str) -> NoReturn:
        msg = f"the dump names {module}.{name}; only plain values are accepted"
        raise MalformedInput(msg)

    def persistent_load(self, _pid: Any) -> NoReturn:
        msg = "the dump refers to something outside itself"
        raise MalformedInput(msg)


def _check_opcodes(data: bytes) -> None:
    """Refuse a pickle that does more than build plain values, or too much of it."""
    try:
        for count, (opcode, argument, _position) in enumerate(pickletools.genops(data)):
            if opcode.name in _FORBIDDEN:
                msg = f"the dump uses pickle opcode {opcode.name}; only plain values are accepted"
                raise MalformedInput(msg)
            if count > MAX_OPCODES or (opcode.name in _MEMO_PUTS and int(argument or 0) > MAX_MEMO):
                msg = f"the dump builds more than {MAX_OPCODES} values"
                raise MalformedInput(msg)
    except (ValueError, EOFError, LookupError, OverflowError, MemoryError) as error:
        # LookupError: a reader that may import nothing any longer lacks the encoding of pickle's oldest texts.
        msg = f"not a readable pickle ({error})"
        raise MalformedInput(msg) from error


def _unpickle(data: bytes) -> Any:
    _check_opcodes(data)
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except MalformedInput:
        raise
    except Exception as error:
        msg = f"not a readable pickle ({type(error).__name__})"
        raise MalformedInput(msg) from error


def loads(data: bytes) -> Any:
    """The plain value in `data`; raises MalformedInput for anything else."""
    if len(data) > MAX_BYTES:
        msg = f"the dump has {len(data)} bytes; at most {MAX_BYTES} are read"
        raise MalformedInput(msg)
    if data.lstrip()[:1] in (b"{", b"["):
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            msg = f"not readable JSON ({type(error).__name__})"
            raise MalformedInput(msg) from error
    return _unpickle(data)


def rank_of(file_name: str) -> int | None:
    """The rank a dump's file name ends with (`comm_lib_trace_rank_12`, `_dump_3.json`) or calls so (`rank07_fr.json`); None without one."""
    found = _RANK.search(file_name) or _RENAMED.search(file_name)
    return int(found["rank"]) if found else None
