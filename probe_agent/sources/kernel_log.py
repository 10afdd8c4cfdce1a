"""The kernel log as evidence: each line once, what was lost counted, and nobody believed but the kernel.

Position is boot id + sequence number, kept in the spool in the transaction of the events it
explains. Only facility 0 counts: the kernel stamps another facility on whatever a program writes to /dev/kmsg.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.evidence.kernel import block, grammar
from probing_cluster.healthchecks.readers import mapped_devices
from probing_cluster.probe_agent import identity
from probing_cluster.probe_agent.faults.sighting import Sighting
from probing_cluster.probe_agent.sources import interfaces, kmsg

_log = logging.getLogger(__name__)

NAME = "kernel_log"
STATE = "kernel_log"

MOST_DRIFT = 2e-4
"""Seconds a second that the kernel's clock may lag further behind the disciplined one: crystals keep within half of it."""

STOOD_STILL_S = 5.0
"""No line waits so long for us: the machine stood still, and the kernel's clock with it."""
STEP_S = 1.0
"""A wall clock that moves against the uptime by less is slewed or read unevenly."""

Classify = Callable[[str, float], grammar.KernelFinding | None]
"""Text of one kernel line and the kernel's time of it, seconds, to what it means, or None."""


@dataclass(kw_only=True)
class Cursor:
    """Up to where the log has been read."""

    boot_id: str
    seq: int = -1
    drift_s: float = 0.0
    """How far the kernel's clock has drifted from boot time + uptime; printk's clock is not disciplined."""
    drift_at_s: float | None = None
    """Uptime when that was told."""
    place: dict[str, int | str] = field(default_factory=dict)

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None) -> Cursor | None:
        return None if not state else cls(**records.known_fields(cls, state))


@dataclass(frozen=True, kw_only=True)
class _Times:
    """What turns the kernel's time into the world's, for one batch of lines."""

    now: datetime
    zero_s: float | None
    """The kernel's time zero, epoch seconds; None when the node's boot time is unknown."""

    def of(self, line: kmsg.KmsgLine) -> datetime:
        if self.zero_s is None:
            return self.now
        return min(self.now, clock.from_epoch_s(self.zero_s + line.ts_us / 1e6))


class KernelLog:
    """Turns the lines of one reader into sightings, and keeps the cursor."""

    def __init__(
        self,
        identity: identity.Identity,
        classify: Classify,
        *,
        state: Mapping[str, Any] | None,
        sluids: Callable[[], Mapping[str, int]] = dict,
        clock: clock.Clock = clock.SYSTEM,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._identity = identity
        self._classify = classify
        self._uptime_s = uptime_s
        self._sluids = sluids
        self._clock = clock
        before = Cursor.from_state(state)
        self._last_at: datetime | None = None
        self._booted_s: float | None = None
        self.boot_id = identity.boot_id()
        self.rebooted = before is not None and before.boot_id != self.boot_id
        self._first = before is None
        self.cursor = before if before is not None and not self.rebooted else Cursor(boot_id=self.boot_id)
        self._expect_from_start = self.rebooted
        self.lines_total = 0
        self.missed_total = 0
        self.unjudged_total = 0

    @property
    def hint(self) -> dict[str, int | str]:
        """The reader's place when the cursor was stored."""
        return dict(self.cursor.place)

    def take(
        self, lines: Iterable[kmsg.KmsgLine], *, caught_up: bool, place: dict[str, int | str]
    ) -> list[Sighting]:
        """The sightings of `lines`; `caught_up` = the last of them has only just been written."""
        lines = list(lines)
        self._check_boot()
        now, uptime_s = self._clock.now(), self._uptime_s()
        booted_s = now.timestamp() - uptime_s if self._identity.is_host else self._identity.boot_epoch_s()
        if booted_s is None or self._booted_s is None or abs(booted_s - self._booted_s) > STEP_S:
            self._last_at = None  # the wall clock was set
        self._booted_s = booted_s
        if caught_up and lines and self._identity.is_host:
            self._track_drift(uptime_s, uptime_s - lines[-1].ts_us / 1e6)
        times = _Times(now=now, zero_s=None if booted_s is None else booted_s + self.cursor.drift_s)
        sightings: list[Sighting] = []
        for line in lines:
            self._line(line, times, sightings)
        self.cursor.place = place
        return sightings

    def _track_drift(self, uptime_s: float, lag_s: float) -> None:
        """The smallest lag of the kernel's clock that was seen is nearest the truth: the rest of a larger one is how long the line waited for us.

        A busy node would otherwise put a line read at once before one that was written before it and read late.
        """
        if self.cursor.drift_at_s is not None:
            most_s = self.cursor.drift_s + MOST_DRIFT * max(0.0, uptime_s - self.cursor.drift_at_s)
            lag_s = lag_s if lag_s > most_s + STOOD_STILL_S else min(lag_s, most_s)
        self.cursor.drift_s, self.cursor.drift_at_s = lag_s, uptime_s

    def to_state(self) -> dict[str, Any]:
        """The cursor, to be committed with the sightings."""
        return dict(vars(self.cursor))

    def _check_boot(self) -> None:
        boot_id = self._identity.boot_id()
        if boot_id != self.boot_id:
            self.boot_id = boot_id
            self.rebooted = True
            self._expect_from_start = True
            self.cursor = Cursor(boot_id=boot_id)
            self._last_at = None

    def _in_order(self, at: datetime) -> datetime:
        """Lines are in the order the kernel wrote them, however unevenly the clocks were read."""
        self._last_at = at if self._last_at is None else max(self._last_at, at)
        return self._last_at

    def _line(self, line: kmsg.KmsgLine, times: _Times, sightings: list[Sighting]) -> None:
        self.lines_total += 1
        if line.seq >= 0:
            if line.seq <= self.cursor.seq:
                return
            if line.seq != self.cursor.seq + 1:
                missed = self._missed(line.seq)
                if missed:
                    sightings.append(self._overrun(line.seq, missed, times.now))
            self.cursor.seq = line.seq
        if line.facility != kmsg.KERNEL_FACILITY:
            return
        try:
            found = self._classify(line.text, line.ts_us / 1e6)
            if found is not None:
                found = interfaces.confirmed(found, self._identity.path(interfaces.NET))
                found = self._of_a_drive(found)
                sightings.append(self._sighting(found, line, times))
        except Exception as exc:  # noqa: BLE001 - as a source's own bug must not
            # A rule's own bug ends no agent: the same line would be the first that its next start reads.
            self.unjudged_total += 1
            if self.unjudged_total == 1:
                _log.exception("kernel message %d", line.seq)
                sightings.append(self._unjudged(line, exc, times.now))

    def _of_a_drive(self, found: grammar.KernelFinding) -> grammar.KernelFinding:
        """The finding as /sys bears it out: a device-mapper device that lies on no drive is a user's image."""
        if found.kind != "block_io":
            return found
        if mapped_devices.without_a_drive(self._identity.path(mapped_devices.BLOCK), found.device):
            return grammar.recoded(found, block.FACTS, "image_file")
        return found

    def _missed(self, seq: int) -> int:
        if self.cursor.seq >= 0:
            return seq - self.cursor.seq - 1
        expected, self._expect_from_start = self._expect_from_start, False
        return seq if expected else 0

    def _overrun(self, seq: int, missed: int, now: datetime) -> Sighting:
        self.missed_total += missed
        message = f"{missed} kernel messages were overwritten before they could be read (numbers {seq - missed} to {seq - 1})"
        numbers = {"first_seq": seq - missed, "last_seq": seq - 1}
        place = f"overrun:{seq - missed}-{seq - 1}"
        return self._own(
            "kernel_log", place, message, now, measured=float(missed), unit="count", detail=numbers
        )

    def _unjudged(self, line: kmsg.KmsgLine, exc: Exception, now: datetime) -> Sighting:
        message = f"a rule failed on kernel message {line.seq} ({type(exc).__name__}); such messages are counted and not judged"
        place = f"unjudged:{line.position if line.seq < 0 else line.seq}"
        return self._own("kernel_log_rule", place, message, now)

    def _own(self, code: str, place: str, message: str, now: datetime, **more: Any) -> Sighting:
        """What the agent reports about its own reading of the log; `place` is the part of its position behind the boot."""
        return Sighting(
            source="agent", position=f"{self.boot_id}:{place}", at=now, kind="agent_overrun", code=code,
            severity=records.Severity.INFO, message=message, **more,
        )  # fmt: skip

    def _job(self, found: grammar.KernelFinding) -> int | None:
        """The job of a cgroup's name: from Slurm 26.05 on that is a SLUID, which the Prolog reports."""
        if found.job_id is None and "sluid" in found.detail:
            return self._sluids().get(found.detail["sluid"])
        return found.job_id

    def _sighting(self, found: grammar.KernelFinding, line: kmsg.KmsgLine, times: _Times) -> Sighting:
        boot_id = line.boot_id or self.boot_id
        return Sighting(
            source="kernel",
            position=f"{boot_id}:{line.position if line.seq < 0 else line.seq}",
            at=self._in_order(times.of(line)),
            kind=found.kind,
            code=found.code,
            severity=found.severity,
            message=found.message,
            device=found.device,
            pci_bus_id=found.pci_bus_id,
            pid=found.pid,
            process=found.process,
            job_id=self._job(found),
            stream_s=line.ts_us / 1e6,
            detail={**found.detail, "boot_id": boot_id, "ts_us": line.ts_us}
            | ({"seq": line.seq} if line.seq >= 0 else {}),
        )
