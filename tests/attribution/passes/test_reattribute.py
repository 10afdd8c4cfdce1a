"""Judging a history in bulk gives what judging each attempt alone gives."""

from __future__ import annotations

import importlib.util
import sys
import types
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from probing_cluster.attribution.passes import bulk, distributed, reattribute
from probing_cluster.attribution.verdict import judge
from probing_cluster.core import clock

ROOT = Path(__file__).resolve().parents[3]


def _load() -> types.ModuleType:
    """The benchmark's generator; benchmarks are no package of the product."""
    name = "attribution_generate"
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / "attribution" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


generate = _load()
SINCE = datetime(2025, 1, 1, tzinfo=UTC)
UNTIL = SINCE + timedelta(days=45)


@pytest.fixture(scope="module")
def history(tmp_path_factory) -> Path:
    """A small cluster with far more faults than a real one, so that windows overlap with several."""
    where = tmp_path_factory.mktemp("history")
    busy = [(k, c, s, o, 0.053, p) for k, c, s, o, _, p in generate.SORTS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "SORTS", busy)
        patch.setattr(
            generate, "STATE_P", generate.STATE_P + 0.05 * (np.array(generate.STATES) == "NODE_FAIL")
        )
        generate.generate(
            where, generate.Scale(n_nodes=24, days=40, n_attempts=1500, n_events=30_000, seed=7)
        )
    return where


@pytest.fixture(scope="module")
def bulked(history) -> pa.Table:
    """The bulk answer."""
    return pa.concat_tables(list(distributed.run(history, SINCE, UNTIL)))


def test_every_failed_attempt_is_answered_once(history, bulked):
    """No attempt is lost between the months, none is answered twice, and none that COMPLETED is."""
    attempts = ds.dataset(history / "attempts", partitioning="hive").to_table()
    failed = [r["attempt_id"] for r in attempts.to_pylist() if r["state"] != "COMPLETED"]
    assert sorted(bulked["attempt_id"].to_pylist()) == sorted(failed)


def test_bulk_equals_judge_on_every_attempt(history, bulked):
    """Cause, domain, node, device, confidence and strongest event, attempt by attempt, the judge reading the rows itself."""
    source = bulk.Bulk(history)
    attempts = {
        r["attempt_id"]: r
        for r in ds.dataset(history / "attempts", partitioning="hive").to_table().to_pylist()
    }
    places = ds.dataset(history / "attempt_nodes", partitioning="hive").to_table().sort_by("node_idx")
    on: dict[int, list[int]] = {}
    for row in places.to_pylist():
        on.setdefault(row["attempt_id"], []).append(row["node_idx"])
    nodes = {i: [source.nodes[n] for n in numbers] for i, numbers in on.items()}
    by_node: dict[int, list[dict]] = {}
    for row in ds.dataset(history / "events", partitioning="hive").to_table().sort_by("at_us").to_pylist():
        by_node.setdefault(row["node_idx"], []).append(row)

    def around(attempt_id: int) -> list[dict]:
        """A minute more than the widest window on either side: what lies in it is for the judge to say."""
        end = attempts[attempt_id]["end_us"]
        low, high = end - 960_000_000, end + 360_000_000
        return [e for n in on[attempt_id] for e in by_node.get(n, ()) if low <= e["at_us"] <= high]

    causes = set()
    for got in bulked.to_pylist():
        i = got["attempt_id"]
        case = reattribute.make_case(attempts[i], tuple(nodes[i]), around(i), source)
        alone = judge.judge(case, made_at=case.attempt.end_at)
        rows = {e.event_id: e.detail["row"] for e in case.events}
        assert got["cause"] == alone.cause, i
        assert (got["domain"], got["component"], got["confidence"]) == (
            alone.domain,
            alone.component,
            alone.confidence,
        )
        assert (got["node"], got["device"]) == (alone.node, alone.device)
        assert got["event_row"] == (rows[alone.evidence[0]] if alone.evidence else None)
        causes.add(alone.cause)
    assert len(causes) >= 10


def test_the_strongest_event_is_the_naive_joins(history):
    """The packed key equals a nested loop over a sample, for windows across bucket and month borders."""
    source = bulk.Bulk(history)
    part = bulk.Slice(since_us=clock.to_us(SINCE), until_us=clock.to_us(UNTIL))
    got = {r["attempt_id"]: (r["key"], r["n"]) for r in source.strongest(part).to_pylist()}
    sorts = {
        r["sort_idx"]: r["rank"]
        for r in bulk.ranked(ds.dataset(history / "sorts.parquet").to_table()).to_pylist()
    }
    events = ds.dataset(history / "events", partitioning="hive").to_table().to_pylist()
    by_node: dict[int, list[dict]] = {}
    for e in events:
        by_node.setdefault(e["node_idx"], []).append(e)
    want: dict[int, tuple[int, int]] = {}
    for place in ds.dataset(history / "attempt_nodes", partitioning="hive").to_table().to_pylist():
        if not place["judged"]:
            continue
        low, high = place["end_us"] - 600_000_000, place["end_us"] + 300_000_000
        keys = [
            (sorts[e["sort_idx"]] << 40) + e["row"]
            for e in by_node.get(place["node_idx"], [])
            if low <= e["at_us"] <= high
        ]
        if keys:
            key, n = want.get(place["attempt_id"], (1 << 62, 0))
            want[place["attempt_id"]] = (min(key, *keys), n + len(keys))
    assert got == want


def test_slices_do_not_change_the_answer(history, bulked):
    """One slice or many, the same rows."""
    source = bulk.Bulk(history)
    whole = reattribute.judge_slice(
        source, bulk.Slice(since_us=clock.to_us(SINCE), until_us=clock.to_us(UNTIL))
    )
    assert whole.sort_by("attempt_id").equals(bulked.combine_chunks().sort_by("attempt_id"))


def test_a_small_memory_pool_is_enough(history, bulked):
    """The engine works within a bounded pool."""
    small = pa.concat_tables(list(distributed.run(history, SINCE, UNTIL, memory_bytes=256 << 20)))
    assert small.equals(bulked)


def test_planted_faults_are_found(tmp_path):
    """With the usual noise, nearly every planted fault is named."""
    generate.generate(tmp_path, generate.SMALL)
    found = pa.concat_tables(list(distributed.run(tmp_path, SINCE, UNTIL)))
    labels = {
        r["attempt_id"]: r["label"]
        for r in ds.dataset(tmp_path / "attempts", partitioning="hive").to_table().to_pylist()
        if r["label"]
    }
    causes = {r["attempt_id"]: r["cause"] for r in found.to_pylist()}
    assert sum(causes[i] == label for i, label in labels.items()) >= 0.95 * len(labels)


def test_month_slices_cover_a_span_once():
    """Half-open, end to end, across a year's end."""
    parts = list(bulk.month_slices(datetime(2025, 11, 20, tzinfo=UTC), datetime(2026, 2, 3, tzinfo=UTC)))
    assert [p.since_us for p in parts[1:]] == [p.until_us for p in parts[:-1]]
    assert [clock.from_us(p.since_us).strftime("%m-%d") for p in parts] == [
        "11-20",
        "12-01",
        "01-01",
        "02-01",
    ]
    assert list(bulk.month_slices(SINCE, SINCE)) == []
