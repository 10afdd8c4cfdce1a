"""What a job waits for that has not started, in words for its owner: Slurm's reason, and what we did about it."""

from __future__ import annotations

import dataclasses
import re

from probing_cluster.control_plane import context
from probing_cluster.core import errors, hostlist, sanitize
from probing_cluster.core.catalogue import pending_reasons
from probing_cluster.reports import job_ref
from probing_cluster.slurm_plugins import commands

_NODES_AWAY = re.compile(r"UnavailableNodes:(?P<nodes>[^\s)]+)|DOWN|DRAINED")
_MOST_NODES = 3
_NONE = "(null)"
"""What squeue prints for a job without a dependency."""
DEADLINE_S = 4.0
"""For Slurm's answer; a user's command waits 15 s for ours (`reports.asking.door`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WaitingJob:
    """A job that is in Slurm's queue; `words` is for its owner."""

    words: str
    user: str
    account: str


def of(service: context.Context, ref: job_ref.JobRef) -> WaitingJob | None:
    """What the job waits for; None where no such job waits. Raises SlurmAway where Slurm does not answer in time."""
    squeue = commands.within(service.run_slurm, DEADLINE_S)
    try:
        output = squeue("squeue", "-h", "-t", "PENDING", "-j", str(ref), "-o", "%u|%a|%E|%r")
    except commands.SlurmAway:
        raise
    except errors.SlurmUnavailable:  # it knows no such job
        return None
    line = output.decode("utf-8", "replace").split("\n")[0]
    user, account, depends_on, reason = [*line.split("|", 3), "", "", ""][:4]
    if not reason:
        return None
    depends_on = "" if depends_on == _NONE or "Dependency" not in reason else depends_on
    words = _words(ref, reason, depends_on)
    return WaitingJob(words=f"{words}{_kept_out(service, reason)}", user=user, account=account)


def _words(ref: job_ref.JobRef, reason: str, depends_on: str) -> str:
    known = pending_reasons.of(reason)
    shown = ", ".join(sanitize.clean(text, 100) for text in (reason, depends_on) if text)
    if known is None:
        return f"job {ref} waits ({shown}): it has not started yet, there is nothing to report of it"
    why = known.words.format(job=ref)
    if known.never:
        return (
            f"job {ref} will never start as it is ({shown}): {why}; scancel {ref} takes it out of the queue"
        )
    return f"job {ref} waits ({shown}): {why}"


def unknown_job(ref: job_ref.JobRef) -> errors.NotFound:
    """What is said of a job that is not known where Slurm does not answer."""
    return errors.NotFound(
        f"job {ref} is not known: no start of it is in the accounting read so far, and Slurm does not answer, "
        "so whether it waits could not be asked; try again later"
    )


def _kept_out(service: context.Context, reason: str) -> str:
    """Which of the nodes that Slurm misses we drained, and why; empty for none."""
    found = _NODES_AWAY.search(reason)
    if found is None:
        return ""
    try:
        named = set(hostlist.expand(found["nodes"])) if found["nodes"] else None
    except errors.MalformedInput:  # squeue may cut a long list
        return ""
    drains = [
        d
        for d in service.store.drains(open_only=True, cluster=service.cluster)
        if named is None or d.node in named
    ]
    words = [f"{d.node} is drained by us ({sanitize.clean(d.reason, 120)})" for d in drains[:_MOST_NODES]]
    more = len(drains) - _MOST_NODES
    return "".join(f"; {text}" for text in words) + (f"; and {more} more nodes" if more > 0 else "")
