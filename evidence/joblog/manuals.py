"""What programs print about errors without having them: their options' help, tables of exit codes, the patterns they look for, pages."""

from __future__ import annotations

import re
from collections.abc import Reversible
from itertools import islice, pairwise

_OPTION = re.compile(
    r"\s{1,8}-{1,2}[A-Za-z][\w-]{0,40}(?:,? -{1,2}[A-Za-z][\w-]{0,40})?(?:[ =][A-Z{\[<]\S{0,60})?(?:\s{2,40}\S|\s*$)"
)
"""An option in a program's help: its names, perhaps its value's, and what it does behind some blanks."""
_DESCRIPTION_INDENT = 10
_NEAR_LINES = 6
_CODE_ROW = re.compile(r"\s{1,8}(?P<code>\d{1,3})\s{2,12}\S")
_LEAST_ROWS = 2
_ESCAPE = r"\\(?:[().\[\]{}+*?|^$]|[dsw](?![A-Za-z]))"
_PATTERN = re.compile(rf"{_ESCAPE}.*(?:{_ESCAPE}|\||\.\*)|(?:\||\.\*).*{_ESCAPE}|\S\|[^|]*\.\*|\.\* .*\|")
"""A regular expression: somebody looks for the words, or shows what he looks for."""
_PAGE_ITEM = re.compile(
    r"\s{0,12}(?:[-*•]|\d{1,2}[.)])\s+(?:\*\*)?`[^`]{2,200}`(?:\*\*)?,? (?:[a-z]+[,.]? ){3}"
)
"""An entry of a page's list that begins with words set as code and goes on as a sentence."""


def is_shown(text: str, before: Reversible[str]) -> bool:
    """Whether the line, by itself or by those in front of it (oldest first), explains an error rather than reports one."""
    if not any(sign in text for sign in ("  ", "\\", ".*", "`")):
        return False
    if _OPTION.match(text) or _PATTERN.search(text) or _PAGE_ITEM.match(text):
        return True
    return _describes_an_option(text, before) or _is_of_a_table_of_codes(text, before)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _describes_an_option(text: str, before: Reversible[str]) -> bool:
    """Whether the line goes on with what an option does, far to the right as help is set."""
    if _indent(text) < _DESCRIPTION_INDENT:
        return False
    for line in islice(reversed(before), _NEAR_LINES):
        if _indent(line) < _DESCRIPTION_INDENT:
            return _OPTION.match(line) is not None
    return False


def _is_of_a_table_of_codes(text: str, before: Reversible[str]) -> bool:
    """Whether the line explains an exit code below others: numbers that grow, and not one by one as those of lines do."""
    codes = []
    for line in (text, *islice(reversed(before), _NEAR_LINES)):
        if not (row := _CODE_ROW.match(line)):
            break
        codes.append(int(row["code"]))
    steps = [later - earlier for later, earlier in pairwise(codes)]
    return len(steps) >= _LEAST_ROWS and min(steps) > 0 and max(steps) > 1
