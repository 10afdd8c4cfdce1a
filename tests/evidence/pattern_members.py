"""Characters that the classes of a regular expression's parse tree describe."""

from __future__ import annotations

import random
import re._constants as constants
from typing import Any

OF_CATEGORY = {
    constants.CATEGORY_DIGIT: "1",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_SPACE: "a",
    constants.CATEGORY_NOT_WORD: " ",
    constants.CATEGORY_NOT_DIGIT: "a",
}


def member(items: list[tuple[Any, Any]], dice: random.Random) -> str:
    """A character of a class."""
    negated = items[0][0] is constants.NEGATE
    members: list[str] = []
    for kind, value in items[negated:]:
        if kind is constants.LITERAL:
            members.append(chr(value))
        elif kind is constants.RANGE:
            members.append(chr(dice.randint(*value)))
        elif kind is constants.CATEGORY:
            members.append(OF_CATEGORY[value])
    return dice.choice([c for c in "ax 1-QZ:~" if c not in members] if negated else members)
