"""Bytes and bus bandwidth of collectives: torch's types by their codes, and what nccl-tests counts over a rank's link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complex64": 8, "complex128": 16, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element, by torch's name."""
_BLOCKING = ("gloo", "mpi")
"""Backends whose calls return when the collective is done; NCCL's return when it is queued on the GPU."""
_TWICE = frozenset({"all_reduce", "all_reduce_coalesced", "allreduce_coalesced"})
_PART = frozenset(
    {
        "all_gather", "_all_gather_base", "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter",
        "_reduce_scatter_base", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced", "all_to_all", "all_to_all_single",
    }
)  # fmt: skip
_ONCE = frozenset({"broadcast", "_broadcast_oop", "reduce", "_reduce_oop"})
_PAGE_CHARS = 16
"""Of an operation's name on a page."""
_PART_ON_PAGE = frozenset(name[:_PAGE_CHARS] for name in _PART)
_OF_OUTPUT = frozenset(name[:_PAGE_CHARS] for name in ("reduce_scatter", "reduce_scatter_tensor"))
"""Called with one rank's part first: n of them are the larger side."""


class TimedCall(Protocol):
    """A collective as a page has it (ranks.pages.Collective)."""

    @property
    def op(self) -> str: ...
    @property
    def group_size(self) -> int: ...
    @property
    def numel(self) -> int: ...
    @property
    def dtype_code(self) -> int: ...
    @property
    def enter_ns(self) -> int: ...
    @property
    def leave_ns(self) -> int | None: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def raised(self) -> bool: ...


def code_of(name: str) -> int:
    """The page's code of `torch.<name>` (a hash of it, see inject's collectives)."""
    code = 7
    for char in f"torch.{name}":
        code = (code * 31 + ord(char)) & 0xFFFF
    return code


_NAMES = {code_of(name): name for name in SIZES}


def dtype_of(call: TimedCall) -> str | None:
    """torch's name of the type; None for a type that is not among SIZES."""
    return _NAMES.get(call.dtype_code)


def bytes_of(call: TimedCall) -> int | None:
    """What the call was given; None where its type is not known."""
    size = SIZES.get(dtype_of(call) or "")
    return call.numel * size if size else None


def has_gpu(backend: str) -> bool:
    """Whether calls may go by NCCL, as the page has the backend (16 characters)."""
    return "nccl" in backend or "cuda" in backend


def factor(op: str, group_size: int) -> float | None:
    """Bytes over a rank's link per byte of the collective's larger side, as nccl-tests has it; None for what it does not define."""
    if group_size < 2:
        return None
    if op in _TWICE:
        return 2 * (group_size - 1) / group_size
    if op in _PART or op in _PART_ON_PAGE:
        return (group_size - 1) / group_size
    return 1.0 if op in _ONCE else None


def of_call(call: TimedCall, backend: str) -> float | None:
    """Bus bandwidth of one call, bytes per second; None where its times do not tell when the bytes moved."""
    share, size, n_bytes = factor(call.op, call.group_size), call.group_size, bytes_of(call)
    # "cpu:gloo,cuda:nccl": which of the two a call took is not known.
    blocking = any(name in backend for name in _BLOCKING) and not has_gpu(backend) and not call.is_async
    if share is None or not blocking or not n_bytes or call.raised or not call.leave_ns:
        return None
    took_ns = call.leave_ns - call.enter_ns
    larger = n_bytes * size if call.op in _OF_OUTPUT else n_bytes
    return larger * share / (took_ns / 1e9) if took_ns > 0 else None


def of_recorded(row: Mapping[str, Any]) -> float | None:
    """Bus bandwidth of one row of the probe's ring `torch_transfers`, what the flight recorder has timed; None where it is no collective."""
    n_bytes, took_s, size = row["bytes"], row["transfer_s"], row["group_size"]
    if not (isinstance(n_bytes, int) and isinstance(took_s, float) and isinstance(size, int) and took_s > 0):
        return None
    share = factor(str(row["op"]), size)
    return None if share is None else n_bytes * share / took_s
