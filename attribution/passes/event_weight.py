"""How each sort of event can change a verdict; a property test compares this with the judge."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.verdict import claims, co_residency, eliminate, phrases, signatures
from probing_cluster.core import records
from probing_cluster.core.catalogue import unlisted

_NAMED_ALONE = frozenset({"node_lost", "node_reboot", "node_refused", "node_set_down", "oom_host"})
"""Causes whose verdicts may name any event."""

_BLOCKED = "hung_task"
"""The kernel's report that a task waits: beside one, a time limit or cancellation is not certain."""


def is_named_alone(kind: str, cause: str) -> bool:
    """True if a verdict may name any event of this kind and cause."""
    return cause in _NAMED_ALONE or kind == "agent_silent"


class Weight(IntEnum):
    """How one sort of event can change a verdict."""

    INERT = 0
    """Not by itself: it only accompanies other events on its node."""
    FAINT = 1
    """Only if two channels report it: alone it does not reach "possible"."""
    USER = 2
    """Only near the end: it is the program's own GPU error."""
    ARGUES = 3


@functools.cache
def weight(kind: str, code: str | None, severity: records.Severity, *, recovered: bool) -> Weight:
    """The weight of a sort of event."""
    signature = signatures.find(kind, code, severity, recovered=recovered)
    if is_named_alone(kind, signature.cause) or kind == _BLOCKED or unlisted.is_unlisted(kind, code):
        return Weight.ARGUES
    if signature.role in (signatures.Role.CONTEXT, signatures.Role.CONSEQUENCE):
        return Weight.INERT
    if signature.role is signatures.Role.USER:
        return Weight.USER
    faint = signature.role is signatures.Role.WEAK and signature.lethality < claims.POSSIBLE
    return Weight.FAINT if faint and signature.cause not in eliminate.LOOKED_FOR else Weight.ARGUES


@functools.cache
def changes_preempted(kind: str, code: str | None, severity: records.Severity, *, recovered: bool) -> bool:
    """True if such an event may change the verdict on a preempted attempt, although Slurm names its cause."""
    if weight(kind, code, severity, recovered=recovered) is not Weight.ARGUES:
        return False
    signature = signatures.find(kind, code, severity, recovered=recovered)
    named = signature.cause in eliminate.LOOKED_FOR or is_named_alone(kind, signature.cause)
    return named or signature.role is signatures.Role.ROOT


@functools.cache
def inert_sorts() -> tuple[tuple[str, str], ...]:
    """The sorts (kind, lower-case code) that are inert at every severity."""
    return tuple(
        (kind, code)
        for kind, code in signatures.exact_sorts()
        if all(weight(kind, code, s, recovered=False) is Weight.INERT for s in records.Severity)
    )


@dataclass(frozen=True, kw_only=True)
class EventSort:
    """The relevant facts of one sort of event: kind, code, severity, source, recovered."""

    weight: Weight
    changes_preempted: bool
    root: bool
    """True for a severe root fault: a verdict mentions it even outside the window."""
    of_gpu: bool
    """True for a fault of one GPU: a verdict on an attempt without GPUs does not mention an earlier one."""
    channel: str
    what: str
    """Its name in sentences: `Xid 79`."""
    wide: bool
    """True if it can be part of an incident on many nodes."""


def sorts_of(events: pa.Table) -> tuple[list[EventSort], co_residency.Numbers]:
    """The sorts in `events`, and the index of each event's sort."""
    columns = ["kind", "code", "severity", "source", "recovered"]
    # One number per event, made of its words' numbers: thousands of events share a few sorts.
    words = [
        pc.fill_null(events[c].cast(pa.string()), "").combine_chunks().dictionary_encode() for c in columns
    ]
    number = np.zeros(events.num_rows, np.int64)
    for word in words:
        number = number * max(len(word.dictionary), 1) + co_residency.ints(word.indices)
    _, first, of = np.unique(number, return_index=True, return_inverse=True)
    made = []
    for event in first.tolist():
        kind, code, severity, source, recovered = (
            w.dictionary[w.indices[event].as_py()].as_py() for w in words
        )
        sort = (kind, code or None, records.Severity(severity))
        found = weight(*sort, recovered=recovered == "true")
        signature = signatures.find(*sort, recovered=recovered == "true")
        root = signature.role is signatures.Role.ROOT and sort[2] is records.Severity.HIGH
        wide = incidents.is_shared(signature)
        what = phrases.what_of(kind, code)
        made.append(
            EventSort(
                weight=found,
                changes_preempted=changes_preempted(*sort, recovered=recovered == "true"),
                root=root,
                of_gpu=signature.scope is signatures.Scope.GPU,
                channel=claims.channel(source),
                what=what,
                wide=wide,
            )
        )
    return made, of.astype(np.int64, copy=False)


def wide(
    events: pa.Table, sorts: Sequence[EventSort], of: co_residency.Numbers
) -> Iterator[tuple[datetime, str]]:
    """Time and node of each event that can be part of an incident on many nodes."""
    mine = events.filter(pa.array(np.array([s.wide for s in sorts], np.bool_)[of]))
    instants = zip(co_residency.instants(mine["at"]), mine["node"].to_pylist(), strict=True)
    return ((at, node) for at, node in instants if at is not None)
