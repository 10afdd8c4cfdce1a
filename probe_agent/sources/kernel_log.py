"""The kernel log as evidence: each line once, what was lost counted, and nobody believed but the kernel.

Position is boot id + sequence number, kept in the spool in the transaction of the events it
explains. Only facility 0 counts: the kernel stamps another facility on whatever a program writes to /dev/kmsg.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.evidence.kernel import grammar
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.sighting import Sighting
from probing_cluster.probe_agent.sources import kmsg

NAME = "kernel_log"
STATE = "kernel_log"

Classify = Callable[[str, float], grammar.KernelFinding | None]
"""Text of one kernel line and the kernel's time of it, seconds, to what it means, or None."""


@dataclass(kw_only=True)
class Cursor:
    """Up to where the log has been read."""

    boot_id: str
    seq: int = -1
    drift_s: float = 0.0
    """How far the kernel's clock has drifted from boot time + uptime; printk's clock is not disciplined."""
    place: dict[str, int | str] = field(default_factory=dict)

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> Cursor | None:
        return None if not state else cls(**state)


@dataclass(frozen=True, kw_only=True)
class _Times:
    """What turns the kernel's time into the world's, for one batch of lines."""

    now: datetime
    zero_s: float | None
    """The kernel's time zero, epoch seconds; None when the node's boot time is unknown."""

    def of(self, line: kmsg.Line) -> datetime:
        if self.zero_s is None:
            return self.now
        return min(self.now, clock.from_epoch_s(self.zero_s + line.ts_us / 1e6))


class KernelLog:
    """Turns the lines of one reader into sightings, and keeps the cursor."""

    def __init__(
        self,
        who: identity.Identity,
        classify: Classify,
        *,
        state: Mapping[str, Any] | None,
        at: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._who = who
        self._classify = classify
        self._clock = at
        before = Cursor.from_state(state)
        self.boot_id = who.boot_id()
        self.rebooted = before is not None and before.boot_id != self.boot_id
        self._first = before is None
        self.cursor = before if before is not None and not self.rebooted else Cursor(boot_id=self.boot_id)
        self._expect_from_start = self.rebooted
        self.lines_total = 0
        self.missed_total = 0

    @property
    def hint(self) -> dict[str, int | str]:
        """Where the reader was when the cursor was stored."""
        return dict(self.cursor.place)

    def take(
        self, lines: Iterable[kmsg.Line], *, caught_up: bool, place: dict[str, int | str]
    ) -> list[Sighting]:
        """The sightings of `lines`; `caught_up` = the last of them has only just been written."""
        lines = list(lines)
        self._check_boot()
        now = self._clock.now()
        booted_s = _booted_host_s(now) if self._who.is_host else self._who.boot_epoch_s()
        if caught_up and lines and booted_s is not None and self._who.is_host:
            self.cursor.drift_s = now.timestamp() - booted_s - lines[-1].ts_us / 1e6
        times = _Times(now=now, zero_s=None if booted_s is None else booted_s + self.cursor.drift_s)
        seen: list[Sighting] = []
        for line in lines:
            self._line(line, times, seen)
        self.cursor.place = place
        return seen

    def to_state(self) -> dict[str, Any]:
        """The cursor, to be committed with the sightings."""
        return dict(vars(self.cursor))

    def _check_boot(self) -> None:
        boot_id = self._who.boot_id()
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self.rebooted = True
            self._expect_from_start = True
            self.cursor = Cursor(boot_id=boot_id)

    def _line(self, line: kmsg.Line, times: _Times, seen: list[Sighting]) -> None:
        self.lines_total += 1
        if line.seq >= 0:
            if line.seq <= self.cursor.seq:
                return
            if line.seq != self.cursor.seq + 1:
                missed = self._missed(line.seq)
                if missed:
                    seen.append(self._overrun(line.seq, missed, times.now))
            self.cursor.seq = line.seq
        if line.facility != kmsg.KERNEL_FACILITY:
            return
        found = self._classify(line.text, line.ts_us / 1e6)
        if found is not None:
            seen.append(self._sighting(found, line, times))

    def _missed(self, seq: int) -> int:
        if self.cursor.seq >= 0:
            return seq - self.cursor.seq - 1
        expected, self._expect_from_start = self._expect_from_start, False
        return seq if expected else 0

    def _overrun(self, seq: int, missed: int, now: datetime) -> Sighting:
        self.missed_total += missed
        return Sighting(
            source="agent",
            position=f"{self.boot_id}:overrun:{seq - missed}-{seq - 1}",
            at=now,
            kind="agent_overrun",
            code="kernel_log",
            severity=records.Severity.INFO,
            message=f"{missed} kernel messages were overwritten before they could be read (numbers {seq - missed} to {seq - 1})",
            measured=float(missed),
            unit="count",
            detail={"first_seq": seq - missed, "last_seq": seq - 1},
        )

    def _sighting(self, found: grammar.KernelFinding, line: kmsg.Line, times: _Times) -> Sighting:
        boot_id = line.boot_id or self.boot_id
        return Sighting(
            source="kernel",
            position=f"{boot_id}:{line.position if line.seq < 0 else line.seq}",
            at=times.of(line),
            kind=found.kind,
            code=found.code,
            severity=found.severity,
            message=found.message,
            device=found.device,
            pci_bus_id=found.pci_bus_id,
            pid=found.pid,
            process=found.process,
            job_id=found.job_id,
            stream_s=line.ts_us / 1e6,
            detail={**found.detail, "boot_id": boot_id, "ts_us": line.ts_us}
            | ({"seq": line.seq} if line.seq >= 0 else {}),
        )


def _booted_host_s(now: datetime) -> float:
    """When this machine's uptime clock began, epoch seconds; follows steps of the wall clock."""
    return now.timestamp() - time.clock_gettime(time.CLOCK_MONOTONIC)
