"""The rooms' drawing, from the imports themselves: no circle inside a room, no crowded folder."""

import ast
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted({p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests", "benchmarks"})
MOST_BOXES = 20
"""Modules and sub-rooms side by side that a person still takes in at a look."""
MEDIAN_LINES = 150
MOST_LINES = 400
REGISTRIES = {
    "attribution/verdict/rules",
    "healthchecks/checks",
    "probe_agent/sources",
}
"""Folders of one file, one thing: there, more files are more things and not more to understand."""
BESIDE_ROOMS = {"ansible", "docs", "shared", "pyproject.toml", "Makefile", "LICENSE"} | {
    f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")
}
"""What stands in the root beside the rooms."""

Graph = dict[str, set[str]]


def modules() -> dict[str, Path]:
    """Every module of the product, by its dotted name below probing_cluster; a package by its folder's."""
    found = {}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(source: str, known: Iterable[str]) -> set[str]:
    """The modules that a source text imports anywhere, also inside functions and for the type checker only."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    inside = {n.removeprefix("probing_cluster.") for n in names if n.startswith("probing_cluster.")}
    exact = inside & set(known)
    # `from a.b import c` names both a.b and a.b.c: only the deepest is meant.
    return {n for n in exact if not any(o != n and o.startswith(f"{n}.") for o in exact)}


def graph() -> Graph:
    """Module to what it imports."""
    known = modules()
    return {name: imported(path.read_text(), known) - {name} for name, path in known.items()}


def boxes(whole: Mapping[str, set[str]], room: str) -> Graph:
    """The drawing of one room: its sub-rooms and modules, and the arrows between them."""
    drawn: Graph = {}
    for name, targets in whole.items():
        if not name.startswith(f"{room}."):
            continue
        box = name.removeprefix(f"{room}.").split(".")[0]
        ends = {t.removeprefix(f"{room}.").split(".")[0] for t in targets if t.startswith(f"{room}.")}
        drawn.setdefault(box, set()).update(ends - {box})
    return drawn


def circle(drawn: Mapping[str, set[str]]) -> list[str]:
    """One circle of a graph, each box once more at its end; empty for none."""
    try:
        TopologicalSorter(drawn).prepare()
    except CycleError as exc:
        return list(exc.args[1])
    return []


@pytest.fixture(scope="module")
def whole() -> Graph:
    return graph()


def test_no_circle_between_modules(whole):
    """Two modules that need each other are one module, or lack a third below both."""
    assert circle(whole) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_circle_between_the_boxes_of_a_room(whole, room):
    """Sub-rooms stand on floors as rooms do: whoever reads one need not read what stands on it."""
    assert circle(boxes(whole, room)) == []


def test_no_room_is_crowded(whole):
    """At most 20 boxes in the drawing of every room and sub-room, the registries of one-file-one-thing apart."""
    folders = {name.rpartition(".")[0] for name in whole} - {""}
    rooms = {".".join(folder.split(".")[: n + 1]) for folder in folders for n in range(folder.count(".") + 1)}
    drawn = {room.replace(".", "/"): len(boxes(whole, room)) for room in rooms}
    assert drawn.keys() >= REGISTRIES, "a registry named above is gone"
    crowded = {room: n for room, n in drawn.items() if n > MOST_BOXES and room not in REGISTRIES}
    assert crowded == {}
    assert len(ROOMS) <= MOST_BOXES
    measurements = {p.relative_to(ROOT / "benchmarks").parts[0] for p in (ROOT / "benchmarks").rglob("*.py")}
    assert len(measurements - {"__init__.py"}) <= MOST_BOXES


def test_no_circle_between_the_boxes_of_a_sub_room(whole):
    """At every depth, registries too."""
    folders = {name.rpartition(".")[0] for name in whole} - {""}
    assert {folder: found for folder in folders if (found := circle(boxes(whole, folder)))} == {}


def test_modules_are_short():
    """The median module has at most 150 lines; none has more than 400 but what a generator or a release froze."""
    lines = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for path in modules().values()
        if path.parent != ROOT / "db/migrations/versions"
    }
    assert (
        statistics.median(n for name, n in lines.items() if not name.endswith("__init__.py")) <= MEDIAN_LINES
    )
    assert {name for name, n in lines.items() if n > MOST_LINES} == set()


def test_the_root_holds_the_rooms_and_known_files_only():
    """A job submitted from a clone leaves its output there, and `git add -A` takes it along."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files"], check=False, capture_output=True, text=True
    ).stdout
    names = {line.partition("/")[0] for line in listed.splitlines()} or {p.name for p in ROOT.iterdir()}
    visible = {name for name in names if not name.startswith(".")}
    assert visible - {*ROOMS, "tests", "benchmarks"} <= BESIDE_ROOMS
    assert "core" in visible


def test_the_drawing_reads_every_kind_of_import(whole):
    """Inside functions, under TYPE_CHECKING, modules and names; a drawing without arrows proves nothing."""
    known = {"core", "core.errors", "db.sub.thing"}
    text = "def f():\n    from probing_cluster.core import errors\nimport probing_cluster.db.sub.thing\n"
    assert imported(text, known) == {"core.errors", "db.sub.thing"}
    assert imported("if TYPE_CHECKING:\n    from probing_cluster.core.errors import X", known) == {
        "core.errors"
    }
    assert sum(map(len, whole.values())) > 1000


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    drawn = boxes({"r.x.one": {"r.y"}, "r.y": {"r.x.two"}, "r.x.two": set()}, "r")
    assert set(circle(drawn)) == {"x", "y"}
    assert circle({"a": {"b"}, "b": set()}) == []
