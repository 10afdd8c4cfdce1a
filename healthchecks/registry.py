"""The register of checks: one file in `checks/` and one `CHECK = Check(...)` in it, nothing else."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing_cluster.core import errors, records

if TYPE_CHECKING:
    from probing_cluster.healthchecks import findings, nodeview

Limits = Mapping[str, Any]
"""A check's thresholds in force on this node, by key."""


@dataclass(frozen=True)
class Threshold:
    """One limit of a check: what it is compared with, and where its default comes from.

    A default of None means "judge without it": the part's own limit or no comparison at all.
    `unset` is the type that a site's value has where the default is None.
    """

    key: str
    default: Any
    unit: str
    meaning: str
    source: str
    unset: type = float

    @property
    def kind(self) -> type:
        """The TOML type of the value: int, float, bool, str or list (of strings)."""
        return self.unset if self.default is None else type(self.default)


@dataclass(frozen=True, kw_only=True)
class Check:
    """One health check, with everything `explain` and the manual say about it.

    `read` looks at the node and raises `findings.Absent` when its hardware is not there;
    `judge` is pure. `learn` turns a healthy node's reading into site thresholds (genconf).
    """

    proves: str
    component: str
    domain: records.Domain
    severity: records.Severity
    fails: str
    warns: str
    needs: str
    next_step: str
    read: Callable[[nodeview.NodeView], Any]
    judge: Callable[[Any, Limits], findings.Finding]
    learn: Callable[[Any], Mapping[str, Any]] | None = None
    thresholds: tuple[Threshold, ...] = ()
    lane: str = "files"
    """What it looks at, one of LANES."""
    deadline_s: float = 5.0
    period_s: float = 0.0
    """How long a result stands before it is measured again; 0 = every sweep."""
    hard: bool = False
    """A failure is a state of the hardware confirmed by looking, never a limit crossed: Prolog may refuse on it."""
    version: str = "1"
    name: str = ""
    """Its file's name; `load` fills it in."""

    @property
    def can_hang(self) -> bool:
        """Whether it makes calls known to block in the kernel or in a daemon."""
        return self.lane not in ("files", "self")

    @property
    def defaults(self) -> dict[str, Any]:
        """Threshold defaults by key."""
        return {t.key: t.default for t in self.thresholds}


LANES = ("files", "fabric", "gpu", "mounts", "tools", "ipmi", "self")
"""What a check looks at, in the order in which a sweep looks: what cannot hang first, slow tools last.

`self` is judged by the runner after the others: it reads nothing."""

_PACKAGE, _FOLDER = "probing_cluster.healthchecks.checks", Path(__file__).parent / "checks"
"""By name and by path: every check imports this module, so this module imports none of them."""

MAX_DEADLINE_S = 50.0
"""Slurm gives HealthCheckProgram 60 s; no single check may want more than a sweep can have."""


@functools.cache
def load() -> Mapping[str, Check]:
    """Every registered check by name, in alphabetical order."""
    found: dict[str, Check] = {}
    for module in sorted(pkgutil.iter_modules([str(_FOLDER)]), key=lambda m: m.name):
        check = importlib.import_module(f"{_PACKAGE}.{module.name}").CHECK
        if check.lane not in LANES:
            raise errors.MalformedInput(f"{module.name}.py registers a check in lane {check.lane!r}")
        found[module.name] = replace(check, name=module.name)
    return found


def get(name: str) -> Check:
    """The check called `name`; raises UsageError listing the near names."""
    checks = load()
    if name in checks:
        return checks[name]
    import difflib

    near = ", ".join(difflib.get_close_matches(name, checks, n=3))
    way_out = f"did you mean: {near}" if near else "probing-check list shows them all"
    raise errors.UsageError(f"no check is called {name!r}; {way_out}")
