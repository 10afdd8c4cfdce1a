"""`sacct -P` text of Slurm 20.11 to 26.05, with any field list and delimiter, and `scontrol show job`'s, as attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from probing_cluster.core import errors, records, sanitize, storable, vocabulary
from probing_cluster.slurm_plugins import slurm_times
from probing_cluster.slurm_plugins.accounting import (
    attempt_rows,
    printed_table,
    sacct_attempt,
    sacct_rows,
    scontrol_rows,
)


def parse_sacct_text(
    data: bytes,
    *,
    delimiter: str | None = None,
    timezone: str | None = None,
    cluster: str | None = None,
    unnamed: str = "cluster",
    fields: Sequence[str] | None = None,
    gpus_accounted: bool | None = None,
) -> attempt_rows.ParseResult:
    """Every attempt in `data`; raises MalformedInput only when it is not sacct's parsable output at all.

    `timezone` is the IANA zone of times without one (None: UTC, and the result says so). `fields` names the
    columns of `--noheader` output. `cluster` is the name all rows get (None: their own column's, and `unnamed` where there is none).
    `gpus_accounted` tells whether the site lists gres/gpu in AccountingStorageTRES (None: from a week before
    a cluster's first attempt with GPUs on).
    """
    reading = sacct_attempt.AttemptReading(zone=slurm_times.zone(timezone), cluster=cluster, unnamed=unnamed)
    found = _Found()
    cut = 0
    of_scontrol = not fields and delimiter is None and scontrol_rows.is_scontrol(data)
    if not of_scontrol and (table := printed_table.parsable(data)) is not None:
        (data, cut), delimiter = table, printed_table.DELIMITER
    rows = (
        scontrol_rows.read(data) if of_scontrol else sacct_rows.read(data, delimiter=delimiter, fields=fields)
    )
    for row in rows:
        found.take(row, reading)
    whole = attempt_rows.assemble(attempt_rows.with_zero_gpus(found.started, gpus_accounted))
    return attempt_rows.ParseResult(
        attempts=whole.attempts,
        rejected=tuple(found.rejected),
        not_started=tuple(found.waiting.values()),
        steps=found.steps,
        duplicates=found.duplicates + whole.duplicates,
        merged=whole.merged,
        running_until=reading.running_until,
        n_naive=reading.naive if timezone is None else 0,
        notes=_notes(reading, timezone, cut),
    )


class _Found:
    """The rows of one dump, sorted by what they are."""

    def __init__(self) -> None:
        self.started: list[records.JobAttempt] = []
        self.rejected: list[sacct_rows.RejectedRow] = []
        self.waiting: dict[tuple[str, str, datetime | None], attempt_rows.NotStarted] = {}
        self.steps = 0
        self.duplicates = 0

    def take(
        self, row: sacct_rows.SacctRow | sacct_rows.RejectedRow, reading: sacct_attempt.AttemptReading
    ) -> None:
        """Puts one row where it belongs."""
        if isinstance(row, sacct_rows.RejectedRow):
            self.rejected.append(row)
            return
        if sacct_attempt.is_step(row.fields):
            self.steps += 1
            return
        try:
            found = storable.require(sacct_attempt.attempt_of(row.fields, reading))
        except errors.MalformedInput as exc:
            self.rejected.append(sacct_rows.refused(row.line_no, row.text, str(exc.args[0])))
            return
        except (ValueError, OverflowError) as exc:
            why = f"a number in it is none, or too large: {sanitize.clean(str(exc), 80)}"
            self.rejected.append(sacct_rows.refused(row.line_no, row.text, why))
            return
        if isinstance(found, records.JobAttempt):
            self.started.append(found)
            return
        key = (found.cluster, found.job_id, found.submit_at)
        self.duplicates += key in self.waiting
        self.waiting[key] = found


def _notes(reading: sacct_attempt.AttemptReading, timezone: str | None, cut: int) -> tuple[str, ...]:
    plural = vocabulary.plural
    notes = [
        (
            reading.naive and timezone is None,
            f"times without a zone in {plural(reading.naive, 'row')}: read as UTC",
        ),
        (
            reading.ambiguous,
            f"an hour that the clocks repeated in {plural(reading.ambiguous, 'row')}: read as the earlier",
        ),
        (reading.stand_ins, f"no JobIDRaw of {plural(reading.stand_ins, 'array task')}: given ids of ours"),
        (reading.no_submit, f"no Submit in {plural(reading.no_submit, 'row')}: the start stands in"),
        (
            cut,
            f"sacct's table for people: {plural(cut, 'value')} cut short and left out; `sacct -P` prints them whole",
        ),
        (reading.no_nodes, "no NodeList column: attempts cannot be tied to nodes"),
    ]
    return tuple(text for applies, text in notes if applies)
