"""What Postgres is asked for a statement; and what a session says where there is none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from probing_cluster.core import errors, settings
from probing_cluster.live.session import postgres, session
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import streams

COLUMNS = pa.Table.from_pylist(
    [
        {"s": "probing", "t": "health_event", "c": c, "d": d}
        for c, d in (
            ("node", "text"),
            ("at", "timestamp with time zone"),
            ("count", "integer"),
            ("detail", "jsonb"),
        )
    ]
)


class Reader:
    """Answers the catalogue, then one row."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def table(self, statement: str) -> pa.Table:
        if "information_schema" in statement:
            return COLUMNS
        self.calls.append(statement)
        rows = {"node": "n1", "at": 10**15, "count": 3, "detail": "{}"}
        wanted = {n: rows[n] for n in rows if f'AS "{n}"' in statement}
        types = {"at": pa.timestamp("us", tz="UTC"), "count": pa.int64()}
        return pa.table({n: pa.array([v], types.get(n, pa.string())) for n, v in wanted.items()})


class Nobody:
    """No node is needed."""

    nodes = ("n1",)

    def ask(self, scans: Any, timeout_s: float) -> streams.Reply:
        raise AssertionError(scans)


@pytest.fixture
def beside() -> postgres.Postgres:
    found = postgres.Postgres(settings.Settings())
    found._reader = Reader()
    return found


def test_columns_conditions_and_limits_reach_the_database(beside: postgres.Postgres) -> None:
    asking = session.Session(Nobody(), timeout_s=1, beside=beside)
    statement = (
        "SELECT node FROM probing.health_event WHERE count IN (3, 4) AND node <> 'o''x' "
        "AND at > TIMESTAMP '2001-01-01T00:00:00Z' AND detail IS NOT NULL LIMIT 5"
    )
    assert asking.sql(statement).rows.to_pylist() == [{"node": "n1"}]
    (calls,) = beside._reader.calls
    assert '"node"::text AS "node"' in calls
    assert """("node"::text <> 'o''x'::text)""" in calls
    assert """("at"::timestamptz > '2001-01-01T00:00:00+00:00'::timestamptz)""" in calls
    assert """"count"::bigint = '3'::bigint""" in calls
    assert '("detail" IS NOT NULL)' in calls
    assert calls.endswith("LIMIT 5")


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
def test_texts_are_compared_by_their_bytes(beside: postgres.Postgres, op: str) -> None:
    """As DataFusion orders them: by a language's collation 'alpha' lies before 'B', and the server would keep that row back."""
    beside.fetch(
        Scan(
            table="probing.health_event",
            columns=("node",),
            condition={"op": op, "column": "node", "value": "B"},
        )
    )
    assert f"""("node"::text COLLATE "C" {op} 'B'::text)""" in beside._reader.calls[0]


def test_its_tables_are_in_the_information_schema(beside: postgres.Postgres) -> None:
    asking = session.Session(Nobody(), timeout_s=1, beside=beside)
    assert asking.names("probing") == ["health_event"]
    assert beside.resolve("probing", "nothing") is None


def test_a_wrong_name_is_answered_with_the_nearest_of_its_schema(beside: postgres.Postgres) -> None:
    asking = session.Session(Nobody(), timeout_s=1.0, beside=beside)
    with pytest.raises(errors.UsageError, match=r"the nearest: probing\.health_event[,;]"):
        asking.sql("SELECT * FROM probing.health_events")


def test_without_a_database_the_schemas_are_named_as_absent(tmp_path: Any) -> None:
    """And everything else works."""
    config = settings.parse(f'[database]\ndirectory = "{tmp_path}/none"\n')
    asking = session.Session(Nobody(), timeout_s=1, beside=postgres.Postgres(config))
    with pytest.raises(errors.ProbingError, match="ops and probing are absent"):
        asking.sql("SELECT * FROM ops.causes_daily")
    assert asking.names("ops") == []
    assert asking.sql("SELECT 1 AS one").rows.to_pylist() == [{"one": 1}]


def test_too_many_rows_are_refused(beside: postgres.Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "MAX_ROWS", 0)
    with pytest.raises(errors.UsageError, match="narrow it"):
        beside.fetch(Scan(table="probing.health_event"))
