"""`probing-ctl repair list|show|hold|release|done`: drained nodes on their way back, and a person's word about them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.cli.nodes import node_acts, nodes_commands
from probing_cluster.core import clock, errors, hostlist, records, settings

if TYPE_CHECKING:
    from probing_cluster.db import store as db_store

_RECENT = timedelta(days=14)
_WORDS = {
    "hold": "take a node's repair over: its tests end, it stays drained, nothing more is done to it",
    "release": "give a node's repair back, or have it tested now: it returns when every test passes",
    "done": "end a node's repair without resuming it (probing-ctl resume does that)",
}


def register(register: commands.Commands) -> None:
    """Adds the five."""
    group = register.group("repair", "drained nodes on their way through tests and repair steps")
    made = group.add("list", _list, "every repair under way")
    made.add_argument("--all", action="store_true", help="those of the last two weeks too")
    made.add_argument("--json", action="store_true", help="one JSON array")
    made = group.add("show", _show, "one node's repair: its state, its steps and every test")
    made.add_argument("node", metavar="NODE", help="the node")
    made.add_argument("--json", action="store_true", help="one JSON object")
    for word, meaning in _WORDS.items():
        made = group.add(word, _record_action, meaning)
        made.add_argument("node", nargs="+", metavar="NODE", help="hostlists")
        made.add_argument("--note", default="", help="your words, kept with the node")
        made.set_defaults(word=word)


def _list(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.repair import engine, steps
    from probing_cluster.control_plane.terminal import table
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    with db_store.Store.open(config) as store:
        found = store.incidents(cluster=config.cluster.name, open_only=True)
        if args.all:
            found = store.incidents(cluster=config.cluster.name, since=clock.SYSTEM.now() - _RECENT)
    if args.json:
        print(json.dumps([_plain(one) for one in found], indent=2))
    elif found:
        rows = [
            (
                one.node,
                one.state,
                one.held_by,
                one.cause,
                f"{one.opened_at:%m-%d %H:%M}Z",
                one.reason,
                ", ".join(steps.taken_and_left(one.cause, one.steps_done, config.repair)[0]),
                one.why,
            )
            for one in found
        ]
        heads = ("NODE", "STATE", "HELD BY", "CAUSE", "SINCE", "DRAINED FOR", "STEPS TAKEN", "WHY")
        print(table.render(heads, rows))
        states = sorted({one.state for one in found}, key=list(engine.MEANINGS).index)
        print("\n" + "\n".join(f"{state}: {engine.MEANINGS[state]}" for state in states))
    else:
        print("no node is under repair" + ("" if args.all else " (--all: those of the last two weeks)"))
    return 0


def _show(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.repair import steps
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    with db_store.Store.open(config) as store:
        found = store.incidents(cluster=config.cluster.name, node=args.node)
        if not found:
            raise errors.NotFound(f"{args.node} was never under repair (probing-ctl repair list)")
        one = found[-1]
        results = [r for r in store.results(since=one.opened_at) if r.incident_id == one.incident_id]
    taken, left = steps.taken_and_left(one.cause, one.steps_done, config.repair)
    if args.json:
        from probing_cluster.control_plane.terminal import diagnose_text

        print(
            json.dumps(
                _plain(one)
                | {
                    "steps_taken": taken,
                    "steps_left": left,
                    "results": [diagnose_text.result_row(r) for r in results],
                },
                indent=2,
            )
        )
    else:
        print(_text(one, (taken, left), results))
    return 0


def _text(
    one: records.RepairIncident,
    steps: tuple[list[str], list[str]],
    results: list[records.DiagnosticResult],
) -> str:
    """`steps`: those taken and those left."""
    from probing_cluster.control_plane.repair import engine
    from probing_cluster.control_plane.terminal import diagnose_text, table

    taken, left = steps
    lines = [
        f"{one.node}: {one.state}{f' ({one.why})' if one.why else ''}",
        f"drained for: {one.reason}",
        f"opened {one.opened_at:%Y-%m-%d %H:%M}Z, in this state since {one.changed_at:%Y-%m-%d %H:%M}Z",
        f"cause: {one.cause}; repair steps taken: {', '.join(taken) or 'none'}; left: {', '.join(left) or 'none'}",
    ]
    lines += (
        [f"held by {one.held_by}: probing-ctl repair release {one.node} gives it back"]
        if one.held_by and one.closed_at is None
        else []
    )
    lines += (
        [f"reservation {one.reservation}, with {hostlist.compress(one.reference_nodes) or 'no reference'}"]
        if one.reservation and one.closed_at is None
        else []
    )
    when, failing = engine.failing(one)
    lines += [f"{when}: {words}" for words in failing]
    lines += [f"bundle: {one.detail['bundle']}"] if "bundle" in one.detail else []
    rows = [
        (
            f"{r.at:%H:%M:%S}",
            str(r.round_id)[:8],
            f"{r.node}-{r.peer}" if r.peer else r.node,
            r.test,
            r.device or "",
            r.outcome.value,
            diagnose_text.measured(r),
            r.message,
        )
        for r in results
        if r.outcome is not records.Outcome.ABSENT
    ]
    lines += (
        ["", table.render(("AT", "ROUND", "NODE", "TEST", "PART", "OUTCOME", "MEASURED", "FOUND"), rows)]
        if rows
        else []
    )
    return "\n".join(lines)


def _record_action(args: argparse.Namespace) -> int:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    names = list(dict.fromkeys(name for text in args.node for name in hostlist.expand(text)))
    with db_store.Store.open(config) as store:
        under = require_under_repair(config.cluster.name, store, names)
        node_acts.add_notes(config, store, names, args.word, args.note, nodes_commands.caller_name())
    for name in names:
        print(f"{name}: {recorded(args.word, under[name])}")
    return 0


def require_under_repair(
    cluster: str, store: db_store.Store, names: Sequence[str]
) -> dict[str, records.RepairIncident]:
    """The open repair of each node; raises NotFound for nodes without one."""
    under = {one.node: one for one in store.incidents(cluster=cluster, open_only=True)}
    absent = [name for name in names if name not in under]
    if absent:
        raise errors.NotFound(f"{hostlist.compress(absent)} is not under repair (probing-ctl repair list)")
    return under


def recorded(word: str, repair: records.RepairIncident) -> str:
    """What is answered to a person's word about a repair: a release gives back no drain that is not ours."""
    from probing_cluster.control_plane.repair import way_back

    if word == "release" and way_back.waits_for_person(repair.why):
        return f"release: kept, but its tests wait: {repair.why}"
    return f"{word}: the service does it with its next pass (probing-ctl repair show {repair.node})"


def _plain(one: records.RepairIncident) -> dict[str, Any]:
    return {
        "incident": str(one.incident_id),
        **records.json_fields(one, "node", "state", "why", "cause"),
        "drained_for": one.reason,
        **records.json_fields(one, "steps_done", "held_by", "reservation"),
        "references": list(one.reference_nodes),
        "round": None if one.round_id is None else str(one.round_id),
        **records.json_fields(one, "opened_at", "changed_at", "closed_at", "detail"),
    }
