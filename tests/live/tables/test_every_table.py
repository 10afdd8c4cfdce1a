"""Every table of the product: asked of real processes, against what their code knows; and its page."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.live import manual
from probing_cluster.live.session import unpacking
from probing_cluster.live.table import KINDS, NODE, Missing, Scan
from probing_cluster.live.tables import registry
from probing_cluster.live.tables.python import variables
from probing_cluster.probe_agent.jobs import guarded_reads, processes
from probing_cluster.probe_agent.stacks import pyspy_program

ROOT = Path(__file__).resolve().parents[3]
STEPS = 70
Rows = Callable[[str], list[dict[str, Any]]]


def test_the_page_is_what_the_registrations_say() -> None:
    assert (ROOT / "docs/live.md").read_text(encoding="utf-8") == manual.manual(), (
        "run: python -m probing_cluster.live.manual > docs/live.md"
    )


def test_every_file_is_registered() -> None:
    """A table that nobody registered would never be asked."""
    files = {
        f"{p.parent.name}.{p.stem}" for p in (ROOT / "live/tables").glob("*/*.py") if p.stem != "__init__"
    }
    assert {*registry.NAMES, *registry.LAZY.values()} == files
    assert all(table.full_name == name for name, table in registry.built_in().items())


@pytest.mark.parametrize("name", registry.built_in())
def test_a_tables_rows_are_its_columns(job: Any, name: str) -> None:
    """Kinds that exist, the node first, and no row has a field that no column has; a table that needs the agent says so."""
    table = registry.built_in()[name]
    assert {c.kind for c in table.columns} <= set(KINDS)
    assert table.columns[0] == NODE
    assert len({c.name for c in table.columns}) == len(table.columns)
    view = job.view(seconds=20)
    try:
        rows = list(table.rows(view, Scan(table=name)))
    except Missing as exc:
        needs_agent = "agent does not answer" in str(exc)
        assert needs_agent
        return
    names = {c.name for c in table.columns}
    assert all(set(row) <= names for row in rows), name
    assert all(row["node"] == "n1" for row in rows)


def test_ranks(job: Any, rows: Rows) -> None:
    """Number, process, state, step and what each is inside of."""
    found = rows("SELECT * FROM cluster.ranks ORDER BY rank")
    assert [(r["rank"], r["pid"], r["alive"], r["step"]) for r in found] == [
        (n, p.pid, True, STEPS) for n, p in enumerate(job.ranks)
    ]
    for r in found:
        assert (r["inside"], r["inside_group"], r["inside_seq"]) == ("broadcast", "0", STEPS + 1)
        assert (r["world_size"], r["backend"], r["node"]) == (4, "gloo", "n1")
        assert r["state"] in "RS"
        assert 0 < r["seconds_inside"] <= r["seconds_since_step"] < 3600
        assert r["started_at"] < r["inside_at"] <= r["at"]


def test_nodes(rows: Rows) -> None:
    (found,) = rows("SELECT * FROM cluster.nodes")
    assert (found["ranks"], found["dead_ranks"], found["cpus"]) == (4, 0, os.cpu_count())
    assert "does not answer" in found["agent"]
    assert found["memory_bytes"] > found["memory_available_bytes"] > 0


def test_steps(rows: Rows) -> None:
    """The ring's 64, the first without a duration; all of a rank's in order."""
    found = rows("SELECT rank, step, duration_s FROM torch.steps ORDER BY rank, step")
    assert [(r["rank"], r["step"]) for r in found] == [(n, s) for n in range(4) for s in range(7, STEPS + 1)]
    assert all((r["duration_s"] is None) == (r["step"] == 7) for r in found)
    assert all(r["duration_s"] > 0 for r in found if r["duration_s"] is not None)


def test_collectives(rows: Rows) -> None:
    """Bytes, group size and bus bandwidth of what has ended; what has not ended has none."""
    found = rows("SELECT * FROM torch.collectives WHERE rank = 2 ORDER BY seq")
    assert len(found) == 64
    *done, last = found
    assert (last["op"], last["done"], last["duration_s"], last["bus_bytes_per_s"]) == (
        "broadcast",
        False,
        None,
        None,
    )
    for r in done:
        assert (r["op"], r["group_size"], r["done"], r["raised"]) == ("all_reduce", 4, True, False)
        assert (r["dtype"], r["numel"], r["bytes"]) == ("float32", 1024, 4096)
        assert r["duration_s"] == pytest.approx(0.001)
        assert r["bus_bytes_per_s"] == pytest.approx(4096 * 1.5 / 0.001)


def test_processes(job: Any, rows: Rows) -> None:
    """Environment, threads, memory and counters are those of /proc."""
    found = rows("SELECT rank, value FROM process.envs WHERE name = 'OF_THE_JOB' ORDER BY rank")
    assert found == [{"rank": n, "value": "yes"} for n in range(4)]
    threads = rows(
        "SELECT pid, count(*) AS n, bool_or(main) AS main FROM process.threads GROUP BY pid ORDER BY pid"
    )
    assert threads == [
        {"pid": p.pid, "n": len(list(Path(f"/proc/{p.pid}/task").iterdir())), "main": True}
        for p in sorted(job.ranks, key=lambda p: p.pid)
    ]
    memory = rows("SELECT pid, rss_bytes, anonymous_bytes FROM process.memory")
    for r in memory:
        assert 1 << 20 < r["anonymous_bytes"] < r["rss_bytes"] < 1 << 30
    counters = rows("SELECT rank, read_chars, write_chars FROM process.io ORDER BY rank")
    assert [r["rank"] for r in counters] == [0, 1, 2, 3]
    assert all(r["read_chars"] > 10_000 for r in counters)


def test_processors(rows: Rows) -> None:
    found = rows("SELECT * FROM cpu.samples ORDER BY cpu")
    assert [r["cpu"] for r in found] == sorted(r["cpu"] for r in found)
    assert len(found) >= 1
    for r in found:
        assert r["user_frac"] + r["system_frac"] + r["steal_frac"] == pytest.approx(r["busy_frac"], abs=0.02)
        assert -0.01 <= r["busy_frac"] <= 1.01


@pytest.mark.skipif(pyspy_program.program() is None, reason="py-spy is not installed")
def test_stacks_and_variables(rows: Rows) -> None:
    """The line each rank is at, who called, and the locals of a chosen frame."""
    found = rows(
        "SELECT rank, function, depth, main FROM python.backtrace WHERE kind = 'python' ORDER BY rank, depth"
    )
    assert [(r["rank"], r["function"], r["main"]) for r in found] == [
        (n, f, True) for n in range(4) for f in ("waits_here", "<module>")
    ]
    values = rows(
        "SELECT rank, value FROM python.variables WHERE function = 'waits_here' AND name = 'secret' ORDER BY rank"
    )
    assert values == [{"rank": n, "value": str(10 * n)} for n in range(4)]


def test_what_the_kernel_does_not_answer_about_is_missing_and_not_ended(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a rank in a container whose process could not be sought."""

    def refuse(pid: int, uid: int, work: object) -> object:
        raise guarded_reads.ProcessHangs(f"process {pid} is not asked")

    search = processes.NamespaceSearch(found={}, unanswered=frozenset({4242}))
    monkeypatch.setattr(guarded_reads.READS, "read", refuse)
    monkeypatch.setattr(processes, "inside", lambda uid, proc: search)
    view = job.view()
    assert view.pid_here(1, 2) == 0
    assert not any(rank.alive for rank in view.ranks)
    words = [reason for _, reason in view.missing]
    assert "1 processes could not be asked for their PID namespace" in words
    assert sum("does not answer about process" in reason for reason in words) == len(view.ranks)


def test_a_node_without_pyspy_is_one_reason(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing are all its ranks; the sentence is the same for each, so that people read it once."""
    monkeypatch.setattr(pyspy_program, "program", lambda: None)
    view = job.view()
    assert list(variables.rows(view, Scan(table="python.variables"))) == []
    assert {rank for rank, _ in view.missing} == {0, 1, 2, 3}
    assert {why for _, why in view.missing} == {"no variables: py-spy is not installed on this node"}


def test_kinds_have_a_type_at_the_asker() -> None:
    assert set(unpacking.TYPES) == set(KINDS)
