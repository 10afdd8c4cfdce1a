"""Questions about a running job's tables, put to its nodes' agents as rows, and what came back: for the service and for direct askers."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.core import clock, errors
from probing_cluster.db import store as db_store
from probing_cluster.db.store import actions as store_actions

MAX_DEADLINE_S = 30.0
BEYOND_S = 30.0
"""A request is open so much longer than its question's deadline: an agent comes for it every five to ten seconds."""
SILENT_S = 60.0
"""An agent that has not been heard for longer is not asked."""
MAX_REPLY_BYTES = 24 << 20
"""Bytes that one look for answers reads; the rest comes with the next look."""
_OVERLAP = timedelta(seconds=1)
"""Answers get their times before they can be seen: the last second is looked at again."""


def nodes(store: db_store.Store, gang: gang_board.BoardGang) -> dict[str, Any]:
    """{"nodes": of a running job, "absent": those whose agents are silent, and why}; raises NotFound for one that is over."""
    if gang.is_over:
        raise errors.NotFound(f"job {gang.ref} is over, so that nothing of it can be asked")
    # Whoever holds a node's certificate may name any job: it learns nothing of what is asked, and answers nothing.
    beating = {
        b.node
        for b in store.heartbeats(job_id=gang.job_id, cluster=gang.cluster)
        if gang_board.may_speak(gang, b.node)
    }
    known = beating | (set(gang.attempt.nodes) if gang.attempt is not None else set())
    if not known:
        raise errors.NotFound(f"no agent has reported job {gang.ref} as running")
    ages_s = store.heartbeat_ages_s(cluster=gang.cluster)
    absent = {
        node: "its agent was never heard"
        if node not in ages_s
        else f"its agent was last heard {ages_s[node]:.0f} s ago"
        for node in known
        if ages_s.get(node, SILENT_S) >= SILENT_S
    }
    return {"nodes": sorted(known), "absent": absent}


def post(
    store: db_store.Store, gang: gang_board.BoardGang, given: Mapping[str, Any], by: str
) -> dict[str, Any]:
    """Asks every node of the job in somebody's name; `nodes`' document and the question's name. Raises UsageError."""
    try:
        scans = json.loads(str(given["scans"]))
        deadline_s = min(float(given["deadline_s"]), MAX_DEADLINE_S)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise errors.UsageError("a question has scans and a deadline") from exc
    if not isinstance(scans, list) or not scans or not deadline_s > 0:
        raise errors.UsageError("a question has scans and a deadline")
    for scan in scans:
        name = str(scan.get("table")).partition(".")[2] if isinstance(scan, dict) else ""
        if name != "*" and not name.isidentifier():
            raise errors.NotPermitted("only the job's owner may evaluate an expression, by a step of Slurm's")
    found = nodes(store, gang)
    question = str(uuid.uuid4())
    detail = {"question": question, "by": by, "scans": scans, "deadline_s": deadline_s}
    places = [
        store_actions.RequestSubject(node, gang.job_id, gang.cluster)
        for node in found["nodes"]
        if node not in found["absent"]
    ]
    store.request_all(places, "ask", deadline_s + BEYOND_S, detail)
    return {**found, "question": question}


def take(store: db_store.Store, given: Mapping[str, Any], by: str) -> dict[str, Any]:
    """The answers to a question of that asker since a mark, by node in base64, and the next mark; raises UsageError."""
    try:
        question = uuid.UUID(str(given["question"]))
        mark = given.get("mark")
        after = datetime.fromisoformat(mark) if mark is not None else None
    except (KeyError, TypeError, ValueError) as exc:
        raise errors.UsageError("no question is named") from exc
    if after is not None and after.tzinfo is None:
        raise errors.UsageError("a mark has a time zone")
    found = store.answers(question, by, after, MAX_REPLY_BYTES)
    if not found:
        return {"answers": {}, "mark": mark}
    is_cut = sum(len(body) for _, body, _ in found) >= MAX_REPLY_BYTES
    last = found[-1][2].astimezone(UTC)
    return {
        "answers": {node: base64.b64encode(body).decode("ascii") for node, body, _ in found},
        "mark": (last if is_cut else last - _OVERLAP).isoformat(),
    }


def direct(
    store: db_store.Store, cluster: str, ref: Any, op: str, given: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The document of an operation (job_nodes, ask, answers) for whoever opens the database as an operator or the service."""
    by = store.login()
    if op == "answers":
        return take(store, given, by)
    gang = gang_board.find(store, cluster, ref, clock.SYSTEM.now())
    return nodes(store, gang) if op == "job_nodes" else post(store, gang, given, by)


OPS = ("job_nodes", "ask", "answers")
