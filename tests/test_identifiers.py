"""Names are the field's: words that name nothing are banned as identifiers (CONTRIBUTING.md)."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BANNED = frozenset(
    {
        "told",
        "said",
        "spoken",
        "seen",
        "who",
        "them",
        "tell",
        "tells",
        "telling",
        "say",
        "says",
        "saying",
        "asked",
        "heard",
    }
    | {"crowd", "crowds", "quiet", "loud", "scene", "triage", "hysteresis", "displaced", "standing"}
)
FIELD_TERMS = ("first_seen", "last_seen", "quiet_hours", "quiet_until", "quiet_s", "heard_at", "heard_s")
"""Compounds that the field itself uses."""
_TERMS = re.compile(rf"(?<![a-z])(?:{'|'.join(FIELD_TERMS)})(?![a-z])")

_TEXTS = re.compile(
    r"#[^\n]*"
    r'|"""(?:\\.|[^\\])*?"""'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
"""Comments and string literals."""
_NAME = re.compile(r"[^\W\d]\w*")


def identifiers(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every identifier a source text binds, reads or passes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


@functools.cache
def words(name: str) -> frozenset[str]:
    """The words of a compound name, `_told_node` and `CannotTell` alike; terms of the field count as none."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    snake = _TERMS.sub("", snake)
    return frozenset(snake.split("_"))


def banned(source: str) -> list[tuple[int, str]]:
    """The banned names of a source text; the name of a test is a sentence and may have any word."""
    names = set(_NAME.findall(_TEXTS.sub("''", source)))
    if not any(words(name) & BANNED for name in names if not name.startswith("test_")):
        return []  # nearly every file: reading all as trees takes a quarter of a minute
    return [
        (line, name)
        for line, name in identifiers(source)
        if words(name) & BANNED and not name.startswith("test_")
    ]


def test_names_are_the_fields():
    """A reader from outside must find every idea by its field's name: rows, reply, reading, event, owner …"""
    rooms = {p.parent for p in ROOT.glob("*/__init__.py")} | {ROOT / "tests"}
    places = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for room in sorted(rooms)
        for path in sorted(room.rglob("*.py"))
        for line, name in banned(path.read_text())
    ]
    assert not places, "\n".join(["banned names:", *places])


@pytest.mark.parametrize(
    "text",
    [
        "told = 1",
        "def f(who): pass",
        "x._seen",
        "f(them=1)",
        "for said in x: pass",
        "import a as told",
        "def told(): pass",
        "def _told_node(): pass",
        "class CannotTell: pass",
        "TOLD_AFTER_S = 1",
        "f(dead_told=1)",
        "class Crowd: pass",
        "self._quiet = 1",
    ],
)
def test_every_way_to_name_is_read(text):
    assert banned(text)


def test_words_in_texts_parts_of_words_and_terms_of_the_field_are_free():
    assert banned("unseen_count, whose, last_seen_at, quiet_hours, essays = 'who told them'  # said") == []
    assert banned("def test_a_death_is_told_once(): pass") == []
