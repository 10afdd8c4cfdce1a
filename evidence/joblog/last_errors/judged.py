"""Errors of what a harness or a tool judges: programs that a model wrote, and calls that a checker of memory reports and does not count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Reversible

from probing_cluster.evidence.joblog import grammar
from probing_cluster.evidence.joblog.last_errors import remedies

TRIGGERS = ("ERROR SUMMARY: ",)
_MAX_CHARS, _MAX_KEPT = 200, 256
_OTHERS = 2
"""A harness judges at least so many; a single heading may be that of the job's own part."""
_HEADING = re.compile(
    r"(?P<frame>[-=*#]{2,8}) (?P<name>(?=[^\n]{0,80}\d)(?=[^\n]{0,80}\b(?:candidate|completion|generation|solution|submission|snippet|sample|example|problem|instance|mutant)\b)[^\n]{4,100}?)[ :(]{1,3}"
    r"(?:(?P<bad>failed|errors?|crashed|timed out|timeout|wrong answer|incorrect|rejected|unresolved|unsolved|runtime error)|passed|ok|correct|accepted|resolved|solved|skipped)\)? ?(?P=frame)$",
    re.IGNORECASE,
)
"""A harness's heading with its verdict on one of the programs that it runs."""
_RAISED = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)\b")
_CHECKED = re.compile(r"(?:={9}|==\d{1,10}==)(?: ERROR SUMMARY: (?P<n>\d{1,9}) errors?\b|\s|$)")
"""A line of compute-sanitizer or Valgrind beside the program's own output, or its sum."""


class Judged:
    """Follows one log; `recent`: the lines read last, kept by the reader."""

    def __init__(self, recent: Reversible[str]) -> None:
        self._recent = recent
        self._names: set[str] = set()
        """Of the programs judged so far."""
        self._began = 0
        """Line of the heading whose traceback is open; 0 without one."""
        self._failed: list[tuple[int, int]] = []
        """First and last lines of the judged programs' errors, until a second program shows what the headings are."""
        self._checked: list[int] = []
        """Lines of a checker that has not summed up yet."""

    def read(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A line of the log, in order; yields first and last lines of errors that are not the job's."""
        if found := _CHECKED.match(text):
            if found["n"] is None:
                self._checked = [*self._checked[1 - _MAX_KEPT :], line]
            else:
                if int(found["n"]) == 0:
                    yield from ((checked, checked) for checked in self._checked)
                self._checked = []
        above = next(iter(reversed(self._recent)), "")
        for heading in (above, text):
            if len(self._names) < _MAX_KEPT and (found := _match(heading)):
                self._names.add(found["name"])
        if self._failed and _match(text) is None and remedies.complains(text):
            self._failed = []  # the harness itself may have failed
        elif self._failed and len(self._names) >= _OTHERS:
            yield from self._failed
            self._failed = []
        if (found := _match(above)) and found["bad"]:
            self._began = line - 1
        if self._began and grammar.TRACEBACK not in text and not text[:1].isspace():
            if _RAISED.match(text) and len(self._failed) < _MAX_KEPT:
                self._failed.append((self._began, line))
            self._began = 0


def _match(text: str) -> re.Match[str] | None:
    return _HEADING.match(text) if len(text) <= _MAX_CHARS and text[:2] in ("--", "==", "**", "##") else None
