"""Severe conditions that began before an attempt (a lost GPU, a lost mount) and stalls, and when they ended."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.attribution.passes import assign_rows
from probing_cluster.attribution.verdict import signatures, taxonomy, window
from probing_cluster.core import records
from probing_cluster.db import store

_SQL = Path(__file__).parent / "sql"
_IMPORTED = "import"
_LEAST_GPUS, _WORKED_S = 4, 1800
"""Least number of GPUs of a node; seconds for which a completed job must have run to prove that its GPUs work."""


class ConditionReader:
    """Reads conditions from one store."""

    def __init__(self, source: store.Store) -> None:
        self._store = source

    def since(
        self, cluster: str, nodes: Sequence[str], since: datetime, until: datetime
    ) -> dict[str, list[assign_rows.Condition]]:
        """Node to the conditions that began there from `since` to `until`, whether or not they ended."""
        given = {"cluster": cluster, "nodes": list(nodes), "since": since, "until": until, **_lasting_sorts()}
        found: dict[str, list[assign_rows.Condition]] = defaultdict(list)
        for row in self._rows("active_faults", given):
            found[row["node"]] += [
                (e, row["lasts"]) for e in self._store.readable(records.HealthEvent, [row])
            ]
        return found

    def with_ends(
        self, cluster: str, conditions: Iterable[assign_rows.Condition], last: datetime
    ) -> assign_rows.ActiveFaults:
        """Node to these conditions, each once, with its end if that came before `last`.

        Reading a node's later events is expensive, so pass only conditions that an attempt may have met.
        """
        chosen = list({e.event_id: (e, lasts) for e, lasts in conditions}.values())
        if not chosen:
            return {}
        given = {
            "cluster": cluster,
            "last": last,
            "lasting_kinds": _lasting_sorts()["lasting_kinds"],
            "numbers": list(range(len(chosen))),
            "nodes": [e.node for e, _ in chosen],
            "ats": [e.at for e, _ in chosen],
            "kinds": [e.kind for e, _ in chosen],
            "devices": [e.device for e, _ in chosen],
            "uuids": [e.gpu_uuid for e, _ in chosen],
            "addresses": [e.pci_bus_id for e, _ in chosen],
            "lasts": [int(lasts) for _, lasts in chosen],
        }
        worked = self._worked_since(cluster, chosen, last)
        found: dict[str, list[tuple[records.HealthEvent, datetime | None]]] = defaultdict(list)
        for row in self._rows("condition_ends", given):
            event, _ = chosen[row["n"]]
            ends = [at for at in (row["gone_at"], worked.get(row["n"])) if at is not None]
            found[event.node].append((event, min(ends, default=None)))
        return found

    def _worked_since(
        self, cluster: str, chosen: Sequence[assign_rows.Condition], last: datetime
    ) -> dict[int, datetime]:
        """Index of a lasting fault to the start of a later job that used every GPU of its node and completed.

        Only for imported logs, which may lack the reset: on a node with an agent the driver reports it.
        """
        mine = [(i, e) for i, (e, lasts) in enumerate(chosen) if lasts and e.source == _IMPORTED]
        if not mine:
            return {}
        given = {
            "cluster": cluster,
            "last": last,
            "numbers": [i for i, _ in mine],
            "nodes": [e.node for _, e in mine],
            "ats": [e.at for _, e in mine],
            "least_gpus": _LEAST_GPUS,
            "seconds": _WORKED_S,
        }
        return {row["n"]: row["gone_at"] for row in self._rows("worked_since", given)}

    def for_attempts(
        self,
        cluster: str,
        nodes: Sequence[str],
        attempts: Sequence[records.JobAttempt],
        windows: Sequence[window.Window],
    ) -> assign_rows.ActiveFaults:
        """The conditions that these attempts may have met."""
        since = min(w.start_at for w in windows) - assign_rows.ACTIVE_FOR
        last = max(a.end_at for a in attempts if a.end_at is not None)
        begun = self.since(cluster, nodes, since, last)
        near = (
            c
            for a, w in zip(attempts, windows, strict=True)
            if a.start_at is not None and a.end_at is not None
            for n in a.nodes
            for c in begun.get(n, ())
            if assign_rows.may_be_active(c[0], w.start_at, (a.start_at, a.end_at))
        )
        return self.with_ends(cluster, near, last)

    def stalls(
        self, cluster: str, lives: Sequence[tuple[str, datetime, datetime]], last: datetime
    ) -> assign_rows.ActiveFaults:
        """Stalls that began in an attempt's life (`lives`: node, from, to), with their ends if these came before `last`."""
        if not lives:
            return {}
        nodes, froms, tos = (list(column) for column in zip(*lives, strict=True))
        given = {
            "cluster": cluster,
            "nodes": nodes,
            "froms": froms,
            "tos": tos,
            "since": min(froms),
            "until": max(tos),
            "last": last,
            "kinds": [kind for kind, _ in assign_rows.STALLS],
            "codes": [code for _, code in assign_rows.STALLS],
        }
        found: dict[str, list[tuple[records.HealthEvent, datetime | None]]] = defaultdict(list)
        for row in self._rows("stalls", given):
            found[row["node"]] += [
                (e, row["gone_at"]) for e in self._store.readable(records.HealthEvent, [row])
            ]
        return found

    def _rows(self, name: str, given: Mapping[str, Any]) -> Sequence[Mapping[Any, Any]]:
        return self._store.rows((_SQL / f"{name}.sql").read_text("utf-8"), given)


@functools.cache
def _lasting_sorts() -> dict[str, list[Any]]:
    sorts = signatures.roots_of(taxonomy.until_reset())
    return {"lasting_kinds": [kind for kind, _ in sorts], "lasting_codes": [code for _, code in sorts]}
