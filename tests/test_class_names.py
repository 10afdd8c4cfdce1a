"""A class name means one class: who meets `Outcome` or `Finding` in a traceback knows which of two rooms it is from."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
REGISTRIES = ("healthchecks/checks/",)
"""Folders whose files are alike by design: every check has its own `Reading`, which nobody else names."""
DOCUMENTS = "web/documents.py"
"""What the web answers, named as its readers name things; imported by the web alone, and in the OpenAPI document."""
ALLOWED = {
    "Cause": "attribution's table of causes, and the column of that name in a site's repair steps",
    "Missing": "a row of live's table of missing nodes, and the reason a stream ended that becomes that row",
    "NodeView": "what authors of checks and of live tables are given as their node (docs/extending.md)",
    "Nodes": "one protocol each for what a live session, its choice of way and a web operation need of nodes",
    "Span": "the query parameter of two web operations, each with the spans it offers",
    "Table": "what a program registers in its job, and what `probing-ctl sql` reads it as; both are documented so",
}
"""Names that two classes may have, and why."""


def classes() -> dict[str, list[str]]:
    """Name of every class of the product to the files that define one; private ones and registries' own apart."""
    found: dict[str, list[str]] = defaultdict(list)
    rooms = {p.parent for p in ROOT.glob("*/__init__.py")} - {ROOT / "tests", ROOT / "benchmarks"}
    for path in (path for room in sorted(rooms) for path in sorted(room.rglob("*.py"))):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(REGISTRIES) or name == DOCUMENTS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return found


@pytest.fixture(scope="module")
def named() -> dict[str, list[str]]:
    return classes()


def test_no_two_classes_have_one_name(named: dict[str, list[str]]) -> None:
    """Give the narrower of the two the name of what it is: `DoctorFinding`, `SendOutcome`."""
    twins = {name: places for name, places in named.items() if len(places) > 1 and name not in ALLOWED}
    assert twins == {}
    assert len(named) > 500


@pytest.mark.parametrize("name", ["Outage", "Sighting", "Finding", "Outcome", "Context"])
def test_the_words_that_meant_many_things_mean_one(named: dict[str, list[str]], name: str) -> None:
    """They once stood for two to five things each."""
    assert len(named[name]) == 1


def test_what_is_allowed_is_needed(named: dict[str, list[str]]) -> None:
    """A name leaves the list with its second class."""
    assert {name for name in ALLOWED if len(named[name]) < 2} == set()
