"""One read-only question to the database, with the viewer's own rights; or to the processes of a job, for its owner."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass
from typing import Any

from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.core import errors
from probing_cluster.db import plain
from probing_cluster.web import documents, scoped_rows
from probing_cluster.web.api import operation, read_jobs, tabular
from probing_cluster.web.live import live_question, table_figures

MOST = 10_000
LEEWAY_S = 2.0
"""What the server may take beyond the deadline to say itself that it ended a statement."""
MOST_AT_ONCE = 4
"""Questions in the database at a time: the pages need connections, too."""


class UserTurns:
    """One question of a user at a time, and not all connections to questions."""

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._most = most
        self._asking: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, user: str) -> Iterator[None]:
        """The user's turn; raises Busy."""
        with self._lock:
            if user in self._asking:
                raise Busy("your last question is still being answered; wait for it")
            if len(self._asking) >= self._most:
                raise Busy(f"{self._most} questions of others are being answered; ask again in a while")
            self._asking.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._asking.discard(user)

    def within(self, user: str, wait_s: float, work: Callable[[], ConsoleAnswer]) -> ConsoleAnswer | None:
        """What the work gives or raises; None if it is not done by then. It keeps its turn until it is: the database still works for it."""
        done: futures.Future[ConsoleAnswer] = futures.Future()
        turn = contextlib.ExitStack()
        turn.enter_context(self.of(user))

        def one() -> None:
            try:
                with turn:
                    found = work()
            except Exception as exc:  # noqa: BLE001  # raised where it is waited for
                done.set_exception(exc)
            else:
                done.set_result(found)

        try:
            threading.Thread(target=one, name="a question of the console", daemon=True).start()
        except RuntimeError:
            turn.close()
            raise
        futures.wait([done], wait_s)
        return done.result() if done.done() else None


class Busy(errors.ProbingError):
    """The question must wait."""


_TURNS = UserTurns()
_DRAWING = UserTurns(2)
"""A page that stays open does not take its reader's turn at the console."""


@dataclass(frozen=True, kw_only=True)
class ConsoleAnswer:
    """What came of a question."""

    heads: list[str]
    rows: list[Any]
    more: bool
    missing: tuple[str, ...] = ()
    """Who of a running job did not answer."""


def question(ask: operation.Ask) -> documents.Rows:
    """The rows of one statement."""
    found = answer(ask)
    return tabular.document(found.heads, found.rows, found.more)


def live(ask: operation.Ask) -> documents.LiveRows:
    """The same over the processes of a running job, whose owner asks."""
    found = answer(ask, ask.path["job"])
    rows = tabular.document(found.heads, found.rows, found.more)
    return documents.LiveRows(heads=rows.heads, rows=rows.rows, more=rows.more, missing=list(found.missing))


def answer(ask: operation.Ask, job: str = "") -> ConsoleAnswer:
    """What the database answers, or a running job; raises UsageError, NotPermitted, NotFound and Busy."""
    given: documents.Question = ask.body
    if not 1 <= given.limit <= MOST:
        raise errors.UsageError(f"limit is 1 to {MOST}")
    text = plain.text(given.sql)
    deadline_s = ask.site.service.config.web.sql_timeout_s
    if job:
        with _TURNS.of(ask.viewer.user):
            return _of_a_job(ask, job, text, given.limit)

    def one_question() -> ConsoleAnswer:
        heads, rows, more = ask.site.reader.question(
            ask.viewer.proof, text, most=given.limit, deadline_s=deadline_s
        )
        return ConsoleAnswer(heads=heads, rows=list(rows), more=more)

    found = _TURNS.within(ask.viewer.user, deadline_s + LEEWAY_S, one_question)
    if found is None:
        raise scoped_rows.too_long(deadline_s)
    return found


def tables(ask: operation.Ask) -> documents.OwnTables:
    """The tables that a job's own program writes, drawn; raises NotPermitted, NotFound and Busy."""
    service, gang = ask.site.service, _owned(ask, ask.path["job"])
    if gang.is_over and not table_figures.reads_kept_of(service.config, ask.viewer.user):
        raise errors.NotFound(
            f"job {gang.ref} is over: what was kept of its tables are your own files; draw them with probing-report {gang.ref} --html FILE"
        )
    found = table_figures.FIGURES.fresh(service, gang)
    if found is None:
        with _DRAWING.of(ask.viewer.user):
            found = table_figures.FIGURES.look(service, gang)
    return found


def _owned(ask: operation.Ask, job: str) -> gang_board.BoardGang:
    """The job, which is the asker's own; raises NotFound and NotPermitted."""
    gang = read_jobs.gang_of(ask, job)
    ours = ask.site.service.cluster
    # The ways to a job's processes know its number alone, and on this cluster another's job may have it.
    if gang.cluster != ours:
        raise errors.NotFound(
            f"job {gang.ref} is of cluster {gang.cluster}; only jobs of {ours} are asked from here"
        )
    if {str(a["user"]) for a in gang.owners} != {ask.viewer.user}:
        raise errors.NotPermitted(f"only its owner asks the processes of job {gang.ref}")
    return gang


def _of_a_job(ask: operation.Ask, job: str, text: str, most: int) -> ConsoleAnswer:
    gang = _owned(ask, job)
    if gang.is_over:
        raise errors.NotFound(
            f"job {gang.ref} is over: its processes are gone; the report says what is known"
        )
    found = live_question.ask(ask.site.service.config, gang.ref, text, most)
    return ConsoleAnswer(
        heads=list(found.heads), rows=list(found.rows), more=found.more, missing=found.missing
    )
