"""A made-up year of a large cluster, written as history Parquet; fixed seed, labels known.

What is modelled (full scale): 2,000 nodes x 8 GPUs, 334 days, 4 M attempts whose states follow Figure 3 of arXiv 2410.21680
(COMPLETED 60 %, FAILED 24, PREEMPTED 10, CANCELLED 3.2, REQUEUED 2, TIMEOUT 0.6, NODE_FAIL 0.1, OUT_OF_MEMORY 0.1 %), sizes
from 1 to 4,096 GPUs stretched towards the large end so that there are 20 M attempt-nodes, and 20 M node events of which nearly all are
what a real log is full of (corrected errors, user-type Xids, flaps that came back). 20 nodes have ten times their share.
Planted: 0.2 % of attempts are ended by a root fault on one of their nodes 1 to 60 s before the end (`label`); every fault of the
planted kinds elsewhere is noise at a rate of 1 in 5,000 events. What is not modelled: attempts do not exclude each other on a node.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

START_US = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp() * 1e6)
DAY_US = 86_400_000_000


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is made."""

    n_nodes: int
    days: int
    n_attempts: int
    n_events: int
    seed: int = 20260302
    start_us: int = START_US


FULL = Scale(n_nodes=2000, days=334, n_attempts=4_000_000, n_events=20_000_000)
MEDIUM = Scale(n_nodes=2000, days=167, n_attempts=2_000_000, n_events=10_000_000)
"""Half a year of the same density: what ends in three minutes."""
DAYS = Scale(
    n_nodes=2000, days=13, n_attempts=144_000, n_events=838_000,
    start_us=int(datetime(2025, 6, 4, tzinfo=UTC).timestamp() * 1e6),
)  # fmt: skip
"""Twelve days of the same density about the one that `incremental` judges: what is made in seconds."""
SMALL = Scale(n_nodes=100, days=40, n_attempts=20_000, n_events=100_000)

SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
SIZE_P = np.array([0.42, 0.1, 0.1, 0.243, 0.03, 0.02, 0.015, 0.0288, 0.0216, 0.012, 0.006, 0.00216, 0.00144])

STATES = [
    "COMPLETED",
    "FAILED",
    "PREEMPTED",
    "CANCELLED",
    "REQUEUED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
]
STATE_P = np.array([0.60, 0.24, 0.10, 0.032, 0.02, 0.006, 0.001, 0.001])
JUDGED = frozenset(STATES) - {"COMPLETED"}

# kind, code, severity, source, share of the noise, share of the planted faults
SORTS = [
    ("pcie_aer", "corrected", "info", "kernel", 0.40, 0.0),
    ("edac", "CE", "info", "kernel", 0.20, 0.0),
    ("xid", "63", "low", "kernel", 0.02, 0.0),
    ("xid", "31", "info", "kernel", 0.06, 0.0),
    ("xid", "13", "info", "kernel", 0.04, 0.0),
    ("xid", "43", "info", "kernel", 0.08, 0.0),
    ("xid", "45", "info", "kernel", 0.08, 0.0),
    ("throttle", "hw_slowdown", "low", "nvml", 0.05, 0.0),
    ("nfs", "recovered", "info", "kernel", 0.0398, 0.0),
    ("hung_task", "120", "info", "kernel", 0.03, 0.0),
    ("ib_link", "port_down", "high", "sysfs", 0.00004, 0.30),
    ("mount", "missing", "high", "mount", 0.00003, 0.20),
    ("xid", "48", "high", "kernel", 0.00003, 0.12),
    ("xid", "94", "low", "kernel", 0.00001, 0.05),
    ("pcie_aer", "fatal", "high", "kernel", 0.00002, 0.10),
    ("xid", "79", "high", "kernel", 0.00002, 0.13),
    ("xid", "74", "high", "kernel", 0.00002, 0.04),
    ("xid", "119", "high", "kernel", 0.00002, 0.04),
    ("edac", "UE", "high", "kernel", 0.00001, 0.02),
]
CAUSES = {
    ("ib_link", "port_down"): "ib_link",
    ("mount", "missing"): "filesystem_mount",
    ("xid", "48"): "gpu_memory_uncorrectable",
    ("xid", "94"): "gpu_memory_contained",
    ("pcie_aer", "fatal"): "pcie",
    ("xid", "79"): "gpu_lost",
    ("xid", "74"): "gpu_nvlink",
    ("xid", "119"): "gpu_gsp_timeout",
    ("edac", "UE"): "main_memory",
}


def generate(directory: Path, scale: Scale) -> dict[str, int]:
    """Write the year; how many rows of each table there are."""
    rng = np.random.default_rng(scale.seed)
    directory.mkdir(parents=True, exist_ok=True)
    nodes = pa.table(
        {
            "node_idx": pa.array(range(scale.n_nodes), pa.int32()),
            "node": [f"n{i:04d}" for i in range(scale.n_nodes)],
        }
    )
    pq.write_table(nodes, directory / "nodes.parquet")
    _write_sorts(directory)
    attempts = _attempts(rng, scale)
    places = _places(attempts, scale)
    planted = _plant(rng, attempts, scale)
    events = _events(rng, scale, planted)
    _write_months(directory / "attempts", _attempt_table(attempts, planted, places), "end_us")
    _write_months(directory / "attempt_nodes", places, "end_us")
    _write_months(directory / "events", events, "at_us")
    return {
        "attempts": len(attempts["id"]),
        "attempt_nodes": places.num_rows,
        "events": events.num_rows,
        "planted": len(planted["attempt"]),
    }


def _attempts(rng: np.random.Generator, scale: Scale) -> dict[str, np.ndarray]:
    n = scale.n_attempts
    gpus = rng.choice(SIZES, n, p=SIZE_P / SIZE_P.sum())
    n_nodes = np.minimum((gpus + 7) // 8, scale.n_nodes)
    run_s = np.clip(rng.lognormal(7.0, 1.9, n), 20, 7 * 86400)
    end_us = scale.start_us + rng.integers(DAY_US, scale.days * DAY_US, n)
    end_us = np.sort(end_us // 1_000_000 * 1_000_000)
    state = rng.choice(len(STATES), n, p=STATE_P / STATE_P.sum())
    first = rng.integers(0, scale.n_nodes, n)
    return {
        "id": np.arange(n),
        "gpus": gpus,
        "n_nodes": n_nodes,
        "end_us": end_us,
        "start_us": end_us - (run_s * 1e6).astype(np.int64) // 1_000_000 * 1_000_000,
        "state": state,
        "first": first,
    }


def _places(attempts: dict[str, np.ndarray], scale: Scale) -> pa.Table:
    """Consecutive nodes from a random first one, as Slurm's topology likes to place."""
    n = attempts["n_nodes"]
    attempt = np.repeat(attempts["id"], n)
    offset = np.arange(len(attempt)) - np.repeat(np.cumsum(n) - n, n)
    node = ((np.repeat(attempts["first"], n) + offset) % scale.n_nodes).astype(np.int32)
    judged = np.isin(attempts["state"], [STATES.index(s) for s in JUDGED])
    return pa.table(
        {
            "attempt_id": attempt,
            "node_idx": node,
            "start_us": np.repeat(attempts["start_us"], n),
            "end_us": np.repeat(attempts["end_us"], n),
            "judged": np.repeat(judged, n),
        }
    )


def _plant(rng: np.random.Generator, attempts: dict[str, np.ndarray], scale: Scale) -> dict[str, np.ndarray]:
    failed = np.flatnonzero(np.isin(attempts["state"], [STATES.index("FAILED")]))
    count = round(0.002 * scale.n_attempts)
    # Failures strike node-hours: the chance grows with the size.
    p = attempts["n_nodes"][failed] ** 0.7
    chosen = rng.choice(failed, count, replace=False, p=p / p.sum())
    share = np.array([s[5] for s in SORTS])
    sort = rng.choice(len(SORTS), count, p=share / share.sum())
    # A link fault does not end a job of one node: plant a lost GPU there.
    ib, lost = _sort("ib_link", "port_down"), _sort("xid", "79")
    sort = np.where((sort == ib) & (attempts["n_nodes"][chosen] == 1), lost, sort)
    node = (
        attempts["first"][chosen] + rng.integers(0, 1 << 30, count) % attempts["n_nodes"][chosen]
    ) % scale.n_nodes
    at = attempts["end_us"][chosen] - rng.integers(1_000_000, 60_000_000, count)
    return {
        "attempt": chosen,
        "sort": sort,
        "node": node,
        "at": np.maximum(at, attempts["start_us"][chosen] + 1_000_000),
    }


def _sort(kind: str, code: str) -> int:
    return next(i for i, s in enumerate(SORTS) if (s[0], s[1]) == (kind, code))


def _events(rng: np.random.Generator, scale: Scale, planted: dict[str, np.ndarray]) -> pa.Table:
    n = scale.n_events - len(planted["at"])
    share = np.array([s[4] for s in SORTS])
    hot = rng.random(n) < 0.1
    node = np.where(hot, rng.integers(0, max(1, scale.n_nodes // 100), n), rng.integers(0, scale.n_nodes, n))
    at = np.concatenate([scale.start_us + rng.integers(0, (scale.days + 1) * DAY_US, n), planted["at"]])
    sort = np.concatenate([rng.choice(len(SORTS), n, p=share / share.sum()), planted["sort"]])
    node = np.concatenate([node, planted["node"]])
    order = np.argsort(at, kind="stable")
    return pa.table(
        {
            "row": np.arange(scale.n_events),
            "node_idx": node[order].astype(np.int32),
            "at_us": at[order],
            "sort_idx": sort[order].astype(np.int32),
            "device": _devices(rng, sort[order]),
        }
    )


def _devices(rng: np.random.Generator, sort: np.ndarray) -> pa.DictionaryArray:
    """gpu0 to gpu7 for what concerns a GPU, an adapter or a mount for the rest."""
    names = [*(f"gpu{i}" for i in range(8)), "mlx5_0", "/scratch", "DIMM_A1"]
    fixed = {"ib_link": 8, "mount": 9, "nfs": 9, "edac": 10, "hung_task": 10}
    index = np.array([fixed.get(s[0], -1) for s in SORTS])[sort]
    index = np.where(index < 0, rng.integers(0, 8, len(sort)), index)
    return pa.DictionaryArray.from_arrays(pa.array(index, pa.int8()), names)


def _attempt_table(a: dict[str, np.ndarray], planted: dict[str, np.ndarray], places: pa.Table) -> pa.Table:
    n = len(a["id"])
    failed = a["state"] == STATES.index("FAILED")
    label = np.full(n, "", dtype=object)
    words = np.array([CAUSES.get((s[0], s[1]), "") for s in SORTS], dtype=object)
    label[planted["attempt"]] = words[planted["sort"]]
    cause = np.where(label != "", label, np.where(failed, "user_error", None))
    domain = dict.fromkeys(CAUSES.values(), "hardware") | {
        "filesystem_mount": "system_software",
        "gpu_gsp_timeout": "system_software",
    }
    domains = [domain.get(c, "user_program" if c else None) for c in cause]
    ends = np.concatenate([[0], np.cumsum(a["n_nodes"])]).astype(np.int32)
    names = pa.DictionaryArray.from_arrays(
        places["node_idx"].combine_chunks(),
        [f"n{i:04d}" for i in range(int(places["node_idx"].to_numpy().max()) + 1)],
    )
    users = pa.DictionaryArray.from_arrays(
        pa.array(a["id"] % 400, pa.int16()), [f"user{i:03d}" for i in range(400)]
    )
    constant = {"cluster": "c", "account": "a", "partition": "gpu"}
    return pa.table(
        {
            "attempt_id": a["id"],
            "job_id": a["id"] + 1,
            "attempt": np.ones(n, np.int64),
            "state": pa.array(np.array(STATES, dtype=object)[a["state"]]),
            "submit_us": a["start_us"] - 60_000_000,
            "eligible_us": a["start_us"] - 60_000_000,
            "start_us": a["start_us"],
            "end_us": a["end_us"],
            "suspended_s": np.zeros(n),
            "n_nodes": a["n_nodes"].astype(np.int32),
            "n_gpus": a["gpus"],
            "user": users,
            **{
                name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int8)), [value])
                for name, value in constant.items()
            },
            "run_key": pa.array(a["id"] + 1).cast(pa.string()),
            "priority": np.ones(n, np.int64),
            "nodes": pa.ListArray.from_arrays(pa.array(ends), names.dictionary_decode()),
            "exit_code": failed.astype(np.int32),
            "exit_signal": np.zeros(n, np.int32),
            "label": pa.array(label.tolist(), pa.string()),
            "cause": pa.array(cause.tolist(), pa.string()),
            "domain": pa.array(domains, pa.string()),
            "component": pa.array(cause.tolist(), pa.string()),
            "fault_node": pa.nulls(n, pa.string()),
            "confidence": pa.nulls(n, pa.string()),
            "evidence": pa.nulls(n, pa.list_(pa.string())),
            "incident_id": pa.nulls(n, pa.string()),
        }
    )


def _write_sorts(directory: Path) -> None:
    table = pa.table(
        {
            "sort_idx": pa.array(range(len(SORTS)), pa.int32()),
            "kind": [s[0] for s in SORTS],
            "code": [s[1] for s in SORTS],
            "severity": [s[2] for s in SORTS],
            "source": [s[3] for s in SORTS],
            "recovered": [False] * len(SORTS),
        }
    )
    pq.write_table(table, directory / "sorts.parquet")


def _write_months(where: Path, table: pa.Table, column: str) -> None:
    at = table[column].to_numpy().astype("datetime64[us]").astype("datetime64[M]")
    bounds = np.flatnonzero(np.concatenate([[True], at[1:] != at[:-1], [True]]))
    for low, high in itertools.pairwise(bounds):
        part = where / f"month={at[low]}"
        part.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(low, high - low), part / "part.parquet", compression="zstd")
