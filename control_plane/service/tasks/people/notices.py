"""What operators are told at once: one look at what happened, into messages, and those that are due on their way."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from probing_cluster.control_plane import context

if TYPE_CHECKING:
    from probing_cluster.control_plane.notices import ledger
    from probing_cluster.control_plane.outbox import queue


class _FailingSince(dict[str, datetime]):
    """Per task since when it has not worked."""


def run(service: context.Context) -> str:
    """One look; what was put on its way."""
    config = service.config
    if not config.notices.routes:
        return ""
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.notices import blind, kinds, routes

    routes.check(config, [k.name for k in (*kinds.REGISTER, blind.KIND)])
    now = service.clock.now()
    found = blind.facts(service.journal, service.memory(_FailingSince), config.notices.blind_s, now)
    put = blind.notify(config, found, now)
    try:
        put += _due(service, now)
    finally:
        if put:
            # Its own look must not wait for a server that does not answer.
            service.aside(lambda: delivery.flush(config, now, wait=False))
    return ", ".join(f"{n} put on its way" for n in [len(put)] if n)


def _due(service: context.Context, now: datetime) -> list[queue.QueuedMessage]:
    from probing_cluster.control_plane.notices import kinds, picture
    from probing_cluster.control_plane.service import turns
    from probing_cluster.control_plane.service.tasks.nodes import silence

    with turns.take(service, "notices") as mine:
        if not mine:
            return []
        now_picture = picture.read(service, service.memory(silence.AgentListening).silent)
        found = {kind.name: facts for kind in kinds.REGISTER if (facts := kind.find(now_picture)) is not None}
        listed = {name: list(facts) for name, facts in found.items()}
        return book(service).notify(listed, now, now_picture.where)


def book(service: context.Context) -> ledger.NoticeLedger:
    """What has been told, for all services of the cluster."""
    from probing_cluster.control_plane.notices import kinds, ledger

    return ledger.in_store(service.config, service.store, kinds.REGISTER)


TASK = context.Task(
    name="notices",
    meaning="tells operators of drains, incidents, hangs, silent agents and the like",
    run=run,
    every_s=lambda _: 2.0,
    follows=("actions", "restarts", "silence", "gangs", "hangs", "attribution", "repair", "lemon"),
)
