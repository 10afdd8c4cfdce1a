"""One regular expression that searches for many words at once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_Tree = dict[str, Any]
_END = ""


def any_of(words: Iterable[str]) -> str:
    """A regular expression for text that contains one of `words`; common beginnings are tried once, not word by word."""
    root: _Tree = {}
    for word in words:
        at = root
        for letter in word:
            at = at.setdefault(letter, {})
        at[_END] = {}
    return _pattern(root)


def _pattern(tree: _Tree) -> str:
    if _END in tree:
        return ""
    branches = [re.escape(letter) + _pattern(below) for letter, below in tree.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
