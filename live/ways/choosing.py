"""Which way a question takes: here, by a step of Slurm's, or through service and agents."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from probing_cluster.core import digits, errors, settings
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import jobs, local, slurm, step_count, streams

if TYPE_CHECKING:
    from probing_cluster.live.ways import agents

Mailbox = Callable[[], "agents.Mailbox"]
"""Makes the mailbox of the job; it reaches nobody before it is used."""


class Nodes:
    """The nodes of one job, open for questions until `close`."""

    def __init__(
        self,
        opened: streams.Streams,
        *,
        way: str,
        count: step_count.StepCount | None = None,
        unasked: Sequence[streams.Missing] = (),
    ) -> None:
        self._streams, self._count, self._unasked = opened, count, list(unasked)
        self.way = way

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that are asked."""
        return self._streams.nodes

    def require_owner(self) -> None:
        """Raises NotPermitted where somebody else than the job's owner asks: expressions are for the owner alone."""
        if not self._streams.may_evaluate:
            raise errors.NotPermitted(
                "only the job's owner may evaluate an expression; root reads the tables alone, or becomes the owner (runuser -u USER)"
            )

    def ask(self, scans: Sequence[Scan], timeout_s: float, *, node_s: float | None = None) -> streams.Reply:
        """See streams.Streams.ask; nodes that cannot be asked this way are missing in every reply."""
        reply = self._streams.ask(scans, timeout_s, node_s=node_s)
        reply.missing += self._unasked
        if self._count is not None:
            self._count.note(self._streams.steps)
        return reply

    def close(self) -> None:
        """Ends the collectors."""
        self._streams.close()


def open_nodes(
    config: settings.Settings, text: str, way: str = "auto", mailbox: Mailbox | None = None
) -> Nodes | agents.AgentNodes:
    """The job's nodes by the way named, or by the nearest that reaches all of them.

    That is a step for the job's owner, and the agents for everybody else and where no step can start; without a `mailbox`
    there is no way through the agents. Raises NotFound, NotPermitted, SlurmUnavailable, UsageError.
    """
    here = _directory(config, text)
    if way == "local":
        return _local(config, text, here, ())
    if way == "agents":
        return _through_agents(_required(mailbox))
    try:
        job = jobs.find(text, config.slurm)
    except errors.SlurmUnavailable as exc:
        if way == "slurm" or (here is None and mailbox is None):
            raise
        if here is None:
            return _by_agents(_required(mailbox), exc)
        why = f"Slurm does not answer: only this node is asked ({exc})"
        return _local(config, text, here, (streams.Missing(node=None, reason=why),))
    here = local.directory_here(config, job.parts[0].job_id) if here is None else here
    if way == "auto" and here is not None and len(job.nodes) == 1 and _may_read(here):
        return _local(config, text, here, ())
    try:
        return _by_step(config, text, job)
    except (errors.NotFound, errors.NotPermitted, errors.SlurmUnavailable) as exc:
        if way == "slurm" or mailbox is None:
            raise
        return _by_agents(mailbox, exc)


def _by_step(config: settings.Settings, text: str, job: jobs.RunningJob) -> Nodes:
    if job.state == "COMPLETING":
        raise errors.NotFound(f"job {text} is ending: Slurm starts no step in it any more")
    if job.state != "RUNNING":
        raise errors.SlurmUnavailable(
            f"job {text} is {job.state.lower()}: Slurm starts no step in it; on one of its nodes ask with --via local"
        )
    return Nodes(
        slurm.open_streams(config, job),
        way="slurm",
        count=step_count.StepCount(config.cluster.name, job.job_id),
    )


def _by_agents(mailbox: Mailbox, why: errors.ProbingError) -> agents.AgentNodes:
    """Through the agents; raises `why` there was no step where the service cannot be reached, and what it says to a stranger."""
    try:
        return _through_agents(mailbox)
    except errors.DatabaseUnavailable as exc:
        raise type(why)(f"{why}; and not through the agents either: {exc}") from exc


def _through_agents(mailbox: Mailbox) -> agents.AgentNodes:
    from probing_cluster.live.ways import (
        agents,
    )  # a step is the usual way, and waits for no more than it needs

    return agents.AgentNodes(mailbox())


def _required(mailbox: Mailbox | None) -> Mailbox:
    if mailbox is None:
        raise errors.UsageError("there is no way through the agents for this")
    return mailbox


def _local(
    config: settings.Settings, text: str, here: Path | None, unasked: Sequence[streams.Missing]
) -> Nodes:
    if here is None:
        raise errors.NotFound(
            f"job {text} has no pages on this host ({config.agent.job_directory}); ask on a node where it runs, "
            "or without --via local"
        )
    return Nodes(streams.Streams([local.command(config, here)]), way="local", unasked=unasked)


def _directory(config: settings.Settings, text: str) -> Path | None:
    return local.directory_here(config, int(text)) if digits.is_number(text) else None


def _may_read(directory: Path) -> bool:
    return os.geteuid() in (0, directory.stat().st_uid)
