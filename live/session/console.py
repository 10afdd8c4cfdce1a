"""The console: statements by hand over one open step, with history and completion."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from probing_cluster.core import command_line, errors
from probing_cluster.live.session import session
from probing_cluster.live.tables import registry
from probing_cluster.live.ways import step_count

HISTORY = 2000
OVER = "no collector answers any more: the job is over, or its nodes are gone"
HELP = """One statement a line; a line that ends with \\ goes on in the next.
\\d          the tables          \\d TABLE   its columns
\\timeout S  what is waited for  \\q         leave (also Ctrl-D)
cluster.missing has what did not answer the last statement."""
_KEYWORDS = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "BY",
    "HAVING",
    "LIMIT",
    "JOIN",
    "LEFT",
    "ON",
    "USING",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS",
    "NULL",
    "DISTINCT",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "WITH",
    "UNION",
    "ALL",
    "ASC",
    "DESC",
    "EXPLAIN",
    "avg",
    "count",
    "sum",
    "min",
    "max",
    "median",
]


Show = Callable[[session.Result], int]
"""Prints a result; the exit code."""
PrintStatus = Callable[[str], None]
"""Prints a line about the session, not of a result."""


class ConsoleSession(Protocol):
    """A session of a running job, or of what was kept of one."""

    timeout_s: float

    @property
    def over(self) -> bool: ...

    @property
    def schemas(self) -> tuple[str, ...]: ...

    def names(self, schema: str) -> list[str]: ...

    def sql(self, statement: str) -> session.Result: ...


def run(
    asking: ConsoleSession,
    title: str,
    show: Show,
    print_status: PrintStatus,
    read: Callable[[str], str] = input,
) -> int:
    """Until the end of input; the exit code of the last statement. A wrong statement is named and forgotten."""
    code = 0
    with _line_editing(asking):
        for line in _statements(f"{title}> ", read):
            try:
                code = _one(asking, line, show, print_status)
            except errors.ProbingError as exc:
                print_status(str(exc))
                code = exc.exit_code
            except KeyboardInterrupt:
                print_status("given up")
            if asking.over:
                print_status(OVER)
                break
    return code


def _one(asking: ConsoleSession, line: str, show: Show, print_status: PrintStatus) -> int:
    word, _, rest = line.partition(" ")
    rest = rest.strip().rstrip(";")
    if line in ("help", "\\?", "\\h"):
        print_status(HELP)
    elif word == "\\timeout":
        asking.timeout_s = max(0.1, command_line.seconds(rest))
    elif word == "\\d":
        return show(asking.sql(_describe(rest)))
    elif word.startswith("\\"):
        raise errors.UsageError(f"no such command: {word}; \\? lists them")
    else:
        return show(asking.sql(line.rstrip(";")))
    return 0


def _describe(table: str) -> str:
    if not table:
        return (
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema <> 'information_schema' ORDER BY 1, 2"
        )
    return "DESCRIBE " + ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def _statements(prompt: str, read: Callable[[str], str]) -> Iterator[str]:
    held = ""
    while True:
        try:
            line = read("" if not sys.stdin.isatty() else "   … " if held else prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            held = ""
            continue
        held = f"{held} {line}".strip()
        if held.endswith("\\") and held != "\\":
            held = held[:-1]
            continue
        if held in ("\\q", "exit", "quit"):
            return
        if held:
            yield held
        held = ""


@contextlib.contextmanager
def _line_editing(asking: ConsoleSession) -> Iterator[None]:
    """History in the user's state directory, completion of tables and columns; nothing of it without a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    import readline

    path = step_count.state_directory() / "history"
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        readline.read_history_file(path)
    readline.set_history_length(HISTORY)
    readline.set_completer_delims(" \t\n,()=<>;")
    readline.set_completer(Completer(asking))
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        _save(path)


def _save(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):  # a home that cannot be written costs the history
        readline.write_history_file(path)
        os.chmod(path, 0o600)  # noqa: PTH101


class Completer:
    """Words of SQL, schemas, tables and columns, for readline."""

    def __init__(self, asking: ConsoleSession) -> None:
        self._asking = asking
        self._found: list[str] = []

    def __call__(self, text: str, state: int) -> str | None:
        """The `state`-th completion of `text`."""
        if state == 0:
            self._found = self.words(text)
        return self._found[state] if state < len(self._found) else None

    def words(self, text: str) -> list[str]:
        """Everything that `text` can become."""
        schema, dot, _ = text.partition(".")
        if dot:
            known = (
                [f"{schema}.{name}" for name in self._asking.names(schema)]
                if schema in self._asking.schemas
                else []
            )
        else:
            columns = {c.name for t in registry.built_in().values() for c in t.columns}
            known = [*_KEYWORDS, *(f"{s}." for s in self._asking.schemas), *sorted(columns)]
        lowered = text.lower()
        return [w for w in dict.fromkeys(known) if w.lower().startswith(lowered)]
