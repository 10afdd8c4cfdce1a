"""A job without a start in the accounting read so far, in words for its owner: what it waits for, or that it runs or has ended."""

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
_PENDING = "PENDING"
DEADLINE_S = 4.0
"""For Slurm's answer; a user's command waits 15 s for ours (`reports.asking.door`)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that the controller has; `words` is for its owner."""

    waits: bool
    """False once it has started or ended."""
    words: str
    user: str
    account: str


def of(service: context.Context, ref: job_ref.JobRef) -> QueuedJob | None:
    """What the controller has of the job; None where it knows no such job. Raises SlurmAway where Slurm does not answer in time."""
    squeue = commands.within(service.run_slurm, DEADLINE_S)
    try:
        output = squeue("squeue", "-h", "-t", "all", "-j", str(ref), "-o", "%T|%u|%a|%E|%r")
    except commands.SlurmAway:
        raise
    except errors.SlurmUnavailable:  # it knows no such job
        return None
    lines = output.decode("utf-8", "replace").splitlines()
    rows = [line.split("|", 4) for line in lines if line.count("|") > 3]
    # The account may be the user's own text, with line breaks; all parts of a job are of the first line's user.
    rows = [row for row in rows if row[1] == rows[0][1]]
    if not rows:
        return None
    state, user, account, depends_on, reason = next((row for row in rows if row[0] == _PENDING), rows[0])
    waits = state == _PENDING
    depends_on = "" if depends_on == _NONE or "Dependency" not in reason else depends_on
    words = (
        f"{_words(ref, reason, depends_on)}{_kept_out(service, reason)}"
        if waits
        else _not_read(service, ref, state)
    )
    return QueuedJob(waits=waits, words=words, user=user, account=account)


def _not_read(service: context.Context, ref: job_ref.JobRef, state: str) -> str:
    poll_s = service.config.service.accounting_poll_s
    return (
        f"job {ref} is {sanitize.clean(state, 40)} by Slurm, and the accounting read so far has no start of it: "
        f"it is read every {poll_s:g} s; ask again then"
    )


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
