"""Follows the kernel log of the node, wherever it is, and hands its lines on as they are written."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import stat
from collections.abc import Callable
from pathlib import Path

from probing_cluster.core import clock, errors, processes, records
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.sources import journal, kernel_log, kmsg
from probing_cluster.probe_agent.spool import intake

FILE_POLL_S = 0.1
"""Where inotify is not to be had, a regular file is looked at this often."""
LOOK_S = 10.0
REPORT_S = 1.0
"""How often a log in which nothing happens is said to have been read."""
RETRY_S = 5.0

_log = logging.getLogger(__name__)


class KernelFollower:
    """One reader at a time, reopened when it fails."""

    def __init__(
        self,
        *,
        setting: str,
        identity: identity.Identity,
        log: kernel_log.KernelLog,
        intake: intake.Intake,
        started: children.Children,
        watch: self_watch.SelfWatch,
        on_reboot: Callable[[str], None],
        on_high: Callable[[], None],
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._setting = setting
        self._identity = identity
        self._kernel = log
        self._intake = intake
        self._children = started
        self._watch = watch
        self._on_reboot = on_reboot
        self._on_high = on_high
        self._clock = clock
        self._journal: processes.Child | None = None
        self._reported_s = -REPORT_S

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                reader = self.open()
                try:
                    await self._follow(reader)
                finally:
                    reader.close()
                    await self._end_journal()
            except (OSError, errors.ProbingError) as exc:
                _log.warning("the kernel log cannot be read: %s", exc)
                self._watch.failed(kernel_log.NAME, str(exc))
            await asyncio.sleep(RETRY_S)

    def open(self) -> kmsg.LogReader:
        """The reader the setting names; raises OSError or UsageError."""
        if self._setting.startswith("file:"):
            return kmsg.KmsgFile(Path(self._setting.removeprefix("file:")), self._kernel.hint)
        if self._setting == "journald":
            return self._open_journal()
        if self._setting not in {"auto", "kmsg"}:
            raise errors.UsageError(
                f"kernel_log must be auto, kmsg, journald or file:<path>, not {self._setting!r}"
            )
        device = self._identity.path("/dev/kmsg")
        try:
            is_device = stat.S_ISCHR(device.stat().st_mode)
            return kmsg.KmsgDevice(device) if is_device else kmsg.KmsgFile(device, self._kernel.hint)
        except OSError:
            if self._setting == "kmsg" or not self._identity.is_host:
                raise
            return self._open_journal()

    def read_once(self, reader: kmsg.LogReader, *, waited: bool) -> int:
        """Take in what has arrived; how many lines that was."""
        lines = reader.read()
        now_s = self._clock.monotonic_s()
        if not lines and now_s < self._reported_s + REPORT_S:
            return 0
        self._reported_s = now_s
        sightings = self._kernel.take(lines, caught_up=waited, place=reader.place())
        if self._kernel.rebooted:
            self._kernel.rebooted = False
            self._on_reboot(self._kernel.boot_id)
        if lines:
            self._intake.take(sightings, {kernel_log.STATE: self._kernel.to_state()})
        if any(s.severity is records.Severity.HIGH for s in sightings):
            self._on_high()
        self._watch.read(
            kernel_log.NAME,
            self._clock.now(),
            lines_total=self._kernel.lines_total,
            missed_total=self._kernel.missed_total,
            unjudged_total=self._kernel.unjudged_total,
        )
        return len(lines)

    async def _follow(self, reader: kmsg.LogReader) -> None:
        fd = reader.fileno()
        waited = False
        while True:
            if self.read_once(reader, waited=waited):
                await asyncio.sleep(0)
                waited = False
                continue
            if isinstance(reader, journal.JournalReader) and reader.ended:
                raise processes.ChildFailed("journalctl ended")
            waited = True
            if fd is None:
                await asyncio.sleep(FILE_POLL_S)
                continue
            # A quiet log is looked at all the same, so that its last reading is never old.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await children.readable(fd)

    def _open_journal(self) -> kmsg.LogReader:
        cursor = self._kernel.hint.get("cursor")
        known = cursor if isinstance(cursor, str) else None
        self._journal = self._children.start("journalctl", journal.command(known), discard_stderr=True)
        assert self._journal.stdout is not None
        return journal.JournalReader(self._journal.stdout.fileno(), known)

    async def _end_journal(self) -> None:
        if self._journal is not None:
            ended, self._journal = self._journal, None
            for pipe in (ended.stdin, ended.stdout):
                if pipe is not None:
                    pipe.close()
            await self._children.kill("journalctl", ended)
