"""Text that a script writes into a file, where the script itself is printed: a here-document. Nobody reports anything in it."""

from __future__ import annotations

import re

TRIGGERS = ("<<",)
_OPENS = re.compile(
    r"(?:^|\s)\d?<<-?\s{0,2}(?P<quote>['\"]?)\\?(?P<word>[A-Za-z_]\w{0,31})(?P=quote)\s*(?:[|>&;].{0,200})?$"
)
_COMMAND = re.compile(
    r"\s{0,40}(?:\w{1,40}=\$\(|[|&;({]\s?)?(?:sudo |command |exec )?(?:cat|tee|python[\d.]{0,4}|perl|bash|sh|ed|ex|dd|ssh|read|while|sbatch|sqlite3|mysql|psql|gnuplot|octave|R|printf|:)\b"
)
_MAX_LINES = 120


class HereDocument:
    """Follows the one that is open."""

    def __init__(self) -> None:
        self._began, self._word = 0, ""

    def inside(self, line: int) -> bool:
        """Whether `line`, the one read or the next, may stand in one."""
        return 0 < self._began < line <= self._began + _MAX_LINES

    def quotes(self, line: int, text: str) -> bool:
        """Whether the line stands in one; a line that opens one does not."""
        if self.inside(line):
            if text.strip() == self._word:
                self._began = 0
            return True
        found = _OPENS.search(text) if "<<" in text and _COMMAND.match(text) else None
        self._began, self._word = (line, found["word"]) if found else (0, "")
        return False
