"""What could not be read: counted, shown and kept in a file, never dropped silently."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from probing_cluster.core import clock, records, sanitize

_LONGEST = 20_000
"""Characters of a bad row that are kept."""


@records.record
class RejectedInput:
    """One input that became nothing."""

    file: str = records.doc("where it was")
    line_no: int = records.doc("its line, or its place in a JSON list, from 1")
    text: str = records.doc("as written")
    why: str = records.doc("what is wrong with it")


def write(bad: Iterable[RejectedInput], directory: Path) -> Path | None:
    """One JSON object a line in a new file of `directory`; None when there is nothing to keep."""
    rows = list(bad)
    if not rows:
        return None
    directory.mkdir(parents=True, exist_ok=True)
    stamp = clock.SYSTEM.now().strftime("%Y%m%dT%H%M%S%f")
    path = directory / f"rejected-{stamp}.jsonl"
    with path.open("x", encoding="utf-8") as stream:
        for row in rows:
            line = {"file": row.file, "line": row.line_no, "why": row.why, "text": row.text[:_LONGEST]}
            stream.write(json.dumps(line, ensure_ascii=True) + "\n")
    return path


def shown(bad: Iterable[RejectedInput], most: int = 5) -> list[str]:
    """The first few, one line each, for a person."""
    rows = list(bad)
    lines = [
        f"  {r.file}:{r.line_no}: {sanitize.clean(r.why, 200)}: {sanitize.clean(r.text, 80)}"
        for r in rows[:most]
    ]
    return [*lines, f"  and {len(rows) - most} more"] if len(rows) > most else lines
