"""What a pattern costs grows with a line's length, not with its square: a pattern's own words, repeated to the end of a line, show it.

Two lines, one four times as long, are compared by the CPU time of this thread. Linear is 4, a square 16: what a busy machine adds is far less, and
a pattern is measured again before it fails. Time decides nothing in the gate: there `test_pattern_growth` looks at the patterns' structure.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import re._parser as parser
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinMethodType, FunctionType, ModuleType
from typing import Any

import pytest

import probing_cluster.evidence as room
from probing_cluster.evidence.joblog import reader as joblog
from tests.evidence import test_pattern_growth as growth

_FOLDER = Path(room.__path__[0])
_METHODS = frozenset({"match", "search", "fullmatch", "finditer", "findall", "sub", "split"})
_TIMES, _MOST = 4, 10
_FLOOR_S = 0.025
"""Below it the line costs less than all its other patterns together, and what a machine adds would count too much."""
_FIRST = 8
"""The first look is at so small a part of a line: most patterns cost nothing there, and a heavy one little."""
_AGAIN = 4
_DEEPEST = 6
_FEW = 4
"""A part that repeats no more often makes no line long."""
HOSTILE = (
    " ", "-", "1", ".", ":", "[", '"', "'", "/", "word ", "a ", "a:", "a.", "a/", "x=1 ", 'File "', "deadbeef", "\t", "=", "#", "|", "(", "*", "_", "a", "::", "1 ", "1.5 ",
    "1,", "at ", "not ", "[1] ", "\\", "\x1b[0m", "é", "error: ", '{"a": ', "12:00:00 ", "'a' ", "`a` ", "\x00",
)  # fmt: skip
Form = tuple[re.Pattern[Any], str]


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        if not found.name.rpartition(".")[2].startswith("generate"):
            yield importlib.import_module(found.name)


def _names(node: ast.AST) -> set[str]:
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _called(module: ModuleType) -> set[tuple[str, str]]:
    """Names of patterns, or of the registries that a loop takes them from, and the methods that a module calls on them."""
    found: set[tuple[str, str]] = set()
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for node in ast.walk(tree):
        loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        taken = {name: _names(loop.iter) for loop in loops for name in _names(loop.target)}
        for part in ast.walk(node) if loops else [node]:
            if isinstance(part, ast.Attribute) and part.attr in _METHODS:
                names = _names(part.value)
                found |= {(name, part.attr) for of in names for name in taken.get(of, {of})}
    return found


def forms() -> dict[tuple[Any, int, str], Form]:
    """Every pattern below `evidence/` and the methods that the readers call on it."""
    found: dict[tuple[Any, int, str], Form] = {}
    visited: set[int] = set()
    public = {called for module in _modules() for called in _called(module) if not called[0].startswith("_")}

    def keep(pattern: re.Pattern[Any], method: str) -> None:
        found[pattern.pattern, pattern.flags, method] = pattern, method

    def within(value: Any, name: str, called: set[tuple[str, str]], depth: int) -> None:
        if isinstance(value, re.Pattern):
            for method in {m for n, m in called | public if n == name} or {"match"}:
                keep(value, method)
        elif isinstance(value, BuiltinMethodType) and isinstance(value.__self__, re.Pattern):
            keep(value.__self__, value.__name__)
        elif isinstance(value, (str, bytes, ModuleType)) or depth > _DEEPEST or id(value) in visited:
            return
        else:
            visited.add(id(value))
            for part in _parts(value):
                within(part, name, called, depth + 1)

    for module in _modules():
        called = _called(module)
        for name, value in list(vars(module).items()):
            if not name.startswith("__"):
                within(value, name, called, 0)
    return found


def _parts(value: Any) -> list[Any]:
    """What stands inside a registry, a record, a class or a function that another one made."""
    if isinstance(value, (tuple, list, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or () if cell != type(cell)()]
    ours = str(getattr(type(value), "__module__", "")).startswith("probing_cluster.evidence")
    own = isinstance(value, type) and value.__module__.startswith("probing_cluster.evidence")
    return list(getattr(value, "__dict__", {}).values()) if ours or own else []


def _units(tree: Any, before: str, dice: random.Random) -> Iterator[tuple[str, str]]:
    """For each part that repeats: a text that leads to it, and what it takes."""
    for kind, value in tree:
        least = growth.Least()
        if kind in growth._REPEATS and int(value[1]) > _FEW:
            for chance in (least, dice):
                yield before, growth._sample(value[2], chance).partition("\x00")[0]
        for part in growth._parts(kind, value):
            yield from _units(part, before, dice)
        before += growth._sample([(kind, value)], least)


def lines_of(pattern: re.Pattern[Any], dice: random.Random) -> Iterator[tuple[str, str]]:
    """Beginnings of lines, and what repeats behind them to their end."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("utf-8")
    tree = parser.parse(text, pattern.flags & ~re.DEBUG if isinstance(pattern.pattern, str) else 0)
    units = {("", unit) for unit in HOSTILE}
    for before, unit in _units(tree, "", dice):
        units |= {(before[-200:], unit), ("", unit), ("", f"{unit} ")}
    for _ in range(4):
        whole = growth._sample(tree, dice)[:120]
        units |= {("", whole), ("", f"{whole} "), ("", whole[: dice.randint(0, len(whole))])}
    return ((before.replace("\n", " "), unit.replace("\n", " ")) for before, unit in sorted(units) if unit)


def _cost_s(call: Callable[[Any], Any], line: Any) -> float:
    began_s = time.thread_time()
    found = call(line)
    if isinstance(found, Iterator):
        for _ in found:
            pass
    return time.thread_time() - began_s


def _grows(form: Form, before: str, unit: str, chars: int) -> bool:
    """Whether the pattern's cost for such a line grows faster than the line."""
    pattern, method = form
    bound = getattr(pattern, method)
    call = (lambda text: bound(text[:0], text)) if method == "sub" else bound

    def line(length: int) -> Any:
        text = (before + unit * (length // len(unit) + 1))[:length] + "\x01"
        return text if isinstance(pattern.pattern, str) else text.encode("utf-8")

    if _cost_s(call, line(chars // _FIRST)) < _FLOOR_S / _FIRST**2:
        return False
    short, long = line(chars // _TIMES), line(chars)
    if _cost_s(call, long) < _FLOOR_S:
        return False
    for _ in range(_AGAIN):
        costs = [min(_cost_s(call, text) for _ in range(3)) for text in (short, long)]
        if costs[1] < _MOST * costs[0]:
            return False
    return True


def heavy(found: Iterator[tuple[Form, int]]) -> Iterator[str]:
    """Patterns whose cost grows faster than a line, with such a line."""
    for form, chars in found:
        for before, unit in lines_of(form[0], random.Random(7)):
            if _grows(form, before, unit, chars):
                yield f"{form[1]} {form[0].pattern[:80]!r} on {before!r}, then {unit!r} repeated"
                break


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_no_patterns_cost_grows_faster_than_the_line() -> None:
    """A job's output may hold any line; the agent reads thousands of them in its minute of CPU."""
    assert list(heavy((form, joblog.MAX_LINE_CHARS) for form in forms().values())) == []


@pytest.mark.soak
def test_a_heavy_pattern_is_found() -> None:
    """The measure sees what it is for; a literal and a bounded part pass."""
    grows = [
        _grows((re.compile(pattern), "search"), "", "-", joblog.MAX_LINE_CHARS)
        for pattern in (r"-+x", r"-x", r"(?:-|=).{0,40} failed")
    ]
    assert grows == [True, False, False]
