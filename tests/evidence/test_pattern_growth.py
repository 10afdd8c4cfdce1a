"""Lines made from the patterns' own parts, repeated: a pattern whose time grows with the cube of a line stands still on one of them."""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import re._constants as constants
import re._parser as parser
from collections.abc import Iterator
from typing import Any

import pytest

import probing_cluster.evidence as room
from probing_cluster.evidence.joblog import reader as joblog
from probing_cluster.evidence.kernel import reader as kernel

LINE_CHARS = 8192
_LINES_A_PATTERN = 40
_OF_CATEGORY = {
    constants.CATEGORY_DIGIT: "1",
    constants.CATEGORY_SPACE: " ",
    constants.CATEGORY_WORD: "a",
    constants.CATEGORY_NOT_SPACE: "a",
    constants.CATEGORY_NOT_WORD: " ",
    constants.CATEGORY_NOT_DIGIT: "a",
}
MODULES = [
    found.name
    for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    if not found.name.rpartition(".")[2].startswith("generate")
]


def _member(items: list[tuple[Any, Any]], dice: random.Random) -> str:
    """A character of a class."""
    negated = items[0][0] is constants.NEGATE
    members: list[str] = []
    for kind, value in items[negated:]:
        if kind is constants.LITERAL:
            members.append(chr(value))
        elif kind is constants.RANGE:
            members.append(chr(value[0]))
        elif kind is constants.CATEGORY:
            members.append(_OF_CATEGORY[value])
    return dice.choice([c for c in "a 1-Z:~" if c not in members] if negated else members)


def _sample(tree: Any, dice: random.Random) -> str:
    """A text that the pattern's parse tree describes; what stands around it is left out."""
    made: list[str] = []
    for kind, value in tree:
        if kind is constants.LITERAL:
            made.append(chr(value))
        elif kind is constants.NOT_LITERAL:
            made.append("b" if value == ord("a") else "a")
        elif kind is constants.ANY:
            made.append(dice.choice("a 1"))
        elif kind is constants.IN:
            made.append(_member(value, dice))
        elif kind in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            least, most, part = value
            made += [_sample(part, dice) for _ in range(dice.randint(least, min(int(most), least + 2)))]
        elif kind is constants.SUBPATTERN:
            made.append(_sample(value[3], dice))
        elif kind is constants.BRANCH:
            made.append(_sample(dice.choice(value[1]), dice))
        elif kind is constants.ATOMIC_GROUP:
            made.append(_sample(value, dice))
    return "".join(made)


def _patterns(module: str) -> Iterator[str]:
    def within(value: Any) -> Iterator[str]:
        if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
            yield value.pattern
        elif isinstance(value, (tuple, list)):
            for part in value:
                yield from within(part)

    for value in vars(importlib.import_module(module)).values():
        yield from within(value)


def lines_of(module: str, dice: random.Random) -> Iterator[str]:
    """Of every pattern a text, cut somewhere, with what stands there repeated to the end of the line."""
    for pattern in dict.fromkeys(_patterns(module)):
        tree = parser.parse(pattern)
        for _ in range(_LINES_A_PATTERN):
            text = _sample(tree, dice)[:200].replace("\n", " ")
            at, length = dice.randint(0, len(text)), dice.choice((1, 2, 4))
            part = text[at : at + length] or " "
            yield text[:at] + part * ((LINE_CHARS - at) // len(part)) + "\x01"


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", MODULES)
def test_no_line_of_a_patterns_own_parts_stops_the_readers(module: str) -> None:
    """A job's output may hold any line: one that takes minutes keeps all of a node's logs unread."""
    lines = list(lines_of(module, random.Random(7)))
    for line in lines:
        assert len(list(joblog.read([line]))) < LINE_CHARS
        kernel.KernelReader().read_line(line)
