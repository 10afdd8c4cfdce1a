"""Fleet figures in four engines: attempts, GPU time and infrastructure failures by size (what MTTF by size stands on)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.dataset as ds

from benchmarks.attribution import core_join
from probing_cluster.attribution.reliability import fleet

Answer = list[tuple[int, int, int, int]]
"""size, attempts, GPU-hours (rounded), failures."""

_FAILED = ("FAILED", "REQUEUED", "TIMEOUT", "CANCELLED", "DEADLINE", "OUT_OF_MEMORY")


def probing(directory: Path) -> Answer:
    """Ours: the two public figures that hold these numbers."""
    sizes = fleet.job_sizes(directory, core_join.SINCE, core_join.UNTIL)
    failures = {
        s.n_gpus: s.measured.n_failures
        for s in fleet.mttf_by_size(directory, core_join.SINCE, core_join.UNTIL).sizes
        if s.measured
    }
    return [(s.n_gpus, s.n_attempts, round(s.gpu_h), failures.get(s.n_gpus, 0)) for s in sizes.sizes]


def duckdb(directory: Path) -> Answer:
    import duckdb as engine

    since, until = (round(t.timestamp() * 1e6) for t in (core_join.SINCE, core_join.UNTIL))
    rows = engine.sql(f"""
        SELECT CASE WHEN n_gpus <= 1 THEN n_gpus ELSE CAST(pow(2, ceil(log2(n_gpus) - 1e-9)) AS BIGINT) END AS size, count(*),
               sum((least(end_us, {until}) - greatest(start_us, {since})) / 1e6 * n_gpus),
               count(*) FILTER (WHERE end_us < {until} AND (state IN ('NODE_FAIL', 'BOOT_FAIL')
                   OR (state IN {_FAILED} AND domain IN ('hardware', 'system_software') AND cause <> 'node_refused')))
        FROM read_parquet('{directory}/attempts/*/*.parquet') WHERE start_us < {until} AND end_us >= {since} GROUP BY 1 ORDER BY 1
    """).fetchall()
    return [(s, n, round(g / 3600), f) for s, n, g, f in rows]


def polars(directory: Path) -> Answer:
    import polars as pl

    since, until = (round(t.timestamp() * 1e6) for t in (core_join.SINCE, core_join.UNTIL))
    c = pl.col
    size = (
        pl.when(c("n_gpus") <= 1)
        .then(c("n_gpus"))
        .otherwise((2.0 ** (c("n_gpus").log(2) - 1e-9).ceil()).cast(pl.Int64))
    )
    infra = c("state").is_in(["NODE_FAIL", "BOOT_FAIL"]) | (
        c("state").is_in(list(_FAILED))
        & c("domain").is_in(["hardware", "system_software"])
        & (c("cause") != "node_refused")
    )
    found = (
        pl.scan_parquet(f"{directory}/attempts/*/*.parquet")
        .filter((c("start_us") < until) & (c("end_us") >= since))
        .group_by(size.alias("size"))
        .agg(
            pl.len().alias("n"),
            (
                (pl.min_horizontal(c("end_us"), until) - pl.max_horizontal(c("start_us"), since))
                / 1e6
                * c("n_gpus")
            )
            .sum()
            .alias("gpu_s"),
            (infra.fill_null(value=False) & (c("end_us") < until)).sum().alias("failures"),
        )
        .sort("size")
        .collect(engine="streaming")
    )
    return [(s, n, round(g / 3600), f) for s, n, g, f in found.iter_rows()]


def pandas(directory: Path) -> Answer:
    import numpy as np

    since, until = (round(t.timestamp() * 1e6) for t in (core_join.SINCE, core_join.UNTIL))
    columns = ["n_gpus", "start_us", "end_us", "state", "domain", "cause"]
    inside = (ds.field("start_us") < until) & (ds.field("end_us") >= since)
    f = (
        ds.dataset(directory / "attempts", partitioning="hive")
        .to_table(columns=columns, filter=inside)
        .to_pandas()
    )
    f["size"] = np.where(f["n_gpus"] <= 1, f["n_gpus"], 2 ** np.ceil(np.log2(f["n_gpus"]) - 1e-9)).astype(int)
    f["gpu_s"] = (f["end_us"].clip(upper=until) - f["start_us"].clip(lower=since)) / 1e6 * f["n_gpus"]
    blamed = (
        f["state"].isin(_FAILED)
        & f["domain"].isin(["hardware", "system_software"])
        & (f["cause"] != "node_refused")
    )
    f["failed"] = (f["state"].isin(["NODE_FAIL", "BOOT_FAIL"]) | blamed) & (f["end_us"] < until)
    g = f.groupby("size").agg(n=("size", "size"), gpu_s=("gpu_s", "sum"), failures=("failed", "sum"))
    return [(int(s), int(r.n), round(r.gpu_s / 3600), int(r.failures)) for s, r in g.iterrows()]


ENGINES: dict[str, Callable[[Path], Answer]] = {
    "probing": probing,
    "duckdb": duckdb,
    "polars": polars,
    "pandas": pandas,
}
