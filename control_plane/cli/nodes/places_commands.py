"""`probing-ctl places`: what nodes share, and which place's nodes fail more than others."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

from probing_cluster.control_plane.cli import commands, span
from probing_cluster.control_plane.terminal import table
from probing_cluster.core import clock, errors, settings, vocabulary

_FAILURES = """
SELECT p.kind, p.place, cardinality(array_agg(DISTINCT p.node)) AS n_nodes, count(DISTINCT f.incident_id) AS n_failures
FROM probing.node_place p
LEFT JOIN (
    SELECT DISTINCT v.cluster, v.node, v.incident_id
    FROM probing.verdict v
    WHERE v.cluster = :cluster AND v.superseded_at IS NULL AND v.incident_id IS NOT NULL AND v.node IS NOT NULL
      AND v.domain IN ('hardware', 'system_software') AND v.confidence IN ('certain', 'likely')
      AND v.onset_at >= :since
) f ON f.cluster = p.cluster AND f.node = p.node
WHERE p.cluster = :cluster AND p.until_at IS NULL
GROUP BY p.kind, p.place
ORDER BY p.kind, p.place
"""


def register(register: commands.Commands) -> None:
    """Adds `places` with its commands."""
    group = register.group("places", "what nodes share: switches, racks, power feeds, file servers")
    made = group.add("list", _list, "every kind of place, or the places of one node")
    made.add_argument("--node", metavar="NAME", help="the places of this node")
    made.add_argument("--json", action="store_true", help="one JSON array")
    made = group.add("load", _load, "read the site's table of places now (docs/places.md)")
    made.add_argument("file", metavar="FILE", type=Path, help="CSV with the columns node, rack, …")
    made = group.add("scan", _scan, "places whose nodes fail more than the other places of their kind")
    made.add_argument(
        "--since", default="28d", metavar="WHEN", help="28d (ago, the default), yesterday, 2026-01-31 …"
    )
    made.add_argument(
        "--false-share",
        default=0.01,
        type=float,
        metavar="SHARE",
        help="share of false ones among those named, 0..1 (default 0.01)",
    )
    made.add_argument("--json", action="store_true", help="one JSON array")


def _list(args: argparse.Namespace) -> int:
    from probing_cluster.attribution.places import layout
    from probing_cluster.db import store as db_store

    config, now = settings.load(args.config), clock.SYSTEM.now()
    with db_store.Store.open(config) as store:
        where = layout.Places(store.places(config.cluster.name)).at(config.cluster.name, now)
    if args.node:
        if args.node not in where.of_node:
            raise errors.NotFound(
                f"no place of {args.node} is known; `probing-ctl places list` shows what is"
            )
        rows = [
            [kind, name, len(where.members[kind, name])] for kind, name in sorted(where.of_node[args.node])
        ]
        heads = ["kind", "place", "nodes"]
    else:
        n_places = Counter(kind for kind, _ in where.members)
        rows = [[kind, n, len(where.placed[kind])] for kind, n in sorted(n_places.items())]
        heads = ["kind", "places", "nodes"]
    if args.json:
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
    elif rows:
        print(table.render(heads, rows, right=frozenset({"places", "nodes"})))
    else:
        print(
            "No place of any node is known: Slurm has no topology plugin, and [cluster] places_file names no table.\n"
            "How to write one: docs/places.md."
        )
    return 0


def _load(args: argparse.Namespace) -> int:
    from probing_cluster.control_plane.imports import places_file
    from probing_cluster.db import store as db_store

    kinds, places = places_file.read(args.file)
    config = settings.load(args.config)
    with db_store.Store.open(config) as store:
        changed = store.save_places(config.cluster.name, kinds, places, clock.SYSTEM.now())
    nodes = len({node for node, _, _ in places})
    print(
        f"{vocabulary.plural(nodes, 'node')}, {', '.join(kinds)}: {vocabulary.plural(changed, 'place')} changed."
    )
    return 0


def _scan(args: argparse.Namespace) -> int:
    import sqlalchemy as sa

    from probing_cluster.attribution.places import scan
    from probing_cluster.db import engines
    from probing_cluster.db import store as db_store

    if not 0 < args.false_share < 1:
        raise errors.UsageError("--false-share lies between 0 and 1")
    config, now = settings.load(args.config), clock.SYSTEM.now()
    since = span.instant(args.since, now)
    given = {"cluster": config.cluster.name, "since": since}
    with db_store.Store.open(config) as store, engines.translated(), store.engine.connect() as connection:
        found = connection.execute(sa.text(_FAILURES), given).fetchall()
    counts = [((kind, place), n_failures, float(n_nodes)) for kind, place, n_nodes, n_failures in found]
    sizes = {(kind, place): n_nodes for kind, place, n_nodes, _ in found}
    named = sorted(scan.excess(counts, args.false_share), key=lambda row: row[3])
    heads = ["kind", "place", "nodes", "failures", "expected", "p"]
    rows = [[*place, sizes[place], n, round(expected, 2), f"{p:.0e}"] for place, n, expected, p in named]
    if args.json:
        print(json.dumps([dict(zip(heads, row, strict=True)) for row in rows]))
    elif rows:
        print(table.render(heads, rows, right=frozenset(heads[2:])))
    else:
        print(f"None of {len(counts)} places has more failures since {since:%Y-%m-%d} than chance explains.")
    return 0
