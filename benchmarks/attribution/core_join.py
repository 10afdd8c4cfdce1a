"""The same question in four engines: the strongest event in the window of every failed attempt, and how many there are.

    SELECT attempt, min(rank << 40 | event row), count(*)   within [end - 10 min, end + 5 min] on the attempt's nodes

Every engine gets its best formulation known to us: the composite bucket key (a naive range join never ends in DataFusion and takes
minutes in DuckDB). pandas works month by month, or it would not fit. All read the same Parquet and give one checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from probing_cluster.attribution.passes import bulk
from probing_cluster.core import clock

SINCE = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=336)
BEFORE, AFTER, BUCKET = 600_000_000, 300_000_000, 900_000_000
SHIFT = 1 << 40


def checksum(table: pa.Table) -> tuple[int, int, int]:
    """Attempts with any event, sum of the keys' low bits, events in windows: equal for equal answers."""
    low = pc.sum(pc.bit_wise_and(table["key"], (1 << 32) - 1)).as_py() or 0
    return table.num_rows, low, pc.sum(table["n"]).as_py() or 0


def ranks(directory: Path) -> pa.Table:
    """sort_idx and rank."""
    return bulk.ranked(ds.dataset(directory / "sorts.parquet").to_table()).select(["sort_idx", "rank"])


def n_nodes(directory: Path) -> int:
    return int(ds.dataset(directory / "nodes.parquet").count_rows())


def probing(directory: Path) -> pa.Table:
    """Ours, in one slice."""
    whole = bulk.Slice(since_us=clock.to_us(SINCE), until_us=clock.to_us(UNTIL))
    return bulk.Bulk(directory).strongest(whole)


def probing_months(directory: Path) -> pa.Table:
    """Ours, month by month with a 512 MiB pool: how the service runs it."""
    engine = bulk.Bulk(directory, memory_bytes=512 << 20)
    return pa.concat_tables([engine.strongest(p) for p in bulk.month_slices(SINCE, UNTIL)])


def duckdb(directory: Path) -> pa.Table:
    """Composite bucket key, attempts in two buckets."""
    import duckdb as engine

    connection = engine.connect()
    connection.register("ranks", ranks(directory))
    n = n_nodes(directory)
    return connection.sql(f"""
        WITH ends AS (
            SELECT attempt_id, end_us, (end_us - {BEFORE}) // {BUCKET} * {n} + node_idx AS b
            FROM read_parquet('{directory}/attempt_nodes/*/*.parquet') WHERE judged
        ), windows AS (SELECT * FROM ends UNION ALL SELECT attempt_id, end_us, b + {n} FROM ends),
        seen AS (
            SELECT e.at_us, r.rank * {SHIFT} + e.row AS k, e.at_us // {BUCKET} * {n} + e.node_idx AS b
            FROM read_parquet('{directory}/events/*/*.parquet') e JOIN ranks r USING (sort_idx)
        )
        SELECT attempt_id, min(k) AS key, count(*) AS n
        FROM windows w JOIN seen s ON w.b = s.b AND s.at_us BETWEEN w.end_us - {BEFORE} AND w.end_us + {AFTER}
        GROUP BY attempt_id
    """).to_arrow_table()


def polars(directory: Path) -> pa.Table:
    """Composite bucket key, lazily, streamed."""
    import polars as pl

    n = n_nodes(directory)
    key = ((pl.col("end_us") - BEFORE) // BUCKET) * n + pl.col("node_idx").cast(pl.Int64)
    ends = (
        pl.scan_parquet(f"{directory}/attempt_nodes/*/*.parquet")
        .filter("judged")
        .select("attempt_id", "end_us", b=key)
    )
    windows = pl.concat([ends, ends.with_columns(pl.col("b") + n)])
    events = pl.scan_parquet(f"{directory}/events/*/*.parquet").join(
        pl.from_arrow(ranks(directory)).lazy(), on="sort_idx"
    )
    event_buckets = events.select(
        "at_us",
        k=pl.col("rank") * SHIFT + pl.col("row"),
        b=(pl.col("at_us") // BUCKET) * n + pl.col("node_idx").cast(pl.Int64),
    )
    inside = pl.col("at_us").is_between(pl.col("end_us") - BEFORE, pl.col("end_us") + AFTER)
    found = (
        windows.join(event_buckets, on="b")
        .filter(inside)
        .group_by("attempt_id")
        .agg(key=pl.col("k").min(), n=pl.len())
    )
    return found.collect(engine="streaming").to_arrow()


def pandas(directory: Path) -> pa.Table:
    """Bucket-key merge, month by month."""
    import pandas as pd

    n, parts = n_nodes(directory), []
    rank = ranks(directory).to_pandas()
    columns = ["at_us", "row", "node_idx", "sort_idx"]
    for part in bulk.month_slices(SINCE, UNTIL):
        ended = (
            (ds.field("end_us") >= part.since_us) & (ds.field("end_us") < part.until_us) & ds.field("judged")
        )
        ends = (
            ds.dataset(directory / "attempt_nodes", partitioning="hive")
            .to_table(columns=["attempt_id", "end_us", "node_idx"], filter=ended)
            .to_pandas()
        )
        near = (ds.field("at_us") >= part.since_us - BEFORE) & (ds.field("at_us") < part.until_us + AFTER)
        events = (
            ds.dataset(directory / "events", partitioning="hive")
            .to_table(columns=columns, filter=near)
            .to_pandas()
        )
        ends["b"] = (ends["end_us"] - BEFORE) // BUCKET * n + ends["node_idx"]
        windows = pd.concat([ends, ends.assign(b=ends["b"] + n)], ignore_index=True)[
            ["attempt_id", "end_us", "b"]
        ]
        events = events.merge(rank, on="sort_idx")
        events["k"] = events["rank"] * SHIFT + events["row"]
        events["b"] = events["at_us"] // BUCKET * n + events["node_idx"]
        met = windows.merge(events[["at_us", "k", "b"]], on="b")
        met = met[(met["at_us"] >= met["end_us"] - BEFORE) & (met["at_us"] <= met["end_us"] + AFTER)]
        parts.append(met.groupby("attempt_id")["k"].agg(key="min", n="count").reset_index())
    return pa.Table.from_pandas(pd.concat(parts, ignore_index=True), preserve_index=False)


ENGINES: dict[str, Callable[[Path], pa.Table]] = {
    "probing": probing,
    "probing-months-512MB": probing_months,
    "duckdb": duckdb,
    "polars": polars,
    "pandas": pandas,
}
