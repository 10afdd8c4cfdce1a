"""What a question may hold: names of tables and nothing that runs; and what a node answers that cannot."""

from __future__ import annotations

import asyncio
import json
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from probing_cluster.core import errors
from probing_cluster.db import delivery
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.hooks import questions
from probing_cluster.probe_agent.jobs import jobs, page_directories

ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=20)
    | st.sampled_from(["cluster.ranks", "python.`1`", "python.__import__('os').system('x')", "python.train", "a.b.c", "python.*"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["scans", "table", "columns", "condition", "limit", "describe", "deadline_s", "directory"]), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SCAN = {"table": "cluster.ranks", "columns": ["rank"], "condition": None, "limit": 3, "describe": False}


@hypothesis.given(
    detail=st.dictionaries(st.sampled_from(["scans", "deadline_s", "become", "by"]), ANY, max_size=4)
)
@hypothesis.example(detail={"scans": [SCAN | {"table": "python.`1+1`"}], "deadline_s": 1})
@hypothesis.example(detail={"scans": [SCAN], "deadline_s": float("nan")})
@hypothesis.example(detail={"scans": [SCAN], "deadline_s": 10**400})
def test_only_tables_columns_and_conditions_are_passed_on(detail: dict[str, Any]) -> None:
    """Whatever a request holds, the collector gets a bounded question about named tables, or none."""
    try:
        line, deadline_s = questions.question_of(detail)
    except errors.MalformedInput:
        return
    passed = json.loads(line)
    assert set(passed) == {"id", "deadline_s", "scans"}
    assert 0 < deadline_s <= questions.MAX_DEADLINE_S
    assert line.count(b"\n") == 1
    assert len(line) <= questions.MAX_QUESTION_BYTES
    for scan in passed["scans"]:
        assert set(scan) == set(SCAN)
        schema, _, name = scan["table"].partition(".")
        assert schema.isidentifier()
        assert name == "*" or name.isidentifier()


@pytest.mark.parametrize(
    "table",
    ["python.`1`", "python.1+1", "python.f()", "cluster.ranks; ls", "../x.y", "python.a b", "python.", "python", "x" * 300 + ".y", None, 5],
)  # fmt: skip
def test_an_expression_is_never_passed_on(table: Any) -> None:
    """Nor a path, nor what is no name."""
    with pytest.raises(errors.MalformedInput):
        questions.question_of({"scans": [SCAN | {"table": table}], "deadline_s": 1})


def calls(job_id: int | None, **detail: Any) -> delivery.Request:
    expires_at = datetime.now(UTC) + timedelta(seconds=60)
    return delivery.Request(
        request_id=uuid.uuid4(), verb="ask", job_id=job_id, expires_at=expires_at,
        detail={"scans": [SCAN], "deadline_s": 5.0} | detail,
    )  # fmt: skip


@pytest.fixture
def desk(tmp_path: Path) -> tuple[questions.Questions, dict[uuid.UUID, bytes]]:
    """A node with job 7, which has no page directory, and what it answers."""
    book = jobs.JobBook("b")
    book.start(jobs.NodeJob(job_id=7, started_at=datetime.now(UTC), uid=os.getuid(), gid=os.getgid()))
    answers: dict[uuid.UUID, bytes] = {}
    made = questions.Questions(
        children=children.Children(), book=book, pages=page_directories.PageDirectories(tmp_path), node="n1",
        answer=answers.__setitem__,
    )  # fmt: skip
    return made, answers


def test_every_question_is_answered_also_with_a_refusal(
    desk: tuple[questions.Questions, dict[uuid.UUID, bytes]],
) -> None:
    """A job that is not here, a question that is none; too many at once; and a real collector's word."""
    made, answers = desk
    elsewhere, wrong = calls(8), calls(7, scans=[])
    here = [calls(7) for _ in range(questions.AT_ONCE + 1)]

    async def all_at_once() -> None:
        await asyncio.gather(*(made.ask(r) for r in [elsewhere, wrong, *here]))

    asyncio.run(all_at_once())
    assert answers[elsewhere.request_id] == b"!this node has no such job"
    assert answers[wrong.request_id].startswith(b"!a question is about")
    words = sorted(answers[r.request_id][:1] for r in here)
    assert words == [b"!", *[b"F"] * questions.AT_ONCE]
    assert any(b"other questions are under way" in answers[r.request_id] for r in here)


def test_a_question_whose_collector_cannot_start_is_refused(
    desk: tuple[questions.Questions, dict[uuid.UUID, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked hears the error."""
    made, answers = desk

    async def no_more_processes(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(made.children, "run", no_more_processes)
    wanted = calls(7)
    asyncio.run(made.ask(wanted))
    assert answers[wanted.request_id] == b"!the agent could not ask: OSError: no more processes"
