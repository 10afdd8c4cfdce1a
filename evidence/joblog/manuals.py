"""Recognises text about errors that did not happen: help of options, tables of codes and counts, search patterns, pages."""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice, pairwise

from probing_cluster.evidence.joblog import mention

_OPTION = re.compile(
    r"\s{1,8}-{1,2}[A-Za-z][\w-]{0,40}(?:,? -{1,2}[A-Za-z][\w-]{0,40})?(?:[ =][A-Z{\[<]\S{0,60})?(?:\s{2,40}\S|\s*$)"
)
"""An option in a program's help: its names, perhaps a value, and its description after blanks."""
_DESCRIPTION_INDENT = 10
_NEAR_LINES = 6
_CODE_ROW = re.compile(r"\s{1,8}(?P<code>\d{1,3})\s{2,12}\S")
_LEAST_ROWS = 2
_ESCAPE = r"\\(?:[().\[\]{}+*?|^$]|[dsw](?![A-Za-z]))"
_PATTERN = re.compile(rf"{_ESCAPE}.*(?:{_ESCAPE}|\||\.\*)|(?:\||\.\*).*{_ESCAPE}|\S\|[^|]*\.\*|\.\* .*\|")
"""A regular expression: the line shows a search pattern."""
_PAGE_ITEM = re.compile(
    r"\s{0,12}(?:[-*•]|\d{1,2}[.)])\s+(?:\*\*)?`[^`]{2,200}`(?:\*\*)?,? (?:[a-z]+[,.]? ){3}"
)
"""An entry of a page's list that begins with words set as code and goes on as a sentence."""

_LABELLED = re.compile(
    r"\s{0,12}(?:[-*•]\s+)?\*\*[^*\n]{2,60}\*\*\s?:|\s{0,12}`[^`\n]{8,2000}`\s*$|_No response_\s*$"
)
"""A bold label, or a line of code alone: parts of a page."""
_COUNTED = re.compile(r".{8,400}\s{2,60}\d[\d.,]{0,14}\s{2,40}\d[\d.,]{0,14}\s?%?\s*$")
"""A line that ends with two columns of numbers, such as counts."""
_BARE = re.compile(r"\s{8,60}(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S")
_WENT_WRONG = re.compile(
    r"error|exception|fail|caus|reason|traceback|raised|stderr|output|abort|fatal", re.IGNORECASE
)
_EXAMPLE = re.compile(r"\b(?:example|looks? like|reads|would (?:print|show|see))\b", re.IGNORECASE)
_PAGE_BEGINS, _PAGE_ENDS = (
    re.compile(r"\s{0,8}<(?:!DOCTYPE html|html)\b", re.IGNORECASE),
    re.compile(r"</html>", re.IGNORECASE),
)
_PAGE_LINES = 2_000
_SENTENCE_WORDS = 5


class Pages:
    """Follows the pages of HTML that a program prints."""

    def __init__(self) -> None:
        self._began = 0

    def inside(self, line: int, text: str) -> bool:
        """Whether the line, the next one, belongs to a page."""
        if _PAGE_BEGINS.match(text):
            self._began = line
        if not self._began or line - self._began > _PAGE_LINES:
            self._began = 0
            return False
        if _PAGE_ENDS.search(text):
            self._began = 0
        return True


def shows_a_traceback(before: Reversible[str]) -> bool:
    """Whether the sentence above the head of a traceback announces an example, as guides and chats do."""
    above = next((line for line in islice(reversed(before), _NEAR_LINES) if line.strip()), "")
    if not (_EXAMPLE.search(above) and mention.foreign_words(above) >= _SENTENCE_WORDS):
        return False
    return above.rstrip().endswith((":", "reads", "like"))


_NUMBERED = re.compile(r"(?P<margin>\s{0,12})(?P<n>\d{1,4})[.)]\s")


def _is_numbered(text: str, before: Reversible[str]) -> bool:
    """Whether the line is at least the third entry of a list that is numbered line by line."""
    found = _NUMBERED.match(text)
    if found is None:
        return False
    above = [_NUMBERED.match(line) for line in islice(reversed(before), 2)]
    wanted = [(found["margin"], int(found["n"]) - n) for n in (1, 2)]
    return [(m["margin"], int(m["n"])) for m in above if m] == wanted


def is_shown(text: str, before: Reversible[str]) -> bool:
    """Whether the line explains an error rather than reports one; `before`: the lines above it, oldest first."""
    if _is_numbered(text, before):
        return True
    if not any(sign in text for sign in ("  ", "\\", ".*", "`", "**", "_No ")):
        return False
    if any(form.match(text) for form in (_OPTION, _PAGE_ITEM, _LABELLED)) or _PATTERN.search(text):
        return True
    if _COUNTED.match(text) and mention.foreign_words(text) < _SENTENCE_WORDS:
        return True
    if _BARE.match(text) and _is_announced(text, before):
        return True
    return _describes_an_option(text, before) or _is_of_a_table_of_codes(text, before)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _is_announced(text: str, before: Reversible[str]) -> bool:
    """Whether an indented exception stands below a heading and has no traceback above it."""
    for line in islice(reversed(before), _NEAR_LINES):
        if "Traceback (" in line or 'File "' in line:
            return False
        if line.strip() and _indent(line) < _indent(text):
            return line.rstrip().endswith(":") and _WENT_WRONG.search(line) is None
    return False


def _describes_an_option(text: str, before: Reversible[str]) -> bool:
    """Whether the line continues the description of an option, indented as help is."""
    if _indent(text) < _DESCRIPTION_INDENT:
        return False
    for line in islice(reversed(before), _NEAR_LINES):
        if _indent(line) < _DESCRIPTION_INDENT:
            return _OPTION.match(line) is not None
    return False


def _is_of_a_table_of_codes(text: str, before: Reversible[str]) -> bool:
    """Whether the line explains an exit code below others: numbers that grow, but not one by one as line numbers do."""
    codes = []
    for line in (text, *islice(reversed(before), _NEAR_LINES)):
        if not (row := _CODE_ROW.match(line)):
            break
        codes.append(int(row["code"]))
    steps = [later - earlier for later, earlier in pairwise(codes)]
    return len(steps) >= _LEAST_ROWS and min(steps) > 0 and max(steps) > 1
