"""`probing-ctl fleet FIGURE`: the reliability figures of the whole cluster, as tables, JSON or a page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.control_plane import commands, span, table
from probing_cluster.core import clock, errors, settings

FIGURES = {
    "state-breakdown": "jobs and GPU time by final state",
    "job-sizes": "jobs and GPU time by size",
    "failure-rates": "attributed failures per component and GPU-hour, with intervals",
    "failures-over-time": "attributed failures over time, by component",
    "large-job-rate": "failures per node-day of large jobs (r_f)",
    "mttf-by-size": "mean time to failure by job size, with intervals and projection",
    "goodput-loss": "GPU-hours lost by size, first and second order",
    "run-ettr": "effective training time ratio of every run",
    "expected-ettr": "what the models expect by size, and the best checkpoint interval",
    "what-if": "fewer failures, other checkpoints, faster restarts",
    "cooccurrence": "which faults come together",
    "requeue-storms": "jobs that failed again and again, and what they preempted",
}
"""Every figure, by the name of its function in attribution.fleet."""

_EPILOG = "figures:\n" + "\n".join(f"  {name:<20} {meaning}" for name, meaning in FIGURES.items())
_ABOUT = ("since", "until", "partition", "users")


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
    made.add_argument("--since", default="28d", metavar="WHEN", help="28d (ago, the default), 2026-01-31 …")
    made.add_argument("--until", metavar="WHEN", help="end of the span (default now)")
    made.add_argument("--partition", metavar="NAME", help="attempts of this partition only")
    made.add_argument("--user", metavar="NAME", action="append", help="attempts of these users only")
    made.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the figure, such as min_gpus=64",
    )
    made.add_argument("--json", action="store_true", help="one JSON object")
    made.add_argument(
        "--html", metavar="FILE", type=Path, help="write a self-contained page with drawn charts instead"
    )


def _fleet(args: argparse.Namespace) -> int:
    from probing_cluster.db import store as db_store

    config = settings.load(args.config)
    now = clock.SYSTEM.now()
    since = span.instant(args.since, now)
    until = span.instant(args.until, now) if args.until else now
    names = list(FIGURES) if args.figure == "all" else [args.figure]
    with db_store.Store.open(config) as store:
        found = {
            name: compute(
                name,
                store,
                config,
                {"since": since, "until": until, "partition": args.partition, "users": args.user},
                _given(args.set),
            )
            for name in names
        }
    if args.html:
        return _page(args.html, config, found, now)
    if args.json:
        plain = {name: figure.to_json() for name, figure in found.items()}
        print(json.dumps(plain if args.figure == "all" else plain[args.figure], indent=2))
    else:
        print("\n\n".join(text(name, figure) for name, figure in found.items()))
    return 0


def _page(target: Path, config: settings.Settings, found: Mapping[str, Any], made_at: datetime) -> int:
    from probing_cluster.reports import fleet_page

    plain = {name: figure.to_json() for name, figure in found.items()}
    try:
        target.write_text(
            fleet_page.render(config.cluster.name, plain, FIGURES, made_at=made_at), encoding="utf-8"
        )
    except OSError as exc:
        raise errors.UsageError(f"{target} cannot be written: {exc.strerror}") from exc
    print(f"probing-ctl: wrote {target}", file=sys.stderr)
    return 0


def compute(
    name: str, store: Any, config: settings.Settings, about: Mapping[str, Any], given: Mapping[str, str]
) -> Any:
    """One figure; parameters of other figures are left out, unknown ones raise UsageError."""
    import inspect

    from probing_cluster.attribution import accounts, fleet, history

    work = getattr(fleet, name.replace("-", "_"))
    known = inspect.signature(work).parameters
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            allowed = (
                ", ".join(k for k, p in known.items() if p.kind is p.KEYWORD_ONLY and k != "assume") or "none"
            )
            raise errors.UsageError(f"{name} has no parameter {key!r}; it has: {allowed}")
        options[key] = _value(key, value, str(known[key].annotation))
    if "assume" in known:
        options["assume"] = accounts.assumptions(config.attribution)
    # Exported months and Postgres as one, for figures that read attempts rather than stored accounts.
    source = history.of(store) if "Given" in str(known["source"].annotation) else store
    return work(source, **about, **options)


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


def text(name: str, figure: Any) -> str:
    """A figure as its sentence, its numbers and its tables."""
    plain = figure.to_json()
    about = [f"{plain['since']} to {plain['until']}"]
    about += [f"partition {plain['partition']}"] if plain.get("partition") else []
    about += [f"users {', '.join(plain['users'])}"] if plain.get("users") else []
    lines = [f"{name}: {FIGURES[name]}", "  ".join(about)]
    tables: list[str] = []
    for key, value in plain.items():
        if key in _ABOUT:
            continue
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables.append(_table(value))
        elif isinstance(value, list):
            lines.append(f"{key.replace('_', ' ')}: {', '.join(map(str, value)) or 'none'}")
        elif isinstance(value, dict):
            inner = {k: v for k, v in value.items() if k not in _ABOUT}
            lines += [f"{key} {k}: {_number(v)}".replace("_", " ") for k, v in inner.items()]
        else:
            lines.append(f"{key.replace('_', ' ')}: {_number(value)}")
    return "\n".join([*lines, *tables])


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    rows = _flat(rows)
    heads = list(rows[0])
    numbers = {h.upper() for h in heads if all(isinstance(r[h], int | float | None) for r in rows)}
    cells = [[_number(row[h]) for h in heads] for row in rows]
    return table.render([h.upper() for h in heads], cells, right=frozenset(numbers))


def _flat(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with a part of their own, the same in each, as columns beside the others: `measured low h`."""
    parts: dict[str, list[str]] = {}
    for head in rows[0]:
        found = {tuple(row[head]) for row in rows if isinstance(row[head], dict)}
        if len(found) == 1 and (names := found.pop()):
            parts[head] = list(names)
    return [
        {
            (f"{head} {name}" if head in parts else head): (row[head] or {}).get(name)
            if head in parts
            else row[head]
            for head in row
            for name in parts.get(head, [""])
        }
        for row in rows
    ]


def _number(value: Any) -> str:
    """Numbers short enough to compare; what is not known is `-`."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_number(one)}" for name, one in value.items()) or "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
