"""`probing-ctl lemon report|list|thresholds|exclude-list`: the night, and the lemons of today."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import commands, span
from probing_cluster.control_plane.cli.nodes import lemon_people_commands
from probing_cluster.control_plane.terminal import progress, table
from probing_cluster.core import clock, command_line, errors, hostlist, records, settings, vocabulary

if TYPE_CHECKING:
    from probing_cluster.control_plane.outbox import queue
    from probing_cluster.db import store as db_store
    from probing_cluster.lemon import gather, nightly

_THRESHOLD_POINTS = (50.0, 90.0, 95.0, 99.0, 99.5, 100.0)


def register(register: commands.Commands) -> None:
    """Adds `lemon report|list|thresholds|confirm|deny|repaired|tickets|exclude-list|outbox`."""
    group = register.group("lemon", "nodes that keep killing jobs")
    _register_reading(group)
    lemon_people_commands.register(group)


def _register_reading(group: commands.Commands) -> None:
    made = group.add("report", _report, "the night's report; a day not scored yet is scored first")
    made.add_argument(
        "--day",
        metavar="D",
        help="the day, 2026-11-20 (default: the last whole day, UTC; of an imported history its last)",
    )
    made.add_argument("--again", action="store_true", help="score it again, and with --send mail it again")
    made.add_argument(
        "--html", metavar="FILE", help="also write the mail as a page ('-': to standard output, alone)"
    )
    made.add_argument(
        "--send", action="store_true", help="mail it (and post it) now, if that night was not yet"
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made = group.add("list", _list, "lemons and suspects of the latest scored day; of named nodes everything")
    made.add_argument("node", nargs="*", metavar="NODE", help="hostlists; default lemons and suspects")
    made.add_argument("--json", action="store_true", help="one JSON array")
    made = group.add(
        "thresholds",
        _thresholds,
        "the paper's seven thresholds from this site's own distribution, and whom they name",
    )
    made.add_argument(
        "--day",
        metavar="D",
        help="the day the window ends with (default: the last whole day, UTC; of an imported history its last)",
    )
    made.add_argument(
        "--percentile", type=float, default=99.0, metavar="P", help="of the site's nodes (default 99)"
    )
    made.add_argument(
        "--votes",
        type=command_line.whole,
        default=2,
        metavar="N",
        help="signals that must reach theirs (default 2)",
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made = group.add(
        "exclude-list", _exclude_list, "the lemons as a hostlist for --exclude, or as node features"
    )
    made.add_argument("--suspects", action="store_true", help="suspects, too")
    made.add_argument(
        "--format",
        choices=("exclude", "features", "weight"),
        default="exclude",
        help="hostlist; or scontrol lines that give every other node the feature 'sound'; or that use lemons last",
    )
    made.add_argument("--json", action="store_true", help="one JSON array of node names")


def _open(args: argparse.Namespace) -> tuple[settings.Settings, db_store.Store]:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    return config, db_store.Store.open(config)


def _day(text: str | None, store: db_store.Store) -> datetime:
    """The day asked for; by default the last whole one, or the last that an imported accounting tells of."""
    from probing_cluster.lemon import nightly

    today = nightly.day_of(clock.SYSTEM.now())
    if text is None:
        exported_until = store.exported_until()
        last = today - nightly.DAY
        return last if exported_until is None else min(last, nightly.day_of(exported_until))
    try:
        day = span.possible(datetime.fromisoformat(text).replace(tzinfo=UTC), text)
    except ValueError as exc:
        raise errors.UsageError(f"{text!r} is no day; write 2026-11-20") from exc
    if day != nightly.day_of(day) or day >= today:
        raise errors.UsageError(f"{text} is not a whole day that has passed (UTC)")
    return day


def _report(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane import delivery
    from probing_cluster.control_plane.outbox import night_messages
    from probing_cluster.reports.lemon import lemon_json, lemon_text, lemon_view

    config, store = _open(args)
    with store:
        with progress.ProgressBar("lemon report", None, "nights scored"):
            night = _night(config, store, _day(args.day, store), again=args.again)
        drains = store.drains(open_only=True, cluster=config.cluster.name)
        if args.html:
            _write_html(args.html, night, config, drains)
        if args.json:
            print(lemon_json.dumps(lemon_json.document(night)), end="")
        elif args.html != "-":
            view = lemon_view.of(night, drains=drains, report_url=config.mail.report_url)
            print(lemon_text.render(view), end="")
        if not args.send:
            return 0
        now = clock.SYSTEM.now()
        new = night_messages.put(config, night, drains, now, again=args.again)
        tried = delivery.flush(config, now)
    return _report_sent(config, new, tried)


def _night(config: settings.Settings, store: db_store.Store, day: datetime, *, again: bool) -> nightly.Night:
    """The stored night, or a fresh one."""
    from probing_cluster.lemon import nightly

    if not again:
        try:
            return nightly.load(store, config, day)
        except errors.NotFound:
            pass
    return nightly.score(store, config, day, slurm_facts=_slurm_facts(config, store, day))


def _slurm_facts(config: settings.Settings, store: db_store.Store, day: datetime) -> gather.SlurmFacts:
    """What Slurm tells, where it can be asked from here."""
    from probing_cluster.control_plane.policy import slurm_actions
    from probing_cluster.control_plane.service.tasks.nodes import lemon as task
    from probing_cluster.lemon import gather
    from probing_cluster.slurm_plugins import commands as slurm_commands

    try:
        slurm = slurm_actions.SlurmActions(config, slurm_commands.SlurmCommands(settings=config.slurm))
        return task.slurm_facts(slurm, store, config, day)
    except errors.SlurmUnavailable:
        return gather.SlurmFacts()


def _write_html(
    target: str, night: nightly.Night, config: settings.Settings, drains: Sequence[records.Drain]
) -> None:
    from probing_cluster.reports.sending import mail

    markup = mail.page_of(night, config.mail, drains=drains)
    if target == "-":
        print(markup)
        return
    command_line.write_file(Path(target), markup)


def _report_sent(config: settings.Settings, new: Sequence[str], tried: Sequence[queue.QueuedMessage]) -> int:
    import sys

    def print_line(text: str) -> None:
        print(f"probing-ctl: {text}", file=sys.stderr)

    if not (config.mail.host and config.mail.recipients) and not config.lemon.webhook_url:
        raise errors.SettingsError("[mail] host and recipients are empty, and so is [lemon] webhook_url")
    for message in tried:
        print_line(
            f"{message.kind} {message.key}: {message.state}{f' ({message.why})' if message.why else ''}"
        )
    if not new and not tried:
        print_line("that night was sent before; --again sends it once more")
    return 0 if all(message.state == "sent" for message in tried) else 1


def _list(args: argparse.Namespace) -> int:
    from probing_cluster.lemon import nightly
    from probing_cluster.reports.lemon import lemon_json, lemon_text, lemon_view

    config, store = _open(args)
    with store:
        night = nightly.load(store, config)
        drains = store.drains(open_only=True, cluster=config.cluster.name)
    wanted = [name for text in args.node for name in hostlist.expand(text)]
    known = {s.node: s for s in night.scores}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise errors.NotFound(
            f"{hostlist.compress(unknown)} has no score of {night.day:%Y-%m-%d}: not used then, or no such node"
        )
    shown = [known[n] for n in wanted] if wanted else [*night.new, *night.still, *night.suspects]
    if args.json:
        print(lemon_json.dumps([lemon_json.score(s) for s in shown]), end="")
        return 0
    if wanted:
        cards = [lemon_view.card(s, night, drains, config.mail.report_url) for s in shown]
        print("\n\n".join(lemon_text.card(c) for c in cards))
        return 0
    rows = [
        (s.node, s.verdict, lemon_view.chance(s.score), str(s.signals.get("since", ""))[:10] or None,
         s.multi_node_node_fails, s.single_node_node_fails, s.xid_cnt, s.out_count, s.reasons[0] if s.reasons else "")
        for s in shown
    ]  # fmt: skip
    print(f"{night.cluster}, {night.day:%Y-%m-%d}: {lemon_view.headline(night)}")
    print("\n".join(lemon_text.unsuspected(lemon_view.of(night, drains=drains))), end="")
    print("\n" * (not (night.new or night.still)), end="")
    if rows:
        heads = ("NODE", "VERDICT", "CHANCE", "SINCE", "MULTI", "SINGLE", "XIDS", "OUT", "WHY")
        print(table.render(heads, rows, right=frozenset({"CHANCE", "MULTI", "SINGLE", "XIDS", "OUT"})))
    return 0


def _thresholds(args: argparse.Namespace) -> int:
    import numpy as np

    from probing_cluster.lemon import baseline, nightly

    if not 0 < args.percentile <= 100 or args.votes < 1:
        raise errors.UsageError("--percentile lies between 0 and 100, --votes is 1 or more")
    config, store = _open(args)
    with store, progress.ProgressBar("lemon thresholds", None, "nights measured"):
        day = _day(args.day, store)
        found, _ = nightly.measure(store, config, day, slurm_facts=_slurm_facts(config, store, day))
    if not found.nodes:
        raise errors.NotFound(
            f"no node was in use in the {config.lemon.window_days} days until {day:%Y-%m-%d}"
        )
    arrays = found.arrays()
    rule = baseline.LemonRule(percentile=args.percentile, votes=args.votes)
    limits = baseline.thresholds(arrays, rule)
    named = [n.node for n, hit in zip(found.nodes, baseline.named(arrays, limits, rule), strict=True) if hit]
    spread = {
        name: {
            f"p{p:g}": _number(np.nanpercentile(v, p)) if np.isfinite(v).any() else None
            for p in _THRESHOLD_POINTS
        }
        for name, v in arrays.items()
    }
    if args.json:
        document = {
            "day": f"{day:%Y-%m-%d}", "n_nodes": len(found.nodes), "percentile": args.percentile, "votes": args.votes,
            "thresholds": {n: _number(v) for n, v in limits.items()}, "distribution": spread, "named": named,
            "outages_by_slurm": found.outages_by_slurm,
        }  # fmt: skip
        print(json.dumps(document, indent=2))
        return 0
    heads = ("SIGNAL", *(f"P{p:g}" if p < 100 else "MAX" for p in _THRESHOLD_POINTS), "THRESHOLD")
    rows = [(name, *spread[name].values(), _number(limits[name])) for name in baseline.SIGNALS]
    nodes, days = (
        vocabulary.plural(len(found.nodes), "node"),
        vocabulary.plural(config.lemon.window_days, "day"),
    )
    print(f"{nodes}, {days} until {day:%Y-%m-%d}")
    print(table.render(heads, rows, right=frozenset(heads[1:])))
    print(
        f"{args.votes} of seven, one of them a failure signal, name: {hostlist.compress(named) or 'nobody'}"
    )
    return 0


def _number(value: Any) -> float | None:
    number = float(value)
    return round(number, 4) if math.isfinite(number) else None


def _exclude_list(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.policy import exclude_list
    from probing_cluster.lemon import nightly

    config, store = _open(args)
    with store:
        night = nightly.load(store, config)
    bad = sorted(s.node for s in (*night.new, *night.still, *(night.suspects if args.suspects else ())))
    if args.json:
        print(json.dumps(bad))
    elif args.format == "exclude":
        print(hostlist.compress(bad))
    else:
        nodes = exclude_list.slurms_nodes(config)
        lines = (
            exclude_list.features(bad, nodes)
            if args.format == "features"
            else exclude_list.weights(bad, nodes)
        )
        print("\n".join(lines))
    return 0
