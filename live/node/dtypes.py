"""torch's types by the code that the probe's page holds of each (a hash of the name, see inject's collectives)."""

from __future__ import annotations

SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complex64": 8, "complex128": 16, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element, by torch's name."""


def code_of(name: str) -> int:
    """The page's code of `torch.<name>`."""
    code = 7
    for char in f"torch.{name}":
        code = (code * 31 + ord(char)) & 0xFFFF
    return code


_NAMES = {code_of(name): name for name in SIZES}


def of_code(code: int) -> tuple[str | None, int | None]:
    """(name, bytes of an element); None for a type that is not among these."""
    name = _NAMES.get(code)
    return name, SIZES.get(name or "")
