"""Text that is only shown: a here-document of a script that is printed itself, what a page in Markdown quotes between fences, a page of Python's help,
another job's log under the traced command that prints it, what a model is asked under its heading.

Nobody reports anything in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

TRIGGERS = ("<<", "```", "Help on ", "+ tail ", "+ cat ", "+ head ", "+ grep ", "### ")
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
_FENCE = re.compile(
    r"\s{0,12}```(?:\s?\{\s?\.?(?P<braced>[A-Za-z][\w+-]{0,20})?[^}\n]{0,80}\}|(?P<language>[A-Za-z][\w+-]{0,20}))?\s*$"
)
_OTHERS_LOG = re.compile(
    r"\s{0,8}\+{1,8} (?:tail(?!.{0,200}\s(?:-\w{0,8}[fF]\b|--follow))|cat|head|grep) .{0,300}\d{4,12}[\w.-]{0,40}\.(?:out|err|log|txt)\b"
)
"""A shell's trace of a command that prints a file named after a job's number: not this job's, whose own output nobody need print."""
_TRACED = re.compile(r"\s{0,8}\+{1,8} \S")
_QUESTION = re.compile(r"\s{0,4}#{2,6} ?(?:input|instruction|prompt|question|context)s?:\s*$", re.IGNORECASE)
_QUESTION_LINES = 12
_ANSWER = re.compile(r"\s{0,4}#{2,6} ?\w|-{3,}|={3,}")
"""What ends the text under such a heading."""
_SHOWN = frozenset(
    {None, "bash", "sh", "shell", "console", "text", "txt", "plaintext", "output", "log", "shell-session"}
)
"""What fences call the output of programs. Code in other languages may be a model's, cut off in the middle before the program that prints it fails."""


class HereDocument:
    """Follows the one that is open."""

    def __init__(self) -> None:
        self._began, self._word, self._most = 0, "", _MAX_LINES
        self._last = 0
        """The last line that was not empty: the reader leaves those out."""
        self._in_code = False
        """Inside a fence around code: the next bare one ends it."""

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, may stand in one."""
        return 0 < self._began < line <= self._began + self._most

    def quotes(self, line: int, text: str) -> bool:
        """Whether the line stands in one; a line that opens one does not."""
        over, empty = _OVER.get(self._word), line > self._last + 1
        self._last = line
        if over is not None and (over(text) or (empty and self._word == "question")):
            self._open(0, "")
        if self.inside(line):
            if text.strip() == self._word:
                self._began = 0
            return True
        if found := _FENCE.match(text) if "```" in text else None:
            language = found["language"] or found["braced"]
            code = language not in _SHOWN
            if not code and not (self._in_code and language is None):
                self._open(line, "```")
            self._in_code = code
            return True
        if text.startswith("Help on ") and _HELP.match(text):
            self._open(line, "help")
            return True
        if "### " in text and _QUESTION.match(text):
            self._open(line, "question", _QUESTION_LINES)
            return False
        if "+ " in text and _OTHERS_LOG.match(text):
            self._open(line, "log")
            return False
        found = _OPENS.search(text) if "<<" in text and _COMMAND.match(text) else None
        self._open(line if found else 0, found["word"] if found else "")
        return False

    def _open(self, line: int, word: str, most: int = _MAX_LINES) -> None:
        self._began, self._word, self._most = line, word, most


class Copied:
    """What a log that somebody copied out of a page or a mail has around it: a fence, quotation marks in front of every line."""

    def __init__(self) -> None:
        self._marked = self._fenced = False
        self._closed = 0

    def plain(self, line: int, text: str) -> str:
        """The line without them; its first line shows which there are."""
        if line == 1:
            text = text.removeprefix("\ufeff")
            self._marked, self._fenced = text.startswith("> "), text.startswith("```")
            return "" if self._fenced else text.removeprefix("> ")
        if self._fenced and text.strip() == "```":
            self._fenced, self._closed = False, line
            return ""
        return text.removeprefix("> ") if self._marked else text

    def left(self) -> bool:
        """True once, at the first finding behind the closing fence: the fenced text was a quotation."""
        closed, self._closed = self._closed, 0
        return closed > 0


_OVER: dict[str, Callable[[str], bool]] = {
    "help": lambda text: _HELP_LINE.match(text) is None,
    "question": lambda text: _ANSWER.match(text) is not None,
    "log": lambda text: _TRACED.match(text) is not None,
}
"""What ends those that have no word of their own for it; the words of here-documents are written in the script."""
