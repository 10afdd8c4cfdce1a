"""`probing-ctl lemon confirm|deny|repaired|tickets|outbox`: what people say, and the messages they wait for."""

from __future__ import annotations

import argparse
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.cli.nodes import nodes_commands
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import clock, errors, hostlist, records, sanitize, settings

if TYPE_CHECKING:
    from probing_cluster.control_plane.outbox import tickets
    from probing_cluster.db import store as db_store


def register(group: commands.Commands) -> None:
    """Adds them to the group `lemon`."""
    for name, meaning in (
        ("confirm", "say that a node is a lemon; it stays one until it is repaired"),
        ("deny", "say that a node is no lemon: what was known so far no longer counts"),
        ("repaired", "say that a lemon has been repaired: it starts afresh, and is watched for recurrence"),
    ):
        made = group.add(name, _print, meaning)
        made.add_argument("node", nargs="+", metavar="NODE", help="hostlists")
        made.add_argument("--note", default="", help="your words, kept with the node")
        made.add_argument("--json", action="store_true", help="one JSON array")
    made = group.add(
        "tickets", _tickets, "read repair tickets from a CSV file; a ticket read twice counts once"
    )
    made.add_argument(
        "file", metavar="FILE", help="CSV with the columns node, ticket, opened and, if you like, note"
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made = group.add("outbox", _outbox, "messages that wait or could not be delivered")
    made.add_argument("--retry", action="store_true", help="try all of them now, the failed ones too")
    made.add_argument("--json", action="store_true", help="one JSON array")


def _open(args: argparse.Namespace) -> tuple[settings.Settings, db_store.Store]:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    return config, db_store.Store.open(config)


def _print(args: argparse.Namespace) -> int:
    action = args.lemon_command
    config, store = _open(args)
    names = [name for text in args.node for name in hostlist.expand(text)]
    with store:
        _require_known(config, store, names)
        author = store.speaker(nodes_commands.caller_name())
        notes = [_note(config, name, action, author, args.note) for name in names]
        store.add_notes(notes)
        ours = {
            d.node for d in store.drains(open_only=True, cluster=config.cluster.name) if d.action == "drain"
        }
    if args.json:
        rows = [
            {
                "node": n,
                "action": action,
                "author": note.author,
                "at": clock.iso_z(note.at),
                "note": note.note,
            }
            for n, note in zip(names, notes, strict=True)
        ]
        print(json.dumps(rows, indent=2))
        return 0
    for name in names:
        print(f"{name}: noted; it counts from the next night on")
        if action in ("repaired", "deny") and name in ours:
            print(f"  it is still drained: probing-ctl resume {name}")
    return 0


def _require_known(config: settings.Settings, store: db_store.Store, names: list[str]) -> None:
    """Raises NotFound for a node that was neither scored nor heard of: a slip of the keyboard would never be seen."""
    known = {s.node for s in store.lemon_scores()} | {
        b.node for b in store.heartbeats(cluster=config.cluster.name)
    }
    unknown = [name for name in names if name not in known]
    if known and unknown:
        raise errors.NotFound(f"{hostlist.compress(unknown)} is not known: neither scored nor heard of")


def _note(config: settings.Settings, node: str, action: str, author: str, words: str) -> records.OperatorNote:
    return records.OperatorNote(
        note_id=uuid.uuid4(),
        cluster=config.cluster.name,
        at=clock.SYSTEM.now(),
        author=author,
        subject=f"node:{node}",
        action=action,
        note=sanitize.clean(words),
        detail={"lemon": True},
    )


def _tickets(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.outbox import tickets

    config, store = _open(args)
    with store:
        found = tickets.read(
            Path(args.file), config.cluster.name, store.speaker(nodes_commands.caller_name())
        )
        new = _store_tickets(store, found)
    if args.json:
        print(
            json.dumps(
                {"new": new, "known": len(found.notes) - new, "rejected": list(found.rejected)}, indent=2
            )
        )
    else:
        print(f"{new} tickets new, {len(found.notes) - new} known, {len(found.rejected)} rows rejected")
        for line in found.rejected[:10]:
            print(f"  {line}")
    return 1 if found.rejected else 0


def _store_tickets(store: db_store.Store, found: tickets.Tickets) -> int:
    known = {n.note_id for n in store.notes(action="ticket")}
    fresh = [n for n in found.notes if n.note_id not in known]
    store.add_notes(fresh)
    return len(fresh)


def _outbox(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.outbox import queue

    config = settings.load(args.config)
    if args.retry:
        delivery.flush(config, clock.SYSTEM.now(), all_now=True)
    waiting = queue.of(config).pending()
    if args.json:
        document = [
            {"key": x.key, "kind": x.kind, "state": x.state, "recipients": list(x.recipients), "tries": x.tries,
             "made_at": clock.iso_z(x.made_at), "next_at": clock.iso_z(x.next_at) if x.next_at else None, "why": x.why}
            for x in waiting
        ]  # fmt: skip
        print(json.dumps(document, indent=2))
        return 0
    if not waiting:
        print("nothing waits")
        return 0
    rows = [(x.key, x.state, x.tries, clock.iso_z(x.next_at) if x.next_at else None, ", ".join(x.recipients), x.why) for x in waiting]  # fmt: skip
    print(table.render(("LETTER", "STATE", "TRIES", "NEXT", "TO", "WHY"), rows, right=frozenset({"TRIES"})))
    return 0
