"""`probing-ctl set-healthy`: a person's word that nodes are repaired, tried before it is believed.

Each node's agent ends what only its memory holds and looks again. What the hardware still shows is said, and then
the drain stays: a node that came back broken would be drained again minutes later, with a job on it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from probing_cluster.attribution.verdict import phrases, signatures, taxonomy
from probing_cluster.control_plane.policy import confirm
from probing_cluster.core import records, sanitize
from probing_cluster.core.catalogue import fault_names
from probing_cluster.db.store import actions as store_actions

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

WAIT_S = 120.0
"""A beat of the agent, two sweeps of its checks under their watchdog, and one round of readings."""
_LOOK_EVERY_S = 0.5
_ACTING = (records.Severity.HIGH.value, records.Severity.LOW.value)
_MOST_FAULTS, _MOST_CHARS = 3, 80
"""Faults named in one answer, and characters of each message: `probing-ctl nodes` and the node's page have all of them."""


def look_again(
    store: db_store.Store,
    nodes: Iterable[str],
    person: str,
    *,
    cluster: str,
    relearn: bool = False,
    wait_s: float = WAIT_S,
    sleep: Callable[[float], None] = time.sleep,
    now_s: Callable[[], float] = time.monotonic,
) -> dict[str, str]:
    """Has every node's agent forget what is repaired and look again; by node why it is not well, empty where it is.

    With `relearn` the agents also accept the parts and mounts that are there now as all that should be there.
    """
    ages = store.heartbeat_ages_s(cluster=cluster)
    beats = {b.node: b for b in store.heartbeats(nodes, cluster=cluster)}
    answers: dict[str, str] = {}
    reporting: list[str] = []
    for node in nodes:
        beat = beats.get(node)
        if beat is None or not confirm.is_current(beat, ages.get(node)):
            answers[node] = _silent(node, ages.get(node))
        else:
            reporting.append(node)
    subjects = [store_actions.RequestSubject(node, cluster=cluster) for node in reporting]
    detail = {"clear": True, "by": person} | ({"relearn": True} if relearn else {})
    requests = store.request_all(subjects, "recheck", wait_s, detail)
    rechecks: dict[uuid.UUID, str] = dict(zip(requests, reporting, strict=True))
    until_s = now_s() + wait_s
    while rechecks:
        for request, beat in store.beats_after(rechecks).items():
            node = rechecks.pop(request)
            answers[node] = still_failing(node, beat.faults)
        if now_s() >= until_s:
            break
        if rechecks:
            sleep(_LOOK_EVERY_S)
    for node in rechecks.values():
        answers[node] = (
            f"its agent did not answer within {wait_s:.0f} s, so nobody knows whether it is well; try again, or lift "
            f"the drain unseen with `probing-ctl resume {node}`"
        )
    return answers


def still_failing(node: str, faults: Mapping[str, Any]) -> str:
    """What a node's agent still confirms and what to do about each broken part; empty when nothing asks for a drain.

    Several signs of one part are one fault, in the words of the sign that names it best. Of many faults the worst are named.
    """
    grave = [fault for fault in fault_names.named(faults) if fault.severity in _ACTING]
    if not grave:
        return ""
    shown = grave[:_MOST_FAULTS]
    words = "; ".join(f"{fault.name} ({_message(faults[fault.best])})" for fault in shown)
    more = (
        f"; and {len(grave) - len(shown)} more (probing-ctl nodes {node})" if len(grave) > len(shown) else ""
    )
    steps = dict.fromkeys(next_step(node, fault.best, faults[fault.best]) for fault in shown)
    meant = any(faults[fault.best].get("code") == "missing" for fault in grave)
    accept = "; with --relearn if what is gone is not to come back" if meant else ""
    return f"still failing: {words}{more}; do: {' '.join(steps)} Then `probing-ctl set-healthy {node}` again{accept}"


def _message(fault: Mapping[str, Any]) -> str:
    text = sanitize.clean(str(fault.get("message") or "no message")).rstrip(" .")
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


def next_step(node: str, key: str, fault: Mapping[str, Any]) -> str:
    """What to do about one fault, as its check says, else as the cause it points at says."""
    kind, _, device = key.partition(":")
    device = fault["device"] if isinstance(fault.get("device"), str) else device
    code = fault.get("code")
    if kind == "check":
        from probing_cluster.healthchecks import registry

        check = registry.load().get(str(code))
        if check is not None:
            return _sentence(check.next_step)
    severity = records.Severity(fault["severity"])
    cause = taxonomy.cause(signatures.find(kind, code if isinstance(code, str) else None, severity).cause)
    return _sentence(phrases.next_step(cause.next_step, part=device, node=node, noun=cause.noun))


def _sentence(text: str) -> str:
    return f"{text.rstrip(' .')}."


def _silent(node: str, age_s: float | None) -> str:
    last_beat = "has never been heard" if age_s is None else f"was last heard {age_s:.0f} s ago"
    return (
        f"its agent {last_beat}, so nobody can look; start it there (systemctl start probing-agent), or lift the drain "
        f"unseen with `probing-ctl resume {node}`"
    )
