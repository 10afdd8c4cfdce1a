"""What every polled source is: a name, a period, and three functions that read, parse and judge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from probing_cluster.core import records
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.faults import conditions, gpus


class NodeReader(Protocol):
    """How a source reaches the node: every call is made by a child with a deadline."""

    async def files(
        self, patterns: Sequence[str], links: Sequence[str] = (), skip: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """Small files below the node's root; see file_child.read."""
        ...

    async def touch(self, path: str, *, remote: bool) -> Mapping[str, Any]:
        """Space and flags of one mount; see file_child.touch. Raises ChildHung when it hangs."""
        ...

    async def command(self, name: str, *args: str) -> children.Finished | None:
        """A tool of the node; None where it is not installed."""
        ...

    async def nvml(self, *, links: bool) -> Mapping[str, Any]:
        """Every GPU at this moment (its NVLinks too, if wanted), and the Xids since the last call; see nvml_child."""
        ...

    async def amdsmi(self) -> Mapping[str, Any]:
        """Every AMD GPU at this moment; see amdsmi_child."""
        ...


@dataclass(frozen=True, kw_only=True)
class PollContext:
    """What a judge may know beside the reading."""

    now: datetime
    boot_id: str
    uptime_s: float | None = None
    inventory: gpus.Inventory = field(default_factory=gpus.Inventory)
    expect_mounts: tuple[str, ...] = ()
    expect_services: tuple[str, ...] = ()
    expect_gpus: int = 0
    exclude_hcas: tuple[str, ...] = ()
    closely: bool = False
    """Something grave was said, or someone asks: read everything, whatever it costs."""
    relearn: bool = False
    """An operator says what is there now is what should be there."""
    cleared: bool = False
    """A person says the node is repaired: what happened before now no longer counts."""


Read = Callable[[NodeReader, Mapping[str, Any], PollContext], Awaitable[Any]]
Judge = Callable[[Any, Mapping[str, Any], PollContext], conditions.Judgement]


@dataclass(frozen=True, kw_only=True)
class Polled:
    """One polled source; its module holds the one line that registers it."""

    name: str
    source: str
    """The word its events carry in `source`."""
    read: Read
    """Raw readings, given what the source remembered; raises ChildFailed when it cannot."""
    judge: Judge
    """The pure half: reading and memory in, conditions, edges and new memory out."""
    reads: str
    """What it reads, for docs/agent.md."""
    stands: str
    """The conditions it can name there: high · low · info."""
    every: int = 1
    """Polls between two readings."""
    period: str = ""
    """`every` in words, where a number of polls does not say it."""
    hung: Callable[[str, Mapping[str, Any]], conditions.Judgement] | None = None
    """What a reading that never returns means, where that is evidence in itself."""


HANGS_NEEDED = 3
"""Readings in a row that must not return before the node counts as faulty: a driver may be slow once."""


def silent_library(name: str, title: str, why: str, memory: Mapping[str, Any]) -> conditions.Judgement:
    """What it means that a maker's library (`title` for people) never returned; the third time in a row is a fault of the node."""
    hangs = int(memory.get("hangs", 0)) + 1
    what = conditions.Condition(
        kind="driver",
        code=f"{name}_hang",
        device=name,
        severity=records.Severity.HIGH,
        message=f"{title} has not answered {hangs} times in a row: {why}",
        measured=float(hangs),
        unit="count",
    )
    return conditions.Judgement(
        present=(what,) if hangs >= HANGS_NEEDED else (),
        unknown=frozenset({"*"}),
        memory={**memory, "hangs": hangs},
    )
