"""What stands at the bottom of a stack: the last `Caused by:` of Java, Scala and Kotlin, the innermost `[cause]` of Node.js.

The exception at the head of the stack is the one that ended the program. Its reason is mostly the last one of the chain.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace

from probing_cluster.core import sanitize
from probing_cluster.evidence.joblog.grammar import JobFinding, Record

_BUILDER = re.compile(r"\[(?i:error|warn|info)\] ?(?=\s*at |\s*\.{3} |Caused by: |\s+\[)")
"""What sbt and Maven write in front of each line."""
_FRAME = re.compile(r"\s{1,40}(?:at \S|\.{3} \d{1,6} (?:more|common frames|lines matching)\b)")
_CAUSE = re.compile(r"(?:Caused by: |\s{1,40}\[cause\]: )(?P<text>\S.{0,400}?)(?: \{)?$")
_LIST = re.compile(r"\s{1,40}\[errors\]: \[$")
"""Node.js: an AggregateError's own errors, the first of which is the next line."""
_BETWEEN = re.compile(
    r"\s*$|Driver stacktrace:|\s{1,40}(?:Suppressed|Caused by): |\s{1,40}\[CIRCULAR REFERENCE|Emitted '\w{1,40}' event\b|\s{1,40}[\w$'\"\[\]]{1,80}: |\s{0,40}[}\])]{1,3},?$"
)
"""Other lines inside a stack: suppressed exceptions, fields of an error."""
_HEAD = re.compile(
    r"(?:Exception in thread \"[^\"\n]{0,200}\" |Uncaught |\[)?(?:[A-Za-z_$][\w$]{0,80}[./]){0,12}[A-Z][\w$]{1,100}(?:Exception|Error|Throwable|Failure|Rejection)\b"
)
"""The exception's name, with which its message begins."""
_MESSAGE_LINES = 8
"""An exception's message may have so many lines, above the first frame."""
_MAX_STACKS, _MAX_CHARS = 256, 200


@dataclass(slots=True)
class _Stack:
    head: int
    """Line above the first frame: the last one of the exception's message."""
    end: int
    """Its last line so far."""
    rank: int | None
    first: int
    """The first line of that message."""
    cause: str = ""
    cause_line: int = 0
    listed: bool = False
    """Whether the next line is the first of a list of errors."""


class StackCauses:
    """Follows the stacks of a log, of which it keeps the last ones that have a cause."""

    def __init__(self) -> None:
        self._open: _Stack | None = None
        self._closed: deque[_Stack] = deque(maxlen=_MAX_STACKS)
        self._above = self._named = self._ended = 0
        """The last line that was not empty, the last one that began with an exception's name, and the last one of a stack."""

    def read(self, record: Record) -> None:
        """Any line, in order."""
        built = _BUILDER.match(record.text)
        text = record.text[built.end() :] if built else record.text
        stack, above, named = self._open, self._above, self._named
        if text.strip():
            self._above = record.line
            self._named = record.line if _HEAD.match(text) else self._named
        if stack is not None and stack.rank != record.rank:
            return
        opens = text[:1].isspace() and (_FRAME.match(text) or _LIST.match(text) or _CAUSE.match(text))
        if stack is None:
            if opens and above and record.line - above <= 2:
                first = named if named > self._ended and above - named <= _MESSAGE_LINES else above
                stack = self._open = _Stack(above, record.line, record.rank, first)
            else:
                return
        if found := _CAUSE.match(text):
            stack.cause, stack.cause_line = found["text"], record.line
        elif stack.listed and not stack.cause:
            stack.cause, stack.cause_line = text.strip().rstrip(",{ "), record.line
        elif not (_FRAME.match(text) or _LIST.match(text) or _BETWEEN.match(text)) and (
            record.line - max(stack.end, stack.cause_line) > _MESSAGE_LINES or stack.end > stack.cause_line
        ):
            self._close()
            return
        stack.listed = _LIST.match(text) is not None
        if not text.strip() or _FRAME.match(text) or _BETWEEN.match(text):
            stack.end = record.line

    def _close(self) -> None:
        if self._open is not None:
            self._ended = max(self._open.end, self._open.cause_line)
            if self._open.cause:
                self._closed.append(self._open)
        self._open = None

    def named(self, finding: JobFinding) -> JobFinding:
        """The first cause with the reason that stands at the bottom of its own stack; any other finding as it is."""
        if not finding.first_cause:
            return finding
        self._close()
        for stack in self._closed:
            if stack.first <= finding.line < stack.cause_line and stack.rank == finding.rank:
                cause = sanitize.clean(stack.cause, _MAX_CHARS)
                if cause and cause not in finding.message:
                    return replace(finding, detail={**finding.detail, "caused_by": cause})
                return finding
        return finding
