"""Reads the input of the signals: one cluster's rows of a window as Arrow tables."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from probing_cluster.core import clock, vocabulary
from probing_cluster.db import arrow

_SQL = Path(__file__).parent / "sql"

ATTEMPT = pa.schema(
    [
        ("job_id", pa.int64()),
        ("attempt", pa.int64()),
        ("start_us", pa.int64()),
        ("end_us", pa.int64()),
        ("state", pa.string()),
        ("nodes", pa.list_(pa.string())),
        ("n_nodes", pa.int64()),
        ("n_gpus", pa.int64()),
        ("user", pa.string()),
        ("run_key", pa.string()),
        ("cause", pa.string()),
        ("domain", pa.string()),
        ("component", pa.string()),
        ("fault_node", pa.string()),
        ("device", pa.string()),
        ("confidence", pa.string()),
        ("summary", pa.string()),
        ("incident", pa.string()),
        ("attested", pa.bool_()),
        ("ref", pa.string()),
    ]
)
"""One attempt with its verdict on a node; see sql/pg_attempts.sql."""

EVENT = pa.schema(
    [
        ("node", pa.string()),
        ("at_us", pa.int64()),
        ("kind", pa.string()),
        ("code", pa.string()),
        ("severity", pa.string()),
        ("source", pa.string()),
        ("device", pa.string()),
        ("gpu_uuid", pa.string()),
        ("n", pa.int64()),
    ]
)
OUTAGE = pa.schema(
    [("node", pa.string()), ("start_us", pa.int64()), ("end_us", pa.int64()), ("reason", pa.string())]
)
"""A time in which a node was out of scheduling; `end_us` is null while it lasts."""
NOTE = pa.schema(
    [
        ("node", pa.string()),
        ("at_us", pa.int64()),
        ("action", pa.string()),
        ("author", pa.string()),
        ("note", pa.string()),
        ("about_lemon", pa.bool_()),
    ]
)
EXCLUSION = pa.schema([("node", pa.string()), ("job_id", pa.int64()), ("at_us", pa.int64())])

KINDS = vocabulary.LEMON_KINDS
"""Kinds of events that a signal uses."""


@dataclass(frozen=True, kw_only=True)
class SlurmOutage:
    """A time in which a node was out of service, by Slurm's accounting."""

    node: str
    start_at: datetime
    end_at: datetime | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class SlurmFacts:
    """Slurm's facts about its nodes."""

    outages: Sequence[SlurmOutage] | None = None
    """None if its accounting could not be asked: then our own drains are used."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Node to the switch or block that it shares with others; empty if unknown."""


NO_SLURM_FACTS = SlurmFacts()


@dataclass(frozen=True, kw_only=True)
class LemonFacts:
    """The rows of one window, since <= time < until."""

    since: datetime
    until: datetime
    attempts: pa.Table
    events: pa.Table
    outages: pa.Table
    notes: pa.Table
    exclusions: pa.Table
    outages_by_slurm: bool
    """False if Slurm's accounting could not be asked, so that only our own drains are known."""
    places: Mapping[str, str] = field(default_factory=dict)
    """See SlurmFacts."""


def read(
    uri: str,
    cluster: str,
    since: datetime,
    until: datetime,
    *,
    slurm_facts: SlurmFacts = NO_SLURM_FACTS,
) -> LemonFacts:
    """The facts from a database and from Slurm. Raises DatabaseUnavailable."""
    span = (since, until, cluster)
    out = outage_table(slurm_facts.outages, since, until) if slurm_facts.outages is not None else None
    with contextlib.closing(arrow.ArrowReader(uri)) as reader:
        rows = functools.partial(_rows, reader)
        return LemonFacts(
            since=since,
            until=until,
            attempts=rows("pg_attempts", ATTEMPT, *span, ",".join(sorted(vocabulary.JOB_SIDE_SOURCES))),
            events=rows("pg_events", EVENT, *span, ",".join(KINDS)),
            outages=out if out is not None else rows("pg_outages", OUTAGE, *span),
            notes=rows("pg_notes", NOTE, until, cluster),
            exclusions=rows("pg_exclusions", EXCLUSION, *span),
            outages_by_slurm=out is not None,
            places=slurm_facts.places,
        )


def outage_table(outages: Iterable[SlurmOutage], since: datetime, until: datetime) -> pa.Table:
    """Slurm's outages that began in the window."""
    rows = [
        {
            "node": o.node,
            "start_us": clock.to_us(o.start_at),
            "end_us": None if o.end_at is None else clock.to_us(o.end_at),
            "reason": o.reason,
        }
        for o in outages
        if since <= o.start_at < until
    ]
    return pa.Table.from_pylist(rows, schema=OUTAGE)


def _rows(reader: arrow.ArrowReader, name: str, schema: pa.Schema, *given: Any) -> pa.Table:
    query = (_SQL / f"{name}.sql").read_text("utf-8")
    return reader.table(query, given).select(schema.names).cast(schema)
