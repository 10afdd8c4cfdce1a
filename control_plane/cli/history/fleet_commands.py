"""`probing-ctl fleet FIGURE`: the reliability figures of the whole cluster, as tables, JSON or a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.control_plane.cli import cluster_choice, commands, span
from probing_cluster.control_plane.terminal import fleet_text, progress
from probing_cluster.core import clock, command_line, errors, settings

if TYPE_CHECKING:
    from probing_cluster.attribution.history import history
    from probing_cluster.db import store as db_store

FIGURES = {
    "state-breakdown": "jobs and GPU time by final state",
    "job-sizes": "jobs and GPU time by size",
    "failure-rates": "attributed failures per component and GPU-hour, with intervals",
    "failures-over-time": "attributed failures over time, by component, and when checks came into force",
    "large-job-rate": "failures per node-day of large jobs (r_f)",
    "mttf-by-size": "mean time to failure by job size, with intervals and projection",
    "goodput-loss": "GPU-hours lost by size, first and second order",
    "utilisation": "GPU time in use, not lost, and free in parts of nodes, against capacity",
    "run-ettr": "effective training time ratio of every run",
    "expected-ettr": "what the models expect by size, and the best checkpoint interval",
    "ettr-by-size": "measured against expected ETTR by size, of runs of a day and more",
    "ettr-grid": "expected ETTR over failure rate, checkpoint interval and restart time",
    "what-if": "fewer failures, other checkpoints, faster restarts",
    "check-coverage": "failures no check saw, good jobs beside a failed check, checks that found nothing",
    "lemon-signals": "the seven lemon signals over all nodes, lemons marked",
    "lemon-departures": "large jobs that infrastructure ended, before lemons left and after",
    "cooccurrence": "which faults come together",
    "requeue-storms": "jobs that failed again and again, and what they preempted",
    "gpu-swaps": "GPUs that were swapped, by node and per node-day",
    "node-tests": "nodes by tests: how much slower than their model each is, what failed, what drifts",
    "node-pace": "nodes by running gangs: each node's own time in a step against the others of its gang",
}
"""Every figure, by the name of its function in attribution.fleet."""
_NOT_SET = ("assume", "attempts")
"""Parameters of figures that no person gives."""

_EPILOG = "figures:\n" + "\n".join(f"  {name:<20} {meaning}" for name, meaning in FIGURES.items())


def register(register: commands.Commands) -> None:
    """Adds `fleet`."""
    made = register.add("fleet", _fleet, "reliability figures of the cluster", epilog=_EPILOG)
    made.add_argument(
        "figure",
        metavar="FIGURE",
        choices=(*FIGURES, "all"),
        nargs="?",
        default="all",
        help="one of those below, or all (the default)",
    )
    made.add_argument(
        "--since", default="28d", metavar="WHEN", help="28d (ago, the default), yesterday, 2026-01-31 …"
    )
    made.add_argument(
        "--until",
        metavar="WHEN",
        help="end of the span (default, and at the latest: now, or where imported accounting ends)",
    )
    cluster_choice.add_option(made)
    made.add_argument(
        "--all-clusters", action="store_true", help="the figures of all clusters of the database together"
    )
    made.add_argument("--partition", metavar="NAME", help="attempts of this partition only")
    made.add_argument("--user", metavar="NAME", action="append", help="attempts of these users only")
    made.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the figure, such as above_gpus=64",
    )
    made.add_argument(
        "--tables", action="store_true", help="all figures with their tables, not one screen in words"
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made.add_argument(
        "--html", metavar="FILE", type=Path, help="write a self-contained page with drawn charts instead"
    )


def _fleet(args: argparse.Namespace) -> int:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    now = clock.SYSTEM.now()
    names = list(FIGURES) if args.figure == "all" else [args.figure]
    given = _given(args.set)
    if args.all_clusters and args.cluster:
        raise errors.UsageError("--cluster NAME or --all-clusters, not both")
    with db_store.Store.open(config) as opened, progress.ProgressBar("fleet", len(names), "figures") as done:
        # Who is not let in hears it before seconds of imports and figures.
        store = opened.of(None) if args.all_clusters else cluster_choice.chosen(opened, config, args.cluster)
        last = store.recorded_until(now)
        since = span.instant(args.since, last)
        until = min(span.instant(args.until, now), last) if args.until else last
        about = {"since": since, "until": until, "partition": args.partition, "users": args.user}
        clusters = store.cluster or ", ".join(store.clusters()) or config.cluster.name
        _require_attempts(store, config, args, since, until)
        first = store.first_start()
        # One figure alone reads what it needs; several share what is read once.
        found, source = {}, read_once(store) if len(names) > 1 else None
        for name in names:
            done.at(name)
            found[name] = compute(name, store, config, about, given, source, begin=first)
            done.step()
    plain = {name: as_json(figure, since) for name, figure in found.items()}
    if args.html:
        return _page(args.html, clusters, plain, now)
    if args.json:
        print(json.dumps(plain if args.figure == "all" else plain[args.figure], indent=2))
    else:
        _print(args, clusters, plain)
    return 0


def _print(args: argparse.Namespace, clusters: str, plain: Mapping[str, Any]) -> None:
    if args.figure == "all":
        print(fleet_text.summary(plain, clusters))
    if args.figure != "all" or args.tables:
        print("\n" * (args.figure == "all"), end="")
        print("\n\n".join(fleet_text.one(name, FIGURES[name], figure) for name, figure in plain.items()))


def _require_attempts(
    store: db_store.Store,
    config: settings.Settings,
    args: argparse.Namespace,
    since: datetime,
    until: datetime,
) -> None:
    """Raises NotFound for a partition or user that no attempt of the span has: a slip of the keyboard."""
    if until <= since:
        ends = f"; what is on record ends {until:%Y-%m-%d %H:%M} UTC" if args.until else ""
        raise errors.UsageError(f"--until {args.until or 'now'} is not after --since {args.since}{ends}")
    for option, names in (("--partition", [args.partition]), ("--user", args.user or [])):
        if "" in names:
            raise errors.UsageError(
                f"{option} '' names nothing: an empty variable, perhaps; leave {option} out for all"
            )
    if not (args.partition or args.user):
        return
    about = {"since": since, "until": until, "partition": args.partition, "users": args.user}
    sizes = compute("job-sizes", store, config, about, {}).to_json()
    if not sizes["sizes"] and not sizes["n_unknown_gpus"]:
        named = [f"partition {args.partition}"] if args.partition else []
        named += [f"user {' or '.join(args.user)}"] if args.user else []
        between = f"{since:%Y-%m-%d %H:%M} and {until:%Y-%m-%d %H:%M} UTC"
        raise errors.NotFound(f"no attempt of {', '.join(named)} ran between {between}")


def _page(target: Path, clusters: str, plain: Mapping[str, Any], made_at: datetime) -> int:
    from probing_cluster.reports.fleet import fleet_page

    markup = fleet_page.render(clusters, plain, FIGURES, made_at=made_at)
    command_line.write_file(target, markup)
    print(f"probing-ctl: wrote {target}", file=sys.stderr)
    return 0


def read_once(store: db_store.Store) -> history.ReadOnce:
    """What many figures of one span are computed from: attempts and events are read for the first that needs them."""
    from probing_cluster.attribution.history import history

    return history.ReadOnce(store)


def compute(
    name: str,
    store: Any,
    config: settings.Settings,
    about: Mapping[str, Any],
    given: Mapping[str, str],
    source: history.ReadOnce | None = None,
    *,
    begin: datetime | None = None,
) -> Any:
    """One figure; parameters of other figures are left out, unknown ones raise UsageError. `source`: of several figures, see read_once.

    `begin`: the first start on record. A figure of attempts begins there if its span begins before: capacity and periods would else be of time
    that nothing covers.
    """
    import inspect

    from probing_cluster.attribution.history import history
    from probing_cluster.attribution.reliability import accounts, fleet

    work = getattr(fleet, name.replace("-", "_"))
    known = inspect.signature(work).parameters
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known or key in _NOT_SET:
            allowed = (
                ", ".join(k for k, p in known.items() if p.kind is p.KEYWORD_ONLY and k not in _NOT_SET)
                or "none"
            )
            raise errors.UsageError(f"{name} has no parameter {key!r}; it has: {allowed}")
        options[key] = _value(key, value, str(known[key].annotation))
    if "assume" in known:
        options["assume"] = accounts.assumptions(config.attribution)
    if "attempts" in known and source is not None:
        options["attempts"] = source
    # Exported months and Postgres as one, for figures that read attempts rather than stored accounts.
    attempts = "Given" in str(known["source"].annotation)
    if attempts and begin is not None and about["since"] < begin < about["until"]:
        about = {**about, "since": begin}
    return work((source or history.of(store)) if attempts else store, **about, **options)


def as_json(figure: Any, since: datetime) -> dict[str, Any]:
    """The figure as `--json` prints it; `requested_since` is the begin asked for, if nothing is on record before the figure's own."""
    plain: dict[str, Any] = figure.to_json()
    return plain | ({"requested_since": clock.iso_z(since)} if figure.since > since else {})


def _given(texts: Sequence[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    bad = [text for text, (name, equals, _) in zip(texts, pairs, strict=True) if not name or not equals]
    if bad:
        raise errors.UsageError(f"{bad[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _value(name: str, text: str, annotation: str) -> Any:
    """`text` as the parameter's type."""
    try:
        if annotation.startswith("Iterable"):
            items = [item for item in text.split(",") if item]
            return [int(item) for item in items] if "int" in annotation else items
        if "bool" in annotation:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[
                text.lower()
            ]
        if "int" in annotation:
            return int(text)
        return float(text) if "float" in annotation else text
    except (ValueError, KeyError) as exc:
        raise errors.UsageError(f"{name}={text!r} does not fit {annotation}") from exc
