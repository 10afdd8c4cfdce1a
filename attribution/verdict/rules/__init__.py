"""The rules: one a file, each turns an evidence view into weighted claims. Importing this package registers them all."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Container, Iterable, Mapping

from probing_cluster.attribution.verdict import claims, evidence_view
from probing_cluster.core import errors

Rule = Callable[[evidence_view.EvidenceView], Iterable[claims.Claim]]


@functools.cache
def registered() -> Mapping[str, Rule]:
    """Rule name to rule: every module of this package has one function `rule`."""
    found: dict[str, Rule] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        loaded = importlib.import_module(f"{__name__}.{module.name}")
        if not callable(getattr(loaded, "rule", None)):
            msg = f"rule module {module.name} has no function named rule"
            raise errors.MalformedInput(msg)
        found[module.name] = loaded.rule
    return found


def claims_of(view: evidence_view.EvidenceView, only: Container[str] | None = None) -> list[claims.Claim]:
    """What every rule, or only those named, says about the evidence, in no particular order."""
    return [c for name, rule in registered().items() if only is None or name in only for c in rule(view)]
