"""Exceptions met while another one was handled: a fallback that failed ended the program, a wrapper only renames what did.

Python prints the handled exception first. Where the handler of one that programs expect (a file that is not there, a page that
is not found) tried something else and that failed on its own, what failed last is the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from probing_cluster.evidence.joblog.grammar import JobFinding, Record

_LINK = re.compile(r"\s*(?:(?P<handling>During handling of the above)|The above exception was the direct)")
_FRAME = re.compile(r"\s*File \"(?P<file>[^\"]{1,400})\", line \d{1,7}, in (?P<function>\S{1,200})")
_EXPECTED = frozenset({
    "FileNotFoundError", "FileExistsError", "KeyError", "AttributeError", "StopIteration", "HTTPError", "EntryNotFoundError",
    "RemoteEntryNotFoundError", "LocalEntryNotFoundError",
})  # fmt: skip
"""What programs catch to try something else."""
_MAX_RANKS = 256
_DEEP = 2
"""So many calls below the handler, even a `raise` is another function's own."""

Frame = tuple[str, str]


@dataclass(slots=True)
class _Traceback:
    began: int = 0
    """Line of the chain's first exception; 0 until one was read."""
    handled: str = ""
    """Name of the exception that was being handled; empty for none, or where the next one was raised from it."""
    handler: Frame | None = None
    """The function that handled it."""
    outermost: Frame | None = None
    below: int = 0
    """Calls below the handler's last frame."""
    code: str = ""
    """The line of the program in the last frame."""


def is_link(text: str) -> bool:
    """Whether the line says how the next traceback hangs together with the last one."""
    return _LINK.match(text) is not None


class ExceptionChain:
    """Follows the tracebacks of every rank."""

    def __init__(self) -> None:
        self._of: dict[int | None, _Traceback] = {}
        self._linked: dict[int | None, int] = {}

    def link(self, record: Record) -> None:
        """A line that `is_link`."""
        now = self._of.get(record.rank)
        if now is None:
            return
        if not (found := _LINK.match(record.text)) or not found["handling"]:
            now.handled = ""
        self._linked[record.rank] = record.line

    def begin(self, record: Record) -> None:
        """The head of a traceback: of the chain's next, or of another chain."""
        now = self._of.pop(record.rank, None) if record.rank in self._linked else None
        self._linked.pop(record.rank, None)
        if len(self._of) >= _MAX_RANKS:
            self._of.clear()
        if now is not None:
            now.handler, now.outermost, now.below, now.code = now.outermost, None, 0, ""
        self._of[record.rank] = now or _Traceback()

    def inside(self, record: Record) -> None:
        """A line of a traceback."""
        now = self._of.get(record.rank)
        if now is None:
            return
        if found := _FRAME.match(record.text):
            frame = found["file"], found["function"]
            now.outermost = now.outermost or frame
            now.below, now.code = 0 if frame == now.handler else now.below + 1, ""
        elif not now.code:
            now.code = record.text.strip()

    def ended(self, found: JobFinding, rank: int | None) -> JobFinding:
        """The exception, and the line from which on it stands for the chain's others, where it does."""
        now = self._of.get(rank)
        name = str(found.detail.get("exception", "")).rpartition(".")[2]
        if now is None or not name:
            return found
        expected = now.handled in _EXPECTED and now.handler is not None
        if expected and (not now.code.startswith("raise") or now.below >= _DEEP):
            found = replace(found, detail={**found.detail, "instead_since": now.began})
        now.began, now.handled = now.began or found.line, name
        return found
