"""Errors of what a harness or a tool works on: programs that a model wrote, their tests, documents, and calls that a checker of memory reports and does not count."""

from __future__ import annotations

import re
from collections.abc import Iterator, Reversible
from itertools import islice

from probing_cluster.evidence.joblog import grammar, progress
from probing_cluster.evidence.joblog.last_errors import remedies

_DOCUMENT = ("chunk ", "passage ", "document ", "page ", "section ")
TRIGGERS = (
    "ERROR SUMMARY: ",
    "with errors: ",
    "nresolved: ",
    "illed: ",
    *(f"{frame} {what}" for frame in "-=#*" for what in _DOCUMENT),
)
_MAX_CHARS, _MAX_KEPT, _BLOCK_LINES, _FIELD_LINES = 200, 256, 200, 3
_OTHERS = 2
"""A harness judges at least so many; a single heading may be that of the job's own part."""
_BAD = r"(?:failed|errors?|crashed|timed out|timeout|wrong answer|incorrect|rejected|unresolved|unsolved|(?:runtime|compil\w{1,5})[ _]error|(?:time|memory) limit exceeded)"
_GOOD = r"(?:passed|ok|correct|accepted|resolved|solved|skipped)"
_JUDGED = (
    r"(?:candidate|completion|generation|solution|submission|snippet|sample|example|problem|instance|mutant)"
)
_HEADING = re.compile(
    rf"(?P<frame>[-=*#]{{2,8}}) (?P<name>(?=[^\n]{{0,80}}\d)(?=[^\n]{{0,80}}\b{_JUDGED}\b)[^\n]{{4,100}}?)"
    rf"(?:[ :(]{{1,3}}(?:(?P<bad>{_BAD})|{_GOOD})\)?)? ?(?P=frame)$",
    re.IGNORECASE,
)
"""A harness's heading of one of the programs that it runs, mostly with its verdict."""
_VERDICT = re.compile(
    rf"(?:response|result|verdict|status|outcome|target|test|grade)\s?: (?:(?P<bad>{_BAD})|{_GOOD})(?=$|[:,. ])(?P<text>.*)",
    re.IGNORECASE,
)
"""The same in a field below the heading, perhaps with the error itself."""
_RAISED = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit)\b")
_CHECKED = re.compile(
    r"={9} (?:ERROR SUMMARY: (?P<n>\d{1,9}) errors?\b|Program hit cuda\w{3,60} \(error \d{1,4}\) due to .{3,120} on CUDA API call to )"
)
"""A call that compute-sanitizer reports beside the program's own output, or its sum."""
_PAGE = re.compile(
    rf"(?P<frame>[-=*#]{{2,8}}) (?:{'|'.join(_DOCUMENT)})\d{{1,9}}\b.{{0,3}}\S{{1,120}}\.(?:md|rst|txt|html?|pdf|adoc|tex)\)? ?(?P=frame)$",
    re.IGNORECASE,
)
"""The heading of a part of a document that the job works on and prints."""
_DONE = re.compile(r"[ (\[]\d{1,9}/\d{1,9}[)\]]?(?: [a-z]{3,20})?$")
"""How many of them are done, in whatever words."""
_OF_INSTANCE = re.compile(r"\[(?P<name>(?=[^\]]{0,60}[A-Za-z])(?=[^\]]{0,60}\d)[\w./-]{4,60})\] (?P<text>.*)")
"""A line of the test of one instance, which the harness marks with its name."""
_SUM = re.compile(
    rf"(?:\w{{1,20}} )?{_JUDGED}s (?:with errors|unresolved|unsolved|failed|killed|incorrect|rejected): (?P<n>\d{{1,7}})$",
    re.IGNORECASE,
)
"""How many of them went wrong, as the harness sums up."""


class Judged:
    """Follows one log; `recent`: the lines read last, kept by the reader."""

    def __init__(self, recent: Reversible[str]) -> None:
        self._recent = recent
        self._names: set[str] = set()
        """Of the programs judged so far."""
        self._headed = -_FIELD_LINES
        """Line of the last heading without a verdict."""
        self._began = 0
        """Line of the heading whose traceback is open; 0 without one."""
        self._failed: list[tuple[int, int]] = []
        """First and last lines of the judged programs' errors, until a second program shows what the headings are."""
        self._checked: list[int] = []
        """Lines of a checker that has not summed up yet."""
        self._page = 0
        """Line of the heading of the document that is open; 0 without one."""
        self._open = "", 0
        """The instance whose traceback is open, and the line of its head. The reader may have taken the name off the lines below."""
        self._instances: dict[str, list[tuple[int, int]]] = {}
        """First and last lines of the exceptions in the tests of instances, by the instances' names."""

    def read(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """A line of the log, in order; yields first and last lines of errors that are not the job's."""
        yield from self._read_checked(line, text)
        yield from self._read_page(line, text)
        yield from self._read_instance(line, text)
        above = next(iter(reversed(self._recent)), "")
        near = [text, *islice(reversed(self._recent), _FIELD_LINES)]
        for behind, heading in reversed([*enumerate(near)]):
            if len(self._names) < _MAX_KEPT and (found := _match(heading)):
                self._names.add(found["name"])
                self._headed = line - behind
        if (found := _match(above)) and found["bad"]:
            self._began = line - 1
        verdict = _VERDICT.match(text) if line - self._headed <= _FIELD_LINES else None
        if verdict and verdict["bad"]:
            self._began = self._headed
            text = verdict["text"].lstrip(" :") or "  "
        elif not verdict and self._failed and _match(text) is None and remedies.complains(text):
            self._failed = []  # the harness itself may have failed
        if self._failed and len(self._names) >= _OTHERS:
            yield from self._failed
            self._failed = []
        if self._began and grammar.TRACEBACK not in text and not text[:1].isspace():
            if _RAISED.match(text) and len(self._failed) < _MAX_KEPT:
                self._failed.append((self._began, line))
            self._began = 0

    def _read_checked(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        if (found := _CHECKED.match(text)) is None:
            return
        if found["n"] is None:
            self._checked = [*self._checked[1 - _MAX_KEPT :], line]
            return
        if int(found["n"]) == 0:
            yield from ((checked, checked) for checked in self._checked)
        self._checked = []

    def _read_page(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """Errors between the headings of two documents, or between one and the work on them, are the documents' text."""
        heading = _PAGE.match(text) is not None
        if self._page and (heading or progress.is_progress(text) or _DONE.search(text)):
            if line - self._page <= _BLOCK_LINES:
                yield self._page, line - 1
            self._page = 0
        self._page = line if heading else self._page

    def _read_instance(self, line: int, text: str) -> Iterator[tuple[int, int]]:
        """The harness's sum shows that it judged the instances whose tests raised exceptions."""
        found = _OF_INSTANCE.match(text)
        if found and grammar.TRACEBACK in text:
            self._open = found["name"], line
            return
        name, began = self._open
        if (found and found["name"] != name) or line - began > _BLOCK_LINES:
            name, began = found["name"] if found else "", line
        if name and _RAISED.match(found["text"] if found else text):
            if name in self._instances or len(self._instances) < _MAX_KEPT:
                lines = self._instances.setdefault(name, [])
                lines[_MAX_KEPT - 1 :] = [(began, line)]
            self._open = "", 0
        elif self._instances and (found := _SUM.match(text)) and int(found["n"]) >= len(self._instances):
            for lines in self._instances.values():
                yield from lines
            self._instances = {}


def _match(text: str) -> re.Match[str] | None:
    return _HEADING.match(text) if len(text) <= _MAX_CHARS and text[:2] in ("--", "==", "**", "##") else None
