"""Node.js's uncaught errors: the place, the line of source with a caret below it, and then what was thrown.

Anything can be thrown, also a text or a number; the block above it shows that it ended the program.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.core.catalogue import slurm_lines
from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.grammar import JobFinding, JoblogContext, Record, make
from probing_cluster.evidence.joblog.messages import languages

FACTS = {"program_error": languages.FACTS["program_error"]}
_PLACE = re.compile(
    r"(?:node:[\w/.-]{1,200}|(?:file://)?[^\s:'\"()<>][^:'\"()<>\n]{0,400}\.[cm]?[jt]sx?|\[eval\]|evalmachine\.<anonymous>):\d{1,7}$"
)
_REJECTED = re.compile(r"\[?UnhandledPromiseRejection: (?=\S)")
_ORIGIN = re.compile(r"This error originated either by .{1,200}?\.catch\(\)\. ?")
"""What Node says of every rejected promise, in front of this one's reason."""
_OPENED = re.compile(r"\s?\{$")
"""The beginning of the error's fields."""
_NAMED = re.compile(r"\[?(?:[A-Za-z_$][\w$]{0,80}\.){0,8}[A-Z_$][\w$]{0,80}(?: \[[\w$]{1,80}\])?(?::|\]?$)")
_HINT = "(Use `"
_CARET_LINES, _THROWN_LINES = 6, 2
"""At most so many lines from the place to the caret, and from there to what was thrown."""


def expects(context: JoblogContext, line: int) -> bool:
    """Whether `line` can belong to the block of an uncaught error that began above it."""
    return context.uncaught(line)


def read(record: Record, context: JoblogContext) -> JobFinding | None:
    """What was thrown: an error or any other value."""
    text = record.text.rstrip()
    if _REJECTED.match(text):
        context.node_line = context.caret_line = 0
        return _thrown(record, text)
    if _PLACE.match(text):
        context.node_line, context.caret_line, context.node_rank = record.line, 0, record.rank
        return None
    if not context.uncaught(record.line) or record.rank != context.node_rank:
        return None
    if not context.caret_line:
        if slurm_lines.CARET.match(text):
            context.caret_line = record.line
        elif record.line - context.node_line >= _CARET_LINES:
            context.node_line = 0
        return None
    near = record.line - context.caret_line <= _THROWN_LINES
    context.node_line = context.caret_line = 0
    return _thrown(record, text) if near and text and not text.startswith((_HINT, " ")) else None


def _thrown(record: Record, text: str) -> JobFinding:
    text = _ORIGIN.sub("", text)
    text = (_OPENED.sub("", text) or text) if _NAMED.match(text) else f"Uncaught: {text}"
    return make(FACTS, "program_error", replace(record, text=text))


FAMILY = grammar.LogFamily(
    name="node",
    triggers=("node:", ".js:", ".mjs:", ".cjs:", ".ts:", ".mts:", ".cts:", ".jsx:", ".tsx:", "[eval]:", "evalmachine.", "UnhandledPromiseRejection: "),
    read=read,
    facts=FACTS,
    expects=expects,
)  # fmt: skip
