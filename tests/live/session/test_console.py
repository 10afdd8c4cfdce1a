"""The console: statements a line at a time, wrong ones named and forgotten, completion of what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from probing_cluster.live.session import console, session

Typed = Callable[..., tuple[int, list[Any], list[str]]]


@pytest.fixture
def typed(asking: session.Session) -> Typed:
    """Lines typed into a console: (exit code, results, what was said)."""

    def run(*lines: str) -> tuple[int, list[Any], list[str]]:
        left: Iterator[str] = iter(lines)
        results: list[Any] = []
        words: list[str] = []

        def read(_: str) -> str:
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        def show(result: session.Result) -> int:
            results.append(result.rows.to_pylist())
            return 0

        code = console.run(asking, "7", show, words.append, read)
        return code, results, words

    return run


def test_statements_one_after_another(typed: Typed) -> None:
    """With and without a semicolon, over several lines, and after a wrong one."""
    code, results, words = typed(
        "SELECT count(*) n FROM ranks;",
        "SELECT nope FROM ranks",
        "SELECT 1 \\",
        "+ 1 AS two",
        "\\q",
        "SELECT 3",
    )
    assert results == [[{"n": 4}], [{"two": 2}]]
    assert "nope" in words[0]
    assert code == 0


def test_tables_and_columns_are_listed(typed: Typed) -> None:
    _, results, _ = typed("\\d", "\\d torch.steps", "\\d missing")
    assert {"table_schema": "torch", "table_name": "steps"} in results[0]
    assert [r["column_name"] for r in results[1]][:5] == ["node", "rank", "pid", "at", "step"]
    assert [r["column_name"] for r in results[2]] == ["node", "rank", "table", "reason", "at"]


def test_commands_that_are_none_are_named(typed: Typed) -> None:
    code, results, words = typed("\\x", "\\timeout soon", "\\timeout 30", "help")
    assert (code, results) == (0, [])
    assert "\\x" in words[0]
    assert "soon" in words[1]
    assert words[2] == console.HELP


def test_completion_knows_tables_and_columns(asking: session.Session) -> None:
    words = console.Completer(asking).words
    assert "torch." in words("to")
    assert words("torch.s") == ["torch.steps"]
    assert "seconds_inside" in words("seconds_")
    assert words("cluster.m") == ["cluster.missing"]
    assert words("nowhere.") == []
    complete = console.Completer(asking)
    assert [complete("torch.c", n) for n in range(3)] == ["torch.checkpoints", "torch.collectives", None]
