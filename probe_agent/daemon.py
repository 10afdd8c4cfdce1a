"""The node daemon: one process that wires sources, spool, fault state, hook socket and delivery together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import delivery
from probing_cluster.probe_agent import (
    children,
    collect,
    delivery_loop,
    faults,
    fitness,
    gres_conf,
    hook_answers,
    hook_socket,
    identity,
    intake,
    jobs,
    kernel_follow,
    kernel_words,
    poller,
    rank_watch,
    reach,
    requests,
    self_watch,
    sighting,
    spool,
    stall,
    sweep,
)
from probing_cluster.probe_agent.sources import kernel_log, polled, registry

DRAIN_S = 5.0
"""How long a stopping agent tries to empty its spool; what is left is delivered by the next one."""
TICK_S = 1.0
LOOK_AFTER_S = 0.2
"""Between a grave kernel line and the readings taken because of it: drivers log first, state follows."""
FIRST_READING_S = 3.0
"""How long the kernel log waits for the first NVML reading, which turns PCI addresses into GPU names."""

_log = logging.getLogger(__name__)


class Agent:
    """Everything one node's agent is made of; `run` is its life."""

    def __init__(self, config: settings.Settings, *, at: clock.Clock = clock.SYSTEM) -> None:
        self.config = config
        self.clock = at
        self.who = identity.identify(config)
        agent = config.agent
        self.spool = spool.Spool(Path(agent.spool_directory), max_bytes=agent.spool_max_bytes)
        boot_id = self.who.boot_id()
        self.faults = faults.Faults(boot_id, self.spool.state("faults"))
        self.book = jobs.JobBook(boot_id, self.spool.state("jobs"))
        self.watch = self_watch.SelfWatch()
        self.intake = intake.Intake(who=self.who, queue=self.spool, standing=self.faults, at=at)
        self.children = children.Children()
        self.permissions = fitness.Permissions()
        self.pages = jobs.PageDirectories(Path(agent.job_directory))
        self.started_at = at.now()
        self.reach = reach.NodeReach(
            self.who, self.children, nvml_library=agent.nvml_library, deadline_s=agent.call_deadline_s
        )
        self._look_now = asyncio.Event()
        self.poller = self._make_poller()
        self.kernel = self._make_kernel()
        self.delivery = self._make_delivery()
        self.sweeper = sweep.Sweeper(
            config=config,
            who=self.who,
            taken=self.intake,
            polls=self.poller,
            book=self.book,
            queue=self.spool,
            watch=self.watch,
            at=at,
        )
        self.collector = collect.Collector(
            who=self.who,
            started=self.children,
            taken=self.intake,
            book=self.book,
            pages=self.pages,
            watch=self.watch,
            at=at,
        )
        self.ranks = rank_watch.RankWatch(
            who=self.who,
            started=self.children,
            book=self.book,
            directories=self.pages,
            take=self.intake.take,
            watch=self.watch,
            limits=stall.Limits(least_s=agent.stall_least_s, startup_s=agent.stall_startup_s),
            at=at,
        )
        self.requests = requests.Requests(
            outside=self,
            book=self.book,
            permissions=self.permissions,
            acknowledge=self.delivery.acknowledge,
            spawn=self.spawn,
            at=at,
        )
        self.socket = hook_socket.HookSocket(Path(agent.socket), self._make_answers().answer)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Live until SIGTERM or SIGINT, then drain within a deadline."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        self._tell_start()
        await self.socket.start()
        polls = self.spawn(self._poll_for_ever())
        deliveries = self.spawn(self.delivery.run())
        self.spawn(self._tick_for_ever())
        self.spawn(self._follow_kernel())
        self.spawn(self.sweeper.run())
        self.spawn(self._watch_ranks())
        for job in self.book.uncollected():
            self.collect(job)
        waiter = asyncio.create_task(stopping.wait())
        await asyncio.wait([waiter, polls, deliveries], return_when=asyncio.FIRST_COMPLETED)
        await self.stop()

    async def once(self) -> dict[str, Any]:
        """Read everything once, deliver, and say what was seen."""
        self._tell_start()
        await self.poller.poll(everything=True)
        reader = self.kernel.open()
        while self.kernel.read_once(reader, waited=False):  # noqa: ASYNC110 - read to its end, nothing to wait for
            await asyncio.sleep(0)
        reader.close()
        self.intake.tick(everything=True)
        await self.delivery.drain(DRAIN_S)
        await self._close()
        return self.status()

    async def stop(self) -> None:
        """Take no more in, deliver what there is, and close."""
        await self.socket.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.intake.tick(everything=True)
        await self.delivery.drain(DRAIN_S)
        await self._close()

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine beside the others; its failure is logged, never silent."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def recheck(self, *, clear: bool = False, relearn: bool = False) -> int:
        """Read every source now; with `clear` an operator's word ends the latched faults first."""
        cleared = self.faults.clear() if clear else 0
        if clear:
            self.intake.save_faults()
            self.sweeper.clear()
        self.sweeper.trigger()
        await self.poller.poll(everything=True, relearn=relearn)
        self.delivery.beat_now()
        return cleared

    def collect(self, job: jobs.Job) -> None:
        """Queue what a job left for collection; of a running one, what its ranks are doing, too."""
        if job.released_at is None:
            self.spawn(self.ranks.snapshot(job.job_id))
        self.spawn(self.collector.collect(job))

    def began(self, job: jobs.Job) -> None:
        """Find out where a job that has begun writes, where Slurm did not say."""
        self.spawn(self.collector.find_stdout(job))

    def sweep(self) -> bool:
        """Start a check sweep unless one runs."""
        return self.sweeper.trigger()

    def status(self) -> dict[str, Any]:
        """For `probing-agent --once` and the socket's `status`."""
        beat = self.heartbeat()
        return {
            "node": self.who.node,
            "version": beat.version,
            "boot_id": beat.boot_id,
            "spool_depth": beat.spool_depth,
            "spool_bytes": beat.spool_bytes,
            "dropped_total": beat.dropped_total,
            "rss_bytes": beat.rss_bytes,
            "cpu_s": beat.cpu_s,
            "delivered_total": self.delivery.delivered_total,
            "delivery_error": self.delivery.error,
            "jobs": list(beat.jobs),
            "faults": dict(beat.faults),
            "sources": dict(beat.sources),
        }

    def heartbeat(self) -> records.AgentHeartbeat:
        """The agent's state at this moment."""
        totals = self.spool.totals
        return records.AgentHeartbeat(
            cluster=self.who.cluster,
            node=self.who.node,
            at=self.clock.now(),
            boot_id=self.who.boot_id(),
            version=self_watch.version(),
            started_at=self.started_at,
            beat_s=self.beat_s(),
            spool_depth=self.spool.depth,
            spool_bytes=self.spool.bytes,
            dropped_total=totals.dropped,
            coalesced_total=totals.coalesced,
            rejected_total=totals.rejected,
            hung_children=len(self.children.hung),
            rss_bytes=self_watch.rss_bytes(),
            cpu_s=round(self_watch.cpu_s(), 3),
            sources={**self.watch.rows(), "spool": self._spool_row(), "delivery": self._delivery_row()},
            faults=self.faults.rows(),
            jobs=self.book.running,
        )

    def beat_s(self) -> float:
        """The interval it promises: shorter while a job runs."""
        return self.config.agent.job_beat_s if self.book.running else self.config.agent.beat_s

    def rebooted(self, boot_id: str) -> None:
        """The node has another boot id: what stood in the last boot is over."""
        self.faults.reboot(boot_id)
        self.book.reboot(boot_id)
        self.intake.save_faults()
        self._tell_boot()
        self.delivery.beat_now()

    def _spool_row(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "state": "error" if self.spool.error else "ok",
            "full_share": round(self.spool.full_share, 4),
        }
        facts = {"error": self.spool.error, "replaced_corrupt": self.spool.replaced_corrupt}
        return (
            row | {k: v for k, v in facts.items() if v} | {"disk_errors_total": self.spool.totals.disk_errors}
        )

    def _delivery_row(self) -> dict[str, Any]:
        told = self.delivery
        row: dict[str, Any] = {
            "state": "error" if told.error else "ok",
            "delivered_total": told.delivered_total,
        }
        if told.delivered_at is not None:
            row["last_read"] = clock.iso_z(told.delivered_at)
        return row | ({"error": told.error} if told.error else {})

    def _tell_boot(self) -> None:
        """The boot is an event of its own; told again at every start of the agent, it is the same one."""
        boot_id, booted_s = self.who.boot_id(), self.who.boot_epoch_s()
        told = sighting.Sighting(
            source="agent",
            position=f"{boot_id}:boot",
            at=self.clock.now() if booted_s is None else clock.from_epoch_s(booted_s),
            kind="node_boot",
            severity=records.Severity.INFO,
            message=f"{self.who.node} booted (boot id {boot_id})",
            detail={"boot_id": boot_id},
        )
        self.intake.take([told])

    def _tell_start(self) -> None:
        _log.info("agent of %s, boot %s, root %s", self.who.node, self.who.boot_id(), self.who.root)
        if self.spool.replaced_corrupt:
            _log.error("the spool was corrupt and has been set aside: %s", self.spool.replaced_corrupt)
        self._tell_pages()
        self._tell_boot()

    def _tell_pages(self) -> None:
        """Say whether the users' page directories are bounded; mounting them is the deployment's work.

        A mount made here would be seen by no job where the service manager gave us a mount namespace.
        """
        try:
            most = self.pages.bound_bytes()
        except OSError as exc:
            self.watch.failed("pages", str(exc))
            return
        self.watch.read("pages", self.clock.now(), state="ok" if most else "unbounded", bound_bytes=most)

    def _make_poller(self) -> poller.Poller:
        return poller.Poller(
            sources=registry.POLLED,
            reach=self.reach,
            who=self.who,
            taken=self.intake,
            standing=self.faults,
            queue=self.spool,
            watch=self.watch,
            context=self._context,
            on_change=lambda: self.delivery.beat_now(),
            at=self.clock,
        )

    def _make_kernel(self) -> kernel_follow.KernelFollower:
        log = kernel_log.KernelLog(
            self.who, kernel_words.classifier(), state=self.spool.state(kernel_log.STATE), at=self.clock
        )
        return kernel_follow.KernelFollower(
            setting=self.config.agent.kernel_log,
            who=self.who,
            log=log,
            taken=self.intake,
            started=self.children,
            watch=self.watch,
            on_reboot=self.rebooted,
            on_high=self._look_now.set,
            at=self.clock,
        )

    def _make_delivery(self) -> delivery_loop.DeliveryLoop:
        url = self.config.agent.database_url or self.config.database.url

        def door() -> delivery.Delivery:
            keep_open = self.config.agent.database_keep_open
            return delivery.Delivery(url, self.who.cluster, self.who.node, keep_open=keep_open)

        return delivery_loop.DeliveryLoop(
            door=door if url else None,
            queue=self.spool,
            taken=self.intake,
            heartbeat=self.heartbeat,
            beat_s=self.beat_s,
            on_request=lambda request: self.requests.handle(request),
            at=self.clock,
        )

    def _make_answers(self) -> hook_answers.Answers:
        return hook_answers.Answers(
            who=self.who,
            taken=self.intake,
            book=self.book,
            pages=self.pages,
            standing=self.faults,
            permissions=self.permissions,
            outside=self,
            numbering=self._numbering,
            at=self.clock,
        )

    def _numbering(self) -> gres_conf.Numbering | None:
        """What SLURM_JOB_GPUS counts here; gres.conf is read again each time, since Slurm may be reconfigured."""
        said = self.config.agent.gpu_numbering
        if said == "auto":
            text = gres_conf.find(self.config.slurm.conf)
            return None if text is None else gres_conf.parse(text, self.who.node)
        return gres_conf.Numbering(by_pci=said == "nvml")

    def _context(self, closely: bool, relearn: bool) -> polled.Context:
        agent = self.config.agent
        return polled.Context(
            now=self.clock.now(),
            boot_id=self.who.boot_id(),
            uptime_s=identity.uptime_s(self.who, self.clock),
            inventory=self.intake.inventory,
            expect_mounts=agent.expect_mounts,
            expect_services=agent.expect_services,
            expect_gpus=agent.expect_gpus,
            exclude_hcas=agent.exclude_hcas,
            closely=closely,
            relearn=relearn,
        )

    async def _poll_for_ever(self) -> None:
        """A round every `poll_s`; a grave kernel line asks for one at once, so that the readings confirm it."""
        while True:
            began_s = self.clock.monotonic_s()
            looked = self._look_now.is_set()
            self._look_now.clear()
            await self.poller.poll(everything=looked)
            left_s = self.config.agent.poll_s - (self.clock.monotonic_s() - began_s)
            with contextlib.suppress(TimeoutError):  # nothing grave was said: the next round is simply due
                async with asyncio.timeout(max(0.1, left_s)):
                    await self._look_now.wait()
                await asyncio.sleep(LOOK_AFTER_S)

    async def _watch_ranks(self) -> None:
        while True:
            await asyncio.sleep(self.config.agent.job_beat_s)
            await self.ranks.beat()

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self.intake.has_open:
                self.intake.tick()

    async def _follow_kernel(self) -> None:
        with contextlib.suppress(
            TimeoutError
        ):  # a node without NVML gets no names, and its log is read all the same
            async with asyncio.timeout(FIRST_READING_S):
                await self.poller.first_round.wait()
        await self.kernel.run()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a part of the agent failed", exc_info=task.exception())

    async def _close(self) -> None:
        await self.ranks.close()
        await self.reach.close()
        self.delivery.close()
        self.spool.close()


def run(config: settings.Settings, *, once: bool, say: Callable[[dict[str, Any]], None]) -> None:
    """Run one agent to its end; raises UsageError when another one holds the spool."""
    directory = Path(config.agent.spool_directory)
    try:
        held = spool.lock(directory)
    except BlockingIOError as exc:
        raise errors.UsageError(f"another agent runs with spool directory {directory}") from exc
    try:
        if once:
            say(asyncio.run(_once(config)))
        else:
            asyncio.run(_live(config))
    finally:
        os.close(held)


async def _once(config: settings.Settings) -> dict[str, Any]:
    return await Agent(config).once()


async def _live(config: settings.Settings) -> None:
    await Agent(config).run()
