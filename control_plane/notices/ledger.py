"""One pass: facts into groups, groups into messages; written down before and after, so that a pass may die at any line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane.notices import fact, grouping, messages, routes
from probing_cluster.control_plane.outbox import queue
from probing_cluster.core import clock, settings
from probing_cluster.db import store as db_store

Document = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoticeLedger:
    """What has been told, where it is kept, and where messages go."""

    load: Callable[[], Document | None]
    save: Callable[[Document], None]
    outbox: queue.Outbox
    config: settings.Settings
    kinds: Sequence[fact.Kind]

    def groups(self) -> list[grouping.NoticeGroup]:
        """Every group remembered, oldest first."""
        document = self.load() or {}
        return grouping.from_rows(document.get("groups", ()))

    def notify(
        self,
        found: Mapping[str, Sequence[fact.Fact] | None],
        now: datetime,
        where: grouping.Where | None = None,
    ) -> list[queue.QueuedMessage]:
        """Merge the facts of each kind (None: it cannot be said now) and put what is due into the outbox; the new messages.

        `where` nodes are; None while that is not known.
        """
        before = self.load()
        document = dict(before or {"began_at": clock.iso_z(now), "groups": [], "rates": {}})
        groups = self._merged(grouping.from_rows(document["groups"]), found, now, document["began_at"], where)
        document["groups"] = grouping.to_rows(groups)
        self._save(before, document)
        sent_at = routes.rates(document["rates"], now)
        put: list[queue.QueuedMessage] = []
        groups = [self._sent(group, sent_at, now, put) for group in groups]
        after = {
            **document,
            "groups": grouping.to_rows(groups),
            "rates": {rate: [clock.iso_z(at) for at in times] for rate, times in sent_at.items()},
        }
        self._save(document, after)
        return put

    def _save(self, before: Document | None, after: Document) -> None:
        if after != before:
            self.save(after)

    def _merged(
        self,
        groups: Sequence[grouping.NoticeGroup],
        found: Mapping[str, Sequence[fact.Fact] | None],
        now: datetime,
        began_at: str,
        where: grouping.Where | None,
    ) -> list[grouping.NoticeGroup]:
        gap = timedelta(seconds=self.config.notices.group_s)
        since = datetime.fromisoformat(began_at)
        merged: list[grouping.NoticeGroup] = []
        for kind in dict.fromkeys([*found, *(g.kind for g in groups)]):
            mine, facts = [g for g in groups if g.kind == kind], found.get(kind)
            if facts is not None:
                mine = grouping.merge(mine, kind, facts, now, gap=gap, since=since, where=where)
            merged += mine
        return sorted(merged, key=lambda g: (g.opened_at, g.group_id))

    def _sent(
        self,
        group: grouping.NoticeGroup,
        sent_at: dict[str, list[datetime]],
        now: datetime,
        put: list[queue.QueuedMessage],
    ) -> grouping.NoticeGroup:
        """The group with its latest revision in the outbox for every route that may have it now."""
        kind = next((k for k in self.kinds if k.name == group.kind), None)
        sent, times, held = dict(group.sent), dict(group.sent_at), {}
        for route in self.config.notices.routes if kind is not None else ():
            if sent.get(route.name) == group.revision or not routes.wants(route, group):
                continue
            lately = sent_at.setdefault(routes.rate(route, group), [])
            if why := routes.holds(route, group, self.config, now, lately):
                held[route.name] = why
                continue
            assert kind is not None
            message = messages.of_group(self.config, kind, group, route, now)
            if self.outbox.put(message):
                put.append(message)
            sent[route.name], times[route.name] = group.revision, now
            lately.append(now)
        return dataclasses.replace(group, sent=sent, sent_at=times, held=held)


def in_store(config: settings.Settings, store: db_store.Store, kinds: Sequence[fact.Kind]) -> NoticeLedger:
    """What has been told, for all services of the cluster."""
    key = f"notices {config.cluster.name}"
    return NoticeLedger(
        load=lambda: store.recall(key),
        save=lambda document: store.remember(key, document),
        outbox=queue.of(config),
        config=config,
        kinds=kinds,
    )
