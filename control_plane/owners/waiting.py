"""A job without a start in the accounting read so far, in words for its owner: what it waits for, or that it runs or has ended."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane import context
from probing_cluster.control_plane.policy import last_poll
from probing_cluster.control_plane.repair import by_hand, workflow
from probing_cluster.core import errors, hostlist, records, sanitize, vocabulary
from probing_cluster.core.catalogue import pending_reasons
from probing_cluster.reports import job_ref, query, rows
from probing_cluster.slurm_plugins import commands

_NODES_AWAY = re.compile(r"UnavailableNodes:(?P<nodes>[^\s)]+)|DOWN|DRAINED")
_MOST_NODES = 3
_NONE = "(null)"
"""What squeue prints for a job without a dependency, or that names no nodes."""
_PENDING = "PENDING"
_COMES_BACK = frozenset({"REQUEUED", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED"})
"""States of a start after which Slurm may requeue the job by itself."""
DEADLINE_S = 4.0
"""For Slurm's answer; a user's command waits 15 s for ours (`reports.asking.door`)."""
_BESIDE_S = 1.0
"""The same where the report is complete without it; who may also ask the database waits 2 s for all of it (`reports.source`)."""
_TESTS_OF = timedelta(days=30)
"""A repair that was opened longer ago runs no tests any more; no job lives longer with a node that a restart of ours left out of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueuedJob:
    """A job that the controller has; `words` is for its owner."""

    waits: bool
    """False once it has started or ended."""
    words: str
    user: str
    account: str


def of(service: context.Context, ref: job_ref.JobRef, *, deadline_s: float = DEADLINE_S) -> QueuedJob | None:
    """What the controller has of the job; None where it knows no such job, and of one of an earlier day, which its id does not name.

    Raises SlurmAway where Slurm does not answer in time.
    """
    if ref.until is not None:
        return None
    squeue = commands.within(service.run_slurm, deadline_s)
    try:
        output = squeue("squeue", "-h", "-t", "all", "-j", str(ref), "-o", "%T|%u|%i|%a|%E|%A|%n|%x|%r|%j")
    except commands.SlurmAway:
        raise
    except errors.SlurmUnavailable:  # it knows no such job
        return None
    lines = output.decode("utf-8", "replace").splitlines()
    found = [line.split("|", 9) for line in lines if line.count("|") > 8]
    # Account and name may be the user's own text, with line breaks; all parts of a job are of the first line's user.
    # Asked for a component that a job has not, squeue shows those that it has.
    found = [row for row in found if row[1] == found[0][1] and query.covers(row[2], ref, is_whole=True)]
    if not found:
        return None
    first = next((row for row in found if row[0] == _PENDING), found[0])
    state, user, _, account, depends_on, number, required, excluded, reason, name = first
    waits = state == _PENDING
    depends_on = "" if depends_on == _NONE or "Dependency" not in reason else depends_on
    words = (
        f"{_words(ref, reason, depends_on, _named(service, ref, number, required, excluded))}{_kept_out(service, reason)}"
        if waits
        else _not_read(service, ref, state)
    )
    if _is_test(service, name):
        words = f"job {ref} tests a node for us: such jobs have no report (probing-ctl repair list)"
    return QueuedJob(waits=waits, words=words, user=user, account=account)


def beside(service: context.Context, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The rows of a report; of a job that was requeued and has not started, with what Slurm says that it waits for (`waits`)."""
    last = rows.record_from_json(records.JobAttempt, document["attempts"][-1])
    # By us, or by Slurm itself, as a restart that we skipped says.
    restarts = [
        d
        for d in document.get("drains") or ()
        if d["action"] == "restart"
        and (d["state"] == "done" or (d["state"] == "skipped" and vocabulary.is_back_already(d["why_state"])))
    ]
    again = any(datetime.fromisoformat(d["at"]) >= (last.start_at or last.submit_at) for d in restarts)
    if last.end_at is None or last.cluster != service.cluster or not (last.state in _COMES_BACK or again):
        return document
    if document.get("other_submits"):
        return document  # Slurm may mean another job of the id
    try:
        found = of(service, job_ref.parse(last.ref), deadline_s=_BESIDE_S)
    except errors.ProbingError:
        return document  # the report is as good without
    if found is None or not found.waits or found.user != last.user:
        return document
    return {**document, "waits": found.words}


def _is_test(service: context.Context, name: str) -> bool:
    """Whether a job bears the name of a test of ours: of a repair's, or of a round that a person asked for."""
    if by_hand.NAME.fullmatch(name):
        return True
    if not name.startswith(vocabulary.RESERVATION_PREFIX):
        return False
    repairs = service.store.incidents(since=service.clock.now() - _TESTS_OF, cluster=service.cluster)
    return name in map(workflow.reservation_of, repairs)


def _not_read(service: context.Context, ref: job_ref.JobRef, state: str) -> str:
    poll_s = service.config.service.accounting_poll_s
    begins = f"job {ref} is {sanitize.clean(state, 40)} by Slurm, and the accounting read so far has no start of it: "
    late = _not_read_lately(service)
    return f"{begins}{late or f'it is read every {poll_s:g} s'}; ask again then"


def _not_read_lately(service: context.Context) -> str:
    """That accounting is not read as it should be, and since when; empty while it is."""
    read_at = last_poll.at(service.store, service.cluster)
    if read_at is None or not last_poll.stale(read_at, service.clock.now(), service.config, serves=True):
        return ""
    return (
        f"it was last read at {read_at:%H:%M:%S}Z, and Slurm or the database keeps the next reading waiting"
    )


def _named(service: context.Context, ref: job_ref.JobRef, number: str, required: str, excluded: str) -> str:
    """What the job's owner may change about the nodes that it asks for or excludes; empty for a job that names none."""
    words = []
    if required not in {"", _NONE}:
        words.append(
            f"it asks for {sanitize.clean(required, 100)} (--nodelist): scontrol update JobId={ref} ReqNodeList= lets it start elsewhere"
        )
    try:
        away = set(hostlist.expand(excluded)) if excluded not in {"", _NONE} else set()
    except errors.MalformedInput:  # squeue may cut a long list
        away = set()
    ours = away & (_left_out_by_us(service, number) if away else set())
    if away - ours:
        # Nodes that a restart of ours left out stay out: they are broken.
        words.append(
            f"it excludes {sanitize.clean(hostlist.compress(sorted(away - ours)), 100)} (--exclude): "
            f"scontrol update JobId={ref} ExcNodeList={hostlist.compress(sorted(ours))} lets it start there"
        )
    return "; ".join(words)


def _left_out_by_us(service: context.Context, number: str) -> set[str]:
    since = service.clock.now() - _TESTS_OF
    drains = service.store.drains(since=since, actions=["exclude"], cluster=service.cluster)
    return {d.node for d in drains if str(d.job_id) == number}


def _words(ref: job_ref.JobRef, reason: str, depends_on: str, named: str) -> str:
    known = pending_reasons.of(reason)
    shown = ", ".join(sanitize.clean(text, 100) for text in (reason, depends_on) if text)
    if known is None:
        return f"job {ref} waits ({shown}): it has not started yet, there is nothing to report of it"
    why = known.words(str(ref), named)
    if known.never:
        return (
            f"job {ref} will never start as it is ({shown}): {why}; scancel {ref} takes it out of the queue"
        )
    return f"job {ref} waits ({shown}): {why}"


def unknown_job(service: context.Context, ref: job_ref.JobRef) -> errors.NotFound:
    """What is said of a job that is not known where Slurm does not answer."""
    late = _not_read_lately(service)
    return errors.NotFound(
        f"job {ref} is not known: no start of it is in the accounting read so far{late and f' ({late})'}, and Slurm does not answer, "
        "so whether it waits could not be asked; try again later"
    )


def require_read(service: context.Context, ref: job_ref.JobRef) -> None:
    """Raises NotFound for a job that neither the accounting read so far nor the controller has, while accounting is not read as it should be."""
    if ref.until is None and (late := _not_read_lately(service)):
        msg = f"job {ref} is not known: no start of it is in the accounting read so far, and the controller has no such job: {late}; sacct -j {ref} shows whether slurmdbd answers"
        raise errors.NotFound(msg)


def _kept_out(service: context.Context, reason: str) -> str:
    """Which of the nodes that Slurm misses we drained, and why; empty for none."""
    found = _NODES_AWAY.search(reason)
    if found is None:
        return ""
    try:
        named = set(hostlist.expand(found["nodes"])) if found["nodes"] else None
    except errors.MalformedInput:  # squeue may cut a long list
        return ""
    # A node that was drained again before its first drain was lifted has two.
    drains = {
        d.node: d
        for d in service.store.drains(open_only=True, cluster=service.cluster)
        if named is None or d.node in named
    }
    words = [
        f"{d.node} is drained by us ({sanitize.clean(d.reason, 120)})"
        for d in list(drains.values())[:_MOST_NODES]
    ]
    more = len(drains) - _MOST_NODES
    return "".join(f"; {text}" for text in words) + (f"; and {more} more nodes" if more > 0 else "")
