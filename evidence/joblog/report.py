"""What a workflow engine repeats of a step that failed: a block of indented lines, each of which the step itself printed."""

from __future__ import annotations

import re

TRIGGERS = ("Command error:", "Command output:", "Command wrapper:")
_HEAD = re.compile(r"(?P<indent>\s{0,8})Command (?P<what>error|output|wrapper):\s*$")
"""How Nextflow announces what the command of a failed process printed."""
_END = re.compile(r"\s{0,8}(?:Work dir|Container|Tip|Command [a-z ]{4,20}):|\s{0,8}\[.{0,40}Pipeline\b")
_MAX_LINES = 400


class Report:
    """Follows the blocks; at most one is open."""

    def __init__(self) -> None:
        self._began = 0
        self._indent: int | None = None
        self._errors = False
        self.errors_began = 0
        """Where the last block of what a step wrote to its error output began."""

    def text(self, line: int, text: str) -> str:
        """`text` as the step printed it, where it stands in a block; else as it is."""
        if found := _HEAD.match(text):
            self._began, self._indent, self._errors = line, None, found["what"] == "error"
            self.errors_began = line if self._errors else self.errors_began
            return text
        if not self._began:
            return text
        if line - self._began > _MAX_LINES or _END.match(text) or (text.strip() and text[0] not in " \t│"):
            self._began = 0
            return text
        if not text.strip():
            return text
        if self._indent is None:
            self._indent = len(text) - len(text.lstrip())
        return text[min(self._indent, len(text) - len(text.lstrip())) :]

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, stands in a block."""
        return 0 < self._began < line

    def of_errors(self, line: int) -> bool:
        """Whether it stands in a block of what the step wrote to its error output: the step did not live on behind it."""
        return self._errors and self.inside(line)
