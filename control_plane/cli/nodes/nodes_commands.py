"""`probing-ctl nodes|drain|resume|ack|set-healthy`: what is wrong where, and a person's word about it."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane import alarmed_jobs, held_jobs
from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.cli.nodes import node_acts
from probing_cluster.control_plane.policy import last_poll, view
from probing_cluster.control_plane.terminal import node_table, table
from probing_cluster.core import clock, errors, hostlist, records, sanitize, settings, vocabulary
from probing_cluster.core.catalogue import fault_names
from probing_cluster.reports import node_state
from probing_cluster.reports.asking import door

if TYPE_CHECKING:
    from probing_cluster.control_plane.policy import slurm_actions
    from probing_cluster.db import store as db_store

_DECISIONS_OF = timedelta(days=7)
"""How far back the decision about a node that is faulty and not drained is looked for."""


def register(register: commands.Commands) -> None:
    """Adds the five."""
    made = register.add("nodes", _nodes, "what every node reports, and what was done about it")
    made.add_argument("node", nargs="*", metavar="NODE", help="hostlists; default all")
    made.add_argument(
        "--faulty", action="store_true", help="only nodes with a fault, a drain or a silent agent"
    )
    made.add_argument("--json", action="store_true", help="one JSON array")
    made = register.add("drain", _drain, "drain nodes in Slurm, recorded as yours")
    made.add_argument("node", nargs="+", metavar="NODE", help="hostlists")
    made.add_argument("--reason", required=True, help="why; Slurm shows it as 'probing: WHY (you)'")
    made = register.add(
        "resume", _resume, "lift drains made by Probing Cluster or `probing-ctl drain`, no others"
    )
    made.add_argument("node", nargs="+", metavar="NODE", help="hostlists")
    for name, run, meaning in (
        ("ack", _ack, "say that a node's fault is known and being dealt with"),
        (
            "set-healthy",
            _set_healthy,
            "say that a node is repaired: its agent looks again, and our drain is lifted if nothing fails",
        ),
    ):
        made = register.add(name, run, meaning)
        made.add_argument("node", nargs="+", metavar="NODE", help="hostlists")
        made.add_argument("--note", default="", help="your words, kept with the node")
    made.add_argument(
        "--relearn",
        action="store_true",
        help="what is there now is all that should be there: its agent misses no part, mount or service it has learned",
    )


def _open(args: argparse.Namespace) -> tuple[settings.Settings, db_store.Store]:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    return config, db_store.Store.open(config)


def _slurm_operations(config: settings.Settings) -> slurm_actions.SlurmActions:
    from probing_cluster.control_plane.policy import slurm_actions
    from probing_cluster.slurm_plugins import commands as slurm_commands

    return slurm_actions.SlurmActions(config, slurm_commands.SlurmCommands(settings=config.slurm))


def _names(args: argparse.Namespace) -> list[str]:
    names = [name for text in args.node for name in hostlist.expand(text)]
    if args.node and not names:
        raise errors.UsageError(f"{' '.join(args.node)!r} names no node")
    return list(dict.fromkeys(names))


def _known_names(
    args: argparse.Namespace,
    config: settings.Settings,
    store: db_store.Store,
    slurm: slurm_actions.SlurmActions,
) -> list[str]:
    """The nodes asked for, all of them known before anything is done about the first; raises SlurmAway, and SlurmUnavailable for another cluster's Slurm."""
    from probing_cluster.slurm_plugins import commands as slurm_commands

    names = _names(args)
    _require_own(config, store, slurm)
    try:
        known = {node.name for node in slurm.nodes()}
    except slurm_commands.SlurmAway:
        raise
    except errors.SlurmUnavailable:
        return names  # what cannot be checked is tried: each node says for itself what is wrong
    require_known(names, known | {beat.node for beat in store.heartbeats(cluster=config.cluster.name)})
    return names


def _require_own(config: settings.Settings, store: db_store.Store, slurm: slurm_actions.SlurmActions) -> None:
    """Raises SlurmUnavailable where Slurm is another cluster's than the settings name, as with an imported history.

    A cluster whose agents report is ours, whatever its slurm.conf calls it: `probing-ctl doctor` warns of that.
    """
    ours = config.cluster.name
    if not store.heartbeats(cluster=ours) and (theirs := slurm.cluster_name()) not in {"", ours}:
        raise errors.SlurmUnavailable(
            f"Slurm here is cluster {theirs}, and the settings are of {ours} ([cluster] name)"
        )


def caller_name() -> str:
    """The person at the keyboard, also behind sudo; the number of an account without a name (LDAP that is away, a container)."""
    if by_sudo := os.environ.get("SUDO_USER"):
        return sanitize.clean(by_sudo, 64)
    try:
        return sanitize.clean(getpass.getuser(), 64)
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return f"uid {os.getuid()}"


def _nodes(args: argparse.Namespace) -> int:
    wanted = _names(args)
    config, store = _open(args)
    unanswered: errors.SlurmUnavailable | None = None
    with store:
        try:
            operations = _slurm_operations(config)
            _require_own(config, store, operations)
            slurm = {n.name: n for n in operations.named_nodes()}
        except errors.SlurmUnavailable as exc:
            slurm, unanswered = {}, exc
        rows = _node_rows(config, store, slurm)
        serves = door.serves(config)
        read_at = last_poll.at(store, config.cluster.name)
        asleep = last_poll.stale(read_at, clock.SYSTEM.now(), config, serves)
    known = {row["node"] for row in rows}
    if not known:
        raise errors.SlurmUnavailable(
            f"no node is known: {unanswered or 'Slurm lists none'}, and no agent was ever heard (probing-ctl doctor says why; an imported history is read with probing-report and probing-ctl fleet)"
        )
    require_known(wanted, known)
    if unanswered is not None:
        print(f"probing-ctl: {unanswered}; how Slurm has the nodes is not known", file=sys.stderr)
    rows = [r for r in rows if (not wanted or r["node"] in wanted) and (not args.faulty or _faulty(r))]
    if args.json:
        print(json.dumps([_plain(row) for row in rows], indent=2, default=str))
    elif rows:
        if asleep:
            until = "" if serves else ": nothing new below is decided until it does"
            print(f"{asleep}{until} (probing-ctl doctor)", file=sys.stderr)
        print(node_table.text(rows, table.terminal_width()))
        for words in dict.fromkeys(line for row in rows for line in row["held"]):
            print(f"GPUs held idle: {words}")
        for words in dict.fromkeys(line for row in rows for line in row["alarms"]):
            print(f"Word of alarm: {words}")
    else:
        n_nodes = len(wanted or known)
        print(f"no fault, drain or silent agent on {n_nodes} node{'s' if n_nodes > 1 else ''}")
    return unanswered.exit_code if unanswered is not None else 0


def require_known(names: Sequence[str], known: Collection[str]) -> None:
    """Raises NotFound for names that neither Slurm nor an agent knows: a slip of the keyboard."""
    unknown = [name for name in names if name not in known]
    if unknown:
        raise errors.NotFound(
            f"{hostlist.compress(unknown)} is not known: Slurm does not list it, and no agent was ever heard there"
        )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    named = [
        {"name": f.name, "severity": f.severity, "since": f.since and clock.iso_z(f.since), "signs": list(f.keys)}
        for f in row["named"]
    ]  # fmt: skip
    return {**row, "named": named}


def _node_rows(
    config: settings.Settings, store: db_store.Store, slurm: Mapping[str, view.Node]
) -> list[dict[str, Any]]:
    """A row for every node; `slurm` is empty where Slurm did not answer."""
    cluster = config.cluster.name
    beats = {b.node: b for b in store.heartbeats(cluster=cluster)}
    ages, silences = store.heartbeat_ages_s(cluster=cluster), store.silences_s(cluster=cluster)
    now = clock.SYSTEM.now()
    since = now - _DECISIONS_OF
    drains = store.drains(since=since, actions=["drain"], cluster=cluster)
    latest = {d.node: d for d in sorted(node_state.as_shown(drains, now), key=node_table.decided_at)}
    open_drains = {d.node: d for d in store.drains(open_only=True, cluster=cluster) if d.action == "drain"}
    denied = view.denials(drains, beats)
    valid_from = now - timedelta(seconds=config.policy.refusal_ttl_s)
    given = store.drains(since=valid_from, actions=["refuse"], cluster=cluster)
    refusing = view.permissions(given, beats, valid_from)
    held = held_jobs.read(store, cluster, config.policy.idle_s, now)
    alarmed = alarmed_jobs.read(store, cluster)
    repairs = {one.node: one for one in store.incidents(cluster=cluster, open_only=True)}
    tested = node_table.tested(repairs.values())
    acks = {n.subject.removeprefix("node:"): n for n in store.notes(action="ack")}  # the last one stays
    return [
        _node_row(
            name,
            slurm.get(name),
            beats.get(name),
            (ages.get(name), silences.get(name)),
            (_open_drain(open_drains.get(name), slurm.get(name), known=bool(slurm)), latest.get(name)),
            _of_test(acks.get(name), open_drains.get(name)) if name in tested else acks.get(name),
        )
        | node_table.under_test(slurm.get(name), tested.get(name))
        | {
            "denied": _denied(denied.get(name)),
            "repair": node_table.repair_words(repairs.get(name)),
            "refusing": node_table.refusing(slurm.get(name), refusing.get(name)),
            "held": [
                f"job {h.ref}{f' of {h.user}' if h.user else ''} {h.words}" for h in held if name in h.nodes
            ],
            "alarms": [
                f"job {a.ref}{f' of {a.user}' if a.user else ''} {a.words}" for a in alarmed if name == a.node
            ],
        }
        for name in sorted({*slurm, *beats, *open_drains})
    ]


def _open_drain(drain: records.Drain | None, node: view.Node | None, *, known: bool) -> records.Drain | None:
    """A recorded drain unless Slurm, read now, shows that it is over; the service records that with its next poll."""
    return None if drain is not None and known and view.drain_over(node) else drain


def _denied(drain: records.Drain | None) -> str:
    """`not drained: budget: 1 of 1 nodes …`, with when it was denied; empty where nothing was."""
    return "" if drain is None else f"not drained: {drain.why_state} ({drain.at:%m-%d %H:%M}Z)"


def _node_row(
    name: str,
    node: view.Node | None,
    beat: records.AgentHeartbeat | None,
    unheard_s: tuple[float | None, float | None],
    drains: tuple[records.Drain | None, records.Drain | None],
    ack: records.OperatorNote | None,
) -> dict[str, Any]:
    """One node; `unheard_s` since its last heartbeat and of that while it could be heard, `drains` our open one and our latest decision."""
    drain, latest = drains
    named = fault_names.named(beat.faults if beat else {})
    signs = [(key, fault.severity) for fault in named for key in fault.keys]
    return {
        "node": name,
        "slurm": "+".join(sorted(node.states)) if node else "unknown",
        "slurm_reason": node.reason if node else "",
        "age_s": unheard_s[0],
        "silent_s": unheard_s[1],
        "beat_s": beat.beat_s if beat else None,
        "faults": [f"{key} ({severity})" for key, severity in signs],
        "named": named,
        "drain": node_table.drained(node, named, drain, latest),
        "drained_for": "; ".join(text for text in (drain.reason, drain.why_state) if text) if drain else "",
        "acknowledged": _acknowledged(ack, drain, named, node),
    }


def _of_test(ack: records.OperatorNote | None, drain: records.Drain | None) -> records.OperatorNote | None:
    """What is acknowledged of a node that our test has: the drain that the test is for. A partner in the test has none."""
    return ack if ack is not None and drain is not None and ack.at >= drain.at else None


def _acknowledged(
    ack: records.OperatorNote | None,
    drain: records.Drain | None,
    faults: Sequence[fault_names.NamedFault],
    node: view.Node | None,
) -> str:
    """The person who acknowledged the node's present fault; empty when the fault, or another's drain, began after that, or when there is none."""
    if ack is None or not (drain or faults or is_out(node)):
        return ""
    began = drain.at if drain else min((f.since for f in faults if f.since), default=None)
    if node is not None and began is None:
        began = node.reason_at
    if began is not None and ack.at < began:
        return ""
    return f"{ack.author}, {ack.at:%m-%d %H:%M}Z{f': {ack.note}' if ack.note else ''}"


def is_out(node: view.Node | None) -> bool:
    """Whether Slurm has the node out of service, whoever took it out."""
    return node is not None and bool(node.gone or node.states & vocabulary.DRAINED_STATES)


def _faulty(row: dict[str, Any]) -> bool:
    return bool(row["faults"] or row["drained_for"] or row["slurm_reason"] or node_table.silent(row))


def _drain(args: argparse.Namespace) -> int:
    node_acts.drain_reason(args.reason, "")
    config, store = _open(args)
    failed = 0
    with store:
        person = store.speaker(caller_name())
        reason = node_acts.drain_reason(args.reason, person)
        slurm = _slurm_operations(config)
        for name in _known_names(args, config, store, slurm):
            failed += _attempt(
                name, lambda name=name: node_acts.drain_one(config, store, slurm, name, reason, person)
            )
    return 1 if failed else 0


def _resume(args: argparse.Namespace) -> int:
    config, store = _open(args)
    with store:
        slurm = _slurm_operations(config)
        names = _known_names(args, config, store, slurm)
        still = {
            b.node: node_table.still(b.faults) for b in store.heartbeats(names, cluster=config.cluster.name)
        }
        failed = sum(
            _attempt(name, lambda name=name: node_acts.resume_one(config, store, slurm, name, caller_name()) + still.get(name, ""))
            for name in names
        )  # fmt: skip
    return 1 if failed else 0


def _ack(args: argparse.Namespace) -> int:
    from probing_cluster.slurm_plugins import commands as slurm_commands

    config, store = _open(args)
    with store:
        slurm = _slurm_operations(config)
        try:
            names = _known_names(args, config, store, slurm)
        except slurm_commands.SlurmAway:
            names = _names(args)  # a note needs no Slurm
        try:
            out = {node.name for node in slurm.nodes() if is_out(node)}
        except errors.SlurmUnavailable:
            out = set()
        node_acts.add_notes(config, store, names, "ack", args.note, caller_name())
        bad = (
            {b.node for b in store.heartbeats(names, cluster=config.cluster.name) if b.faults}
            | {d.node for d in store.drains(open_only=True, cluster=config.cluster.name)}
            | out
        )
    for name in names:
        print(f"{name}: {'acknowledged' if name in bad else 'no fault to acknowledge; the note is kept'}")
    return 0


def _set_healthy(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.policy import recheck

    config, store = _open(args)
    with store:
        slurm = _slurm_operations(config)
        names = list(dict.fromkeys(_known_names(args, config, store, slurm)))
        if sys.stderr.isatty():
            print(f"asking {_agents(names)} to look again …", file=sys.stderr, flush=True)
        speaker, ours = store.speaker(caller_name()), config.cluster.name
        whys = recheck.look_again(store, names, speaker, cluster=ours, relearn=args.relearn)
        failed = sum(
            _attempt(
                name,
                lambda name=name: node_acts.heal_one(
                    config, store, slurm, name, args.note, whys[name], caller_name()
                ),
            )
            for name in names
        )
    return 1 if failed else 0


def _agents(names: list[str]) -> str:
    return f"the agent of {names[0]}" if len(names) == 1 else f"the agents of {len(names)} nodes"


def _attempt(name: str, act: Any) -> int:
    """One node of several: its failure is said and does not stop the others; raises SlurmAway, which concerns all of them."""
    from probing_cluster.slurm_plugins import commands as slurm_commands

    try:
        print(table.folded(f"{name}: {act()}"))
    except slurm_commands.SlurmAway as exc:
        raise slurm_commands.SlurmAway(
            f"{exc}; whether it was done on {name} is not known, and no node named after it was tried"
            " (probing-ctl doctor names the daemon)"
        ) from exc
    except errors.ProbingError as exc:
        print(table.folded(f"{name}: not done: {exc}"))
        return 1
    return 0
