"""The node daemon: one process that wires sources, spool, fault state, hook socket and delivery together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from probing_cluster.core import certificates, clock, errors, settings
from probing_cluster.db import delivery
from probing_cluster.probe_agent import node_state, report, sweep, textfile
from probing_cluster.probe_agent.hooks import hook_answers, hook_socket, owner_answers, requests, requeue
from probing_cluster.probe_agent.jobs import collect, held, jobs
from probing_cluster.probe_agent.ranks import nic_traffic, rank_watch, stall
from probing_cluster.probe_agent.sources import (
    kernel_follow,
    kernel_log,
    kernel_words,
    nvml,
    poller,
    registry,
)
from probing_cluster.probe_agent.spool import delivery_loop, spool

OWNERS_SOCKET = ".agent.sock"
"""In the directory of the page directories: what owners of jobs ask of the agent (live.node.agent_client)."""
DRAIN_S = 5.0
"""How long a stopping agent tries to empty its spool; what is left is delivered by the next one."""
TICK_S = 1.0
LOOK_AFTER_S = 0.2
"""Between a grave kernel line and the readings taken because of it: drivers log first, state follows."""
FIRST_READING_S = 3.0
"""How long the kernel log waits for the first NVML reading, which turns PCI addresses into GPU names."""

Work = Coroutine[Any, Any, Any]

_log = logging.getLogger(__name__)


class PartFailed(errors.ProbingError):
    """A part of the agent ended by its own fault."""


class Agent:
    """Everything one node's agent is made of; `run` is its life."""

    def __init__(self, config: settings.Settings, *, clock: clock.Clock = clock.SYSTEM) -> None:
        self.config = config
        self.clock = clock
        self.node = node_state.NodeState(config, clock=clock)
        self._look_now = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.poller = self._make_poller()
        self.kernel = self._make_kernel()
        self.delivery = self._make_delivery()
        self.sweeper = self._make_sweeper()
        self.collector = self._make_collector()
        self.nics = nic_traffic.NicTraffic(
            self.node.reach, exclude=config.agent.exclude_hcas, clock=self.clock
        )
        self.ranks = self._make_ranks()
        self.requests = self._make_requests()
        self.socket = hook_socket.HookSocket(Path(config.agent.socket), self._make_answers().answer)
        self.owners = self._make_owner_answers()
        owners_path = Path(config.agent.job_directory) / OWNERS_SOCKET
        self.owners_socket = hook_socket.HookSocket(owners_path, self.owners.answer, everyone=True)

    async def run(self) -> None:
        """Live until SIGTERM or SIGINT, then drain within a deadline; raises PartFailed when a part of it dies."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        self.node.begin()
        await self.socket.start()
        await self._start_owners()
        parts = [self.spawn(work) for work in self._parts()]
        for job in self.node.book.uncollected():
            self.collect_from(job)
        waiter = asyncio.create_task(stopping.wait())
        ended, _ = await asyncio.wait([waiter, *parts], return_when=asyncio.FIRST_COMPLETED)
        await self.stop()
        if waiter not in ended:
            # An agent that no longer sees must not go on promising that it does: its supervisor starts another.
            raise PartFailed(", ".join(str(t.exception() or "it returned") for t in ended))

    async def once(self) -> dict[str, Any]:
        """Read everything once, deliver it, and return the status."""
        self.node.begin()
        await self.poller.poll(everything=True)
        reader = self.kernel.open()
        while self.kernel.read_once(reader, waited=False):  # noqa: ASYNC110 - read to its end, nothing to wait for
            await asyncio.sleep(0)
        reader.close()
        self.node.intake.tick(everything=True)
        await self.delivery.drain(DRAIN_S)
        status = self.status()
        await self._close()
        return status

    async def stop(self) -> None:
        """Take no more in, deliver what there is, and close."""
        await self.socket.stop()
        await self.owners_socket.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.node.intake.tick(everything=True)
        await self.delivery.drain(DRAIN_S)
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
        ended = 0
        if clear:
            ended = self.node.faults.clear(self.clock.now())
            # What comes next is new, however alike: folded into what went before it, it would not be a fault again.
            self.node.intake.tick(everything=True)
            self.node.intake.save_faults()
            await self.sweeper.once(clear=True)
        else:
            self.sweeper.trigger()
        await self.poller.poll(everything=True, relearn=relearn, cleared=clear)
        self.delivery.beat_now()
        return ended

    def collect_from(self, job: jobs.Job) -> None:
        """Queue what a job left for collection; of a running one, what its ranks are doing, too."""
        if job.released_at is None:
            self.spawn(self.ranks.snapshot(job.job_id))
        self.spawn(self.collector.collect(job))

    async def keep_log(self, job: jobs.Job, most_bytes: int) -> None:
        """Copy the output of a job that has ended beside it: its restart would truncate it."""
        await self.collector.keep_log(job, most_bytes)
        self.delivery.beat_now()

    def began(self, job: jobs.Job) -> None:
        """Find out where a job that has begun writes: Slurm tells patterns only, and nothing of its steps."""
        self.spawn(self.collector.find_logs(job))

    def start_sweep(self) -> bool:
        """Start a check sweep unless one runs."""
        return self.sweeper.trigger()

    def status(self) -> dict[str, Any]:
        """The agent's state, for people."""
        return report.status(self.node, self.delivery, self.ranks)

    def _parts(self) -> tuple[Work, ...]:
        """What an agent cannot live without."""
        parts: tuple[Work, ...] = (
            self.delivery.run(),
            self._poll_for_ever(),
            self._tick_for_ever(),
            self._follow_kernel(),
            self.sweeper.run(),
            self._watch_ranks(),
            self._watch_held(),
            self.collector.tidy_for_ever(),
        )
        return (*parts, self._write_textfile()) if self.config.agent.textfile else parts

    def _make_poller(self) -> poller.Poller:
        return poller.Poller(
            sources=registry.POLLED,
            reach=self.node.reach,
            identity=self.node.identity,
            intake=self.node.intake,
            faults=self.node.faults,
            spool=self.node.spool,
            watch=self.node.watch,
            context=self.node.context,
            on_change=lambda: self.delivery.beat_now(),
            clock=self.clock,
        )

    def _make_kernel(self) -> kernel_follow.KernelFollower:
        state = self.node.spool.state(kernel_log.STATE)
        return kernel_follow.KernelFollower(
            setting=self.config.agent.kernel_log,
            identity=self.node.identity,
            log=kernel_log.KernelLog(
                self.node.identity,
                kernel_words.classifier(),
                state=state,
                sluids=self.node.book.sluids,
                clock=self.clock,
            ),
            intake=self.node.intake,
            started=self.node.children,
            watch=self.node.watch,
            on_reboot=self._rebooted,
            on_high=self._look_now.set,
            clock=self.clock,
        )

    def _make_delivery(self) -> delivery_loop.DeliveryLoop:
        agent, identity = self.config.agent, self.node.identity
        url = agent.database_url or self.config.database.url

        def door() -> delivery.Delivery:
            return delivery.Delivery(url, identity.cluster, identity.node, keep_open=agent.database_keep_open)

        return delivery_loop.DeliveryLoop(
            door=door if url else None,
            spool=self.node.spool,
            intake=self.node.intake,
            heartbeat=lambda: report.heartbeat(self.node, self.delivery, self.ranks),
            beat_s=self.node.beat_s,
            on_request=lambda request: self.requests.handle(request),
            clock=self.clock,
        )

    def _make_sweeper(self) -> sweep.Sweeper:
        return sweep.Sweeper(
            config=self.config,
            identity=self.node.identity,
            intake=self.node.intake,
            polls=self.poller,
            book=self.node.book,
            spool=self.node.spool,
            watch=self.node.watch,
            clock=self.clock,
        )

    def _make_collector(self) -> collect.Collector:
        return collect.Collector(
            identity=self.node.identity,
            children=self.node.children,
            intake=self.node.intake,
            book=self.node.book,
            pages=self.node.pages,
            watch=self.node.watch,
            page_reader=lambda job: self.ranks.last_words(job),
            kept=self.config.kept,
            clock=self.clock,
        )

    def _make_ranks(self) -> rank_watch.RankWatch:
        agent = self.config.agent
        return rank_watch.RankWatch(
            identity=self.node.identity,
            children=self.node.children,
            book=self.node.book,
            directories=self.node.pages,
            take=self.node.intake.take,
            watch=self.node.watch,
            limits=stall.Limits(least_s=agent.stall_least_s, startup_s=agent.stall_startup_s),
            gpus=lambda: self.poller.last.get(nvml.SOURCE.name),
            nics=self.nics,
            clock=self.clock,
        )

    def _make_requests(self) -> requests.Requests:
        return requests.Requests(
            outside=self,
            book=self.node.book,
            permissions=self.node.permissions,
            acknowledge=self.delivery.acknowledge,
            spawn=self.spawn,
            clock=self.clock,
        )

    def _make_answers(self) -> hook_answers.Answers:
        return hook_answers.Answers(
            identity=self.node.identity,
            intake=self.node.intake,
            book=self.node.book,
            pages=self.node.pages,
            faults=self.node.faults,
            permissions=self.node.permissions,
            outside=self,
            requeues=requeue.asking(self.config.slurm),
            numbering=self.node.numbering,
            clock=self.clock,
        )

    def _make_owner_answers(self) -> owner_answers.OwnerAnswers:
        return owner_answers.OwnerAnswers(
            book=self.node.book,
            stacks=self.ranks.stacks,
            recent=lambda: self.node.intake.recent,
            last=self.poller.last,
            nics=self.nics,
            nvml_library=self.config.agent.nvml_library or None,
            clock=self.clock,
        )

    async def _start_owners(self) -> None:
        try:
            self.node.pages.bound_bytes()  # makes the directory, which every user may enter
            await self.owners_socket.start()
        except (OSError, errors.ProbingError) as exc:
            # Only `probing-ctl sql` has less to show for it.
            _log.warning("owners of jobs cannot ask this agent: %s", exc)

    def _rebooted(self, boot_id: str) -> None:
        self.node.rebooted(boot_id)
        self.delivery.beat_now()

    async def _poll_for_ever(self) -> None:
        """A round every `poll_s`; a grave kernel line asks for one at once, so that the readings confirm it."""
        while True:
            began_s = self.clock.monotonic_s()
            looked = self._look_now.is_set()
            self._look_now.clear()
            await self.poller.poll(everything=looked)
            self.owners.sampled(self.poller.last.get(nvml.SOURCE.name))
            left_s = self.config.agent.poll_s - (self.clock.monotonic_s() - began_s)
            with contextlib.suppress(TimeoutError):  # nothing grave was said: the next round is simply due
                async with asyncio.timeout(max(0.1, left_s)):
                    await self._look_now.wait()
                await asyncio.sleep(LOOK_AFTER_S)

    async def _watch_ranks(self) -> None:
        while True:
            await self.ranks.wait(self.config.agent.job_beat_s)
            await self.ranks.beat()

    async def _watch_held(self) -> None:
        while True:
            await asyncio.sleep(held.EVERY_S)
            self.node.held.look(self.poller.last.get(nvml.SOURCE.name))

    async def _write_textfile(self) -> None:
        written = textfile.Textfile(Path(self.config.agent.textfile))
        used = certificates.named(self.config)
        while True:
            written.write(report.heartbeat(self.node, self.delivery, self.ranks), used)
            await asyncio.sleep(self.node.beat_s())

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.node.intake.has_open:
                self.node.intake.tick()

    async def _follow_kernel(self) -> None:
        # A node without NVML gets no GPU names, and its log is read all the same.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_READING_S):
                await self.poller.first_round.wait()
        await self.kernel.run()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a part of the agent failed", exc_info=task.exception())

    async def _close(self) -> None:
        await self.ranks.close()
        await self.node.reach.close()
        self.delivery.close()
        self.node.spool.close()


def run(config: settings.Settings, *, once: bool, emit: Callable[[dict[str, Any]], None]) -> None:
    """Run one agent to its end; raises UsageError when another one holds the spool."""
    directory = Path(config.agent.spool_directory)
    try:
        held = spool.lock(directory)
    except BlockingIOError as exc:
        raise errors.UsageError(f"another agent runs with spool directory {directory}") from exc
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
    agent = Agent(config)
    agent.sweeper.fork()
    await agent.run()
