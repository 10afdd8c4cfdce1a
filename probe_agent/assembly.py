"""What one node's agent is made of, and which part is given what of the others; the daemon lets them live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from probing_cluster.core import clock, settings
from probing_cluster.db import delivery, door_delivery
from probing_cluster.probe_agent import node_state, report, sweep
from probing_cluster.probe_agent.hooks import (
    hook_answers,
    hook_socket,
    owner_answers,
    questions,
    requests,
    requeue,
)
from probing_cluster.probe_agent.jobs import alarm_words, collect, output_watch
from probing_cluster.probe_agent.ranks import nic_traffic, rank_watch, stall
from probing_cluster.probe_agent.sources import (
    kernel_follow,
    kernel_log,
    kernel_words,
    nvml,
    poller,
    registry,
)
from probing_cluster.probe_agent.spool import delivery_loop

OWNERS_SOCKET = ".agent.sock"
"""In the directory of the page directories: what owners of jobs ask of the agent (live.node.agent_client)."""


class RunningAgent(hook_answers.AgentOperations, Protocol):
    """What the parts ask of the agent that they are of."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine beside the others."""
        ...


class AgentParts:
    """The parts of one agent."""

    def __init__(
        self,
        config: settings.Settings,
        *,
        clock: clock.Clock,
        agent: RunningAgent,
        on_high: Callable[[], None],
    ) -> None:
        """`on_high` is called at a grave kernel line."""
        self.config = config
        self.clock = clock
        self._agent = agent
        self._on_high = on_high
        self.node = node_state.NodeState(config, clock=clock)
        self.poller = self._make_poller()
        self.kernel = self._make_kernel()
        self.delivery = self._make_delivery()
        self.sweeper = self._make_sweeper()
        self.collector = self._make_collector()
        self.alarms = alarm_words.AlarmWords(
            self.node.book, self.collector, config.agent.alarm_words, self.clock
        )
        self.outputs = output_watch.OutputWatch(self.node.book, self.collector, self.clock)
        self.nics = nic_traffic.NicTraffic(
            self.node.reader, exclude=config.agent.exclude_hcas, clock=self.clock
        )
        self.ranks = self._make_ranks()
        self.requests = self._make_requests()
        self.answers = self._make_answers()
        self.socket = hook_socket.HookSocket(Path(config.agent.socket), self.answers.answer)
        self.owners = self._make_owner_answers()
        owners_path = Path(config.agent.job_directory) / OWNERS_SOCKET
        self.owners_socket = hook_socket.HookSocket(owners_path, self.owners.answer, everyone=True)

    def _make_poller(self) -> poller.Poller:
        return poller.Poller(
            sources=registry.POLLED,
            reader=self.node.reader,
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
            on_high=self._on_high,
            clock=self.clock,
        )

    def _make_delivery(self) -> delivery_loop.DeliveryLoop:
        agent, identity = self.config.agent, self.node.identity
        url = agent.database_url or self.config.database.url

        def door() -> delivery.Delivery:
            if agent.door:
                return door_delivery.DoorDelivery(agent.door, url, identity.cluster, identity.node)
            return delivery.Delivery(url, identity.cluster, identity.node, keep_open=agent.database_keep_open)

        return delivery_loop.DeliveryLoop(
            door=door if url else None,
            spool=self.node.spool,
            intake=self.node.intake,
            heartbeat=lambda: report.heartbeat(self.node, self.delivery, self.ranks, self.alarms),
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
            shares=self.node.shares,
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
            shares=self.node.shares,
            watch=self.node.watch,
            limits=stall.StallLimits(least_s=agent.stall_least_s, startup_s=agent.stall_startup_s),
            gpus=lambda: self.poller.last.get(nvml.SOURCE.name),
            nics=self.nics,
            clock=self.clock,
        )

    def _make_requests(self) -> requests.Requests:
        return requests.Requests(
            outside=self._agent,
            book=self.node.book,
            permissions=self.node.permissions,
            acknowledge=self.delivery.acknowledge,
            forget=self.delivery.forget,
            spawn=self._agent.spawn,
            questions=questions.Questions(
                children=self.node.children,
                book=self.node.book,
                pages=self.node.pages,
                node=self.node.identity.node,
                answer=self.delivery.answer,
            ),
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
            outside=self._agent,
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

    def _rebooted(self, boot_id: str) -> None:
        self.node.rebooted(boot_id)
        self.delivery.beat_now()
