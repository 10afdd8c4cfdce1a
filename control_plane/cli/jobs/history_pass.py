"""The exported history judged again by the bulk engine: here, on Dask's workers, or on workers that Slurm starts.

It answers from the Parquet alone, so it knows less than a pass over the database (no preemptors, none of our own
actions, not who watched): nothing is stored, the rows are compared with the history's own verdicts and written to a file.
"""

from __future__ import annotations

import dataclasses
import typing
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from probing_cluster.attribution.history import history
from probing_cluster.attribution.passes import attribute, bulk, distributed
from probing_cluster.control_plane.terminal import progress
from probing_cluster.core import clock, command_line, digits, errors, settings

_ABOUT = {
    "cluster": pa.string(),
    "job_id": pa.int64(),
    "attempt": pa.int64(),
    "end_us": pa.int64(),
    "cause": pa.string(),
}
"""What the history holds of an attempt and a row of the output names it by; `cause` becomes `cause_before`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassOrder:
    """What is asked for."""

    engine: str
    since: datetime
    until: datetime
    directory: Path | None = None
    """None: `[attribution] history_directory`."""
    output: Path | None = None
    slice_days: float | None = None
    """None: a month a slice."""
    workers: distributed.SlurmWorkers = dataclasses.field(default_factory=distributed.SlurmWorkers)


@dataclasses.dataclass(kw_only=True)
class PassResult:
    """What came of it."""

    n_attempts: int = 0
    n_changed: int = 0
    """Attempts whose cause is not the one that the history holds."""
    causes: Counter[str] = dataclasses.field(default_factory=Counter)
    until: datetime | None = None
    """Where the history ends."""


def run(order: PassOrder, config: settings.Settings) -> PassResult:
    """Judges every slice, while people see how far it has got; raises UsageError and what the engine raises."""
    directory = _directory(order, config)
    parts = list(distributed.slices(order.since, order.until, order.slice_days))
    outcome = PassResult(until=history.read_manifest(directory).until)
    tables = distributed.run(
        directory,
        order.since,
        order.until,
        attribute.policy_of(config.attribution),
        engine=order.engine,
        slice_days=order.slice_days,
        workers=order.workers,
        memory_bytes=config.attribution.memory_bytes,
    )
    with progress.ProgressBar("attribute", len(parts), "slices") as shown, _Output(order.output) as output:
        for part, judged in zip(parts, tables, strict=True):
            rows = _named(judged, directory, part)
            outcome.n_attempts += rows.num_rows
            outcome.n_changed += pc.sum(
                pc.not_equal(pc.fill_null(rows["cause_before"], ""), rows["cause"])
            ).as_py() or 0  # fmt: skip
            outcome.causes.update(rows["cause"].to_pylist())
            output.write(rows)
            shown.at(f"what ended before {clock.from_us(part.until_us):%Y-%m-%d %H:%M} UTC is judged")
            shown.step()
    return outcome


def workers(texts: Sequence[str]) -> distributed.SlurmWorkers:
    """`NAME=VALUE` texts as what to ask Slurm for; raises UsageError. Lists take a name more than once."""
    hints = typing.get_type_hints(distributed.SlurmWorkers)
    given: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in hints:
            raise errors.UsageError(f"--worker {text!r} is not NAME=VALUE; names: {', '.join(hints)}")
        if typing.get_origin(hints[name]) is tuple:
            given[name] = (*given.get(name, ()), value)
        elif hints[name] is int:
            if not digits.is_number(value) or not int(value):
                raise errors.UsageError(f"--worker {text!r}: {name} is a whole number above 0")
            given[name] = int(value)
        else:
            given[name] = value
    return distributed.SlurmWorkers(**given)


def _directory(order: PassOrder, config: settings.Settings) -> Path:
    where = order.directory or config.attribution.history_directory
    if not where:
        raise errors.UsageError(
            "no history is named: give --history DIRECTORY or set [attribution] history_directory"
        )
    directory = Path(where).resolve()
    if not (directory / "attempts").is_dir():
        raise errors.UsageError(f"{directory} holds no history; the service's task `export` writes one")
    if order.until <= order.since:
        raise errors.UsageError(f"the span ends ({order.until}) before it begins ({order.since})")
    return directory


def _named(judged: pa.Table, directory: Path, part: bulk.Slice) -> pa.Table:
    """The verdict cores with the attempt's own names and the cause that the history holds, by attempt_id."""
    attempts = ds.dataset(directory / "attempts", format="parquet", partitioning="hive")
    inside = (ds.field("end_us") >= part.since_us) & (ds.field("end_us") < part.until_us)
    known = [name for name in _ABOUT if name in attempts.schema.names]
    about = attempts.to_table(columns=["attempt_id", *known], filter=inside)
    for name, kind in _ABOUT.items():
        if name not in known:
            about = about.append_column(name, pa.nulls(about.num_rows, kind))
    about = about.rename_columns(["cause_before" if n == "cause" else n for n in about.column_names])
    rows = judged.join(about, "attempt_id", join_type="inner").sort_by("attempt_id")
    names = [*judged.schema.names, *("cause_before" if n == "cause" else n for n in _ABOUT)]
    kinds = {**_ABOUT, "cause_before": _ABOUT["cause"]}
    wanted = [judged.schema.field(n) if n in judged.schema.names else pa.field(n, kinds[n]) for n in names]
    return rows.select(names).cast(pa.schema(wanted))


class _Output:
    """The Parquet file, which appears when it is whole; nothing without a path."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fresh = path.with_name(f".{path.name}.part") if path else None
        self._writer: Any = None

    def __enter__(self) -> Self:
        if self._fresh is not None and not self._fresh.parent.is_dir():
            raise errors.UsageError(f"{self._path} cannot be written: {self._fresh.parent} is no directory")
        if self._path is not None and not command_line.is_replaceable(self._path):
            raise errors.UsageError(f"{self._path} is no regular file; name one for the Parquet")
        return self

    def write(self, rows: pa.Table) -> None:
        """One slice's rows; the first one's columns are the file's."""
        if self._fresh is None:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._fresh, rows.schema)
        self._writer.write_table(rows)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writer is None or self._fresh is None or self._path is None:
            return
        self._writer.close()
        if kind is None:
            self._fresh.replace(self._path)
        else:
            self._fresh.unlink()
