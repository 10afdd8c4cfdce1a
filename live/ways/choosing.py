"""Which way a question takes: here, by a step of Slurm's, or through service and agents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.core import digits, errors, settings
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import jobs, local, slurm, step_count, streams

WAYS = ("auto", "local", "slurm")


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

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        """See streams.Streams.ask; nodes that cannot be asked this way are missing in every reply."""
        reply = self._streams.ask(scans, timeout_s)
        reply.missing += self._unasked
        if self._count is not None:
            self._count.note(self._streams.steps)
        return reply

    def close(self) -> None:
        """Ends the collectors."""
        self._streams.close()


def open_nodes(config: settings.Settings, text: str, way: str = "auto") -> Nodes:
    """The job's nodes by the way named, or by the nearest that reaches all of them."""
    here = _directory(config, text)
    if way == "local":
        return _local(config, text, here, ())
    try:
        job = jobs.find(text, config.slurm)
    except errors.SlurmUnavailable as exc:
        if here is None or way == "slurm":
            raise
        why = f"Slurm does not answer: only this node is asked ({exc})"
        return _local(config, text, here, (streams.Missing(node=None, reason=why),))
    here = local.directory_here(config, job.parts[0].job_id) if here is None else here
    if way == "auto" and here is not None and len(job.nodes) == 1 and _may_read(here):
        return _local(config, text, here, ())
    if job.state == "SUSPENDED":
        raise errors.SlurmUnavailable(
            f"job {text} is suspended: Slurm starts no step in it; on one of its nodes ask with --via local"
        )
    return Nodes(
        slurm.open_streams(config, job),
        way="slurm",
        count=step_count.StepCount(config.cluster.name, job.job_id),
    )


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
