"""Messages that wait in the outbox, on their way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from probing_cluster.control_plane import context
from probing_cluster.control_plane.outbox import queue

_FORGET_S = 3600.0


def run(service: context.Context) -> str:
    """One round: what became of the messages that were due."""
    if not Path(service.config.mail.spool_directory).is_dir():
        return ""
    from probing_cluster.control_plane import delivery

    tried = delivery.flush(service.config, service.clock.now(), wait=False)
    service.seldom("outbox", _FORGET_S, lambda: _forget(service))
    return ", ".join(f"{n} {state}" for state, n in sorted(Counter(x.state for x in tried).items()))


def _forget(service: context.Context) -> int:
    """Remove the names of what was sent long ago, also those of owners' mails; how many."""
    from probing_cluster.control_plane.owners import corrections, handover

    boxes = (queue.of(service.config), handover.box(service.config), corrections.box(service.config))
    return sum(box.forget(service.clock.now()) for box in boxes)


TASK = context.Task(
    name="mail",
    meaning="delivers what waits in the outbox",
    run=run,
    every_s=lambda _: 5.0,
)
