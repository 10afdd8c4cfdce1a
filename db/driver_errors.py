"""What an operational error of psycopg or ADBC means to a person; needs neither of them."""

from __future__ import annotations

import re

from probing_cluster.core import errors

_REFUSED = re.compile(
    r'authentication failed|no pg_hba\.conf entry|permission denied for database|role "[^"]*" (?:does not exist|is not permitted)'
)
"""A connection that fails has no SQLSTATE, only the server's words."""


READ_ONLY = "25006"
"""The state of SQL of a standby, and of a session that was opened while a setting allowed no writing: it stays so for its life."""

MORE = " (probing-ctl doctor says more)"
_WAY_OUT = f"whoever runs this service starts it{MORE}; agents keep what they see meanwhile"


def unreachable(exc: BaseException) -> errors.DatabaseUnavailable:
    """What an operational error of either driver means: nobody is there, it takes no writing, or it lets this account not in."""
    if getattr(exc, "sqlstate", None) == READ_ONLY:
        return errors.DatabaseReadOnly(
            f"{fact(exc)}; probing-ctl db status says by what; agents keep what they see meanwhile"
        )
    if _REFUSED.search(str(exc)) is None:
        return errors.DatabaseUnavailable(f"{fact(exc)}; {_WAY_OUT}")
    line = first_line(exc)
    return errors.DatabaseRefused(
        f"the database does not let you in: {line.partition('FATAL:')[2].strip() or line}; ask as the service's account, or with a "
        "login of your own (docs/database.md); of your own jobs probing-report and the pages tell without one, while the service runs"
    )


OUTDATED = frozenset({"42P01", "42703", "42883", "3F000"})
"""States of SQL that name a table, column, function or schema which this version has and the database has not."""


def outdated(exc: BaseException) -> errors.DatabaseUnavailable:
    """What it means that something of ours is not in the database."""
    return errors.DatabaseUnavailable(
        f"the database's schema is not this version's ({first_line(exc)}); run probing-ctl db upgrade"
    )


def fact(exc: BaseException) -> str:
    """Why nothing can be stored, and what the driver said."""
    read_only = getattr(exc, "sqlstate", None) == READ_ONLY
    return f"the database {'is read-only' if read_only else 'cannot be reached'}: {first_line(exc)}"


def first_line(exc: BaseException) -> str:
    """The first line of what the driver said."""
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
