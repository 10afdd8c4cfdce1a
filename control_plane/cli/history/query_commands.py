"""`probing-ctl query SQL`: one read-only question to the database."""

from __future__ import annotations

import argparse
import csv
import difflib
import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from probing_cluster.control_plane.cli import commands
from probing_cluster.control_plane.terminal import sql_values, table
from probing_cluster.core import command_line, errors, settings

_EPILOG = """The tables are in schema probing, the documented views in schema ops; both are searched.
A table cuts json values; --format json and csv have them whole.
example: probing-ctl query "select cause, count(*) from verdict group by 1 order by 2 desc\""""

_MOST_TIMEOUT_S = 86_400
_OF_THE_QUESTION = ("532", "54", "XX")
"""Classes of SQL states that a question brings about although the driver calls them operational: memory, limits, internal errors."""


def register(register: commands.Commands) -> None:
    """Adds `query`."""
    made = register.add("query", _query, "ask the database one read-only SQL question", epilog=_EPILOG)
    made.add_argument("sql", metavar="SQL", help="one statement, or - for standard input")
    made.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="how to print the rows"
    )
    made.add_argument(
        "--limit",
        type=command_line.whole,
        default=1000,
        metavar="N",
        help="print at most N rows (default 1000, 0 = all)",
    )
    made.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="give up after S seconds (default 60)"
    )


def _query(args: argparse.Namespace) -> int:
    import psycopg

    from probing_cluster.db import driver_errors, engines

    if args.limit < 0 or not 0 < args.timeout < _MOST_TIMEOUT_S:
        raise errors.UsageError(f"--limit must not be below 0, --timeout between 0 and {_MOST_TIMEOUT_S:,} s")
    config = settings.load(args.config)
    sql = sys.stdin.read() if args.sql == "-" else args.sql
    # Read-only by the server's word, not by looking at the text.
    options = (
        f"-c default_transaction_read_only=on -c statement_timeout={int(args.timeout * 1000)} -c TimeZone=UTC"
    )
    try:
        with psycopg.connect(
            engines.url_of(config), options=f"{options} -c search_path=probing,ops,public", connect_timeout=10
        ) as link:
            link.read_only = True
            with link.cursor(name="probing_ctl") as cursor:
                sql_values.keep_text(cursor)
                cursor.execute(sql)
                rows = cursor.fetchmany(args.limit + 1) if args.limit else cursor.fetchall()
                heads = [c.name for c in cursor.description or ()]
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn) as exc:
        raise errors.UsageError(
            f"{driver_errors.first_line(exc)}; {_alike(engines.url_of(config), exc)}docs/sql.md has every view and its columns"
        ) from exc
    except psycopg.errors.InsufficientPrivilege as exc:
        raise errors.NotPermitted(f"the database says: {driver_errors.first_line(exc)}") from exc
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as exc:
        raise errors.UsageError(
            f"one SELECT is answered, and the database says of it: {driver_errors.first_line(exc)}"
        ) from exc
    except psycopg.errors.QueryCanceled as exc:
        raise errors.ProbingError(
            f"no answer within {args.timeout:g} s; --timeout S gives it longer"
        ) from exc
    except psycopg.errors.ReadOnlySqlTransaction as exc:
        raise errors.NotPermitted(f"only questions are answered: {driver_errors.first_line(exc)}") from exc
    except RecursionError as exc:
        raise errors.UsageError(
            "a JSON value is nested too deep to be read; ask for a part of it, or for its ::text"
        ) from exc
    except psycopg.Error as exc:
        if (exc.sqlstate or "").startswith(_OF_THE_QUESTION):
            raise errors.UsageError(
                f"the database cannot answer this: {driver_errors.first_line(exc)}"
            ) from exc
        raise engines.meaning(exc) from exc
    more = bool(args.limit) and len(rows) > args.limit
    if not rows and args.format == "table":
        print("probing-ctl: no rows", file=sys.stderr)
    _print(args.format, heads, rows[: args.limit] if more else rows)
    if more:
        print(f"probing-ctl: more than {args.limit} rows; --limit 0 prints all", file=sys.stderr)
    return 0


_NAMES = """
SELECT CASE WHEN n.nspname = 'ops' THEN 'ops.' || c.relname ELSE c.relname END AS name
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname IN ('ops', 'probing') AND c.relkind IN ('r', 'v', 'p', 'm') AND NOT c.relispartition
"""


def _alike(url: str, exc: BaseException) -> str:
    """`did you mean ops.node_now? ` for a relation that is not there; the names come from the database itself."""
    import psycopg

    relation = re.match(r'relation "([^"]{1,200})" does not exist', str(exc))
    if relation is None:
        return ""
    with psycopg.connect(url, connect_timeout=10) as link:
        names = [row[0] for row in link.execute(_NAMES)]
    schema, _, _ = relation[1].rpartition(".")
    plain = {name.rpartition(".")[2]: name for name in names if schema != "ops" or name.startswith("ops.")}
    near = difflib.get_close_matches(relation[1].rpartition(".")[2], plain, n=3)
    return f"did you mean {' or '.join(plain[name] for name in near)}? " if near else ""


_MOST_JSON_CHARS = 60
"""Characters of a JSON value in a table: its whole text would push every later column off the screen."""


def _print(form: str, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout)
        writer.writerow(heads)
        writer.writerows(map(sql_values.on_one_line, row) for row in rows)
    elif form == "json":
        values = [dict(zip(heads, map(sql_values.of_json, row), strict=True)) for row in rows]
        print(json.dumps(values, indent=2, default=str, allow_nan=False))
    else:
        print(table.render(heads, [[_shortened(value) for value in row] for row in rows]))


def _shortened(value: Any) -> Any:
    text = sql_values.on_one_line(value)
    if text is value or len(text) <= _MOST_JSON_CHARS:
        return text
    return text[: _MOST_JSON_CHARS - 1] + "…"
