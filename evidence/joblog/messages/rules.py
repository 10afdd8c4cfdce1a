"""Tables of rules: each pairs a pattern with the function that makes the finding of a line that matches it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, Literal

from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, LogFact, Record, make


class _Outcome(Enum):
    NEXT = "next"


NEXT: Final = _Outcome.NEXT
"""A handler returns this to leave the line to the rules after it; None means that the line is no finding."""
Handled = JobFinding | Literal[_Outcome.NEXT] | None
Handler = Callable[[re.Match[str], Record, JoblogContext], Handled]
Rule = tuple[Callable[[str], re.Match[str] | None], Handler]
"""The pattern's bound `search` or `match`, and the handler of what it found."""


def first(rules: Iterable[Rule], text: str, record: Record, context: JoblogContext) -> JobFinding | None:
    """The finding of the first rule that matches `text` and does not leave the line to the next one."""
    for search, handler in rules:
        if (found := search(text)) is not None and (finding := handler(found, record, context)) is not NEXT:
            return finding
    return None


def always(facts: Mapping[str, LogFact], kind: str, **fields: Any) -> Handler:
    """A handler that makes the same finding of every line."""

    def handler(_found: re.Match[str], record: Record, _context: JoblogContext) -> JobFinding:
        return make(facts, kind, record, **fields)

    return handler
