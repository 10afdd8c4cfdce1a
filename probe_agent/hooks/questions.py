"""What the service asks of a job's tables here, for operators and where Slurm starts no step: verb `ask`, answered as the job's owner.

A question names tables, columns and conditions; never an expression, a command or a path. The same collector that Slurm's step
starts reads them, in a process that has become the job's owner; its rows are passed on as they are, packed and bounded.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import errors
from probing_cluster.db import delivery
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import jobs, page_directories

COLLECTOR = "probing_cluster.live.collecting.collector"
"""A module of a room that the agent must not import: it is only started."""
AT_ONCE = 2
MAX_SCANS = 16
MAX_QUESTION_BYTES = 60_000
"""A pipe holds as much, so that nobody waits to write it."""
MAX_ANSWER_BYTES = 4 << 20
"""Bytes of one question's answer; the collector leaves out the rest, and says so."""
MAX_DEADLINE_S = 30.0
BEYOND_S = 2.0
"""After its own deadline a collector has so long to end."""
_log = logging.getLogger(__name__)
_TABLE = re.compile(r"[a-z_][a-z0-9_]*\.(?:[^\W\d]\w*|\*)")

Answer = Callable[[uuid.UUID, bytes], None]
"""Takes the answer to a request: `F` and packed rows (live.packing), or `!` and why there are none."""


@dataclass(kw_only=True)
class Questions:
    """The questions under way on one node."""

    children: children.Children
    book: jobs.JobBook
    pages: page_directories.PageDirectories
    node: str
    answer: Answer
    _running: int = 0

    async def ask(self, request: delivery.Request) -> None:
        """Answers one request, whatever it is."""
        if self._running >= AT_ONCE:
            self._refuse(request, f"{AT_ONCE} other questions are under way on this node")
            return
        self._running += 1
        try:
            self.answer(request.request_id, b"F" + await self._rows(request))
        except errors.ProbingError as exc:
            self._refuse(request, str(exc))
        except Exception as exc:  # noqa: BLE001 - whoever asked waits for an answer
            _log.exception("request %s (ask) failed", request.request_id)
            self._refuse(request, f"the agent could not ask: {type(exc).__name__}: {exc}")
        finally:
            self._running -= 1

    def _refuse(self, request: delivery.Request, why: str) -> None:
        self.answer(request.request_id, b"!" + why.encode("utf-8", "replace")[:1000])

    async def _rows(self, request: delivery.Request) -> bytes:
        job = self.book.get(request.job_id) if request.job_id is not None else None
        if job is None or job.uid is None:
            raise errors.NotFound("this node has no such job")
        question, deadline_s = question_of(request.detail)
        argv = [sys.executable, "-I", "-m", COLLECTOR, "--packed", str(MAX_ANSWER_BYTES), "--tables-only"]
        argv += ["--directory", str(self.pages.path(job.job_id)), "--node", self.node]
        argv += ["--become", str(job.uid), str(job.gid if job.gid is not None else job.uid)]
        done = await self.children.run(
            f"question:{request.request_id}",
            argv,
            deadline_s=deadline_s + BEYOND_S,
            stdin=question,
            max_bytes=MAX_ANSWER_BYTES,
        )
        if done.returncode != 0 or not done.stdout:
            raise errors.NotFound("the collector ended without an answer")
        return done.stdout


def question_of(detail: Mapping[str, Any]) -> tuple[bytes, float]:
    """The collector's question, of what a request says, and its deadline in seconds; raises MalformedInput.

    Only what is known is passed on: whatever else a request holds does not reach the collector.
    """
    scans = detail.get("scans")
    if not isinstance(scans, list) or not 0 < len(scans) <= MAX_SCANS:
        raise errors.MalformedInput(f"a question is about 1 to {MAX_SCANS} tables")
    deadline_s = detail.get("deadline_s")
    if isinstance(deadline_s, bool) or not isinstance(deadline_s, int | float) or not deadline_s > 0:
        raise errors.MalformedInput("a question has a deadline, in seconds")
    deadline_s = float(min(deadline_s, MAX_DEADLINE_S))
    passed = {"id": 1, "deadline_s": deadline_s, "scans": [_scan(s) for s in scans]}
    try:
        line = json.dumps(passed, separators=(",", ":")).encode() + b"\n"
    except (ValueError, RecursionError) as exc:
        raise errors.MalformedInput("the question cannot be written down") from exc
    if len(line) > MAX_QUESTION_BYTES:
        raise errors.MalformedInput("the question is too long")
    return line, deadline_s


def _scan(raw: Any) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise errors.MalformedInput("a question's tables are objects")
    table, columns, condition = raw.get("table"), raw.get("columns"), raw.get("condition")
    if not isinstance(table, str) or len(table) > 200 or _TABLE.fullmatch(table) is None:
        raise errors.MalformedInput(
            "a question names tables: an expression is evaluated for the job's owner alone, by a step of Slurm's"
        )
    if columns is not None and not (
        isinstance(columns, list) and len(columns) <= 256 and all(isinstance(c, str) for c in columns)
    ):
        raise errors.MalformedInput("a question's columns are names")
    if condition is not None and not isinstance(condition, Mapping):
        raise errors.MalformedInput("a question's condition is an object")
    limit = raw.get("limit")
    if limit is not None and (type(limit) is not int or not 0 <= limit < 1 << 31):
        raise errors.MalformedInput("a question's limit is a number of rows")
    describe = raw.get("describe") is True
    return {"table": table, "columns": columns, "condition": condition, "limit": limit, "describe": describe}
