"""`probing-ctl notices test|list`: whether operators would be told, and what they were told."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import clock, errors, settings

if TYPE_CHECKING:
    from probing_cluster.control_plane.notices import grouping
    from probing_cluster.control_plane.outbox import queue


def register(register: commands.Commands) -> None:
    """Adds `notices test|list`."""
    group = register.group("notices", "what operators are told at once")
    made = group.add("test", _test, "send a test message to every route, now")
    made.add_argument("--route", metavar="NAME", help="only this route")
    made = group.add("list", _list, "what was told, what waits and why")
    made.add_argument("--json", action="store_true", help="as JSON")


def _test(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.notices import blind, kinds, messages, routes

    config = settings.load(args.config)
    routes.check(config, [k.name for k in (*kinds.REGISTER, blind.KIND)])
    chosen = [r for r in config.notices.routes if args.route in (None, r.name)]
    if not chosen:
        known = ", ".join(r.name for r in config.notices.routes) or "none; see [[notices.routes]]"
        raise errors.NotFound(f"there is no such route; configured: {known}")
    now = clock.SYSTEM.now()
    mark = f"test-{now:%Y%m%d%H%M%S}"
    content = {
        "title": f"[{config.cluster.name}] Test message",
        "body": f"probing-ctl notices test was called; nothing happened.\nref {mark}",
        "severity": "info",
        "over": False,
        "group": mark,
        "mark": mark,
    }
    failed = 0
    for route in chosen:
        message = messages.message(content, route, now, key=f"notice.{mark}.{route.name}")
        outcome = delivery.deliver(config, message, now)
        for recipient in outcome.sent:
            print(f"{route.name}: {recipient} has it")
        for recipient, why in {**outcome.later, **outcome.never}.items():
            print(f"{route.name}: {recipient} has not: {why}")
        failed += bool(outcome.later or outcome.never)
    return 1 if failed else 0


def _list(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.notices import blind, kinds, ledger
    from probing_cluster.control_plane.outbox import queue
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    with db_store.Store.open(config) as store:
        book = ledger.in_store(config, store, kinds.REGISTER)
        groups = [*book.groups(), *blind.book(config).groups()]
    waiting = {x.key: x for x in queue.of(config).pending()}
    rows = [
        row
        for group in sorted(groups, key=lambda g: (g.opened_at, g.group_id))
        for row in _rows(config, group, waiting)
    ]
    if args.json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("nothing was told within three days")
    else:
        heads = ("SINCE", "KIND", "WHAT", "STATE", "ROUTE", "DELIVERY")
        cells = [tuple(r[k] for k in ("since", "kind", "what", "state", "route", "delivery")) for r in rows]
        print(table.render(heads, cells))
    return 0


def _rows(
    config: settings.Settings, group: grouping.NoticeGroup, waiting: dict[str, queue.QueuedMessage]
) -> list[dict[str, Any]]:
    from probing_cluster.control_plane.notices import blind, fact, kinds, routes

    kind = next((k for k in (*kinds.REGISTER, blind.KIND) if k.name == group.kind), None)
    shown = [f for i, f in group.facts.items() if not group.open_ids or i in group.open_ids]
    base = {
        "group": group.group_id,
        "since": f"{group.opened_at:%m-%d %H:%M}Z",
        "kind": group.kind,
        "what": fact.title(kind, shown, over=False) if kind else group.cause,
        "severity": str(group.severity),
        "state": "over" if group.over_at and group.lasting else "stands" if group.lasting else "happened",
    }
    wanted = [r for r in config.notices.routes if r.name in group.sent or routes.wants(r, group)]
    if not wanted:
        return [{**base, "route": "", "delivery": "no route wants it"}]
    return [{**base, "route": r.name, "delivery": _delivery(group, r.name, waiting)} for r in wanted]


def _delivery(group: grouping.NoticeGroup, route: str, waiting: dict[str, queue.QueuedMessage]) -> str:
    """How far a route is with a group; a message's fate is known on the service's own host only."""
    revision = group.sent.get(route)
    message = waiting.get(f"notice.{group.group_id}.{revision}.{route}")
    if message is not None:
        return f"{message.state}: {message.why}" if message.why else message.state
    if route in group.held:
        return f"held: {group.held[route]}"
    if revision is None:
        return "not yet"
    return f"sent {group.sent_at[route]:%m-%d %H:%M}Z" + (f", {revision} messages" if revision > 1 else "")
