"""Reading the probe's pages: bytes a user's process wrote, so every word is checked and bounded."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from probing_cluster.core.errors import MalformedInput
from probing_cluster.probe_agent.inject.site._probing_probe import layout

_WORDS = struct.Struct(f"<{layout.WORDS}Q")
_YEAR_2100_NS = 4_102_444_800_000_000_000


class PageStep(NamedTuple):
    """One optimizer step and what was waited for inside it: a tuple, for a page has 64 and a node's pages are read in milliseconds."""

    step: int
    end_ns: int
    """CLOCK_MONOTONIC nanoseconds, like every `_ns` instant here."""
    input_ns: int
    collective_ns: int
    backward_ns: int
    checkpoint_ns: int


class Collective(NamedTuple):
    """One collective (or point-to-point call) as the process entered it."""

    seq: int
    """Count of this rank's calls on this group, from 1; calls with the same (group, seq) belong together."""
    group: str
    group_size: int
    op: str
    numel: int
    dtype_code: int
    enter_ns: int
    leave_ns: int | None
    """None while the call has not returned."""
    is_async: bool
    is_p2p: bool
    raised: bool
    role: str = ""
    """What the group is for (tp, pp, dp …), where DeviceMesh or Megatron has named it."""


@dataclass(frozen=True, kw_only=True)
class ProbePage:
    """What one training process says about itself. All of it is the user's word, none of it is trusted."""

    pid: int
    """Where it runs in a PID namespace of its own, its number there until the agent has found it (rank_pages)."""
    pid_inside: int
    """Its number in its own PID namespace."""
    pid_namespace: int | None
    """The inode of that namespace; None when the page does not have it."""
    parent_inside: int | None
    """Its parent's number there, when it last said who it is."""
    start_ticks: int | None
    realtime_ns: int
    monotonic_ns: int
    job: int | None
    restart: int | None
    step_id: int | None
    rank: int | None
    world_size: int | None
    local_rank: int | None
    host: str
    torch: str
    python: str
    backend: str
    phase: str
    phase_since_ns: int
    steps: int
    step_ns: int | None
    checkpoint_begin_ns: int | None
    checkpoint_end_ns: int | None
    checkpoints: int
    first_step_ns: int | None
    """When the first optimizer step ended."""
    checkpoint_total_ns: int
    """How long checkpoint writes have held the training up so far."""
    loader_ends: int
    """How often a data loader has come to its end."""
    steps_unseen: bool
    recent_steps: Sequence[PageStep] = field(default=())
    """Oldest first, at most 64."""
    recent_collectives: Sequence[Collective] = field(default=())
    """Oldest first, at most 64."""

    @property
    def works(self) -> bool:
        """Whether it has made a step or called a collective."""
        return bool(self.steps or self.recent_collectives)

    @property
    def idle(self) -> bool:
        """Whether nothing shows yet that it is a rank: it does not work, and has joined no process group nor tries to."""
        return not (self.works or self.backend or self.phase == "init")

    @property
    def number(self) -> tuple[int | None, int | None, int | None]:
        """Which rank it says it is: job step, rank, world size."""
        return self.step_id, self.rank, self.world_size

    def inside(self) -> Collective | None:
        """The collective this process has entered last and not left; None when in none."""
        for call in reversed(self.recent_collectives):
            if call.leave_ns is None:
                return call
        return None

    def realtime_s(self, monotonic_ns: int) -> float:
        """Unix seconds of one of the page's instants."""
        return (self.realtime_ns + monotonic_ns - self.monotonic_ns) / 1e9


def helps(page: ProbePage, above: Iterable[ProbePage]) -> bool:
    """Whether the process of a page only helps a rank; `above`: the pages of the processes that it descends from.

    Spawned workers of a data loader, compile workers and processes that save checkpoints import torch, too. They inherit the number of their rank,
    or what Slurm called its task. One process above them is the proof: it makes the steps, or has joined a process group, for which every rank
    has been waited for. Until then any of them may be the rank, and the one above its launcher.
    """
    if page.steps:
        return False
    return any(
        (page.number == one.number and (one.steps > 0 or (page.idle and one.works)))
        or (page.idle and one.backend != "")
        for one in above
    )


def launches(page: ProbePage, below: Iterable[ProbePage]) -> bool:
    """Whether the process of a page only starts ranks; `below`: the pages of its descendants that are no helpers.

    A launcher has imported torch, too, but makes no steps and calls no collectives itself, while a process below it does, or has
    a number of its own there.
    """
    number = page.rank, page.world_size
    return not (page.works or page.backend) and any(
        one.works or (one.rank is not None and (one.rank, one.world_size) != number) for one in below
    )


def settled(first: bytes, second: bytes) -> bytes:
    """`second` without the ring entries that differ from `first`, which was read just before.

    An entry's check word shows one that the writer is in the middle of; but the kernel copies a page in no
    particular order, so that a single read can mix two whole entries.
    """
    if first == second or len(first) != len(second):
        return second
    kept = bytearray(second)
    rings = (
        (layout.STEPS_AT, layout.STEPS, layout.STEP_WORDS, layout.S_CHECK),
        (layout.COLLECTIVES_AT, layout.COLLECTIVES, layout.COLLECTIVE_WORDS, layout.C_CHECK),
    )
    for at, count, words, check in rings:
        for start in range(at * 8, (at + count * words) * 8, words * 8):
            if first[start : start + words * 8] != second[start : start + words * 8]:
                kept[start + check * 8 : start + check * 8 + 8] = bytes(8)
    return bytes(kept)


def parse(raw: bytes) -> ProbePage:
    """The page in `raw`; raises MalformedInput when it is not one, or is torn (then read it again)."""
    if len(raw) != layout.SIZE_BYTES:
        raise MalformedInput(f"probe page of {len(raw)} bytes, not {layout.SIZE_BYTES}")
    words = _WORDS.unpack(raw)
    if words[layout.H_MAGIC] != layout.MAGIC or words[layout.H_VERSION] != layout.VERSION:
        raise MalformedInput("probe page without magic or of another version")
    identity = _copy(words, layout.IDENTITY_AT, layout.H_IDENTITY, layout.IDENTITY_WORDS, layout.I_CHECK)
    progress = _copy(words, layout.PROGRESS_AT, layout.H_PROGRESS, layout.PROGRESS_WORDS, layout.P_CHECK)
    phase = progress[layout.P_PHASE]
    steps = _steps(words)
    return ProbePage(
        pid=_bounded(words[layout.H_PID], 1 << 22) or 0,
        pid_inside=_bounded(words[layout.H_PID], 1 << 22) or 0,
        pid_namespace=_bounded(words[layout.H_PID_NAMESPACE], 1 << 32) or None,
        parent_inside=_bounded(identity[layout.I_PARENT], 1 << 22),
        start_ticks=_known(words[layout.H_START_TICKS]),
        realtime_ns=min(words[layout.H_REALTIME_NS], _YEAR_2100_NS),
        monotonic_ns=min(words[layout.H_MONOTONIC_NS], _YEAR_2100_NS),
        phase=layout.PHASES[phase] if phase < len(layout.PHASES) else "none",
        phase_since_ns=_instant(progress[layout.P_PHASE_SINCE]) or 0,
        steps=steps[-1].step if steps else 0,
        step_ns=_instant(steps[-1].end_ns) if steps else None,
        checkpoint_begin_ns=_instant(progress[layout.P_CKPT_BEGIN]),
        checkpoint_end_ns=_instant(progress[layout.P_CKPT_END]),
        checkpoints=_bounded(progress[layout.P_CKPTS], 1 << 32) or 0,
        first_step_ns=_instant(words[layout.H_FIRST_STEP_NS]),
        checkpoint_total_ns=_instant(words[layout.H_CHECKPOINT_NS]) or 0,
        loader_ends=_bounded(words[layout.H_LOADER_ENDS], 1 << 32) or 0,
        steps_unseen=bool(words[layout.H_FLAGS] & layout.FLAG_STEPS_UNSEEN),
        recent_steps=steps,
        recent_collectives=_collectives(words),
        job=_small(identity, layout.I_JOB),
        restart=_small(identity, layout.I_RESTART),
        step_id=_small(identity, layout.I_STEP),
        rank=_small(identity, layout.I_RANK),
        world_size=_small(identity, layout.I_WORLD),
        local_rank=_small(identity, layout.I_LOCAL_RANK),
        host=_text(identity, layout.I_HOST, layout.I_HOST_WORDS),
        torch=_text(identity, layout.I_TORCH, layout.I_TORCH_WORDS),
        python=_text(identity, layout.I_PYTHON, layout.I_PYTHON_WORDS),
        backend=_text(identity, layout.I_BACKEND, layout.I_BACKEND_WORDS),
    )


def _known(value: int) -> int | None:
    return None if value == layout.NONE or value >= 1 << 63 else value


def _bounded(value: int, limit: int) -> int | None:
    return value if value < limit else None


def _instant(value: int) -> int | None:
    return value if 0 < value < _YEAR_2100_NS else None


def _copy(words: Sequence[int], at: tuple[int, int], index: int, size: int, check: int) -> Sequence[int]:
    """The newest whole copy of a group; raises MalformedInput when neither is."""
    newest = words[index] & 1
    for start in (at[newest], at[newest ^ 1]):
        group = words[start : start + size]
        others = [*group[:check], *group[check + 1 :]]
        if group[check] == layout.check_of(others):
            return group
    raise MalformedInput("probe page caught while it was written")


def _small(group: Sequence[int], at: int) -> int | None:
    return _bounded(group[at], 1 << 32)


def _text(group: Sequence[int], at: int, count: int) -> str:
    return layout.text_of(group[at : at + count])


def _steps(words: Sequence[int]) -> tuple[PageStep, ...]:
    found = []
    for i in range(layout.STEPS):
        start = layout.STEPS_AT + i * layout.STEP_WORDS
        step, end, waited, collective, backward, checkpoint, check = words[start : start + 7]
        if check and check == step ^ end:
            found.append(PageStep(step, end, waited, collective, backward, checkpoint))
    return tuple(sorted(found, key=lambda s: s.step))


def _role_of(meta: int) -> str:
    number = meta >> layout.META_ROLE_AT & 31
    return layout.ROLES[number] if number < len(layout.ROLES) else ""


def _collectives(words: Sequence[int]) -> tuple[Collective, ...]:
    found = []
    for i in range(layout.COLLECTIVES):
        start = layout.COLLECTIVES_AT + i * layout.COLLECTIVE_WORDS
        enter, seq, numel, meta, g0, g1, o0, o1, check, leave = words[start : start + 10]
        if not check or check != enter:
            continue
        found.append(
            Collective(
                seq=seq,
                group=layout.text_of((g0, g1)),
                group_size=meta >> 16 & 0xFFFFFF,
                op=layout.text_of((o0, o1)),
                numel=numel,
                dtype_code=meta & 0xFFFF,
                enter_ns=enter,
                leave_ns=leave if leave >= enter else None,
                is_async=bool(meta & layout.META_ASYNC),
                is_p2p=bool(meta & layout.META_P2P),
                raised=bool(meta & layout.META_RAISED),
                role=_role_of(meta),
            )
        )
    return tuple(sorted(found, key=lambda c: c.enter_ns))
