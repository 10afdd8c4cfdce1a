"""The register of tests: one file in `procedures/` and one `TEST = Test(...)` in it, nothing else."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from probing_cluster.core import errors

if TYPE_CHECKING:
    from probing_cluster.diagnostics import machine
    from probing_cluster.healthchecks import findings

SCOPES = ("node", "pair", "group", "after")
"""What a test needs: one node, two, or all of a group at once; `after` collects for a ticket on nodes that failed, and proves nothing."""
UNTESTED = "untested"
"""In the detail of a test between nodes: what kept this end from taking part at all."""
QUOTA = "quota"
"""In a finding's detail: how many times as long one thread takes by the CPU quota that held this one back."""
_PACKAGE, _FOLDER = "probing_cluster.diagnostics.procedures", Path(__file__).parent / "procedures"


@dataclass(frozen=True, kw_only=True)
class Test:
    """One test: what it proves, what it needs, and how it is run on a node.

    `run` is called on the node, in a child of its own under a deadline. It gives one finding per part, and raises
    `findings.Absent` where the part or the tool is not there. `measured` of a finding is in `unit`.
    """

    name: str
    proves: str
    needs: str
    fails: str
    next_step: str
    run: Callable[[machine.Machine], Sequence[findings.Finding]]
    scope: str = "node"
    unit: str = "s"
    lower_is_better: bool = True
    judged: str = ""
    """compute or network: what slow nodes are told by it about; empty where its speed is not compared between nodes."""
    deadline_s: float = 60.0
    version: str = "1"


@functools.cache
def load() -> Mapping[str, Test]:
    """Every registered test by name, those of one node first."""
    found: list[Test] = []
    for module in sorted(pkgutil.iter_modules([str(_FOLDER)]), key=lambda m: m.name):
        test = importlib.import_module(f"{_PACKAGE}.{module.name}").TEST
        if test.name.replace("-", "_") != module.name or test.scope not in SCOPES:
            raise errors.MalformedInput(
                f"{module.name}.py registers a test named {test.name!r} of scope {test.scope!r}"
            )
        found.append(test)
    found.sort(key=lambda test: (SCOPES.index(test.scope), test.name))
    return {test.name: test for test in found}


def chosen(names: Iterable[str]) -> list[Test]:
    """The tests of these names (none = all) in the order they run; raises UsageError with the near names."""
    tests, wanted = load(), list(dict.fromkeys(names))
    for name in wanted:
        if name not in tests:
            import difflib

            near = difflib.get_close_matches(name, tests, n=3) or sorted(tests)
            raise errors.UsageError(f"no test is called {name!r}; did you mean: {', '.join(near)}")
    return [test for test in tests.values() if not wanted or test.name in wanted]
