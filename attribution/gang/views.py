"""One rank of a stalled job, as agents' snapshots show it; users can forge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import sanitize

MAX_FRAMES = 200
MAX_NATIVE = 40
MAX_CALLS = 64
MIN_WAIT_S = 1.0
"""A call that raised sooner did not wait for its peers."""

UNEVEN_OPS = frozenset(
    {"all_to_all", "all_to_all_single", "all_gather", "gather", "scatter", "reduce_scatter"}
)
"""Collectives in which ranks may pass different sizes (mixtures of experts do), or lists on some ranks only."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One collective a rank entered."""

    group: str
    seq: int
    op: str
    numel: int
    dtype_code: int
    group_size: int
    entered: bool = True
    left: bool = False
    raised: bool = False
    """True if the call ended with an exception."""
    is_p2p: bool = False
    waited_s: float | None = None
    """Duration of the call so far."""
    role: str = ""
    """Purpose of the group (tp, pp, dp …), if DeviceMesh or Megatron names it."""

    @property
    def gave_up(self) -> bool:
        """True if it waited for its peers until an exception ended it; an immediate exception is the call's own error."""
        return self.raised and (self.waited_s or 0.0) >= MIN_WAIT_S

    @property
    def what(self) -> tuple[str, int, int]:
        """Values that must be equal on every rank of the group at one sequence number."""
        if self.op in UNEVEN_OPS or "object" in self.op:
            return (self.op, 0, 0)
        return (self.op, self.numel, self.dtype_code)


@dataclass(frozen=True, kw_only=True)
class StackFrame:
    """One frame of a stack."""

    function: str
    file: str
    line: int
    is_native: bool = False
    """True for a C function; `file` is then its library."""
    is_scanned: bool = False
    """True if its stack position was found by a search instead of unwinding."""

    def __str__(self) -> str:
        if self.is_native:
            return f"[C{'?' if self.is_scanned else ''}] {self.function} ({self.file})"
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


@dataclass(frozen=True, kw_only=True)
class CpuSamples:
    """Samples of the main thread's program counter over about a second."""

    samples: int
    evaluating: int
    """Samples in the interpreter's loop, where Python code runs."""
    elsewhere: int
    """Samples in libraries other than the interpreter."""
    where: str
    """The library with most of these samples."""


@dataclass(frozen=True, kw_only=True)
class RankView:
    """One rank at the moment of the snapshot."""

    rank: int
    node: str
    pid: int
    alive: bool
    state: str = ""
    """Process state letter of /proc: R, S, D, T, t, Z; empty if not read."""
    wchan: str = ""
    traced_by_owner: bool = False
    """True if a process of the job's own user traces it."""
    step_id: int | None = None
    """The job step it runs in; None if not reported."""
    phase: str = "none"
    phase_age_s: float = 0.0
    steps: int = 0
    step_age_s: float | None = None
    """Seconds since the last optimizer step; None before the first."""
    calls: Sequence[Call] = ()
    """Oldest first."""
    stack: Sequence[StackFrame] = ()
    """The main thread, innermost first; empty if it could not be read."""
    native: Sequence[StackFrame] = ()
    """C functions inside the innermost frame of `stack`, innermost first; empty if Python code ran or none were found."""
    native_error: str = ""
    """Why C functions are missing or incomplete."""
    holds_gil: bool | None = None
    """True if its main thread held the GIL in every sample; None if unknown."""
    moved: bool = False
    """True if its Python frames changed between samples."""
    ran: CpuSamples | None = None
    """None if not sampled."""
    other_stacks: Sequence[Sequence[StackFrame]] = ()
    workers: str = ""
    """State letters of its child processes (data-loader workers)."""
    loader_ends: int | None = None
    """How often its data loaders have come to their end; None if not reported."""
    stalled: bool | None = None
    """True if it has made no progress for longer than its history allows; None if not reported."""
    exit_note: str = ""
    """How it died, if known: 'signal 9', 'exit 1' …"""

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """All known frames of its main thread, innermost first: C functions, then Python's."""
        return (*self.native, *self.stack)

    def inside(self, group: str | None = None) -> Call | None:
        """The last call (of `group`, if given) that it entered and has not left.

        If its very last call failed after waiting for peers, that one: the first rank to give up waited, too.
        """
        own = [c for c in self.calls if group is None or (c.group == group and not c.is_p2p)]
        open_call = next((c for c in reversed(own) if not c.left), None)
        if open_call is None and own and own[-1] is self.calls[-1] and own[-1].gave_up:
            return own[-1]
        return open_call


def from_snapshot(node: str, entry: Mapping[str, Any]) -> RankView | None:
    """The view from one entry of a `rank_snapshot` event; None if it is invalid (a user may write any page)."""
    try:
        return RankView(
            rank=int(entry["rank"]),
            node=node,
            pid=int(entry.get("pid") or 0),
            alive=bool(entry.get("alive", True)),
            state=_word(entry.get("state"))[:1],
            wchan=_word(entry.get("wchan")),
            traced_by_owner=entry.get("traced_by_owner") is True,
            step_id=int(entry["step_id"]) if entry.get("step_id") is not None else None,
            phase=_word(entry.get("phase")) or "none",
            phase_age_s=float(entry.get("phase_age_s") or 0.0),
            steps=int(entry.get("steps") or 0),
            step_age_s=None if entry.get("step_age_s") is None else float(entry["step_age_s"]),
            calls=tuple(_call(c) for c in list(entry.get("calls") or ())[-MAX_CALLS:]),
            stack=_frames(entry.get("stack")),
            native=_native(entry.get("native")),
            native_error=_word(entry.get("native_error")),
            holds_gil=_flag(entry.get("holds_gil")),
            moved=entry.get("moved") is True,
            ran=_ran(entry.get("ran")),
            other_stacks=tuple(_frames(s) for s in list(entry.get("other_stacks") or ())[:32]),
            workers=_word(entry.get("workers")),
            loader_ends=int(entry["loader_ends"]) if entry.get("loader_ends") is not None else None,
            stalled=_flag(entry.get("stalled")),
            exit_note=_word(entry.get("exit_note")),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _ran(raw: object) -> CpuSamples | None:
    if not isinstance(raw, Mapping):
        return None
    return CpuSamples(
        samples=int(raw["samples"]),
        evaluating=int(raw["evaluating"]),
        elsewhere=int(raw["elsewhere"]),
        where=_word(raw.get("where")),
    )


def _word(value: object) -> str:
    return sanitize.clean(str(value), 256) if value is not None else ""


def _call(raw: Mapping[str, Any]) -> Call:
    return Call(
        group=_word(raw.get("group")),
        seq=int(raw["seq"]),
        op=_word(raw.get("op")),
        numel=int(raw.get("numel") or 0),
        dtype_code=int(raw.get("dtype_code") or 0),
        group_size=int(raw.get("group_size") or 0),
        left=bool(raw.get("left")),
        raised=bool(raw.get("raised")),
        is_p2p=bool(raw.get("is_p2p")),
        waited_s=None if raw.get("waited_s") is None else float(raw["waited_s"]),
        role=_word(raw.get("role"))[:16],
    )


def _frames(raw: object) -> tuple[StackFrame, ...]:
    if not isinstance(raw, (list, tuple)):
        return ()
    return tuple(
        StackFrame(function=_word(f.get("function")), file=_word(f.get("file")), line=int(f.get("line") or 0))
        for f in raw[:MAX_FRAMES]
        if isinstance(f, Mapping)
    )


def _native(raw: object) -> tuple[StackFrame, ...]:
    if not isinstance(raw, (list, tuple)):
        return ()
    return tuple(
        StackFrame(
            function=_word(f.get("function")),
            file=_word(f.get("file")),
            line=0,
            is_native=True,
            is_scanned=f.get("scanned") is True,
        )
        for f in raw[:MAX_NATIVE]
        if isinstance(f, Mapping)
    )
