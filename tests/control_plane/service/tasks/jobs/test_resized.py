"""A job that is resized (`scontrol update numnodes`, or a node lost under --no-kill) is one attempt, polled as the service polls."""

from __future__ import annotations

from datetime import datetime, timedelta

import fakes
import pytest

from probing_cluster.control_plane.service.tasks.jobs import accounting, accounts, attribution
from tests.set_clock import SetClock

BEGIN, RESIZED = fakes.NOW - timedelta(hours=3), fakes.NOW - timedelta(hours=2)
END = RESIZED + timedelta(minutes=40)


class Poller:
    """Polls accounting, whose answer to a span holds the rows that ran in it, as sacct's does."""

    def __init__(self, service, *rows: dict[str, str]) -> None:
        self.service, self.sacct, self.rows = service, service.run_slurm, list(rows)
        self.histories: list[str] = []
        answer = self.sacct.__call__

        def run(program: str, *arguments: str, **more: object) -> bytes:
            if program == "sacct" and "-j" in arguments:
                self.histories.append(arguments[arguments.index("-j") + 1])
                self.sacct.rows = self.rows
            elif program == "sacct" and "-S" in arguments:
                since = datetime.fromisoformat(arguments[arguments.index("-S") + 1]).astimezone()
                self.sacct.rows = [
                    r for r in self.rows if r["End"] == "Unknown" or int(r["End"]) >= since.timestamp()
                ]
            return answer(program, *arguments, **more)

        service.run_slurm = run

    def poll(self, at: datetime) -> list[tuple[object, ...]]:
        """Polls at an instant; the stored attempts."""
        self.service.clock = SetClock(at)
        accounting.run(self.service)
        found = self.service.store.attempts(job_ids=[77])
        return [(a.submit_at, a.attempt, a.state, a.end_at, a.n_gpus, a.nodes) for a in found]


def row(begin: datetime, **over: str) -> dict[str, str]:
    at = str(int(begin.timestamp()))
    return fakes.row(77, Submit=at, Eligible=at, Start=at, **over)


@pytest.fixture
def resized(service) -> Poller:
    first = row(
        BEGIN, State="RESIZING", End=str(int(RESIZED.timestamp())), NodeList="n[1-4]", AllocTRES="gres/gpu=32"
    )
    second = row(RESIZED, State="RUNNING", End="Unknown", NodeList="n[1-2]", AllocTRES="gres/gpu=16")
    return Poller(service, first, second)


@pytest.mark.parametrize("first_poll", [timedelta(minutes=1), timedelta(minutes=25), timedelta(hours=5)])
def test_a_resized_job_is_one_attempt(resized: Poller, first_poll: timedelta) -> None:
    """Its second row alone was stored as a second attempt, with a verdict and a failure of its own."""
    nodes = ("n1", "n2", "n3", "n4")
    begin = BEGIN.replace(microsecond=0)
    for minutes in (0, 5, 30, 35):
        at = RESIZED + first_poll + timedelta(minutes=minutes)
        if at < END:
            assert resized.poll(at) == [(begin, 1, "RUNNING", None, 32, nodes)]
    resized.rows[1].update(State="FAILED", End=str(int(END.timestamp())), ExitCode="1:0")
    for after in (timedelta(minutes=1), timedelta(minutes=5), timedelta(minutes=30), timedelta(hours=3)):
        found = resized.poll(max(END, RESIZED + first_poll) + after)
        assert found == [(begin, 1, "FAILED", END.replace(microsecond=0), 32, nodes)]
    attribution.run(resized.service)
    assert [v.attempt for v in resized.service.store.verdicts(job_ids=[77])] == [1]
    accounts.run(resized.service)
    (account,) = resized.service.store.run_accounts()
    assert (account.n_attempts, account.wall_s) == (1, 6000)


def test_a_resized_job_is_asked_for_seldom(resized: Poller) -> None:
    """Its history is read when the part is first met and when it changes, not at every poll."""
    for minutes in range(1, 60, 3):
        resized.poll(RESIZED + timedelta(minutes=minutes))
    assert len(resized.histories) <= 3


def test_a_start_whose_predecessor_ends_late_in_accounting_is_an_attempt(service) -> None:
    """A requeued job's first end has not reached slurmdbd: its second start is none of a resize."""
    first = row(BEGIN, State="RUNNING", End="Unknown")
    here = Poller(service, first)
    here.poll(BEGIN + timedelta(minutes=5))
    here.rows.append(row(RESIZED, State="RUNNING", End="Unknown"))
    assert [a[:3] for a in here.poll(RESIZED + timedelta(minutes=1))] == [
        (BEGIN.replace(microsecond=0), 1, "RUNNING"),
        (RESIZED.replace(microsecond=0), 2, "RUNNING"),
    ]
    first.update(State="NODE_FAIL", End=str(int((RESIZED - timedelta(minutes=3)).timestamp())))
    assert [a[:3] for a in here.poll(RESIZED + timedelta(minutes=8))] == [
        (BEGIN.replace(microsecond=0), 1, "NODE_FAIL"),
        (RESIZED.replace(microsecond=0), 2, "RUNNING"),
    ]


@pytest.mark.parametrize("out_of_turn", [False, True])
def test_a_start_in_the_row_of_a_requeued_one_is_another_attempt(service, out_of_turn: bool) -> None:
    """Slurm 22.05 wrote the second start over the first, whose verdict was lost with it; each later poll shows that row."""
    requeued, ended = RESIZED, RESIZED + timedelta(minutes=30)
    only = row(BEGIN, State="REQUEUED", End=str(int(requeued.timestamp())))
    here = Poller(service, only)
    first = (BEGIN.replace(microsecond=0), 1, "REQUEUED", requeued.replace(microsecond=0))
    assert [a[:4] for a in here.poll(requeued + timedelta(seconds=20))] == [first]
    attribution.run(service)
    again = requeued + timedelta(minutes=2)
    for later, state, end in ((3, "RUNNING", None), (6, "RUNNING", None), (31, "FAILED", ended), (40, "FAILED", ended)):  # fmt: skip
        shown = "Unknown" if end is None else str(int(end.timestamp()))
        only.update(State=state, Start=str(int(again.timestamp())), End=shown)
        found = here.poll(requeued + timedelta(minutes=later))
        if out_of_turn:
            accounting.of_jobs(service, [77])
            found = here.poll(requeued + timedelta(minutes=later, seconds=1))
        second = (requeued.replace(microsecond=0), 2, state, end and end.replace(microsecond=0))
        assert [a[:4] for a in found] == [first, second]
    attribution.run(service)
    assert sorted(v.attempt for v in service.store.verdicts(job_ids=[77])) == [1, 2]


def test_a_row_whose_start_was_not_requeued_stays_the_attempt_that_it_is(service) -> None:
    """Slurm corrects times of a start; only one that was put back in the queue can begin again."""
    only = row(BEGIN, State="RUNNING", End="Unknown")
    here = Poller(service, only)
    here.poll(BEGIN + timedelta(minutes=5))
    only.update(Start=str(int((BEGIN + timedelta(minutes=1)).timestamp())))
    found = here.poll(BEGIN + timedelta(minutes=8))
    assert [a[:3] for a in found] == [(BEGIN.replace(microsecond=0), 1, "RUNNING")]
