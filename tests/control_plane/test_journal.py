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
        tasks.note_slurm("nodes", now, AWAY)
        for task in ("drained", "actions"):
            assert tasks.note(task, now, 9.0, "", AWAY).outcome == "unavailable"
        tasks.note("actions", now, 0.0, "")
    assert lines(caplog) == ["Slurm does not answer"]
    outage = tasks.slurm_outage()
    assert outage is not None
    assert (outage.since, outage.until, tasks.stopped_by_outage()) == (
        fakes.NOW + 10 * SECOND,
        None,
        {"drained"},
    )
    tasks.note_slurm("nodes", now + 5 * SECOND, None)
    tasks.note("exclusions", now + 6 * SECOND, 9.0, "", AWAY)  # it had asked before
    for task in ("drained", "exclusions"):
        tasks.note(task, now + 7 * SECOND, 0.0, "")
    assert lines(caplog) == ["Slurm does not answer", "Slurm answers again"]
    assert not tasks.stopped_by_outage()


def test_what_slurm_answers_does_not_end_the_outage_of_what_it_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log does not alternate, and the outage is as long as it was; one node shown is no list of them."""
    tasks, now = journal.Journal(), fakes.NOW
    for question, other in (("jobs", "nodes"), ("nodes", "node")):
        began = now
        for _ in range(3):
            tasks.note_slurm(question, now, AWAY)
            tasks.note_slurm(other, now + SECOND, None)
            now += 10 * SECOND
        outage = tasks.slurm_outage()
        assert outage is not None
        assert (outage.since, outage.until) == (began, None)
        tasks.note_slurm(question, now, None)
        outage = tasks.slurm_outage()
        assert outage is not None
        assert (outage.since, outage.until) == (began, now)
    assert lines(caplog) == ["Slurm does not answer", "Slurm answers again"] * 2


def test_an_outage_of_what_nobody_asks_any_more_ends_with_another_answer() -> None:
    """Jobs are asked for only where there is something to decide; the list of nodes stands for one of them."""
    tasks, now = journal.Journal(), fakes.NOW
    for question in ("jobs", "node"):
        tasks.note_slurm(question, now, AWAY)
    tasks.note_slurm("nodes", now + SECOND, None)
    assert [o.until for o in tasks.slurm_outages()] == [None, now + SECOND]
    tasks.note_slurm("nodes", now + journal.FORGOTTEN_AFTER, None)
    assert [o.until for o in tasks.slurm_outages()] == [now + journal.FORGOTTEN_AFTER, now + SECOND]


def test_another_daemon_that_is_away_is_said_beside_it(caplog: pytest.LogCaptureFixture) -> None:
    """slurmdbd and the database have their own line, once, also during an outage of slurmctld."""
    tasks = journal.Journal()
    tasks.note_slurm("nodes", fakes.NOW, AWAY)
    for _ in range(2):
        tasks.note("accounting", fakes.NOW, 0.0, "", commands.SlurmAway("sacct -a did not end within 30 s"))
        tasks.note("mail", fakes.NOW, 0.0, "", errors.DatabaseUnavailable("it is away"))
    assert lines(caplog) == ["Slurm does not answer", "task waits", "task waits"]
    assert not tasks.stopped_by_outage()
