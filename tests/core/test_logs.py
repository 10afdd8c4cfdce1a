"""One JSON object a line, with what journald needs to know beside it."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.core import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging is the process's: what a test sets is put back."""
    root, ours = logging.getLogger(), [logging.getLogger(n) for n in ("probing", "probing_cluster")]
    before = (root.handlers[:], root.level, [o.level for o in ours])
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    for one, level in zip(ours, before[2], strict=True):
        one.setLevel(level)


def test_a_line_is_one_object_with_its_fields() -> None:
    """Whatever the message holds, a line stays a line."""
    out = io.StringIO()
    logs.configure(out)
    logging.getLogger("probing.serve").info("two\nlines", extra={"fields": {"node": "n1"}})
    logging.getLogger("somebody").info("a library's chatter")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("probing_cluster.probe_agent.daemon").exception("failed")
    first, second = [json.loads(line) for line in out.getvalue().splitlines()]
    assert (first["message"], first["node"], first["level"]) == ("two\nlines", "n1", "info")
    assert first["at"].endswith("Z")
    assert "ValueError: invalid literal" in second["exception"]


def test_lines_to_the_journal_carry_their_priority(tmp_path: Path) -> None:
    """Only where standard error is the stream that JOURNAL_STREAM names; elsewhere the mark would be noise."""
    with (tmp_path / "journal").open("w") as stream:
        status = os.fstat(stream.fileno())
        assert logs.to_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"})
        assert not logs.to_journal(stream, {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"})
        assert not logs.to_journal(stream, {})
    assert not logs.to_journal(io.StringIO(), {"JOURNAL_STREAM": "1:2"})
    record = logging.LogRecord("probing", logging.ERROR, __file__, 1, "bad", None, None)
    assert logs.JsonLines(priorities=True).format(record).startswith("<3>{")
    levels = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)
    assert [logs.priority(level) for level in levels] == [2, 3, 4, 6, 7]
