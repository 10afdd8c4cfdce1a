"""The question put to sacct, over a runner that plays its part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.accounting import accounting, attempt_rows

SINCE = datetime(2024, 1, 1, 10, 0, tzinfo=UTC)
UNTIL = datetime(2024, 1, 2, 10, 0, tzinfo=UTC)


class Slurm:
    """Answers sacct -e, sacct and scontrol show config as one release does."""

    def __init__(self, offered: str, tres: str | None = "cpu,mem,gres/gpu") -> None:
        self.offered = offered.split()
        self.tres = tres
        self.calls: list[tuple[str, ...]] = []
        self.environments: list[Mapping[str, str]] = []

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        self.calls.append((program, *arguments))
        self.environments.append(environment or {})
        if program == "scontrol":
            if self.tres is None:
                raise errors.SlurmUnavailable("slurmctld is down")
            return f"AccountingStorageTRES   = {self.tres}\n".encode()
        if arguments == ("-e",):
            return " ".join(self.offered).encode()
        options = dict(a.split("=", 1) for a in arguments if a.startswith("--") and "=" in a)
        columns = options["--format"].split(",")
        unknown = [c for c in columns if c not in self.offered]
        if unknown:
            raise errors.SlurmUnavailable(f'sacct: fatal: Invalid field requested: "{unknown[0]}"')
        values = {
            "JobIDRaw": "7",
            "JobID": "7",
            "State": "FAILED",
            "Submit": "100",
            "Start": "110",
            "End": "200",
            "AllocCPUS": "2",
        }
        rows = [columns, [values.get(c, "") for c in columns]]
        return "\n".join(options["--delimiter"].join(row) for row in rows).encode()


OLD = "JobIDRaw JobID State Submit Start End ElapsedRaw AllocCPUS AllocTRES JobName DBIndex Reserved"


def test_asks_only_for_what_the_release_offers() -> None:
    """The field list is cut by `sacct -e`, times are epoch seconds, and every start of every user is asked for."""
    slurm = Slurm(OLD)
    result = accounting.Accounting(settings.SlurmSettings(), cluster="c1", run=slurm).attempts(SINCE, UNTIL)
    assert [(a.cluster, a.job_id, a.submit_at.timestamp(), a.n_gpus) for a in result.attempts] == [
        ("c1", 7, 100, 0)
    ]
    call = slurm.calls[1]
    assert {"-a", "-D", "-X", "-P"} <= set(call)
    assert (
        call[call.index("-S") + 1],
        call[call.index("-E") + 1],
    ) == ("2024-01-01T10:00:00", "2024-01-02T10:00:00")
    assert slurm.environments[1] == {"SLURM_TIME_FORMAT": "%s"}
    assert "FailedNode" not in call[-1]


def test_a_long_history_is_asked_for_day_by_day() -> None:
    """A week is seven answers, none of which outlasts its deadline, and an attempt told twice in one counts once."""
    slurm = Slurm(OLD)
    until = SINCE + timedelta(days=6.5)
    results = list(accounting.Accounting(settings.SlurmSettings(), run=slurm).day_by_day(SINCE, until))
    windows = [c for c in slurm.calls if "-S" in c]
    waited = [(c[c.index("-S") + 1], c[c.index("-E") + 1]) for c in windows if "-s" in c]
    requested = [(c[c.index("-S") + 1], c[c.index("-E") + 1]) for c in windows if "-s" not in c]
    assert len(requested) == 7
    # Without a state sacct leaves out what ended before it was eligible.
    assert waited == requested
    assert {c[c.index("-s") + 1] for c in windows if "-s" in c} == {"CANCELLED,DEADLINE"}
    assert all(a[1] == b[0] for a, b in itertools.pairwise(requested))
    assert (requested[0][0], requested[-1][1]) == ("2024-01-01T10:00:00", "2024-01-07T22:00:00")
    assert [(len(r.attempts), r.duplicates, r.rejected) for r in results] == [(1, 1, ())] * 7


class BusySlurm(Slurm):
    """Lists no stretch longer than `most` that meets [since, until] before its deadline."""

    def __init__(self, since: datetime, until: datetime, most: timedelta) -> None:
        super().__init__(OLD)
        self.since, self.until, self.most = since, until, most
        self.listed: list[tuple[datetime, datetime]] = []
        self.n_timed_out = 0

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        if "-S" in arguments:
            since, until = (
                datetime.fromisoformat(arguments[arguments.index(k) + 1]).replace(tzinfo=UTC)
                for k in ("-S", "-E")
            )
            if until - since > self.most and since < self.until and self.since < until:
                self.n_timed_out += 1
                raise commands.SlurmTimedOut("sacct -a -D -X did not end within 30 s")
            if "-s" not in arguments:
                self.listed.append((since, until))
        return super().__call__(program, *arguments, environment=environment)


def test_a_day_that_cannot_be_listed_at_once_is_listed_in_parts() -> None:
    """Each part follows the one before, none is left out, and the days around it are asked for as before."""
    day = timedelta(days=1)
    slurm = BusySlurm(SINCE + 2.1 * day, SINCE + 2.2 * day, timedelta(hours=2))
    poll = accounting.Accounting(settings.SlurmSettings(), run=slurm)
    n_answers = len(list(poll.day_by_day(SINCE, SINCE + 4 * day)))
    assert (slurm.listed[0][0], slurm.listed[-1][1]) == (SINCE, SINCE + 4 * day)
    assert all(a[1] == b[0] for a, b in itertools.pairwise(slurm.listed))
    assert [until - since == day for since, until in slurm.listed] == [True] * 2 + [False] * 16 + [True]
    assert (n_answers, slurm.n_timed_out) == (19, 4)


@pytest.mark.parametrize("n_busy", [1, 2])
def test_a_day_that_cannot_be_listed_at_all_does_not_keep_the_days_after_it(n_busy: int) -> None:
    """The caller learns of it after the last day; two such days in a row are an outage of slurmdbd."""
    day = timedelta(days=1)
    slurm = BusySlurm(SINCE + day, SINCE + (1 + n_busy) * day, timedelta(0))
    poll = accounting.Accounting(settings.SlurmSettings(), run=slurm)
    days: list[attempt_rows.ParseResult] = []
    with pytest.raises(commands.SlurmTimedOut, match=r"within 30 s, asked for 2024-01-0.T10:00:00Z to "):
        days.extend(poll.day_by_day(SINCE, SINCE + 4 * day))
    starts = [since for since, _ in slurm.listed]
    assert starts == ([SINCE, SINCE + 2 * day, SINCE + 3 * day] if n_busy == 1 else [SINCE])
    # 24 hours, 12 and so on down to 11 minutes.
    assert slurm.n_timed_out == n_busy * 8


def test_an_outage_is_no_reason_to_ask_for_less() -> None:
    """Where slurmdbd refuses the connection, a shorter question fares no better."""

    def away(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        calls.append(arguments)
        raise commands.SlurmAway("Connection refused")

    calls: list[tuple[str, ...]] = []
    poll = accounting.Accounting(settings.SlurmSettings(), run=away)
    with pytest.raises(commands.SlurmAway):
        list(poll.day_by_day(SINCE, SINCE + timedelta(days=1)))
    assert len(calls) == 1


def test_each_question_has_its_own_delimiter() -> None:
    """Nobody can write a row of their own into a job name by knowing the delimiter."""
    slurm = Slurm(OLD)
    poll = accounting.Accounting(settings.SlurmSettings(), run=slurm)
    for _ in range(3):
        poll.attempts(SINCE, UNTIL)
    delimiters = {a for call in slurm.calls for a in call if a.startswith("--delimiter=")}
    assert len(delimiters) == 3
    assert sum(call == ("sacct", "-e") for call in slurm.calls) == 1


def test_an_upgrade_under_a_running_service_is_noticed() -> None:
    """When a field is gone the offer is asked for again, once."""
    slurm = Slurm(OLD + " AllocGRES")
    poll = accounting.Accounting(settings.SlurmSettings(), run=slurm)
    poll.attempts(SINCE, UNTIL)
    slurm.offered = OLD.split()
    assert len(poll.attempts(SINCE, UNTIL).attempts) == 1


def test_without_the_controller_gpus_are_unknown() -> None:
    """A job without GPUs has none only where the site is known to account them."""
    result = accounting.Accounting(settings.SlurmSettings(), run=Slurm(OLD, tres=None)).attempts(SINCE, UNTIL)
    assert [a.n_gpus for a in result.attempts] == [None]


def test_history_asks_for_all_starts_of_named_jobs() -> None:
    """Whole histories go by job id from the beginning, and no ids ask nothing."""
    slurm = Slurm(OLD)
    poll = accounting.Accounting(settings.SlurmSettings(), run=slurm)
    assert poll.history([]).attempts == ()
    assert slurm.calls == []
    assert len(poll.history([7, 8]).attempts) == 1
    assert "7,8" in slurm.calls[1]


def test_other_failures_are_told() -> None:
    """What sacct says is passed on under one name."""

    def broken(program: str, *_arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        raise errors.SlurmUnavailable(f"{program}: slurmdbd: Connection refused")

    with pytest.raises(errors.SlurmUnavailable, match="refused"):
        accounting.Accounting(settings.SlurmSettings(), run=broken).attempts(SINCE)


@pytest.mark.parametrize(
    ("line", "limit_s"),
    [("0 min", 0.0), ("90 min", 5400.0), ("UNLIMITED", math.inf), ("(null)", 0.0), ("", 0.0)],
)
def test_how_long_a_job_may_outlive_its_limit(line: str, limit_s: float) -> None:
    """OverTimeLimit of `scontrol show config`, in minutes there."""
    text = f"KillWait = 30 sec\nOverTimeLimit           = {line}\n".encode()
    slurm = accounting.Accounting(settings.SlurmSettings(), run=lambda *_, **__: text)
    assert slurm.over_time_limit_s() == limit_s
