"""What is known of a running gang, as documents for its owner: the ranks now, and their merged stacks.

The same documents are made by the service, for users who come through its doors, and by a command that may
open the database itself.
"""

from __future__ import annotations

import dataclasses
import functools
import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.attribution.gang import snapshots, stacks, views
from probing_cluster.attribution.verdict import node_faults
from probing_cluster.control_plane.gangs import rank_rows
from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.db.store import actions as store_actions
from probing_cluster.reports import job_ref

ONE_MOMENT = timedelta(seconds=60)
"""Snapshots further apart than this show different moments and are not merged."""
STOPPED_BEFORE = timedelta(seconds=120)
"""A snapshot belongs to a stall reported at most this long before it."""
STACKS_PATH = f'$.ranks[*] ? (exists(@.stack[*]) || (exists(@.stack_error) && @.stack_error != "{vocabulary.STACK_CAME_TOO_LATE}"))'
"""Where a snapshot holds the stack of a rank, or why none of a living one could be read: one that is taken as the job dies holds neither."""
ASK_TTL_S = 30.0
FINDINGS = ("rank_slow", "gang_drift", "rank_dead", "nccl_ras")
MAX_FINDINGS = 20
_UNKNOWN_START = timedelta(days=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoardGang:
    """A job as its owner names it, with everything that says whose it is."""

    ref: str
    job_id: int
    cluster: str
    attempt: records.JobAttempt | None
    """The latest; None while accounting does not know the job yet."""
    owners: tuple[Mapping[str, Any], ...]
    """`user` and `account` of every attempt under this name: who may read it."""
    since: datetime
    """Start of the latest attempt."""

    @property
    def is_over(self) -> bool:
        """Its latest attempt has ended."""
        return self.attempt is not None and self.attempt.end_at is not None

    @functools.cached_property
    def nodes(self) -> frozenset[str]:
        """Where it runs; empty while accounting does not know it. Asked for each of its ranks: made once."""
        return frozenset(self.attempt.nodes) if self.attempt is not None else frozenset()


def find(store: db_store.Store, cluster: str, ref: job_ref.JobRef, now: datetime) -> BoardGang:
    """The job, of that cluster where it has one of this id, else another's; raises NotFound."""
    known = [a for a in store.of(None).attempts(job_ids=[ref.base]) if _named(a, ref)]
    here = [a for a in known if a.cluster == cluster] or known
    if here:
        last = here[-1]
        return BoardGang(
            ref=str(ref),
            job_id=last.job_id,
            cluster=last.cluster,
            attempt=last,
            owners=tuple({"user": a.user, "account": a.account} for a in here),
            since=last.start_at or last.submit_at,
        )
    # Nodes know of a job seconds after its start, accounting half a minute later.
    # A user id means an account of this cluster only.
    found = store.allocations(job_id=ref.base, cluster=cluster) if ref.plain else []
    allocations = [a for a in found if a.uid is not None]
    if not allocations:
        raise errors.NotFound(f"job {ref} is not known: neither accounting nor any node has reported it")
    owners = tuple({"user": _user(a.uid), "account": ""} for a in allocations)
    since = max(a.at for a in allocations) - ONE_MOMENT
    return BoardGang(
        ref=str(ref), job_id=ref.base, cluster=allocations[-1].cluster, attempt=None, owners=owners,
        since=max(since, now - _UNKNOWN_START),
    )  # fmt: skip


def _named(attempt: records.JobAttempt, ref: job_ref.JobRef) -> bool:
    if ref.task is not None:
        return (attempt.array_job_id, attempt.array_task_id) == (ref.base, ref.task)
    if ref.offset is not None:
        return (attempt.het_job_id, attempt.het_offset) == (ref.base, ref.offset)
    return attempt.job_id == ref.base


def _user(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else ""
    except KeyError:
        return f"uid {uid}"


def ranks_now(store: db_store.Store, gang: BoardGang) -> list[rank_rows.RankNow]:
    """The gang's ranks at the last heartbeats of its own nodes."""
    beats = store.heartbeats(job_id=gang.job_id, with_ranks=True, cluster=gang.cluster)
    ages_s = store.heartbeat_ages_s(cluster=gang.cluster) if beats else {}
    silences_s = store.silences_s(cluster=gang.cluster) if beats else {}
    silent = {b.node for b in beats if silences_s.get(b.node, 0.0) > vocabulary.MISSED_BEATS * b.beat_s}
    rows = rank_rows.of_heartbeats(beats, ages_s, gang.job_id)
    return [
        dataclasses.replace(r, silent=True) if r.node in silent else r
        for r in rows
        if may_speak(gang, r.node)
    ]


def ranks(
    store: db_store.Store, gang: BoardGang, now: datetime, known: list[rank_rows.RankNow] | None = None
) -> dict[str, Any]:
    """Every rank at the last heartbeat of its node (`known` already, or read here), and what has been found out about the gang."""
    rows = ranks_now(store, gang) if known is None else known
    return findings(store, gang, now, rows) | {"ranks": [rank_rows.to_json(r) for r in rows]}


def findings(
    store: db_store.Store, gang: BoardGang, now: datetime, rows: Sequence[rank_rows.RankNow]
) -> dict[str, Any]:
    """What has been found out about the gang of these ranks, and which of its nodes say nothing."""
    events = store.events(job_id=gang.job_id, since=gang.since, kinds=FINDINGS, cluster=gang.cluster)
    events = [e for e in events if may_speak(gang, e.node)]
    open_verdicts = store.gang_verdicts(
        job_ids=[gang.job_id], since=gang.since, open_only=True, cluster=gang.cluster
    )
    found = [{"at": clock.iso_z(e.at), "kind": e.kind, "node": e.node, "words": e.message} for e in events]
    found += [
        {"at": clock.iso_z(v.made_at), "kind": v.kind, "node": ",".join(v.nodes), "words": v.summary}
        for v in open_verdicts
    ]
    return _head(gang, now) | {
        "world_size": max((r.world_size for r in rows if r.world_size), default=None),
        "findings": sorted(found, key=lambda f: f["at"])[-MAX_FINDINGS:],
        "silent_nodes": [] if gang.is_over else sorted(gang.nodes - {r.node for r in rows if not r.silent}),
    }


def stacks_of(store: db_store.Store, gang: BoardGang, now: datetime) -> dict[str, Any]:
    """The ranks' last stacks as one tree, and what they say together."""
    fresh = fresh_snapshots(store, gang)
    newest = max((e.at for e in fresh), default=None)
    deaths = store.events(job_id=gang.job_id, since=gang.since, kinds=(snapshots.DEAD,), cluster=gang.cluster)
    deaths = [e for e in deaths if may_speak(gang, e.node)]
    shown = snapshots.gang(fresh)
    ranks = shown.ranks if shown is not None else ()
    end_at = gang.attempt.end_at if gang.attempt is not None else None
    return _head(gang, now) | {
        "at": None if newest is None else clock.iso_z(newest),
        "n_ranks": len(ranks),
        "world_size": shown.world_size if shown is not None else None,
        "tree": stacks.fold(stacks.merge((v.rank, v.frames) for v in ranks if v.frames)).to_json(),
        "without": _without(fresh),
        "without_native": _without_native(ranks),
        "finding": _open_verdict(store, gang)
        or _judged(store, gang, snapshots.gang([*fresh, *deaths], end_at=end_at), fresh),
        "silent_nodes": sorted(gang.nodes - {e.node for e in fresh}),
    }


def fresh_snapshots(store: db_store.Store, gang: BoardGang) -> list[records.HealthEvent]:
    """The last telling snapshot of every node, as far as they show one moment, or ranks that stood still from then to the end."""
    job = (gang.job_id, snapshots.SNAPSHOT, gang.since)
    events = store.latest_of_job(*job, holding=STACKS_PATH, cluster=gang.cluster)
    events = [e for e in events if may_speak(gang, e.node)]
    recent = max((e.at for e in events), default=gang.since) - ONE_MOMENT
    fresh = [e for e in events if e.at >= recent]
    if len(fresh) == len(events) or gang.attempt is None or gang.attempt.end_at is None:
        return fresh
    # A node that is asked as the others give up is looked at long after them.
    left = {e.node: e for e in store.latest_of_job(*job, cluster=gang.cluster)}
    end_at = gang.attempt.end_at
    still = (e for e in events if e.at < left[e.node].at and snapshots.stands_still(e, left[e.node], end_at))
    return sorted({e.event_id: e for e in (*fresh, *still)}.values(), key=lambda e: e.node)


def ask(store: db_store.Store, gang: BoardGang) -> int:
    """Asks every node of a running job for its ranks' stacks; how many were asked."""
    if gang.is_over:
        return 0
    running = {
        b.node for b in store.heartbeats(job_id=gang.job_id, cluster=gang.cluster) if may_speak(gang, b.node)
    }
    places = [store_actions.RequestSubject(node, gang.job_id, gang.cluster) for node in sorted(running)]
    return len(store.request_all(places, "collect", ASK_TTL_S))


def faults(
    store: db_store.Store, attempt: records.JobAttempt, gang: snapshots.Gang
) -> Mapping[str, set[str]]:
    """Kinds of trusted faults per node that may have stopped the attempt's ranks, `gang`."""
    return faults_of(store, [(attempt, gang)])[attempt.job_id]


def faults_of(
    store: db_store.Store, stalled: Sequence[tuple[records.JobAttempt, snapshots.Gang]]
) -> dict[int, Mapping[str, set[str]]]:
    """`faults` of several attempts, by job id, in two reads."""
    since: dict[str, datetime] = {}
    for attempt, gang in stalled:
        looked = gang.onset_at - node_faults.LOOK_BACK
        since |= {node: min(looked, since.get(node, looked)) for node in attempt.nodes}
    events_by_node: dict[str, list[records.HealthEvent]] = {}
    every = store.of(None)
    for event in every.events_on(since):
        events_by_node.setdefault(event.node, []).append(event)
    began = {a.job_id: (a.start_at or a.submit_at) - ONE_MOMENT for a, _ in stalled}
    held: dict[int, list[records.JobAllocation]] = {}
    for one in every.allocations(job_ids=list(began), since=min(began.values())) if began else ():
        held.setdefault(one.job_id, []).append(one)
    found: dict[int, Mapping[str, set[str]]] = {}
    for attempt, gang in stalled:
        mine = [
            e
            for n in set(attempt.nodes)
            for e in events_by_node.get(n, ())
            if e.cluster == attempt.cluster and e.at >= gang.onset_at - node_faults.LOOK_BACK
        ]
        parts = [
            x
            for x in held.get(attempt.job_id, ())
            if x.cluster == attempt.cluster and x.at >= began[attempt.job_id]
        ]
        found[attempt.job_id] = node_faults.faults_of_running(
            sorted(mine, key=lambda e: (e.at, e.event_id)), attempt, parts, gang.onset_at, gang.longest_step
        )
    return found


Make = Callable[[db_store.Store, BoardGang, datetime], dict[str, Any]]
DOCUMENTS: Mapping[str, Make] = {"ranks": ranks, "stacks": stacks_of}


def _head(gang: BoardGang, now: datetime) -> dict[str, Any]:
    attempt = gang.attempt
    return {
        "job": gang.ref,
        "job_id": gang.job_id,
        "name": attempt.name if attempt is not None else "",
        "state": attempt.state if attempt is not None else "RUNNING",
        "ended": gang.is_over,
        "started_at": clock.iso_z(gang.since),
        "made_at": clock.iso_z(now),
    }


def may_speak(gang: BoardGang, node: str) -> bool:
    """Whether a node's word about the gang counts: whoever holds a node's certificate may name any job."""
    return not gang.nodes or node in gang.nodes


def _without(events: Iterable[records.HealthEvent]) -> dict[str, str]:
    """Why some ranks have no stack, to their ranges."""
    why: dict[str, list[int]] = {}
    for event in events:
        entries = event.detail.get("ranks")
        for entry in entries if isinstance(entries, list) else ():
            view = views.from_snapshot(event.node, entry) if isinstance(entry, dict) else None
            if view is not None and not view.stack:
                reason = str(entry.get("stack_error") or "") or (
                    "it is gone" if not view.alive else "not taken"
                )
                why.setdefault(reason, []).append(view.rank)
    return {reason: stacks.ranges(ranks) for reason, ranks in sorted(why.items())}


def _without_native(ranks: Iterable[views.RankView]) -> dict[str, str]:
    """Why the C functions of some ranks are not all there, to their ranges."""
    why: dict[str, list[int]] = {}
    for view in ranks:
        if view.native_error:
            why.setdefault(view.native_error, []).append(view.rank)
    return {reason: stacks.ranges(ranks) for reason, ranks in sorted(why.items())}


def _open_verdict(store: db_store.Store, gang: BoardGang) -> dict[str, Any] | None:
    """The finding of the gang's latest open verdict; None without one."""
    verdicts = store.gang_verdicts(
        job_ids=[gang.job_id], since=gang.since, open_only=True, cluster=gang.cluster
    )
    if not verdicts:
        return None
    last = verdicts[-1]
    return _finding(last.kind, last.ranks, last.nodes, last.domain, last.confidence) | {
        "summary": last.summary,
        "where": last.location,
        "proof": list(last.proof),
        "at": clock.iso_z(last.made_at),
    }


def _judged(
    store: db_store.Store,
    gang: BoardGang,
    snapshot_gang: snapshots.Gang | None,
    fresh: Sequence[records.HealthEvent],
) -> dict[str, Any] | None:
    """The judge's finding as if the ranks had stopped in their `fresh` snapshots; None without a stall or death shortly before, for a gang that makes progress has no culprit."""
    if snapshot_gang is None or not fresh:
        return None
    since = max(min(e.at for e in fresh) - STOPPED_BEFORE, gang.since)
    stalls = store.events(
        job_id=gang.job_id, since=since, kinds=(snapshots.STALL, snapshots.DEAD), cluster=gang.cluster
    )
    if not any(may_speak(gang, e.node) for e in stalls):
        return None
    bad = faults(store, gang.attempt, snapshot_gang) if gang.attempt is not None else {}
    found = snapshots.judge(snapshot_gang, bad, sorted(gang.nodes))
    return _finding(found.kind, found.ranks, found.nodes, found.domain, found.confidence) | {
        "summary": found.summary,
        "where": found.where,
        "proof": list(found.proof),
        "at": clock.iso_z(max(e.at for e in fresh)),
    }


def _finding(
    kind: str,
    ranks: Iterable[int],
    nodes: Iterable[str],
    domain: records.Domain,
    confidence: records.Confidence,
) -> dict[str, Any]:
    return {
        "kind": kind,
        "ranks": stacks.ranges(ranks),
        "nodes": list(nodes),
        "domain": domain.value,
        "confidence": confidence.value,
    }
