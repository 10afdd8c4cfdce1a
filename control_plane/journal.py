"""What each task of the service last did: shown by `probing-ctl status`, the metrics and the log."""

from __future__ import annotations

import dataclasses
import logging
import threading
from datetime import datetime, timedelta

from probing_cluster.core import clock, errors, records
from probing_cluster.slurm_plugins import commands

LOG = logging.getLogger("probing.tasks")
MISSED_TURNS = 2
"""Passes in a row without the turn that cannot be a coincidence of two services."""
PART_OF = {"nodes": "node", "jobs": "job"}
"""Where Slurm lists all of them it would show one of them, too. The other way about it may not: a list takes it longer."""
FORGOTTEN_AFTER = timedelta(minutes=10)
"""An outage of a kind of question that nobody has asked for so long ends with the answer to another kind."""


@records.record
class JournalPass:
    """The latest pass of one task, and its totals since the service started."""

    task: str = records.doc("its name")
    at: datetime = records.doc("when the pass ended")
    duration_s: float = records.doc("wall time, seconds")
    outcome: str = records.doc("ok, unavailable (database or Slurm away) or failed")
    message: str = records.doc("what it did, or why it could not", default="")
    n_ok: int = records.doc("passes that went well", default=0)
    n_unavailable: int = records.doc("passes that found the database or Slurm away", default=0)
    n_failed: int = records.doc("passes that ended in an error of ours", default=0)


@records.record
class ControllerOutage:
    """A time in which Slurm did not answer one kind of question."""

    since: datetime = records.doc("the first question that was not answered, UTC")
    last_question_at: datetime = records.doc("the last question that was not answered, UTC")
    why: str = records.doc("what came instead of an answer")
    until: datetime | None = records.doc("the first answer after it; null while it lasts", default=None)

    def reaches(self, at: datetime) -> bool:
        """Whether it had not ended at that instant."""
        return self.until is None or at < self.until


class Journal:
    """Thread-safe: tasks report, others read."""

    def __init__(self) -> None:
        self._passes: dict[str, JournalPass] = {}
        self._outages: dict[str, ControllerOutage] = {}
        self._stopped_by_outage: set[str] = set()
        self._read_only: set[str] = set()
        self._without_database: set[str] = set()
        self._logged: set[str] = set()
        self._turns: dict[str, _Turn] = {}
        self._lock = threading.Lock()

    def passes(self) -> dict[str, JournalPass]:
        """The latest pass of every task that ran."""
        with self._lock:
            return dict(self._passes)

    def note(
        self, task: str, at: datetime, duration_s: float, message: str, error: Exception | None = None
    ) -> JournalPass:
        """Record one pass; log it when it did something, failed, or recovered."""
        outcome = _outcome(error)
        with self._lock:
            before = self._passes.get(task)
            totals = {
                name: getattr(before, name) if before else 0 for name in ("n_ok", "n_unavailable", "n_failed")
            }
            totals[f"n_{outcome}"] += 1
            words = message if error is None else str(error) or type(error).__name__
            now = JournalPass(
                task=task, at=at, duration_s=duration_s, outcome=outcome, message=words, **totals
            )
            self._passes[task] = now
            # An outage of Slurm has its own line, once for all tasks; accounting is another daemon's.
            began = at - timedelta(seconds=duration_s)
            away = isinstance(error, commands.SlurmAway) and "sacct" not in words
            by_outage = away and any(outage.reaches(began) for outage in self._outages.values())
            (self._stopped_by_outage.add if by_outage else self._stopped_by_outage.discard)(task)
            no_database = isinstance(error, errors.DatabaseUnavailable)
            (self._without_database.add if no_database else self._without_database.discard)(task)
            if isinstance(error, errors.DatabaseReadOnly):
                self._read_only.add(task)
            logged = task in self._logged
            if outcome == "ok":
                self._logged.discard(task)
                self._read_only.discard(task)
            elif not by_outage:
                self._logged.add(task)
        if not by_outage:
            _log(before, now, error, logged=logged)
        return now

    def note_slurm(self, question: str, at: datetime, error: commands.SlurmAway | None) -> None:
        """Record whether Slurm answered a question of this kind.

        The first that it does not answer is logged, and the time at which it answers all kinds again.
        """
        with self._lock:
            lasting = [o for o in self._outages.values() if o.until is None]
            if error is None:
                self._note_answer(question, at)
            else:
                self._note_outage(question, at, error)
            left = [o for o in self._outages.values() if o.until is None]
        if left and not lasting:
            LOG.warning("Slurm does not answer", extra={"fields": {"why": left[0].why, "question": question}})
        elif lasting and not left:
            away_s = round((at - min(o.since for o in lasting)).total_seconds(), 1)
            LOG.warning("Slurm answers again", extra={"fields": {"away_s": away_s}})

    def _note_outage(self, question: str, at: datetime, error: commands.SlurmAway) -> None:
        before = self._outages.get(question)
        lasts = before is not None and before.until is None
        self._outages[question] = (
            dataclasses.replace(before, last_question_at=at)
            if before is not None and lasts
            else ControllerOutage(since=at, last_question_at=at, why=str(error))
        )

    def _note_answer(self, question: str, at: datetime) -> None:
        for kind, outage in self._outages.items():
            answered = kind == question or kind == PART_OF.get(question)
            # Nobody asks this kind any more. That Slurm would not answer it now, while it answers others, is not known.
            if outage.until is None and (answered or at - outage.last_question_at >= FORGOTTEN_AFTER):
                self._outages[kind] = dataclasses.replace(outage, until=at)

    def slurm_outage(self) -> ControllerOutage | None:
        """The longest outage that lasts, else the one that ended last; None where Slurm has answered everything."""
        outages = self.slurm_outages()
        lasting = [o for o in outages if o.until is None]
        if lasting:
            return min(lasting, key=lambda o: o.since)
        return max(outages, key=lambda o: (o.until or o.since, o.since), default=None)

    def slurm_outages(self) -> list[ControllerOutage]:
        """The latest outage of each kind of question."""
        with self._lock:
            return list(self._outages.values())

    def stopped_by_outage(self) -> frozenset[str]:
        """Tasks whose latest pass ended because of an outage of Slurm, which may be over: some tasks come once a day."""
        with self._lock:
            return frozenset(self._stopped_by_outage)

    def without_database(self) -> frozenset[str]:
        """Tasks whose latest pass ended because the database was away, or took nothing."""
        with self._lock:
            return frozenset(self._without_database)

    def waits_to_write(self, task: str) -> bool:
        """Whether a pass of it found the database read-only, and none has gone well since."""
        with self._lock:
            return task in self._read_only

    def note_turn(self, name: str, *, taken: bool) -> None:
        """Record whether a pass could take its turn; the second miss in a row is logged, and each from then on counted."""
        with self._lock:
            turn = self._turns.setdefault(name, _Turn())
            before, turn.in_a_row = turn.in_a_row, 0 if taken else turn.in_a_row + 1
            turn.n_missed += turn.in_a_row >= MISSED_TURNS
            in_a_row = turn.in_a_row
        if in_a_row == MISSED_TURNS:
            LOG.warning("turn not taken", extra={"fields": {"turn": name, "passes": in_a_row}})
        elif taken and before >= MISSED_TURNS:
            LOG.warning("turn taken again", extra={"fields": {"turn": name, "passes_missed": before}})

    def turns_missed(self) -> dict[str, int]:
        """Per turn the passes that missed it, from the second in a row on, since the service started."""
        with self._lock:
            return {name: turn.n_missed for name, turn in self._turns.items()}


@dataclasses.dataclass(kw_only=True)
class _Turn:
    """How often one turn could not be taken."""

    in_a_row: int = 0
    n_missed: int = 0


def _outcome(error: Exception | None) -> str:
    if error is None:
        return "ok"
    away = (errors.DatabaseUnavailable, errors.SlurmUnavailable)
    return "unavailable" if isinstance(error, away) else "failed"


def _log(before: JournalPass | None, now: JournalPass, error: Exception | None, *, logged: bool) -> None:
    """One pass; `logged`: whether a line says that the task waits or fails, and none since that it works again."""
    same = before is not None and (before.outcome, before.message) == (now.outcome, now.message)
    # The log's readers know the message as `said`: `message` is the log line's own.
    names = {f.name: "said" if f.name == "message" else f.name for f in dataclasses.fields(now)}
    fields = {key: getattr(now, name) for name, key in names.items() if name != "at"}
    if now.outcome == "failed" and not same:
        LOG.error("task failed", exc_info=error, extra={"fields": fields})
    elif now.outcome == "unavailable" and (not logged or (before is not None and before.outcome == "failed")):
        LOG.warning("task waits", extra={"fields": fields})
    elif logged and now.outcome == "ok":
        LOG.warning("task works again", extra={"fields": fields})
    elif now.outcome == "ok" and now.message:
        LOG.info("task", extra={"fields": fields})


def one_pass(journal: Journal, task: str, run: object, the_clock: clock.Clock) -> JournalPass:
    """Run `run()` once, isolated: whatever it raises is recorded and ends nothing else."""
    began = the_clock.monotonic_s()
    message, error = "", None
    try:
        message = run()  # type: ignore[operator]
    except Exception as exc:  # noqa: BLE001 - the isolation every task relies on
        error = exc
    return journal.note(task, the_clock.now(), the_clock.monotonic_s() - began, message, error)
