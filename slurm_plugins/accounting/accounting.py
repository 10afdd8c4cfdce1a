"""Accounting, asked once for everybody: `sacct -D -X -P` as attempts.

`-D` shows every start of a requeued job. Times are asked for as epoch seconds. The delimiter is drawn afresh for
each question: a user who knew it could write rows of their own into a job's name.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from probing_cluster.core import clock, digits, errors, settings
from probing_cluster.slurm_plugins import commands, doctor
from probing_cluster.slurm_plugins.accounting import attempt_rows, sacct_fields, sacct_text

WINDOW = timedelta(days=1)
"""Longest stretch of time asked for in one question."""
_LEAST_WINDOW = timedelta(minutes=15)
"""A window as short as this is not divided: all that runs at one moment is in the answer, however short the window."""
_WAITED = ("-s", "CANCELLED,DEADLINE")
"""Without a state, sacct leaves out jobs that ended before they were eligible: held, or waiting for another job or for a time."""
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


class Accounting:
    """slurmdbd through `sacct`; raises SlurmUnavailable."""

    def __init__(
        self,
        slurm: settings.SlurmSettings,
        *,
        cluster: str | None = None,
        run: commands.Runner | None = None,
        now: clock.Clock = clock.SYSTEM,
    ) -> None:
        self._run = run or commands.SlurmCommands(settings=slurm)
        self._cluster = cluster
        self._clock = now
        self._fields: list[str] = []
        self._gpus_accounted: bool | None = None

    def attempts(self, since: datetime, until: datetime | None = None) -> attempt_rows.ParseResult:
        """Every attempt that ran at some moment of [since, until], however long before it began, those still running included.

        Attempt numbers count within the answer: an earlier start of the same job may lie before `since`.
        """
        window = ["-S", _local(since), "-E", _local(until or self._clock.now())]
        return self._ask(window, [*window, *_WAITED])

    def day_by_day(
        self, since: datetime, until: datetime | None = None
    ) -> Iterator[attempt_rows.ParseResult]:
        """The attempts of [since, until] in windows of a day, oldest first; an attempt that ran in several is in the answer of each.

        A week of a large site in one question would outlast its deadline, and in one answer would take gigabytes. A day that
        sacct cannot list in time, nor in parts, does not keep the days after it: SlurmAway is raised after them, and at
        once where the next day is not listed either.
        """
        end = until or self._clock.now()
        days = commands.OneByOne()
        while since < end:
            day_end = min(since + WINDOW, end)
            with days.subject():
                yield from self._in_parts(since, day_end)
            since = day_end
        days.end()

    def _in_parts(self, since: datetime, until: datetime) -> Iterator[attempt_rows.ParseResult]:
        """The attempts of [since, until], in halves of it, halves of these and so on where sacct needs longer than its deadline."""
        length = until - since
        while since < until:
            end = min(since + length, until)
            try:
                found = self.attempts(since, end)
            except commands.SlurmTimedOut as exc:
                if length <= _LEAST_WINDOW:
                    msg = f"{exc}, asked for {clock.iso_z(since)} to {clock.iso_z(end)}"
                    raise commands.SlurmTimedOut(msg) from exc
                length /= 2
                continue
            yield found
            since = end

    def history(self, job_ids: Iterable[int]) -> attempt_rows.ParseResult:
        """Every attempt of these jobs since accounting began, numbered from their first start."""
        named = ",".join(str(job_id) for job_id in job_ids)
        return self._ask(["-S", "1970-01-02", "-j", named]) if named else attempt_rows.ParseResult()

    def _ask(self, *questions: Sequence[str]) -> attempt_rows.ParseResult:
        delimiter = f"\x1f{secrets.token_hex(4)}\x1f"
        try:
            output = self._answers(delimiter, questions)
        except errors.SlurmUnavailable as exc:
            if "nvalid field" not in str(exc):
                raise
            # Slurm was upgraded or downgraded under us: ask again what it offers.
            self._fields = []
            output = self._answers(delimiter, questions)
        return sacct_text.parse_sacct_text(
            output, delimiter=delimiter, cluster=self._cluster, gpus_accounted=self._accounts_gpus()
        )

    def _answers(self, delimiter: str, questions: Sequence[Sequence[str]]) -> bytes:
        return b"\n".join(self._sacct(delimiter, which) for which in questions)

    def _sacct(self, delimiter: str, which: Iterable[str]) -> bytes:
        if not self._fields:
            offered = self._run("sacct", "-e").decode("ascii", "replace").split()
            self._fields = sacct_fields.to_ask_for(offered)
        return self._run(
            "sacct",
            "-a",
            "-D",
            "-X",
            "-P",
            "--noconvert",
            *which,
            f"--delimiter={delimiter}",
            f"--format={','.join(self._fields)}",
            environment={"SLURM_TIME_FORMAT": "%s"},
        )

    def over_time_limit_s(self) -> float:
        """Slurm's OverTimeLimit: how long a job may outlive its limit; infinite where it ends none."""
        config = doctor.parse(self._run("scontrol", "show", "config").decode("utf-8", "replace"))
        minutes = config.get("OverTimeLimit", "").partition(" ")[0]
        return (
            math.inf if minutes == "UNLIMITED" else 60.0 * (int(minutes) if digits.is_number(minutes) else 0)
        )

    def _accounts_gpus(self) -> bool | None:
        """Whether AccountingStorageTRES lists gres/gpu; None while the controller does not say."""
        if self._gpus_accounted is None:
            try:
                config = self._run("scontrol", "show", "config").decode("utf-8", "replace")
            except errors.SlurmUnavailable:
                return None
            line = next(
                (text for text in config.splitlines() if text.startswith("AccountingStorageTRES")), ""
            )
            self._gpus_accounted = "gres/gpu" in line
        return self._gpus_accounted


def _local(at: datetime) -> str:
    """`at` as sacct reads it; commands run with TZ=UTC."""
    return at.strftime(_TIME_FORMAT)
