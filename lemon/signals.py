"""The paper's seven signals and ours, per node over a sliding window, and the input of the model.

The paper is arXiv 2410.21680, section on lemon nodes. A report from a job's own output alone is never a failure of a node
here, and faults of parts that many nodes share (a switch, a file server) are no node's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from probing_cluster.core import clock, vocabulary
from probing_cluster.core.ending import thread_limit
from probing_cluster.lemon import episodes, gather, model, trends

_SQL = Path(__file__).parent / "sql"

DAY_US = 86_400_000_000

WEIGHTS = {"certain": 0.99, "likely": 0.9, "possible": 0.6}
"""Weight of a verdict against a node: how often verdicts of that confidence are right (core.records.Confidence)."""

UNNAMED = {
    "certain": (0.99, 0.99),
    "likely": (0.9, 0.9),
    "possible": (0.6, 0.6),
    "only the job says so": (0.5, 0.3),
    "unexplained": (0.6, 0.3),
}
"""Probability that hardware caused a failure without a named node, by kind of verdict: in a gang, and on a single node."""

SIGNS = (
    ("ecc", "corrected", "memory"),
    ("edac", "corrected", "memory"),
    ("edac", "CE", "memory"),
    ("row_remap", "", "memory"),
    ("retired_pages", "", "memory"),
    ("mce", "cmci_storm", "memory"),
    ("mce", "memory_failure", "memory"),
    ("ib_link", "", "link"),
    ("eth_link", "", "link"),
    ("nvlink", "", "link"),
    ("pcie_aer", "correctable", "pcie"),
    ("pcie_aer", "corrected", "pcie"),
    ("pcie_aer", "nonfatal", "pcie"),
    ("pcie_replay", "", "pcie"),
    ("pcie_width", "", "pcie"),
    ("gpu_test", "", "test"),
    ("node_test", "", "test"),
    ("link_test", "", "test"),
)
"""Events short of a failure: kind, code ('' = any), sign."""
SIGN_WORDS = {"memory": "memory errors that were corrected", "link": "link flaps and errors", "pcie": "PCIe errors that were corrected", "test": "tests of ours that it failed"}  # fmt: skip

RECURRENCE = 0.5
"""Log likelihood ratio of each failure after a repair, at most twice; the failure itself is counted elsewhere."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One failed attempt that is blamed on the node."""

    job_id: int
    ref: str
    """The job's id as its owner writes it."""
    attempt: int
    at: datetime
    n_nodes: int
    n_gpus: int | None
    user: str
    cause: str
    device: str | None
    confidence: str
    summary: str
    counts: bool
    """False if it came before a person dealt with the node."""


@dataclass(frozen=True, kw_only=True)
class MovedGpu:
    """A GPU with faults in this node and in another."""

    gpu_uuid: str
    other: str
    n_here: int
    n_there: int
    moved_here: bool
    """True if its faults here came after those there."""


@dataclass(frozen=True, kw_only=True)
class LemonNode:
    """One node's signals in the window."""

    node: str
    excl_jobid_count: int
    xid_cnt: int
    tickets: int
    out_count: int
    multi_node_node_fails: int
    single_node_node_fails: int
    single_node_node_failure_rate: float | None
    exposure_days: float
    """Days in use by jobs, overlapping jobs counted once."""
    n_attempts: int
    minor_memory: int
    minor_link: int
    minor_pcie: int
    minor_test: int
    rank_findings: int
    """Times that jobs reported slow or stuck ranks on it: shown, never counted."""
    recurrences: int
    """Repairs of a failing node after which it failed again."""
    failures: tuple[Failure, ...] = ()
    cards: tuple[MovedGpu, ...] = ()
    xids: Mapping[str, int]
    n_jobs: int = 0
    n_users: int = 0
    gpu_h: float = 0.0
    n_unknown_gpus: int = 0
    cleared_at: datetime | None = None
    """Failures before this do not count: a person has dealt with them."""


@dataclass(frozen=True, kw_only=True)
class Signals:
    """One window of a fleet."""

    since: datetime
    until: datetime
    nodes: tuple[LemonNode, ...]
    window: model.LemonWindow
    outages_by_slurm: bool

    def arrays(self) -> dict[str, Floats]:
        """The paper's seven signals by node, for lemon.baseline; an unknown rate is NaN."""
        return {
            name: np.array([np.nan if (v := getattr(n, name)) is None else v for n in self.nodes], np.float64)
            for name in vocabulary.LEMON_SIGNALS
        }


def compute(facts: gather.LemonFacts, *, recent: datetime | None = None, cap_s: float = 1800.0) -> Signals:
    """The signals since `recent` (default: all facts); the model's window covers all facts.

    `cap_s`: most work that one ended attempt loses, seconds.
    """
    context = _context(facts)
    recent = recent or facts.since
    bounds = {"since_us": clock.to_us(facts.since), "until_us": clock.to_us(facts.until)}
    since = {"recent_us": clock.to_us(recent)}
    _view(context, "failure", "failures", **bounds)
    _view(context, "place", "places", **bounds)
    _view(context, "piece", "pieces")
    details = _details(context, facts, since, cap_s)
    nodes = tuple(
        LemonNode(**row, **details.get(row["node"], {"xids": {}}))
        for row in _rows(context, "signals", **since)
    )
    gangs = _rows(context, "gangs", **bounds)
    return Signals(
        since=recent,
        until=facts.until,
        nodes=nodes,
        window=_window(context, facts, nodes, gangs),
        outages_by_slurm=facts.outages_by_slurm,
    )


def _window(
    context: datafusion.SessionContext,
    facts: gather.LemonFacts,
    nodes: Sequence[LemonNode],
    gangs: Sequence[Mapping[str, Any]],
) -> model.LemonWindow:
    """The facts as input of the model."""
    number = {n.node: i for i, n in enumerate(nodes)}
    daily = _daily_exposure(context.table("piece").to_arrow_table(), number, facts)
    exposure = daily.sum(axis=1)
    rows = context.sql("SELECT * FROM failure WHERE counts ORDER BY node, at_us, job_id, attempt").to_pylist()
    failures = _failures(rows, number, facts.until)
    recent_days = np.array([n.exposure_days for n in nodes], np.float64)
    counts = {sign: np.array([getattr(n, f"minor_{sign}") for n in nodes], np.float64) for sign in SIGN_WORDS}
    again = np.minimum(np.array([n.recurrences for n in nodes], np.float64), 2.0) * RECURRENCE
    members, ages = _gangs(gangs, number, nodes, facts.until)
    days = np.floor(failures.age_days).astype(np.int64)
    return model.LemonWindow(
        exposure_days=exposure,
        named=np.bincount(failures.node, weights=failures.weight, minlength=len(nodes)).astype(np.float64),
        episodes=np.bincount(failures.node, minlength=len(nodes)).astype(np.int64),
        days=np.array([np.unique(days[failures.node == i]).size for i in range(len(nodes))], np.int64),
        gangs=members,
        gang_ages_days=ages,
        failures=failures,
        daily_exposure_days=daily,
        span_days=_span_days(daily),
        auxiliary=trends.log_ratio(counts, recent_days) + again,
        place=_places(facts.places, nodes),
    )


def _span_days(daily: Floats) -> float:
    """Days of the window from the first use on record: a history may be shorter than `lemon.history_days`."""
    used = np.flatnonzero(daily.sum(axis=0) > 0)
    return float(used[-1] + 1) if used.size else 1.0


def _places(known: Mapping[str, str], nodes: Sequence[LemonNode]) -> model.Ints | None:
    """Each node's shared place as a number; a node without a known place shares none."""
    if not any(n.node in known for n in nodes):
        return None
    number: dict[str, int] = {}
    # Keyed apart, so that no node's name is taken for a switch's.
    keys = [f"at {known[n.node]}" if n.node in known else f"alone {n.node}" for n in nodes]
    return np.array([number.setdefault(k, len(number)) for k in keys], np.int64)


def _failures(
    rows: Sequence[Mapping[str, Any]], number: Mapping[str, int], until: datetime
) -> episodes.Failures:
    parts = [_part(row["component"], row["device"]) for row in rows]
    return episodes.Failures(
        node=np.array([number[row["node"]] for row in rows], np.int64),
        age_days=np.array([_age_days(row["at_us"], until) for row in rows], np.float64),
        weight=np.array([row["weight"] for row in rows], np.float64),
        part=_numbered(parts),
        cause=_numbered([row["cause"] for row in rows]),
    )


def _part(component: str | None, device: str | None) -> str | None:
    """The failed part's name, with one meaning on every node; None if the whole node failed."""
    if component in (None, "node"):
        return None
    return f"{component}:{device}" if device else component


def _numbered(names: Sequence[str | None]) -> npt.NDArray[np.int64]:
    """Each name's number; -1 for None."""
    known = {name: i for i, name in enumerate(sorted({n for n in names if n is not None}))}
    return np.array([-1 if n is None else known[n] for n in names], np.int64)


def _age_days(at_us: int, until: datetime) -> float:
    return (clock.to_us(until) - at_us) / DAY_US


def _daily_exposure(pieces: pa.Table, number: Mapping[str, int], facts: gather.LemonFacts) -> Floats:
    """(nodes, days) days in use by day of age, newest first."""
    until = clock.to_us(facts.until)
    n_days = max(1, -(-(until - clock.to_us(facts.since)) // DAY_US))
    node = np.array([number[n] for n in pieces["node"].to_pylist()], np.int64)
    young = (until - pieces["end_us"].to_numpy()) / DAY_US
    old = (until - pieces["start_us"].to_numpy()) / DAY_US
    first = np.clip(np.floor(young).astype(np.int64), 0, n_days - 1)
    last = np.clip(np.ceil(old).astype(np.int64) - 1, first, n_days - 1)
    # Whole days as differences, so that a long piece costs no more than a short one; its two ends by their part.
    steps = np.zeros((len(number), n_days + 1))
    np.add.at(steps, (node, first), 1.0)
    np.add.at(steps, (node, last + 1), -1.0)
    daily: Floats = steps.cumsum(axis=1)[:, :n_days]
    np.add.at(daily, (node, first), -(young - first))
    np.add.at(daily, (node, last), -(last + 1 - old))
    return daily


def _gangs(
    rows: Sequence[Mapping[str, Any]], number: Mapping[str, int], nodes: Sequence[LemonNode], until: datetime
) -> tuple[list[tuple[npt.NDArray[np.int64], float]], Floats]:
    """Node indices and probability of hardware for each failure without a named node, and their ages."""
    cleared = {n.node: clock.to_us(n.cleared_at) for n in nodes if n.cleared_at is not None}
    found, ages = [], []
    for row in rows:
        members = [number[n] for n in row["nodes"] if cleared.get(n, row["at_us"]) <= row["at_us"]]
        if members:
            found.append((np.array(members, np.int64), float(row["hardware"])))
            ages.append(_age_days(row["at_us"], until))
    return found, np.array(ages, np.float64)


def _context(facts: gather.LemonFacts) -> datafusion.SessionContext:
    thread_limit.require()
    context = datafusion.SessionContext()
    job_side = pc.is_in(facts.events["source"], value_set=pa.array(sorted(vocabulary.JOB_SIDE_SOURCES)))
    tables = {
        "attempt": facts.attempts,
        "event": facts.events.append_column("job_side", job_side),
        "outage": facts.outages,
        "note": facts.notes,
        "exclusion": facts.exclusions,
        "cleared": cleared_table(facts.notes),
        "confidence": pa.table({"confidence": list(WEIGHTS), "weight": list(WEIGHTS.values())}),
        "unnamed": pa.table(
            {
                "sort": list(UNNAMED),
                "many": [m for m, _ in UNNAMED.values()],
                "one": [o for _, o in UNNAMED.values()],
            }
        ),
        "sign": pa.table({n: [s[i] for s in SIGNS] for i, n in enumerate(("kind", "code", "sign"))}),
    }
    for name, table in tables.items():
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
        context.register_record_batches(name, [batches])
    return context


def cleared_table(notes: pa.Table) -> pa.Table:
    """For each node the latest time at which a person denied that it is a lemon, or reported the lemon as repaired.

    `set-healthy` after an ordinary fault does not clear: lemons are the nodes that are set healthy again and again.
    """
    latest: dict[str, int] = {}
    for row in notes.to_pylist():
        if row["action"] == "deny" or (row["action"] == "repaired" and row["about_lemon"]):
            latest[row["node"]] = max(latest.get(row["node"], 0), row["at_us"])
    return pa.table(
        {"node": pa.array(list(latest), pa.string()), "at_us": pa.array(list(latest.values()), pa.int64())}
    )


def _details(
    context: datafusion.SessionContext, facts: gather.LemonFacts, since: Mapping[str, int], cap_s: float
) -> dict[str, dict[str, Any]]:
    """Node to its details outside the model: failures, cards, Xids and costs."""
    found: dict[str, dict[str, Any]] = {}

    def of(node: str) -> dict[str, Any]:
        return found.setdefault(node, {"xids": {}})

    for row in context.sql("SELECT * FROM failure ORDER BY node, at_us, job_id, attempt").to_pylist():
        made = Failure(
            job_id=row["job_id"], ref=row["ref"] or str(row["job_id"]), attempt=row["attempt"], at=_at(row["at_us"]), n_nodes=row["n_nodes"],
            n_gpus=row["n_gpus"], user=row["user"], cause=row["cause"], device=row["device"],
            confidence=row["confidence"], summary=row["summary"] or "", counts=row["counts"],
        )  # fmt: skip
        of(row["node"])["failures"] = (*of(row["node"]).get("failures", ()), made)
    for row in _rows(context, "costs", **since, cap_s=float(cap_s)):
        of(row["node"]).update({k: row[k] for k in ("n_jobs", "n_users", "n_unknown_gpus")}, gpu_h=row["gpu_h"] or 0.0)  # fmt: skip
    for row in _rows(context, "xids", **since):
        of(row["node"])["xids"][row["code"] or "?"] = row["n"]
    for node, card in _cards(_rows(context, "cards")):
        of(node)["cards"] = (*of(node).get("cards", ()), card)
    for row in cleared_table(facts.notes).to_pylist():
        of(row["node"])["cleared_at"] = _at(row["at_us"])
    return found


def _cards(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, MovedGpu]]:
    """Each faulty card for each node in which it showed faults, with the node before or after."""
    by_card: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_card.setdefault(row["gpu_uuid"], []).append(row)
    found = []
    for uuid, places in by_card.items():
        for i, here in enumerate(places):
            there = places[i - 1] if i else places[1]
            made = MovedGpu(
                gpu_uuid=uuid, other=there["node"], n_here=here["n"], n_there=there["n"], moved_here=i > 0
            )
            found.append((here["node"], made))
    return found


def _view(context: datafusion.SessionContext, name: str, file: str, **values: Any) -> None:
    # Computed once: DataFusion would compute a view again for every query that names it.
    table = context.sql(_text(file), param_values=values).to_arrow_table()
    context.register_record_batches(name, [table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]])  # fmt: skip


def _rows(context: datafusion.SessionContext, name: str, **values: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = context.sql(_text(name), param_values=values).to_pylist()
    return found


def _text(name: str) -> str:
    return (_SQL / f"{name}.sql").read_text("utf-8")


def _at(us: int) -> datetime:
    return clock.from_epoch_s(us / 1e6)
