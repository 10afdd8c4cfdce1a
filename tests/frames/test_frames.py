"""What notebooks get is what the database holds: the records to the value, the figures to the row."""

from __future__ import annotations

import dataclasses
import json
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from sqlalchemy import engine

from probing_cluster import frames
from probing_cluster.attribution.reliability import fleet
from probing_cluster.core import errors, records
from probing_cluster.db import delivery, roles
from probing_cluster.db import store as store_module
from probing_cluster.frames import columns, meanings, page

NOW = datetime.now(UTC).replace(microsecond=123456)
SPAN = {"since": NOW - timedelta(days=1), "until": NOW + timedelta(hours=1)}
ATTEMPT = records.JobAttempt(
    cluster="c",
    job_id=1,
    submit_at=NOW - timedelta(hours=3),
    start_at=NOW - timedelta(hours=2),
    end_at=NOW - timedelta(minutes=1),
    state="FAILED",
    exit_code=1,
    nodes=("n1", "n2"),
    n_gpus=16,
    gpus={"n1": ("GPU-a",), "n2": ()},
    user="alice",
)
OLDER = dataclasses.replace(
    ATTEMPT,
    job_id=2,
    end_at=NOW - timedelta(days=3),
    submit_at=NOW - timedelta(days=4),
    start_at=NOW - timedelta(days=4),
)
EVENT = records.HealthEvent(
    event_id=uuid.uuid4(),
    cluster="c",
    node="n1",
    at=NOW - timedelta(minutes=2),
    observed_at=NOW,
    kind="xid",
    code="79",
    severity=records.Severity.HIGH,
    source="kernel",
    message="GPU has fallen off the bus",
    detail={"line": 7, "recovered": False},
)
VERDICT = records.Verdict(
    cluster="c",
    job_id=1,
    submit_at=ATTEMPT.submit_at,
    cause="gpu_lost",
    domain=records.Domain.HARDWARE,
    component="gpu",
    confidence=records.Confidence.CERTAIN,
    summary="GPU 3 of n1 fell off the bus",
    node="n1",
    evidence=(EVENT.event_id,),
    incident_id=EVENT.event_id,
    rules_version="1",
    made_at=NOW,
)
SCORE = records.LemonScore(
    cluster="c", node="n1", day=NOW.replace(hour=0, minute=0, second=0, microsecond=0), score=0.9,
    verdict="lemon", reasons=("three jobs died",), signals={"n": 3}, made_at=NOW,
)  # fmt: skip


@pytest.fixture
def filled(store: store_module.Store) -> store_module.Store:
    """One job that a GPU killed, an older one, the night's score."""
    store.upsert_attempts([ATTEMPT, OLDER])
    store.save_verdicts(
        [dataclasses.replace(VERDICT, cause="user_error", made_at=NOW - timedelta(minutes=1))]
    )
    store.save_verdicts([VERDICT, dataclasses.replace(VERDICT, job_id=2, submit_at=OLDER.submit_at)])
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=NOW)
    delivery.Delivery(store.url, "c", "n1").deliver(events=[EVENT], checks=[], heartbeat=beat)
    store.save_lemon_scores([SCORE])
    return store


def plain(value: Any) -> Any:
    """A record's value as a notebook gets it."""
    if isinstance(value, uuid.UUID):
        return str(value)
    return [plain(v) for v in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("method", "record"),
    [("verdicts", VERDICT), ("attempts", ATTEMPT), ("events", EVENT), ("lemon_scores", SCORE)],
)
def test_a_row_is_the_record(filled: store_module.Store, method: str, record: Any) -> None:
    """Every field, none lost and none bent, in Arrow and in pandas; what ended before the span and what was replaced are not there."""
    with frames.connect(filled.url) as cluster:
        table = getattr(cluster, method)(**SPAN, arrow=True)
        frame = getattr(cluster, method)(**SPAN)
    assert isinstance(table, pa.Table)
    assert isinstance(frame, pd.DataFrame)
    assert table.schema == columns.of_record(type(record))
    (row,) = table.to_pylist()
    json_columns = columns.json_columns(table.schema)
    for name in json_columns:
        row[name] = None if row[name] is None else json.loads(row[name])
    wanted = {f.name: plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    wanted = {k: json.loads(json.dumps(v)) if k in json_columns else v for k, v in wanted.items()}
    assert row == wanted
    assert list(frame.columns) == table.column_names
    (series,) = (r for _, r in frame.iterrows())
    for name, value in wanted.items():
        got = series[name]
        if value is None:
            assert got is None or pd.isna(got), name
        else:
            assert (list(got) if isinstance(value, list) else got) == value, name


def test_whole_numbers_with_gaps_stay_whole(filled: store_module.Store) -> None:
    """pandas' own types would make floats of job ids beside a null."""
    with frames.connect(filled.url) as cluster:
        frame = cluster.attempts(since=NOW - timedelta(days=9))
    assert len(frame) == 2
    assert frame["array_job_id"].isna().all()
    assert str(frame["array_job_id"].dtype).startswith("int64")


def test_without_rows_the_columns_are_there(store: store_module.Store) -> None:
    """A notebook on a new cluster runs as on an old one."""
    with frames.connect(store.url) as cluster:
        found = [
            cluster.verdicts(**SPAN),
            cluster.attempts(**SPAN),
            cluster.events(**SPAN),
            cluster.lemon_scores(**SPAN),
        ]
        for name, schema in columns.figures().items():
            assert cluster.fleet(name, **SPAN, arrow=True).schema.names == schema.names, name
    assert [len(f) for f in found] == [0] * 4
    assert all(len(f.columns) for f in found)


def test_a_figure_is_what_fleet_computes(filled: store_module.Store) -> None:
    """Its rows are the frame's; what holds for all of them is in attrs."""
    truth = fleet.failure_rates(filled, SPAN["since"], SPAN["until"])
    with frames.connect(filled.url) as cluster:
        frame = cluster.fleet("failure-rates", **SPAN)
        table = cluster.fleet("failure_rates", **SPAN, arrow=True)
        over_time = cluster.fleet("failures_over_time", **SPAN, bucket=timedelta(days=1))
    assert table.to_pylist() == [
        {**dataclasses.asdict(c), "causes": list(c.causes)} for c in truth.components
    ]
    assert list(frame["component"]) == [c.component for c in truth.components] == ["gpu"]
    assert frame.attrs["gpu_h"] == truth.gpu_h
    assert json.loads(table.schema.metadata[b"figure"])["counted"] == truth.counted
    assert {"gpu": 1} in list(over_time["failures"])


def test_a_reader_sees_its_scope_alone(filled: store_module.Store) -> None:
    """Row-level security holds for notebooks as for every reader."""
    filled.upsert_attempts([dataclasses.replace(ATTEMPT, job_id=3, user="bob")])
    role = f"frames_{uuid.uuid4().hex[:8]}"
    roles.add_login(filled.url, role, "probing_reader", scopes=[("user", "bob")])
    try:
        mine = engine.make_url(filled.url).set(username=role).render_as_string(hide_password=False)
        with frames.connect(mine) as cluster:
            assert list(cluster.attempts(**SPAN)["job_id"]) == [3]
    finally:
        roles.remove(filled.url, role)


def test_slips_are_named(store: store_module.Store, tmp_path: Path) -> None:
    """A figure, an option, a time without a zone, a file that is not there."""
    with frames.connect(store.url) as cluster:
        with pytest.raises(errors.UsageError, match="valid: check_coverage"):
            cluster.fleet("rates", **SPAN)
        with pytest.raises(errors.UsageError, match="above_gpus"):
            cluster.fleet("large_job_rate", **SPAN, gpus=3)
        with pytest.raises(errors.UsageError, match="no time zone"):
            cluster.events(since=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(errors.ProbingError):
        frames.connect(tmp_path / "none.toml")


def test_every_column_has_a_meaning_and_the_page_is_current() -> None:
    """Also no meaning for a column that is gone."""
    used = {field.name for schema in columns.figures().values() for field in schema}
    assert used >= meanings.COLUMNS.keys()
    current = (Path(__file__).parents[2] / "docs/frames.md").read_text(encoding="utf-8")
    assert page.page() == current, "run: python -m probing_cluster.frames.page > docs/frames.md"
