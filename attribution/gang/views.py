"""What is known of one rank when a job stalls; made from agents' snapshots, which users can forge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import sanitize

MAX_FRAMES = 200
MAX_NATIVE = 40
MAX_CALLS = 64
MIN_WAIT_S = 1.0
"""A call that raised sooner waited for nobody."""

UNEVEN_OPS = frozenset(
    {"all_to_all", "all_to_all_single", "all_gather", "gather", "scatter", "reduce_scatter"}
)
"""Collectives whose ranks may bring different sizes (mixtures of experts do), or lists on some ranks only."""


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
    """The call ended with an exception."""
    is_p2p: bool = False
    waited_s: float | None = None
    """How long the call took, or has taken so far."""
    role: str = ""
    """What its group is for (tp, pp, dp …), where DeviceMesh or Megatron has named it."""

    @property
    def gave_up(self) -> bool:
        """It waited for its peers until an exception ended it; one that is raised at once is an error of the call itself."""
        return self.raised and (self.waited_s or 0.0) >= MIN_WAIT_S

    @property
    def what(self) -> tuple[str, int, int]:
        """What must be equal on every rank of the group at one sequence number."""
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
    """A C function; `file` is its library."""
    is_scanned: bool = False
    """Its place on the stack was searched for and not computed."""

    def __str__(self) -> str:
        if self.is_native:
            return f"[C{'?' if self.is_scanned else ''}] {self.function} ({self.file})"
        return f"{self.function} ({self.file}:{self.line})" if self.line else f"{self.function} ({self.file})"


@dataclass(frozen=True, kw_only=True)
class CpuSamples:
    """Where a rank's main thread spent its CPU for about a second: samples of its program counter."""

    samples: int
    evaluating: int
    """In the interpreter's own loop: Python code ran."""
    elsewhere: int
    """In libraries other than the interpreter."""
    where: str
    """The library with most of them."""


@dataclass(frozen=True, kw_only=True)
class RankView:
    """One rank at the moment of the snapshot."""

    rank: int
    node: str
    pid: int
    alive: bool
    state: str = ""
    """Process state letter of /proc: R, S, D, T, t, Z; empty when not read."""
    wchan: str = ""
    step_id: int | None = None
    """The job step it runs in; None when not reported."""
    phase: str = "none"
    phase_age_s: float = 0.0
    steps: int = 0
    step_age_s: float | None = None
    """Seconds since the last optimizer step; None before the first."""
    calls: Sequence[Call] = ()
    """Oldest first."""
    stack: Sequence[StackFrame] = ()
    """The main thread, innermost first; empty when it could not be taken."""
    native: Sequence[StackFrame] = ()
    """C functions inside the innermost frame of `stack`, innermost first; empty where Python code ran or none were seen."""
    native_error: str = ""
    """Why they were not seen, or not all."""
    holds_gil: bool | None = None
    """Its main thread held the GIL whenever it was looked at; None when that is not known."""
    moved: bool = False
    """Its Python frames changed while it was looked at."""
    ran: CpuSamples | None = None
    """None where it was not counted."""
    other_stacks: Sequence[Sequence[StackFrame]] = ()
    workers: str = ""
    """State letters of its child processes (data-loader workers)."""
    loader_ends: int | None = None
    """How often a data loader has come to its end; None when not reported."""
    stalled: bool | None = None
    """It has made no progress for longer than its own history allows; None when not reported."""
    exit_note: str = ""
    """What is known of how it died: 'signal 9', 'exit 1' …"""

    @property
    def frames(self) -> tuple[StackFrame, ...]:
        """Everything that was seen of its main thread, innermost first: C functions, then Python's."""
        return (*self.native, *self.stack)

    def inside(self, group: str | None = None) -> Call | None:
        """The call (a collective of `group`, where one is given) that it entered last and has not left.

        Or the last of all that it left only because nobody came: who gives up first still waited.
        """
        own = [c for c in self.calls if group is None or (c.group == group and not c.is_p2p)]
        open_call = next((c for c in reversed(own) if not c.left), None)
        if open_call is None and own and own[-1] is self.calls[-1] and own[-1].gave_up:
            return own[-1]
        return open_call


def from_snapshot(node: str, entry: Mapping[str, Any]) -> RankView | None:
    """The view in one entry of a `rank_snapshot` event; None when it is not one (a user may write anything)."""
    try:
        return RankView(
            rank=int(entry["rank"]),
            node=node,
            pid=int(entry.get("pid") or 0),
            alive=bool(entry.get("alive", True)),
            state=_word(entry.get("state"))[:1],
            wchan=_word(entry.get("wchan")),
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
