"""The rules, one a file. Each turns an evidence view into weighted claims. Importing this package registers them all.

A rule with `SIGHTED` (causes) makes no claim for a view without findings and without a sighting of these causes, so it
is skipped there. Most attempts have one sighting, and running every rule took most of the judge's time.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping

from probing_cluster.attribution.verdict import claims, evidence_view
from probing_cluster.core import errors

Rule = Callable[[evidence_view.EvidenceView], Iterable[claims.Claim]]


@functools.cache
def registered() -> Mapping[str, Rule]:
    """Rule name to rule: every module of this package has one function `rule`."""
    return {name: rule for name, (rule, _) in _modules().items()}


@functools.cache
def _modules() -> Mapping[str, tuple[Rule, frozenset[str] | None]]:
    """Rule name to the rule and its `SIGHTED`; None for a rule that always runs."""
    found: dict[str, tuple[Rule, frozenset[str] | None]] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        if not callable(getattr(loaded, "rule", None)):
            raise errors.MalformedInput(f"rule module {module.name} has no function named rule")
        found[module.name] = (loaded.rule, getattr(loaded, "SIGHTED", None))
    return found


def claims_of(view: evidence_view.EvidenceView, only: frozenset[str] | None = None) -> list[claims.Claim]:
    """The claims of every rule, or only of those named in `only`, in no particular order."""
    rules = _rules_for(only, None if view.findings else frozenset(view.causes))
    return [claim for rule in rules for claim in rule(view)]


@functools.lru_cache(maxsize=4096)
def _rules_for(only: frozenset[str] | None, causes: frozenset[str] | None) -> tuple[Rule, ...]:
    """The rules to run: those named in `only` (None = all) that may make a claim for these causes (None = any)."""
    return tuple(
        rule
        for name, (rule, sighted) in _modules().items()
        if (only is None or name in only)
        and (sighted is None or causes is None or not sighted.isdisjoint(causes))
    )
