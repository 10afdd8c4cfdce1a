"""The tables that a job's program writes, as drawings need them: two questions, the first tables, the first ranks, and who was silent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from probing_cluster.live.session import own_tables
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import choosing, streams

WRITES = """
import os, sys
from _probing_probe import page, tables
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=2, backend="gloo")
for _ in range(3):
    page.step_done()
kept = []
for name in ("train", "tables", "no name", "b", "Val"):
    kept.append(tables.table(name, step=int, loss=float))
    for step in range(5 if rank == 0 or name == "train" else 0):
        kept[-1].append(step, 1.0 / (1 + step))
print("ready", flush=True)
import time; time.sleep(600)
"""


class Counted:
    """Nodes that count what they are asked."""

    def __init__(self, nodes: choosing.Nodes) -> None:
        self._inner, self.questions = nodes, []

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._inner.nodes

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        self.questions.append([s.table for s in scans])
        return self._inner.ask(scans, timeout_s)


def test_two_questions_bring_the_list_the_first_tables_and_the_steps(empty_job) -> None:
    """What is no name is listed and not asked for: to a node it would be an expression."""
    empty_job.start(2, code=WRITES)
    nodes = Counted(choosing.open_nodes(empty_job.config, "7", "local"))
    try:
        found, missing = own_tables.read(nodes, 20.0)
    finally:
        nodes._inner.close()
    assert missing == []
    assert nodes.questions == [["python.tables", "torch.steps"], ["python.Val", "python.b"]]
    assert set(found[own_tables.LIST]["name"].to_pylist()) == {"train", "tables", "no name", "b", "Val"}
    assert found["python", "b"]["loss"].to_pylist() == [1.0 / (1 + step) for step in range(5)]
    assert sorted(found[own_tables.STEPS]["rank"].to_pylist()) == [0, 0, 0, 1, 1, 1]


def test_ranks_beyond_the_first_are_not_sent(empty_job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of thousands must not bring all its rings."""
    monkeypatch.setitem(own_tables.FIRST_RANKS["of"][0], "value", 1)
    empty_job.start(2, code=WRITES.replace('"Val"', '"a"'))
    nodes = choosing.open_nodes(empty_job.config, "7", "local")
    try:
        found, _ = own_tables.read(nodes, 20.0)
    finally:
        nodes.close()
    assert set(found[own_tables.STEPS]["rank"].to_pylist()) == {0}
    assert set(found[own_tables.LIST]["rank"].to_pylist()) == {0, 1}


class Silent:
    """A node that answers nothing."""

    nodes = ("n1",)

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        return streams.Reply(frames=[("n1", b"\0\0")], missing=[streams.Missing(node="n1", reason="asleep")])


def test_who_is_silent_is_named() -> None:
    """A damaged answer and a silent node are gaps, never an exception."""
    found, missing = own_tables.read(Silent(), 1.0)
    assert found == {}
    assert next(m.reason for m in missing) == "asleep"
    assert len(missing) == 2
