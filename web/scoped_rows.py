"""Rows as one viewer may see them: the database's row policies judge every row by the proof the transaction carries."""

from __future__ import annotations

import re
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import psycopg.rows
import sqlalchemy as sa

from probing_cluster.control_plane.terminal import sql_values
from probing_cluster.core import errors, settings
from probing_cluster.db import driver_errors, engines, roles
from probing_cluster.db.server import embedded

LOGIN = "probing-web"
"""The login role where the database is the embedded one."""
MOST_ROW_BYTES = 1 << 18
MOST_BYTES = 1 << 24
"""Bytes of one row, and of all rows, of an answer as text: one person's question must not take the server's memory."""
_AT_ONCE = MOST_BYTES // MOST_ROW_BYTES
_MOST_HELD = 4 * MOST_ROW_BYTES
"""Bytes of one row as the server holds it: `{1,2}` is five bytes of text and 32 in memory."""
_BOUNDED = """select q.* from (
{text}
) as q where case when pg_column_size(q.*) > {held} then ('{words}' || left(pg_column_size(q.*)::text, 0))::boolean
                  when octet_length((q.*)::text) <= {most} then true
                  else ('{words}' || left((q.*)::text, 0))::boolean end"""
"""A row is measured where it is made: the driver would hold it whole before it could be refused. `q.*`, since a column may be called q.

Making an array's text, the server does not look at its deadline: what is held is measured before there is a text.
"""
_PIECE = re.compile(
    r"""(?P<blank>\s+|--[^\r\n]*|/\*(?:(?!/\*|\*/).|/\*(?:(?!/\*|\*/).)*\*/)*\*/)|(?P<end>;)
        |[eE]'(?:[^'\\]|\\.|'')*'|'[^']*'|"[^"]*"|(?P<tag>\$\w*\$)(?:.*?(?P=tag)|.*)|[\w$]+|.""",
    re.DOTALL | re.VERBOSE,
)
"""A piece of SQL: blanks and comments, the end of a statement, quoted text, a word, or any other character. What is not closed goes on to the end: no text is read twice."""
_TOO_WIDE = f"a row is longer than {MOST_ROW_BYTES >> 10} KiB"
READ_S = 15.0
"""Longest question of a page or of the API; that of the SQL console is a setting."""


class Reader:
    """Connections of the web's own login, which sees nothing without a proof."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        self._engine = engines.make(url, pool_size=pool_size, max_overflow=4, pool_timeout=10)

    def rows(self, proof: str, query: str, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows of a query with `%(name)s` filled in; raises UsageError for values Postgres cannot take."""
        with engines.translated(), self._engine.connect() as connection:
            raw = _as(connection, proof, READ_S)
            cursor = raw.cursor(row_factory=psycopg.rows.dict_row)
            try:
                return list(cursor.execute(query, given).fetchall())
            except (psycopg.DataError, OverflowError) as exc:
                raise errors.UsageError(f"a value does not fit: {driver_errors.first_line(exc)}") from exc
            except psycopg.errors.QueryCanceled as exc:
                raise too_long(READ_S) from exc

    def question(
        self, proof: str, text: str, *, most: int, deadline_s: float
    ) -> tuple[list[str], list[Sequence[Any]], bool]:
        """Heads, rows and whether there are more, of one read-only statement as somebody wrote it; raises UsageError for too much."""
        end_s = time.monotonic() + deadline_s
        with engines.translated(), self._engine.connect() as connection:
            raw = _as(connection, proof, deadline_s)
            raw.execute("select set_config('search_path', 'ops,probing,public', true)")
            try:
                # A cursor takes one statement that gives rows; read-only by the server's word, not by looking at the text.
                # First alone, and not read: what is a statement by itself is one between our parentheses, too.
                text = _without_end(text)
                with raw.cursor(name="probing_alone") as cursor:
                    cursor.execute(text)
                bounded = _BOUNDED.format(text=text, most=MOST_ROW_BYTES, held=_MOST_HELD, words=_TOO_WIDE)
                with raw.cursor(name="probing_web") as cursor:
                    sql_values.keep_text(cursor)
                    cursor.execute(bounded)
                    rows = _fetched(cursor, most + 1, end_s)
                    heads = [column.name for column in cursor.description or ()]
            except psycopg.errors.InvalidTextRepresentation as exc:
                wide = _TOO_WIDE in str(exc)
                raise errors.UsageError(
                    f"{_TOO_WIDE}; ask for fewer columns" if wide else driver_errors.first_line(exc)
                ) from exc
            except (psycopg.errors.ProgramLimitExceeded, psycopg.errors.OutOfMemory) as exc:
                raise errors.UsageError(f"{_TOO_WIDE}; ask for fewer columns") from exc
            except psycopg.errors.QueryCanceled as exc:
                raise too_long(deadline_s) from exc
            except (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.ActiveSqlTransaction) as exc:
                raise errors.NotPermitted(
                    f"only questions are answered: {driver_errors.first_line(exc)}"
                ) from exc
            except psycopg.errors.InsufficientPrivilege as exc:
                raise errors.NotPermitted(f"the database says: {driver_errors.first_line(exc)}") from exc
            except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as exc:
                raise errors.UsageError(
                    f"one SELECT is answered, and the database says of it: {driver_errors.first_line(exc)}"
                ) from exc
            return heads, rows[:most], len(rows) > most

    def close(self) -> None:
        """Gives the connections back."""
        self._engine.dispose()


def _without_end(text: str) -> str:
    """A statement without the semicolon after it, and without what comments follow that."""
    cut: int | None = None
    for piece in _PIECE.finditer(text):
        if piece["end"]:
            cut = piece.start() if cut is None else cut
        elif not piece["blank"]:
            cut = None
    return text[:cut]


def _fetched(cursor: Any, most: int, end_s: float) -> list[Sequence[Any]]:
    """Rows in parts that fit the memory; raises UsageError when they are too much together, QueryCanceled when they take too long."""
    rows: list[Sequence[Any]] = []
    held = 0
    while len(rows) < most:
        # Each part is a statement with a deadline of its own, and the question may have set another one.
        left_ms = int(1000 * (end_s - time.monotonic()))
        if left_ms <= 0:
            raise psycopg.errors.QueryCanceled
        cursor.connection.execute(f"set local statement_timeout = {left_ms}")
        part = cursor.fetchmany(min(_AT_ONCE, most - len(rows)))
        if not part:
            break
        held += sum(len(str(value)) for row in part for value in row)
        if held > MOST_BYTES:
            raise errors.UsageError(
                f"the answer is longer than {MOST_BYTES >> 20} MiB; ask for less, or use probing-ctl query"
            )
        rows += part
    return rows


def _as(connection: sa.Connection, proof: str, deadline_s: float) -> Any:
    """The driver's connection, in a transaction that sees what the proof gives, for so long at most."""
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.execute(
        "select set_config('probing.web_proof', %s, true), set_config('statement_timeout', %s, true),"
        " set_config('TimeZone', 'UTC', true), set_config('transaction_read_only', 'on', true),"
        " set_config('search_path', 'ops,probing', true), set_config('jit', 'off', true)",
        [proof, f"{int(deadline_s * 1000)}"],
    )
    return raw


def too_long(deadline_s: float) -> errors.ProbingError:
    """That a question was not answered in time."""
    return errors.UsageError(f"no answer within {deadline_s:g} s; ask for a shorter span or for less")


def login_url(config: settings.Settings, owner_url: str) -> str:
    """The URL by which the web reads; made here for the embedded server, a setting elsewhere. Raises SettingsError."""
    if config.web.database_url:
        return config.web.database_url
    # The embedded server is its owner's, whether the settings name its directory or its socket; another's roles are not ours to make.
    parts = urllib.parse.urlsplit(owner_url)
    if parts.username != embedded.OWNER:
        raise errors.SettingsError(
            "[web] database_url is needed where [database] url names a server: a login made with "
            "`probing-ctl db add-login NAME reader --scope web=*`"
        )
    host = parts.netloc.rpartition("@")[2]
    return made_login(owner_url, parts._replace(netloc=f"{LOGIN}@{host}").geturl())


def made_login(owner_url: str, url: str) -> str:
    """Makes the web's login in the embedded server and gives its URL back."""
    roles.add_login(owner_url, LOGIN, "probing_reader", scopes=[("web", "*")])
    return url
