"""What each task last did, and since when Slurm has not answered."""

from __future__ import annotations

from datetime import timedelta

import fakes
import pytest

from probing_cluster.control_plane import journal
from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands

AWAY = commands.SlurmAway("scontrol ended with 1: Unable to contact slurm controller")
SECOND = timedelta(seconds=1)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages logged."""
    return [record.message for record in caplog.records]


def test_an_outage_of_slurm_is_two_lines_however_many_tasks_wait(caplog: pytest.LogCaptureFixture) -> None:
    """One when Slurm stops answering and one when it answers, though a task that asks it seldom works in between."""
    tasks, now = journal.Journal(), fakes.NOW
    for _ in range(3):
        now += 10 * SECOND
        tasks.note_slurm(now, AWAY)
        for task in ("drained", "actions"):
            assert tasks.note(task, now, 9.0, "", AWAY).outcome == "unavailable"
        tasks.note("actions", now, 0.0, "")
    assert lines(caplog) == ["Slurm does not answer"]
    outage = tasks.slurm_outage()
    assert outage is not None
    assert (outage.since, outage.until, tasks.unanswered()) == (fakes.NOW + 10 * SECOND, None, {"drained"})
    tasks.note_slurm(now + 5 * SECOND, None)
    tasks.note("exclusions", now + 6 * SECOND, 9.0, "", AWAY)  # it had asked before
    for task in ("drained", "exclusions"):
        tasks.note(task, now + 7 * SECOND, 0.0, "")
    assert lines(caplog) == ["Slurm does not answer", "Slurm answers again"]
    assert not tasks.unanswered()


def test_another_daemon_that_is_away_is_said_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    """slurmdbd and the database have their own line, once, also during an outage of slurmctld."""
    tasks = journal.Journal()
    tasks.note_slurm(fakes.NOW, AWAY)
    for _ in range(2):
        tasks.note("accounting", fakes.NOW, 0.0, "", commands.SlurmAway("sacct -a did not end within 30 s"))
        tasks.note("mail", fakes.NOW, 0.0, "", errors.DatabaseUnavailable("it is away"))
    assert lines(caplog) == ["Slurm does not answer", "task waits", "task waits"]
    assert not tasks.unanswered()
