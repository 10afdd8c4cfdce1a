"""Finds the verdicts whose incident changes because late events extend a chain."""

from __future__ import annotations

import functools
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from probing_cluster.attribution.passes import fetch, incidents
from probing_cluster.attribution.verdict import case as cases
from probing_cluster.core import records
from probing_cluster.db import store
from probing_cluster.db.store import attempts as store_attempts


def touched(
    source: store.Store, policy: cases.WindowPolicy, arrived: Iterable[store_attempts.ArrivedEvents]
) -> list[cases.Key]:
    """The attempts to judge again because late events joined the chain of their verdict's evidence.

    They are judged again if the incident changes (it becomes wide, or gets another first event), or if new nodes change what
    its nodes share. An incident that goes on with the same nodes re-opens no verdict.
    """
    fetcher = fetch.Fetcher(source, policy)
    places: dict[str, list[tuple[str, datetime, datetime]]] = defaultdict(list)
    for one in arrived:
        places[one.cluster].append((one.node, one.first_at, one.last_at))
    return [key for cluster, there in places.items() for key in _of_cluster(fetcher, cluster, there)]


def _of_cluster(
    fetcher: fetch.Fetcher, cluster: str, places: Sequence[tuple[str, datetime, datetime]]
) -> Iterator[cases.Key]:
    new = {e.event_id: e for e in fetcher.arrived(cluster, places) if incidents.counts(e)}
    if not new:
        return
    now = incidents.around(
        functools.partial(fetcher.incident_events, cluster),
        [e.at for e in new.values()],
        functools.partial(fetcher.places, cluster),
    )
    moved = _moved(now, new)
    if not moved:
        return
    for row in fetcher.victims(cluster, moved):
        known = (row["place"] or "").removesuffix(incidents.JOB_TOO).removesuffix("; ")
        if (row["incident_id"], known) != (now.first(row["evidence"]), now.place(row["evidence"])):
            yield row["cluster"], row["job_id"], row["submit_at"]


def _moved(now: incidents.Chains, new: Mapping[uuid.UUID, records.HealthEvent]) -> list[records.HealthEvent]:
    """The events whose incident the new events change, or whose incident got further nodes; the new ones included."""
    beside = {e.event_id: e for event_id in new for e in now.beside(event_id)}
    before = incidents.Chains(e for e in beside.values() if e.event_id not in new)
    old = {e.node for e in beside.values() if e.event_id not in new}
    wider = any(e.node not in old for e in new.values())
    return [e for i, e in beside.items() if wider or now.incident(i) != before.incident(i)]
