"""What stands in front of a line's own text: the labels of launchers and of `pdsh`, the dates of loggers and of `ts`, the margin of a log that was set in.

Some a line tells by itself. `n1: text` it does not, which may be a message that begins so: there it takes line after line with it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probing_cluster.evidence import dates, prefixes
from probing_cluster.evidence.joblog import grammar

_LEVEL = r"\[?(?:DEBUG|INFO|NOTE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_LABEL = re.compile(
    r"(?P<host>(?!\d{1,6}:)(?=[\w.-]{0,252}\d|localhost)[A-Za-z0-9][\w.-]{0,252})(?::\d{1,5})?: "
    r"|\[(?P<rank>\d{1,6})\](?: |:\s?)|(?P<task>\s{0,5}\d{1,6}):(?!\d) ?"
    r"|(?P<time>\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]|\[?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?|\d{10}\.\d{3,6}) (?![\[{]|"
    + _LEVEL
    + r"\b)"
    r"|(?P<other>\[(?=[^\]]{0,80}\d)(?!\d{4}-\d\d|"
    + _LEVEL
    + r")[^\[\]\n]{2,80}\]:? |(?=\S{0,120}\d)[^\s|]{1,120}(?: {0,20}\| |\t))"
)
_MEANT = 4
"""So many lines with the same label, and it is one."""
_MAX_KNOWN = 4_096
_ERROR_WORD = re.compile(r"(?:error|exception|failure|fault|warning|interrupt|exit)$", re.IGNORECASE)


class LineLabels:
    """Takes one log's labels off its lines, in order; what it remembers is bounded."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._margin: str | None = None
        self._host: str | None = None
        self._rank: int | None = None
        self._labelled = False

    def plain(self, text: str) -> str:
        """The line without its margin, and without a label that others had; the host and rank it names go into its record."""
        self._host, self._rank, self._labelled = None, None, False
        text = self._unset(text)
        if task := next((m for label in grammar.LABELS if (m := label.match(text))), None):
            self._labelled, self._host = True, task.groupdict().get("host")
            self._rank = grammar.number(task["rank"], grammar.MAX_RANK)
            self._count(task[0].strip(), _MEANT)
            return text[task.end() :]
        found = _LABEL.match(text)
        if found is None:
            return text
        rest = text[found.end() :]
        if found["time"]:
            return rest
        if found["other"] and grammar.is_labelled(text):
            return text  # the record takes it off, and knows whose it is
        label = found[0].strip()
        if self._count(label, 1) < _MEANT:
            return text
        self._host = found["host"]
        self._labelled = found["task"] is not None
        self._rank = grammar.number(found["rank"] or (found["task"] or "").strip(), grammar.MAX_RANK)
        return rest

    def _count(self, label: str, by: int) -> int:
        """How often this label was seen by now."""
        count = self._counts.get(label, 0) + by
        if label in self._counts or len(self._counts) < _MAX_KNOWN:
            self._counts[label] = count
        return count

    def _unset(self, text: str) -> str:
        """The line without the blanks that every line so far began with."""
        if not text.strip():
            return text
        if self._margin is None:
            self._margin = text[: len(text) - len(text.lstrip(" "))]
        if not text.startswith(self._margin):
            self._margin = ""
        return text[len(self._margin) :]

    def record(self, line: int, text: str) -> grammar.Record:
        """The line that `plain` returned last, or a part of it, without its launcher's and its logger's prefixes."""
        record = bare(line, text)
        rank = record.rank if record.rank is not None else self._rank
        labelled = record.labelled or self._labelled
        return replace(record, rank=rank, host=record.host or self._host, labelled=labelled)


def bare(line: int, text: str) -> grammar.Record:
    """The line without those prefixes that it tells by itself."""
    record = grammar.strip(line, text)
    dated = record.text.startswith(("{", "<")) or dates.match_length(record.text)
    return _undated(record) if dated else record


def _undated(record: grammar.Record) -> grammar.Record:
    """The record without its logger's or syslog's prefix, and without a launcher's behind it."""
    peeled = prefixes.parse(record.text)
    message, host = peeled.message.removeprefix(": "), peeled.host
    if _is_no_tag(record.text, peeled):
        at = record.text.find(f"{peeled.tag}:")
        message, host = record.text[record.text.rfind(peeled.host or "", 0, at) :], None
    inner = grammar.strip(record.line, message)
    return replace(
        inner,
        labelled=record.labelled or inner.labelled,
        rank=inner.rank if inner.rank is not None else record.rank,
        host=inner.host or record.host or host,
        pid=inner.pid or record.pid,
    )


def _is_no_tag(text: str, peeled: prefixes.PrefixedLine) -> bool:
    """Whether what was taken for syslog's host and program is the beginning of the message (`CUDA error: …`)."""
    if not peeled.tag or not peeled.host or text.startswith(("{", "<")):
        return False
    if peeled.tag in prefixes.KERNEL_TAGS or f"{peeled.tag}[" in text:
        return False
    return not re.search(r"\d", peeled.host) or _ERROR_WORD.search(peeled.tag) is not None
