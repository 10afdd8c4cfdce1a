"""The check sweep inside the agent: on its interval and whenever Slurm's HealthCheckProgram asks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from probing_cluster.core import certificates, clock, processes, records, settings, vocabulary
from probing_cluster.healthchecks import nodeview
from probing_cluster.healthchecks import sweep as sweeps
from probing_cluster.probe_agent import identity, self_watch
from probing_cluster.probe_agent.faults import conditions
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.sources import polled, poller
from probing_cluster.probe_agent.spool import codec, intake, spool

NAME = "checks"
FIRST_AFTER_S = 15.0
"""The first sweep waits until the node's own start-up is likely over."""

_log = logging.getLogger(__name__)


class Sweeper:
    """Runs sweeps one at a time in their own process and stores what changed."""

    def __init__(
        self,
        *,
        config: settings.Settings,
        identity: identity.Identity,
        intake: intake.Intake,
        polls: poller.Poller,
        book: jobs.JobBook,
        spool: spool.Spool,
        watch: self_watch.SelfWatch,
        clock: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._every_s = config.agent.sweep_s
        self._again_s = config.policy.hold_s + 1.0
        self._identity = identity
        self._intake = intake
        self._poller = polls
        self._book = book
        self._spool = spool
        self._watch = watch
        self._clock = clock
        self._wanted = asyncio.Event()
        self._busy = asyncio.Lock()
        self._stored: dict[str, records.CheckResult] = {}
        self._passing: frozenset[tuple[str, str]] = frozenset()
        """Failing checks, with their parts, of what often ends by itself."""
        self._sweep = sweeps.Sweep(_config(config, identity))

    def fork(self) -> None:
        """Make the sweep process, a copy of this one; before there are threads."""
        self._sweep.fork()

    async def run(self) -> None:
        """Sweep for ever."""
        wait_s = min(FIRST_AFTER_S, self._every_s)
        try:
            while True:
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wanted.wait()
                except TimeoutError:
                    pass  # nobody asked: it is simply time
                wait_s = self._every_s
                await self.once()
        finally:
            self._sweep.close()

    def trigger(self) -> bool:
        """Ask for a sweep now; False when one runs already."""
        self._wanted.set()
        return not self._busy.locked()

    async def once(self, *, clear: bool = False) -> None:
        """One sweep, in a thread that only waits for the sweep process; it begins when the one that runs has ended.

        `clear`: a person says that what the checks remember is repaired, so that this sweep counts from now.
        """
        async with self._busy:
            began_s = self._clock.monotonic_s()
            try:
                if clear:
                    await self._clear()
                results = await asyncio.to_thread(
                    self._sweep.run,
                    self._clock.now(),
                    expected=self._expected(),
                    agent={"agent_problem": self._spool.error or ""},
                )
                if not self._sweep.forked:
                    # One that shares no memory with us is not kept: between two sweeps it would serve nobody.
                    await asyncio.to_thread(self._sweep.close)
            finally:
                self._wanted.clear()
            self._take(results, self._clock.monotonic_s() - began_s)

    async def _clear(self) -> None:
        try:
            await asyncio.to_thread(self._sweep.clear)
        except processes.ChildFailed as exc:
            # Nothing is cleared then: what fails goes on failing, and the person who asked hears so.
            _log.error("the checks could not be cleared: %s", exc)

    def _expected(self) -> nodeview.Expectations:
        book = self._book
        return nodeview.Expectations(
            allocated=book.allocated(),
            uids=book.uids(),
            running=frozenset(book.running),
            ended=book.ended,
            sluids=book.sluids(),
        )

    def _take(self, results: Sequence[records.CheckResult], took_s: float) -> None:
        beat = self._sweep.heartbeat
        changed = self._sweep.changed(self._stored)
        self._stored |= {r.name: r for r in changed}
        rows = [*changed, *([beat] if beat is not None else [])]
        self._intake.store([_item(self._identity, r) for r in rows])
        self._poller.settle(SOURCE, judge(results, {}, None))
        passing = frozenset(
            (r.name, r.device or "")
            for r in results
            if r.outcome is records.Outcome.FAIL and r.name in vocabulary.KIND_OF_CHECK
        )
        if passing - self._passing:
            # Nothing is done for it until a second sweep has found it, too: that one need not wait for its turn.
            asyncio.get_running_loop().call_later(self._again_s, self._wanted.set)
        self._passing = passing
        state = "ok" if beat is None else str(beat.outcome)
        self._watch.read(NAME, self._clock.now(), state=state, duration_s=took_s, checks=len(results))


async def _no_read(*_: Any) -> Any:
    raise NotImplementedError("the sweep is run by the Sweeper, not polled")


def judge(
    results: Sequence[records.CheckResult], memory: Mapping[str, Any], _: polled.PollContext | None
) -> conditions.Judgement:
    """Failing checks are conditions; a check that could not run neither confirms nor clears."""
    failing = [r for r in results if r.outcome is records.Outcome.FAIL]
    unseen = {r.device or r.name for r in results if r.outcome is records.Outcome.ERROR}
    gave_up = any(r.name == "sweep" and r.outcome is records.Outcome.ERROR for r in results)
    return conditions.Judgement(
        present=tuple(_condition(r) for r in failing),
        unknown=frozenset({"*"} if gave_up else unseen),
        memory=memory,
    )


def _condition(result: records.CheckResult) -> conditions.Condition:
    return conditions.Condition(
        kind="check",
        code=result.name,
        device=result.device or result.name,
        severity=result.severity,
        message=f"{result.name}: {result.message}",
        measured=result.measured,
        threshold=result.threshold,
        unit=result.unit,
        gpu_uuid=result.detail.get("gpu_uuid"),
        pci_bus_id=result.detail.get("pci_bus_id"),
        detail={"version": result.version},
    )


SOURCE = polled.Polled(
    name=NAME,
    source="check",
    read=_no_read,
    judge=judge,
    reads="the check sweep of [checks.md](checks.md), in a process of its own",
    stands="by the check's severity",
    period="`sweep_s`, when Slurm's HealthCheckProgram asks, and once more when a link or mount begins to fail",
)


def _item(identity: identity.Identity, result: records.CheckResult) -> spool.SpoolItem:
    position = f"{result.name}:{result.at.timestamp():.6f}"
    return spool.SpoolItem(
        id=records.make_event_id(identity.cluster, identity.node, "check_result", position).bytes,
        lane="check",
        rank=spool.RANK[
            records.Severity.LOW if result.outcome is records.Outcome.FAIL else records.Severity.INFO
        ],
        body=codec.encode(result),
    )


def _config(config: settings.Settings, identity: identity.Identity) -> sweeps.Config:
    checks = config.checks
    return sweeps.Config(
        node=identity.node,
        cluster=identity.cluster,
        root=str(identity.root),
        site_file=checks.site_file,
        state_file=checks.state_file,
        nvml_library=config.agent.nvml_library,
        command_dirs=checks.command_directories,
        watchdog_s=checks.watchdog_s,
        certificates=tuple((c.key, str(c.path), c.authority) for c in certificates.named(config)),
    )
