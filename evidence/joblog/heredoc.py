"""Text that is only shown: a here-document of a script that is printed itself, what a page in Markdown quotes between fences, a page of Python's help.

Nobody reports anything in it.
"""

from __future__ import annotations

import re

TRIGGERS = ("<<", "```", "Help on ")
_OPENS = re.compile(
    r"(?:^|\s)\d?<<-?\s{0,2}(?P<quote>['\"]?)\\?(?P<word>[A-Za-z_]\w{0,31})(?P=quote)\s*(?:[|>&;].{0,200})?$"
)
_COMMAND = re.compile(
    r"\s{0,40}(?:\w{1,40}=\$\(|[|&;({]\s?)?(?:sudo |command |exec )?(?:cat|tee|python[\d.]{0,4}|perl|bash|sh|ed|ex|dd|ssh|read|while|sbatch|sqlite3|mysql|psql|gnuplot|octave|R|printf|:)\b"
)
_MAX_LINES = 120
_HELP = re.compile(
    r"Help on (?:class|function|method|module|package|built-in function|_?\w{1,40} object)\b.{0,200}:$|Help on class \S"
)
_HELP_LINE = re.compile(r"\s|$|(?:class|def) |[A-Z ]{3,40}$|[\w.]{1,80}\(.{0,200}\)")
"""What stands in such a page: its headings, signatures and everything that is indented."""
_FENCE = re.compile(r"\s{0,3}```(?P<language>[A-Za-z][\w+-]{0,20})?\s*$")
_SHOWN = frozenset(
    {None, "bash", "sh", "shell", "console", "text", "txt", "plaintext", "output", "log", "shell-session"}
)
"""What fences call the output of programs. Code in other languages may be a model's, cut off in the middle before the program that prints it fails."""


class HereDocument:
    """Follows the one that is open."""

    def __init__(self) -> None:
        self._began, self._word = 0, ""
        self._in_code = False
        """Inside a fence around code: the next bare one ends it."""

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, may stand in one."""
        return 0 < self._began < line <= self._began + _MAX_LINES

    def quotes(self, line: int, text: str) -> bool:
        """Whether the line stands in one; a line that opens one does not."""
        if self._word == "help" and not _HELP_LINE.match(text):
            self._began, self._word = 0, ""
        if self.inside(line):
            if text.strip() == self._word:
                self._began = 0
            return True
        if found := _FENCE.match(text) if "```" in text else None:
            code = found["language"] not in _SHOWN
            if not code and not (self._in_code and found["language"] is None):
                self._began, self._word = line, "```"
            self._in_code = code
            return True
        if text.startswith("Help on ") and _HELP.match(text):
            self._began, self._word = line, "help"
            return True
        found = _OPENS.search(text) if "<<" in text and _COMMAND.match(text) else None
        self._began, self._word = (line, found["word"]) if found else (0, "")
        return False
