"""Rounds of tests under way in this service: one thread each, which waits for Slurm; what they found.

A service that is killed loses its threads and nothing else: the job they held is found by its name and cancelled, and the
tests begin anew under another round id.
"""

from __future__ import annotations

import getpass
import logging
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from probing_cluster.control_plane.repair import campaign, round_findings
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins.acts import job_steps

LOG = logging.getLogger("probing.repair")
HISTORY = timedelta(days=60)
"""How far back good results make a baseline."""
_START_S = 90.0
"""How long a test's job may wait for its nodes, which are reserved for it; Prolog and Slurm's own latency."""


@records.record
class RoundEnd:
    """How a round ended."""

    found: round_findings.Findings | None = records.doc("null when it could not be run", default=None)
    why: str = records.doc("why it could not be run", default="")


class Rounds:
    """The rounds of one service, by round id."""

    def __init__(self, config: settings.Settings, store: db_store.Store) -> None:
        self._config = config
        self._store = store
        self._jobs = job_steps.JobSteps(config.slurm)
        self._lock = threading.Lock()
        self._ends: dict[uuid.UUID, RoundEnd | None] = {}
        """By round how it ended, None while it runs; until somebody has judged it, or has stopped it and it is over."""
        self._stopped: set[uuid.UUID] = set()

    def start(
        self,
        wanted: job_steps.StepWanted,
        request_for: Callable[[int], campaign.RoundRequest],
        round_id: uuid.UUID,
    ) -> None:
        """Begins a round; its job's leftovers of earlier rounds are ended first."""
        self._ends[round_id] = None
        work = threading.Thread(
            target=self._run, args=(wanted, request_for, round_id), name=wanted.name, daemon=True
        )
        work.start()

    def state(self, round_id: uuid.UUID) -> RoundEnd | None:
        """How it ended; None while it runs. Raises NotFound for a round that this service does not run."""
        with self._lock:
            if round_id in self._ends:
                return self._ends[round_id]
        raise errors.NotFound(f"round {round_id} is not run by this service")

    def forget(self, round_id: uuid.UUID) -> None:
        """A round that is over and judged: its end is kept no longer."""
        with self._lock:
            self._ends.pop(round_id, None)

    def stop(self, name: str, round_id: uuid.UUID | None) -> None:
        """Ends a round's job, and whatever else bears its name."""
        with self._lock:
            if round_id in self._ends:
                # Nobody judges it: one that is over goes now, one that runs at its end.
                if self._ends[round_id] is None:
                    self._stopped.add(round_id)
                else:
                    del self._ends[round_id]
        self._jobs.cancel_named(name)

    def _run(
        self,
        wanted: job_steps.StepWanted,
        request_for: Callable[[int], campaign.RoundRequest],
        round_id: uuid.UUID,
    ) -> None:
        try:
            end = RoundEnd(found=self._found(wanted, request_for, round_id))
        except errors.ProbingError as exc:
            end = RoundEnd(why=str(exc))
        except Exception as exc:
            LOG.exception("a round of tests failed")
            end = RoundEnd(why=f"{type(exc).__name__}: {exc}")
        with self._lock:
            self._ends[round_id] = end
            if round_id in self._stopped:
                self._stopped.discard(round_id)
                del self._ends[round_id]

    def _found(
        self,
        wanted: job_steps.StepWanted,
        request_for: Callable[[int], campaign.RoundRequest],
        round_id: uuid.UUID,
    ) -> round_findings.Findings:
        self._jobs.cancel_named(wanted.name)
        job_id = self._jobs.allocate(wanted, _START_S)
        try:
            question = request_for(job_id)
            runner = campaign.Campaign(
                config=self._config,
                steps=self._jobs,
                command=command(self._config),
                now=clock.SYSTEM.now,
                stopped=lambda: round_id in self._stopped,
            )
            found = runner.run(question, history(self._store))
        finally:
            self._jobs.cancel(job_id)
        self._store.add_results(found.results)
        return found


def history(store: db_store.Store) -> Sequence[records.DiagnosticResult]:
    """Earlier good results."""
    return store.results(since=clock.SYSTEM.now() - HISTORY, outcomes=["ok"])


def command(config: settings.Settings) -> str:
    """probing-diagnose as the nodes start it."""
    return config.diagnostics.command or str(Path(sys.executable).with_name("probing-diagnose"))


def user() -> str:
    """The account whose jobs the tests are."""
    return getpass.getuser()
