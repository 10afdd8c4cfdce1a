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
from tests.evidence import pattern_members

LINE_CHARS = 8192
_LINES_A_PATTERN = 40
_TIMES = 60
_REPEATS = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
MODULES = [
    found.name
    for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    if not found.name.rpartition(".")[2].startswith("generate")
]


def _sample(tree: Any, dice: random.Random, repeated: Any = None) -> str:
    """A text that the pattern's parse tree describes; what stands around it is left out.

    `repeated`: a part that repeats, here _TIMES times; the text ends behind it, in \\x00.
    """
    made: list[str] = []
    for kind, value in tree:
        if made and made[-1].endswith("\x00"):
            break
        if kind is constants.LITERAL:
            made.append(chr(value))
        elif kind is constants.NOT_LITERAL:
            made.append("b" if value == ord("a") else "a")
        elif kind is constants.ANY:
            made.append(dice.choice("a 1"))
        elif kind is constants.IN:
            made.append(pattern_members.member(value, dice))
        elif kind in _REPEATS:
            least, most, part = value
            times = dice.randint(least, min(int(most), least + 2))
            if value is repeated:
                made += [*(_sample(part, dice) for _ in range(_TIMES)), "\x00"]
            elif repeated is not None and _holds(part, repeated):
                made.append(_sample(part, dice, repeated))
            else:
                made += [_sample(part, dice) for _ in range(times)]
        elif kind is constants.SUBPATTERN:
            made.append(_sample(value[3], dice, repeated))
        elif kind is constants.BRANCH:
            ways = [way for way in value[1] if repeated is not None and _holds(way, repeated)]
            made.append(_sample(dice.choice(ways or value[1]), dice, repeated))
        elif kind is constants.ATOMIC_GROUP:
            made.append(_sample(value, dice, repeated))
    return "".join(made)


def _parts(kind: Any, value: Any) -> list[Any]:
    """The trees inside one node of a tree."""
    if kind in _REPEATS:
        return [value[2]]
    if kind is constants.SUBPATTERN:
        return [value[3]]
    if kind is constants.BRANCH:
        return list(value[1])
    return [value] if kind is constants.ATOMIC_GROUP else []


def _repeats(tree: Any) -> Iterator[Any]:
    """The parts of a pattern that repeat and are longer than a character, the outermost first."""
    for kind, value in tree:
        if kind in _REPEATS and (
            len(value[2]) > 1 or value[2][0][0] in (constants.SUBPATTERN, constants.BRANCH)
        ):
            yield value
        for part in _parts(kind, value):
            yield from _repeats(part)


def _holds(tree: Any, repeated: Any) -> bool:
    return any(found is repeated for found in _repeats(tree))


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


class Least(random.Random):
    """Draws the fewest and the first."""

    def randint(self, a: int, b: int) -> int:
        return min(a, b)

    def choice(self, seq: Any) -> Any:
        return seq[0]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("module", MODULES)
def test_no_part_that_repeats_stops_the_readers(module: str) -> None:
    """A group that can take its own text in several ways costs their number to the power of its repetitions."""
    drawn = random.Random(7)
    for pattern in dict.fromkeys(_patterns(module)):
        tree, compiled = parser.parse(pattern), re.compile(pattern)
        for repeated in _repeats(tree):
            for dice in (Least(), drawn, drawn):
                text = _sample(tree, dice, repeated).partition("\x00")[0].replace("\n", " ")[:LINE_CHARS]
                compiled.match(f"{text}\x01")
                compiled.search(f"{text}\x01")
