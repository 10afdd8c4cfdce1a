"""Names of C++ functions as people write them, by the compiler's own library where the node has it."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable

from probing_cluster.core import sanitize

MAX_NAME = 200
_MAX_MANGLED = 2000
"""Longer ones are left: what they stand for may be far longer still."""
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")
_NAMELESS = "(anonymous namespace)"
_HASH = re.compile(r"::h[0-9a-f]{16}$")
"""What Rust adds to its names."""


def demangler() -> Callable[[str], str]:
    """Returns a function that demangles a name; it returns the name itself where that fails."""
    for library in _LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            loaded = ctypes.CDLL(library)
            demangle = loaded["__cxa_demangle"]
            demangle.restype = ctypes.c_void_p
            demangle.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
            free = ctypes.CDLL(None).free
            free.argtypes = (ctypes.c_void_p,)
            return lambda name: _demangled(name, demangle, free)
    return lambda name: name


def _demangled(name: str, demangle: Callable[..., int | None], free: Callable[[int], None]) -> str:
    if not name.startswith("_Z") or len(name) > _MAX_MANGLED:
        return name
    buffer = demangle(name.encode("utf-8", "replace"), None, None, None)
    if not buffer:
        return name
    try:
        return ctypes.string_at(buffer)[: 1 << 16].decode("utf-8", "replace")
    finally:
        free(buffer)


def readable(name: str) -> str:
    """A demangled name without its parameters, at most MAX_NAME characters: the end is the function, and is kept."""
    name = _HASH.sub("", _without_parameters(name))
    if len(name) > MAX_NAME:
        name = _outline(name)
    name = sanitize.clean(name, 4096)
    return name if len(name) <= MAX_NAME else f"…{name[1 - MAX_NAME :]}"


def _without_parameters(name: str) -> str:
    """`f(int) const` as `f`; `f(int)::{lambda()#1}::operator()() const` as `f(int)::{lambda()#1}::operator()`."""
    whole = re.fullmatch(r"(.*\))(?: const| volatile| &{1,2}| \[clone [^\]]*\])*", name, re.DOTALL)
    if whole is None:
        return name
    depth = 0
    for i in range(len(whole[1]) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if depth == 0:
            return name[:i]
    return name


def _outline(name: str) -> str:
    """What templates are of and functions take as `<…>` and `(…)`."""
    name = name.replace(_NAMELESS, "{nameless}")
    closing, kept = list[str](), list[str]()
    for i, letter in enumerate(name):
        if letter in "<(" and not name.endswith("operator", 0, i):
            if not closing:
                kept.append("<…>" if letter == "<" else "(…)")
            closing.append(">" if letter == "<" else ")")
        elif closing and letter == closing[-1] and name[i - 1] != "-":
            closing.pop()
        elif not closing:
            kept.append(letter)
    return "".join(kept).replace("{nameless}", _NAMELESS)
