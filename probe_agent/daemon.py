"""The node daemon: how one agent begins, what it does for ever, and how it ends. What it is made of: assembly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from probing_cluster.core import certificates, clock, errors, records, settings
from probing_cluster.core.ending import watchdog
from probing_cluster.probe_agent import assembly, report, textfile
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.hooks import missed
from probing_cluster.probe_agent.jobs import held, jobs, output_watch
from probing_cluster.probe_agent.sources import (
    nvml,
)
from probing_cluster.probe_agent.spool import own_directory

DRAIN_S = 5.0
"""How long a stopping agent tries to empty its spool; what is left is delivered by the next one."""
TICK_S = 1.0
LOOK_AFTER_S = 0.2
"""Between a grave kernel line and the readings taken because of it: drivers log first, state follows."""
LOOK_BEFORE_S = 0.5
"""How long a Prolog waits at most for the look at output files that may have been there before its job: a child has to start."""
FIRST_READING_S = 3.0
"""How long the kernel log waits for the first NVML reading, which turns PCI addresses into GPU names."""
FIND_AGAIN = timedelta(minutes=10)
"""Jobs that began so shortly before this agent are looked at for output files again: the agent before it may have ended in between."""
MISSED_S = 60.0
"""Between two looks at the notes of hooks that had no answer."""

Work = Coroutine[Any, Any, Any]

_log = logging.getLogger(__name__)


class PartFailed(errors.ProbingError):
    """A part of the agent ended by its own fault."""


class Agent:
    """One agent; `run` is its life."""

    def __init__(self, config: settings.Settings, *, clock: clock.Clock = clock.SYSTEM) -> None:
        self.config = config
        self.clock = clock
        self._look_now = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.parts = assembly.AgentParts(config, clock=clock, agent=self, on_high=self._look_now.set)

    async def run(self) -> None:
        """Live until SIGTERM or SIGINT, then drain within a deadline; raises PartFailed when a part of it dies."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        self.parts.node.begin()
        missed.prepare(Path(self.config.agent.socket))
        await self.parts.socket.start()
        await self._start_owners()
        parts = [self.spawn(work) for work in self._works()]
        for job in self.parts.node.book.uncollected():
            self.collect_from(job)
        for job in self.parts.node.book.running_since(self.clock.now() - FIND_AGAIN):
            self.spawn(self.parts.collector.find_logs(job))
        self.spawn(self._take_missed())
        waiter = asyncio.create_task(stopping.wait())
        ended, _ = await asyncio.wait([waiter, *parts], return_when=asyncio.FIRST_COMPLETED)
        await self.stop()
        if waiter not in ended:
            # An agent that no longer sees must not go on promising that it does: its supervisor starts another.
            raise PartFailed(", ".join(str(t.exception() or "it returned") for t in ended))

    async def once(self) -> dict[str, Any]:
        """Read everything once, deliver it, and return the status.

        No heartbeat is sent: this agent beats no more, and the node would be reported silent.
        """
        self.parts.delivery.beats = False
        self.parts.node.begin()
        await self.parts.poller.poll(everything=True)
        reader = self.parts.kernel.open()
        while self.parts.kernel.read_once(reader, waited=False):  # noqa: ASYNC110 - read to its end, nothing to wait for
            await asyncio.sleep(0)
        reader.close()
        self.parts.node.intake.tick(everything=True)
        await self.parts.delivery.drain(DRAIN_S)
        status = self.status()
        await self._close()
        return status

    async def stop(self) -> None:
        """Take no more in, deliver what there is, and close."""
        await self.parts.socket.stop()
        await self.parts.owners_socket.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.parts.node.intake.tick(everything=True)
        await self.parts.delivery.drain(DRAIN_S)
        await self._close()

    def spawn(self, work: Work) -> asyncio.Task[Any]:
        """Run a coroutine beside the others; its failure is logged, never silent."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def recheck(self, *, clear: bool = False, relearn: bool = False) -> int:
        """Read every source now; with `clear` a person's word that the node is repaired ends first what only memory holds.

        After a clearing the checks have been swept, too: the next heartbeat says what is still wrong. Otherwise
        they are only asked to.
        """
        ended: list[faults.Fault] = []
        if clear:
            ended = self.parts.node.faults.clear(self.clock.now())
            # What comes next is new, however alike: folded into what went before it, it would not be a fault again.
            self.parts.node.intake.tick(everything=True)
            self.parts.node.intake.save_faults()
            await self.parts.sweeper.once(clear=True)
        else:
            self.parts.sweeper.trigger()
        await self.parts.poller.poll(everything=True, relearn=relearn, cleared=clear)
        self.parts.node.report_repaired(ended)
        self.parts.delivery.beat_now()
        return len(ended)

    def collect_from(self, job: jobs.NodeJob) -> None:
        """Queue what a job left for collection; of a running one, what its ranks are doing, too."""
        if job.released_at is None:
            self.spawn(self.parts.ranks.snapshot(job.job_id))
        elif any(f.severity is records.Severity.HIGH for f in self.parts.node.faults.active()):
            self.parts.delivery.ask_often()
        self.spawn(self.parts.collector.collect(job))

    async def keep_log(self, job: jobs.NodeJob, most_bytes: int) -> None:
        """Copy the output of a job that has ended beside it: its restart would truncate it."""
        await self.parts.collector.keep_log(job, most_bytes)
        self.parts.delivery.beat_now()

    async def began(self, job: jobs.NodeJob, *, missed: bool = False) -> None:
        """Find out where a job that begins writes: Slurm tells patterns only, and nothing of its steps.

        Its start waits a moment for the look at files that may have been there before it; of most jobs there are none.
        """
        if not missed and (older := self.parts.collector.older_files(job)):
            look = self.spawn(self.parts.collector.look_before(job, older))
            await asyncio.wait((look,), timeout=LOOK_BEFORE_S)
        self.spawn(self.parts.collector.find_logs(job))

    def start_sweep(self) -> bool:
        """Start a check sweep unless one runs."""
        return self.parts.sweeper.trigger()

    def status(self) -> dict[str, Any]:
        """The agent's state, for people."""
        return report.status(self.parts.node, self.parts.delivery, self.parts.ranks, self.parts.alarms)

    def _works(self) -> tuple[Work, ...]:
        """What an agent cannot live without."""
        works: tuple[Work, ...] = (
            self.parts.delivery.run(),
            self._poll_for_ever(),
            self._tick_for_ever(),
            self._follow_kernel(),
            self.parts.sweeper.run(),
            self._watch_ranks(),
            self._watch_held(),
            self._watch_outputs(),
            self.parts.collector.tidy_for_ever(),
            self._report_for_ever(),
            self.parts.socket.stay(),
            self.parts.owners_socket.stay(),
        )
        more: tuple[Work, ...] = (self._write_textfile(),) if self.config.agent.textfile else ()
        return (*works, *more, *((self._watch_words(),) if self.parts.alarms.words else ()))

    async def _start_owners(self) -> None:
        try:
            self.parts.node.pages.bound_bytes()  # makes the directory, which every user may enter
            await self.parts.owners_socket.start()
        except (OSError, errors.ProbingError) as exc:
            # Only `probing-ctl sql` has less to show for it.
            _log.warning("owners of jobs cannot ask this agent: %s", exc)

    async def _poll_for_ever(self) -> None:
        """A round every `poll_s`; a grave kernel line asks for one at once, so that the readings confirm it."""
        while True:
            began_s = self.clock.monotonic_s()
            looked = self._look_now.is_set()
            self._look_now.clear()
            await self.parts.poller.poll(everything=looked)
            self.parts.owners.sampled(self.parts.poller.last.get(nvml.SOURCE.name))
            left_s = self.config.agent.poll_s - (self.clock.monotonic_s() - began_s)
            with contextlib.suppress(TimeoutError):  # nothing grave was said: the next round is simply due
                async with asyncio.timeout(max(0.1, left_s)):
                    await self._look_now.wait()
                await asyncio.sleep(LOOK_AFTER_S)

    async def _watch_ranks(self) -> None:
        while True:
            await self.parts.ranks.wait(self.config.agent.job_beat_s)
            await self.parts.ranks.beat()

    async def _watch_held(self) -> None:
        while True:
            await asyncio.sleep(held.EVERY_S)
            self.parts.node.held.look(self.parts.poller.last.get(nvml.SOURCE.name))

    async def _watch_outputs(self) -> None:
        while True:
            await asyncio.sleep(output_watch.EVERY_S)
            await self.parts.outputs.look()

    async def _watch_words(self) -> None:
        while True:
            await asyncio.sleep(max(1.0, self.config.agent.alarm_every_s))
            await self.parts.alarms.look()

    async def _write_textfile(self) -> None:
        written = textfile.Textfile(Path(self.config.agent.textfile))
        used = certificates.named(self.config)
        while True:
            written.write(
                report.heartbeat(self.parts.node, self.parts.delivery, self.parts.ranks, self.parts.alarms),
                used,
            )
            await asyncio.sleep(self.parts.node.beat_s())

    async def _report_for_ever(self) -> None:
        """To systemd, from the loop in which everything runs: an agent that stands still is started again."""
        while True:
            watchdog.report()
            await asyncio.sleep(watchdog.EVERY_S)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.parts.node.intake.has_open:
                self.parts.node.intake.tick()

    async def _take_missed(self) -> None:
        """What Prologs and Epilogs said while no agent was here, or while this one answered too late.

        A note that comes later is taken at the second look: what its hook asked has been answered by then, if it ever is.
        """
        await self._first_reading()
        socket, hear = Path(self.config.agent.socket), self.parts.answers.missed
        notes = await missed.take(socket, hear)
        while True:
            await asyncio.sleep(MISSED_S)
            notes = await missed.take(socket, hear, only=notes)

    async def _follow_kernel(self) -> None:
        await self._first_reading()
        await self.parts.kernel.run()

    async def _first_reading(self) -> None:
        """Waits for NVML's first reading. A node without NVML gets no GPU names, and is read all the same."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_READING_S):
                await self.parts.poller.first_round.wait()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a part of the agent failed", exc_info=task.exception())

    async def _close(self) -> None:
        await self.parts.ranks.close()
        await self.parts.node.reader.close()
        self.parts.delivery.close()
        self.parts.node.spool.close()


def run(config: settings.Settings, *, once: bool, emit: Callable[[dict[str, Any]], None]) -> None:
    """Run one agent to its end; raises UsageError when another one holds the spool."""
    directory = Path(config.agent.spool_directory)
    try:
        held = own_directory.lock(directory)
    except BlockingIOError as exc:
        raise errors.UsageError(f"another agent runs with spool directory {directory}") from exc
    except OSError as exc:
        raise errors.SettingsError(
            f"[agent] spool_directory {directory} cannot be used: {exc.strerror}"
        ) from exc
    try:
        if once:
            emit(asyncio.run(_once(config)))
        else:
            asyncio.run(_live(config))
    finally:
        os.close(held)


async def _once(config: settings.Settings) -> dict[str, Any]:
    return await Agent(config).once()


async def _live(config: settings.Settings) -> None:
    watchdog.begin()
    agent = Agent(config)
    agent.parts.sweeper.fork()
    await agent.run()
