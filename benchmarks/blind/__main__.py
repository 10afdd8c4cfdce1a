"""`python -m benchmarks.blind`: strangers' cases, and how often the verdict is right on them.

    python -m benchmarks.blind [--cases DIR …] [--only CLASS …] [--wrong] [--check] [--write]

The cases of `benchmarks/blind/cases` and of every `--cases DIR`, a directory outside the tree where texts lie that no licence
lets us copy. `--check` reads the cases and runs none; `--wrong` says what was answered wrongly; `--write` writes the section of
docs/campaign.md, of those cases only whose labels are committed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.blind import ask, score
from benchmarks.blind import case as cases
from probing_cluster.db.server import embedded


def main() -> int:
    """The table, and with --write the page."""
    args = _arguments()
    try:
        every = [c for home in (cases.HOME, *args.cases) for c in cases.read_all(home)]
    except cases.BadCase as exc:
        print(exc, file=sys.stderr)
        return 1
    chosen = [c for c in every if not args.only or c.kind in args.only]
    loose = [c for c in chosen if not c.committed]
    print(f"{len(chosen)} cases; the labels of {len(loose)} are not committed")
    if args.check:
        return 0
    if args.write:
        chosen = [c for c in chosen if c.committed]
    found, missing = run(chosen)
    if args.wrong:
        for one in found:
            if not one.right:
                print(f"{one.name}\n  expected {one.expected}\n  said     {one.answer}")
    print("\n".join(score.table(found, missing)))
    if args.write:
        page = score.PAGE.read_text("utf-8")
        made = score.section(found, missing, score.own_figures(page), _commit())
        score.PAGE.write_text(score.put(page, made), "utf-8")
    return 0


def run(chosen: Sequence[cases.Case]) -> tuple[list[ask.Answer], list[str]]:
    """The answers, and the names of the cases whose text is not here."""
    found: list[ask.Answer] = []
    missing: list[str] = []
    with databases(any(c.kind == "incident" for c in chosen)) as fresh:
        for one in chosen:
            try:
                found.append(ask.answer(one, next(fresh) if one.kind == "incident" else ""))
            except ask.TextMissing:
                missing.append(one.name)
    return found, missing


@contextmanager
def databases(wanted: bool) -> Iterator[Iterator[str]]:
    """An empty database per incident, of one server that ends with them."""
    if not wanted:
        yield iter(())
        return
    from probing_cluster.db import migrate

    with tempfile.TemporaryDirectory(prefix="blind-db-") as home:
        Path(home).chmod(0o755)  # the server does not run as root
        try:
            template = embedded.ensure(home)
            migrate.upgrade(template)
            yield _fresh(Path(home))
        finally:
            embedded.stop(home)


def _fresh(home: Path) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        with psycopg.connect(embedded.url(home, database="postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE blind{number} TEMPLATE {embedded.DATABASE}")
        yield embedded.url(home, database=f"blind{number}")
        with psycopg.connect(embedded.url(home, database="postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE blind{number} WITH (FORCE)")


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blind")
    parser.add_argument("--cases", type=Path, action="append", default=[], metavar="DIR", help="more cases")
    parser.add_argument("--only", action="append", choices=tuple(cases.CLASSES), help="these classes")
    parser.add_argument("--wrong", action="store_true", help="say what was answered wrongly")
    parser.add_argument("--check", action="store_true", help="read the cases, run none")
    parser.add_argument("--write", action="store_true", help="write the section of docs/campaign.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
