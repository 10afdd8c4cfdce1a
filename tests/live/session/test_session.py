"""Statements over live tables give what they give over plain ones, and spare the nodes what they need not send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import datafusion
import pyarrow as pa
import pytest

from probing_cluster.core import errors
from probing_cluster.live import conditions, packing
from probing_cluster.live.session import session
from probing_cluster.live.table import Columns, Scan, columns_of
from probing_cluster.live.tables import registry
from probing_cluster.live.ways import streams

RANKS = registry.built_in()["cluster.ranks"]
STEPS = registry.built_in()["torch.steps"]
NODES = ("n1", "n2", "n3")
DATA: dict[str, list[dict[str, Any]]] = {
    "cluster.ranks": [
        {
            "node": NODES[r // 2],
            "rank": r,
            "pid": 100 + r,
            "at": 10**18 + r,
            "alive": r != 3,
            "step": 50 - r,
            "phase": "training",
        }
        | ({"inside": "all_reduce", "seconds_inside": r / 2} if r % 2 else {})
        for r in range(6)
    ],
    "torch.steps": [
        {
            "node": NODES[r // 2],
            "rank": r,
            "pid": 100 + r,
            "at": 10**18,
            "step": s,
            "duration_s": 0.1 + r / 100,
        }
        for r in range(6)
        for s in range(8)
    ],
}


class FakeNodes:
    """Three nodes that answer from DATA as collectors do."""

    nodes = NODES

    def __init__(self) -> None:
        self.scans: list[Scan] = []
        self.sent = 0
        self.silent: set[str] = set()

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        self.scans += scans
        reply = streams.Reply()
        for node in NODES:
            if node in self.silent:
                reply.missing.append(streams.Missing(node=node, reason=f"no answer in {timeout_s:g} s"))
                continue
            reply.frames += [(node, self._frame(node, scan)) for scan in scans]
            reply.answered.add(node)
        return reply

    def _frame(self, node: str, scan: Scan) -> bytes:
        header = {
            "node": node,
            "table": scan.table,
            "missing": [],
            "ranks": [int(node[1]) * 2 - 2, int(node[1]) * 2 - 1],
            "world_size": 6,
        }
        if scan.table not in DATA:
            return packing.pack(
                {**header, "missing": [(None, "no such table here")]}, Columns(names=(), kinds=(), values=())
            )
        table = registry.built_in()[scan.table]
        needed = conditions.decider(scan.condition)
        kept = [row for row in DATA[scan.table] if row["node"] == node and needed(row)][: scan.limit]
        self.sent += len(kept)
        return packing.pack(
            header,
            columns_of(kept, [c for c in table.columns if scan.columns is None or c.name in scan.columns]),
        )


def plain() -> Any:
    context = datafusion.SessionContext()
    kinds = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "bool": pa.bool_(),
        "time": pa.timestamp("ns", tz="UTC"),
    }
    for name, table in (("ranks", RANKS), ("steps", STEPS)):
        schema = pa.schema([(c.name, kinds[c.kind]) for c in table.columns])
        rows = pa.Table.from_pylist(DATA[table.full_name], schema=schema)
        context.register_record_batches(name, [rows.to_batches()])
    return context


STATEMENTS = [
    "SELECT rank, node FROM {r} WHERE step > 46 AND alive ORDER BY rank",
    "SELECT count(*) FROM {r}",
    "SELECT count(*) FROM {r} WHERE NOT alive",
    "SELECT count(inside), max(seconds_inside) FROM {r} WHERE inside = 'all_reduce' OR rank IN (0, 2)",
    "SELECT rank FROM {r} WHERE inside IS NULL ORDER BY rank DESC LIMIT 2",
    "SELECT rank FROM {r} WHERE node LIKE 'n%' AND rank BETWEEN 1 AND 4 AND rank <> 2 ORDER BY rank",
    "SELECT a.rank, b.rank FROM {r} a JOIN {r} b ON a.node = b.node AND a.rank < b.rank WHERE b.step < 48 ORDER BY 1",
    "SELECT rank FROM {r} WHERE step = (SELECT min(step) FROM {r} WHERE alive)",
    "SELECT rank FROM {r} WHERE rank NOT IN (SELECT rank FROM {s} WHERE duration_s > 0.12) ORDER BY rank",
    "SELECT r.node, avg(s.duration_s) AS d FROM {s} s JOIN {r} r USING (rank) WHERE s.step >= 4 GROUP BY r.node ORDER BY 1",
    "WITH w AS (SELECT rank, duration_s, row_number() OVER (PARTITION BY rank ORDER BY step DESC) n FROM {s}) SELECT rank, duration_s FROM w WHERE n = 1 ORDER BY rank",
    "SELECT 1 + 1 AS two",
    "SELECT rank FROM {r} WHERE at >= '2001-09-09T01:46:40.000000003Z' ORDER BY rank",
    "SELECT rank + 1, upper(node) FROM {r} WHERE rank + 1 = 3",
    "SELECT rank FROM {r} WHERE (step > 48 OR inside = 'broadcast') AND NOT (rank = 0) ORDER BY rank",
    "SELECT rank FROM {r} UNION ALL SELECT step FROM {s} WHERE rank = 5 AND step < 2 ORDER BY 1",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_gives_what_it_gives_over_plain_tables(statement: str) -> None:
    """Joins of a table with itself, subqueries, windows, limits; conditions go to the nodes and change nothing."""
    wanted = [
        tuple(r.values())
        for b in plain().sql(statement.format(r="ranks", s="steps")).collect()
        for r in b.to_pylist()
    ]
    found = session.Session(FakeNodes(), timeout_s=1.0).sql(
        statement.format(r="cluster.ranks", s="torch.steps")
    )
    assert [tuple(r.values()) for r in found.rows.to_pylist()] == wanted
    assert found.missing == ()


OF_NAN = [
    "SELECT rank, step FROM {s} WHERE duration_s > 0.12 ORDER BY 1, 2",
    "SELECT rank, step FROM {s} WHERE NOT (duration_s <= 0.12) ORDER BY 1, 2",
    "SELECT rank, step FROM {s} WHERE duration_s < 0.12 OR duration_s BETWEEN 0.14 AND 9 ORDER BY 1, 2",
    "SELECT rank, step FROM {s} WHERE isnan(duration_s) AND step > 1 ORDER BY 1, 2",
    "SELECT count(*) FROM (SELECT rank FROM {s} WHERE duration_s < 0.13 LIMIT 9)",
    "SELECT count(*) FROM {s} WHERE duration_s NOT IN (0.1, 0.12)",
    "SELECT count(*) FROM {s} WHERE duration_s = 'inf'::double",
    "SELECT count(*) FROM {s} WHERE duration_s <> 'inf'::double",
    "SELECT count(*) FROM {s} WHERE duration_s BETWEEN 0.1 AND 'inf'::double",
]


@pytest.mark.parametrize("statement", OF_NAN)
def test_a_value_that_is_no_number_is_found(monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    """A loss that diverged is above every bound, as DataFusion has it, on the nodes and here; so it is in the tables kept of a job."""
    rows = [
        r | ({"duration_s": float("nan")} if i % 7 == 0 else {}) for i, r in enumerate(DATA["torch.steps"])
    ]
    monkeypatch.setitem(DATA, "torch.steps", rows)
    test_a_statement_gives_what_it_gives_over_plain_tables(statement)


def test_nothing_is_compared_with_nan() -> None:
    """It would find nothing, and say that nothing is missing."""
    with pytest.raises(errors.UsageError, match="isnan"):
        session.Session(FakeNodes(), timeout_s=1.0).sql(
            "SELECT rank FROM torch.steps WHERE duration_s = 'NaN'::double"
        )


def test_columns_conditions_and_limits_go_down_to_the_nodes() -> None:
    """Only what is needed is sent."""
    nodes = FakeNodes()
    asking = session.Session(nodes, timeout_s=1.0)
    asking.sql("SELECT rank FROM ranks WHERE step > 46 AND alive")
    assert nodes.scans == [
        Scan(
            table="cluster.ranks",
            columns=("alive", "rank", "step"),
            condition={
                "op": "and",
                "of": [
                    {"op": ">", "column": "step", "value": 46},
                    {"op": "=", "column": "alive", "value": True},
                ],
            },
        )
    ]
    assert nodes.sent == 3
    nodes.scans.clear()
    asking.sql("SELECT rank, node FROM ranks LIMIT 1")
    assert (nodes.scans[0].columns, nodes.scans[0].limit) == (("node", "rank"), 1)
    nodes.scans.clear()
    asking.sql(
        "SELECT a.rank FROM ranks a JOIN ranks b ON a.rank = b.rank WHERE a.step = 1 AND b.step = 2 LIMIT 1"
    )
    (scan,) = nodes.scans
    assert scan.condition is not None
    assert (scan.condition["op"], scan.limit) == ("or", None)


def test_a_limit_does_not_go_down_where_the_asker_filters() -> None:
    """Else rows that it would have kept would be cut before it sees them."""
    nodes = FakeNodes()
    found = session.Session(nodes, timeout_s=1.0).sql("SELECT rank FROM ranks WHERE node LIKE '%3' LIMIT 1")
    assert nodes.scans[0].limit is None
    assert found.rows.num_rows == 1


def test_explain_asks_nobody_and_shows_what_each_node_would_be_asked() -> None:
    nodes = FakeNodes()
    found = session.Session(nodes, timeout_s=1.0).sql(
        "EXPLAIN SELECT rank FROM ranks WHERE step IN (1, 2) LIMIT 3"
    )
    assert not nodes.scans
    (calls,) = [r["plan"] for r in found.rows.to_pylist() if r["plan_type"] == "asked of every node"]
    assert calls.split("\n  ") == [
        "cluster.ranks",
        "columns: rank, step",
        "condition: (step = 1 or step = 2)",
        "limit: 3",
    ]


def test_who_is_silent_is_missing_with_its_ranks() -> None:
    """A row for the node and one for every rank that nobody has a page of; in the same statement, and in the next."""
    nodes = FakeNodes()
    nodes.silent = {"n2"}
    asking = session.Session(nodes, timeout_s=1.5)
    found = asking.sql("SELECT rank FROM ranks")
    assert sorted(r["rank"] for r in found.rows.to_pylist()) == [0, 1, 4, 5]
    assert [(m.node, m.rank) for m in found.missing] == [("n2", None), (None, 2), (None, 3)]
    assert found.missing[0].reason == "no answer in 1.5 s"
    assert (found.n_ranks, found.world_size) == (4, 6)
    rows = asking.sql("SELECT node, rank FROM missing ORDER BY rank NULLS FIRST").rows.to_pylist()
    assert rows == [{"node": "n2", "rank": None}, {"node": None, "rank": 2}, {"node": None, "rank": 3}]
    joined = "SELECT count(*) AS n FROM ranks r FULL JOIN cluster.missing m ON r.node = m.node"
    assert asking.sql(joined).rows.to_pylist() == [{"n": 7}]


def test_missing_alone_asks_who_is_there() -> None:
    nodes = FakeNodes()
    nodes.silent = {"n1"}
    found = session.Session(nodes, timeout_s=1.0).sql("SELECT node FROM cluster.missing WHERE rank IS NULL")
    assert found.rows.to_pylist() == [{"node": "n1"}]


def test_it_is_over_when_nobody_answers() -> None:
    nodes = FakeNodes()
    asking = session.Session(nodes, timeout_s=1.0)
    asking.sql("SELECT rank FROM ranks")
    assert not asking.over
    nodes.silent = set(NODES)
    assert asking.sql("SELECT rank FROM ranks").rows.num_rows == 0
    assert asking.over


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELEC 1", "SELEC"),
        ("SELECT nope FROM ranks", "nope"),
        ("SELECT 1 FROM torch.nothing", "no such table here"),
        ("SELECT 1 FROM nowhere.ranks", "nowhere"),
    ],
)
def test_a_wrong_statement_is_named_with_the_way_out(statement: str, words: str) -> None:
    with pytest.raises(errors.UsageError) as raised:
        session.Session(FakeNodes(), timeout_s=1.0).sql(statement)
    assert words in str(raised.value)
    ways = ("information_schema", "DESCRIBE ranks", "at Line: 1, Column: 1")
    assert any(way in str(raised.value) for way in ways)


def test_the_information_schema_lists_tables_and_columns() -> None:
    """Without asking the nodes for what is known."""
    asking = session.Session(FakeNodes(), timeout_s=1.0)
    found = asking.sql("SELECT table_schema s, table_name t FROM information_schema.tables").rows.to_pylist()
    listed = {f"{r['s']}.{r['t']}" for r in found}
    assert listed >= {*registry.built_in(), "cluster.missing"}
    columns = asking.sql(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'torch' AND table_name = 'steps'"
    )
    assert columns.rows["column_name"].to_pylist() == [c.name for c in STEPS.columns]


def test_a_damaged_frame_is_missing_and_the_others_count() -> None:
    class Damaged(FakeNodes):
        def _frame(self, node: str, scan: Scan) -> bytes:
            return b"nonsense" if node == "n1" else super()._frame(node, scan)

    found = session.Session(Damaged(), timeout_s=1.0).sql("SELECT rank FROM ranks ORDER BY rank")
    assert found.rows["rank"].to_pylist() == [2, 3, 4, 5]
    assert (found.missing[0].node, "damaged" in found.missing[0].reason) == ("n1", True)


def test_what_is_not_known_comes_last() -> None:
    """The longest inside a collective first; who is in none has no seconds, and is no answer to that."""
    asking = session.Session(FakeNodes(), timeout_s=1.0)
    for order in ("ASC", "DESC"):
        found = asking.sql(f"SELECT seconds_inside FROM ranks ORDER BY seconds_inside {order}").rows
        values = found["seconds_inside"].to_pylist()
        known = [v for v in values if v is not None]
        assert 0 < len(known) < len(values)
        assert values[: len(known)] == sorted(known, reverse=order == "DESC")


@pytest.mark.parametrize("in_header", [True, False])
def test_a_node_that_speaks_for_another_is_missing(in_header: bool) -> None:
    """By the frame's header, or in its rows: what it says of the other is not taken, and the other's own rows are."""

    class Speaking(FakeNodes):
        def _frame(self, node: str, scan: Scan) -> bytes:
            if node != "n1":
                return super()._frame(node, scan)
            header = {"node": "n2" if in_header else "n1", "table": scan.table, "missing": []}
            forged = Columns(names=("node", "rank"), kinds=("text", "int"), values=(["n2"], [7]))
            return packing.pack(header, forged)

    found = session.Session(Speaking(), timeout_s=1.0).sql("SELECT node, rank FROM ranks ORDER BY rank")
    assert found.rows["rank"].to_pylist() == [2, 3, 4, 5]
    assert "n1 speaks for n2" in next(m.reason for m in found.missing if m.node == "n1")


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{there}/out.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{there}/out.csv'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{there}/in.csv'",
        "CREATE TABLE live.cluster.mine AS SELECT 1",
        "INSERT INTO cluster.ranks SELECT * FROM cluster.ranks",
        "SET datafusion.execution.batch_size = 1",
    ],
)
def test_a_statement_that_is_no_question_does_nothing(statement: str, tmp_path: Any) -> None:
    """It is often root who pastes one: no file is written or read, no setting changed, no table made."""
    (tmp_path / "in.csv").write_text("a\n1\n")
    asking = session.Session(FakeNodes(), timeout_s=1.0)
    with pytest.raises(errors.UsageError):
        asking.sql(statement.format(there=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["in.csv"]
    for question in (
        "EXPLAIN SELECT 1",
        "DESCRIBE cluster.ranks",
        "VALUES (1)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
    ):
        assert asking.sql(question).rows.num_rows


def test_a_node_with_values_of_another_type_costs_the_others_nothing() -> None:
    """A hostile node sends text where ranks stand: it is missing, and the others' rows are there."""

    class Lying(FakeNodes):
        def _frame(self, node: str, scan: Scan) -> bytes:
            if node != "n2":
                return super()._frame(node, scan)
            forged = Columns(names=("rank",), kinds=("text",), values=(["none"],))
            return packing.pack({"node": node, "table": scan.table, "missing": []}, forged)

    result = session.Session(Lying(), timeout_s=1.0).sql("SELECT rank FROM cluster.ranks ORDER BY rank")
    assert result.rows["rank"].to_pylist() == [0, 1, 4, 5]
    assert ("n2", "cluster.ranks") in {(m.node, m.table) for m in result.missing}


def test_a_statement_over_kept_tables_only_asks(tmp_path: Any) -> None:
    """The same promise as of a running job: a statement that was pasted writes no file."""
    kept = session.KeptSession(datafusion.SessionContext(), ())
    with pytest.raises(errors.UsageError):
        kept.sql(f"COPY (SELECT 1 AS a) TO '{tmp_path}/out.csv'")
    assert not list(tmp_path.iterdir())
    assert kept.sql("SELECT 1 AS a").rows["a"].to_pylist() == [1]


@pytest.mark.parametrize("kept_tables", [(), (("python", "train"),)])
def test_a_table_of_running_jobs_is_no_wrong_name_for_a_job_that_has_ended(kept_tables: Any) -> None:
    """Its processes had these tables; what was kept of it stands beside."""
    kept = session.KeptSession(plain(), kept_tables)
    with pytest.raises(errors.UsageError) as found:
        kept.sql("SELECT * FROM gpu.devices")
    beside = "; kept of it: python.train" if kept_tables else ""
    assert str(found.value) == (
        f"no table gpu.devices: it is there only while the job runs{beside}; information_schema.tables lists them"
    )
    with pytest.raises(errors.UsageError, match=r"^no table gpu\.cards;"):
        kept.sql("SELECT * FROM gpu.cards")


def test_a_table_that_is_not_there_is_answered_with_those_of_the_program() -> None:
    """The nodes know them; where none answers nobody waits for them once more."""

    class Writing(FakeNodes):
        def _frame(self, node: str, scan: Scan) -> bytes:
            if scan.table != "python.*":
                return super()._frame(node, scan)
            listed = Columns(names=("name",), kinds=("text",), values=(["train"],))
            return packing.pack({"node": node, "table": scan.table, "missing": []}, listed)

    nodes = Writing()
    asking = session.Session(nodes, timeout_s=1.0)
    with pytest.raises(errors.UsageError, match=r"no table cluster\.evals .*the job's own: python\.train; "):
        asking.sql("SELECT * FROM evals")
    with pytest.raises(errors.UsageError, match=r"^Arrow error: Divide by zero error$"):
        asking.sql("SELECT 1/0")
    nodes, nodes.silent = Writing(), set(NODES)
    with pytest.raises(errors.UsageError, match=r"^no table python\.evals \(no answer"):
        session.Session(nodes, timeout_s=1.0).sql("SELECT * FROM python.evals")
    assert "python.*" not in {scan.table for scan in nodes.scans}
