"""The taxonomy: symptoms and causes (`taxonomy.toml`)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, records

_FILE = Path(__file__).with_name("taxonomy.toml")
_RULES = Path(__file__).with_name("rules")

UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One row of the taxonomy: a symptom, the domains it may come from, and the causes it allows."""

    word: str
    name: str
    domains: tuple[records.Domain, ...]
    likely: str
    causes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause that a verdict may name; `word` never changes."""

    word: str
    domain: records.Domain
    component: str
    severity: records.Severity
    specificity: int
    persistent: bool
    leads_to: frozenset[str]
    meaning: str
    next_step: str
    gang: bool = False
    until_reset: bool = False
    """True for a fault that stays until the part is reset or its node restarts."""
    happened: str = ""
    """What happened, for the summary ({device}, {part}, {node}, {on_node}); empty if the rule words it itself."""

    @property
    def noun(self) -> str:
        """The part's general name, for when its own is unknown."""
        return _NOUNS.get(self.component, "device")

    @property
    def is_of_gpu(self) -> bool:
        """True for a fault of a GPU, its driver or its links; False for what a program does with one."""
        return self.noun == _GPU and self.domain is not records.Domain.USER_PROGRAM


_GPU = "GPU"
_NOUNS = {
    **dict.fromkeys(("gpu", "gpu_memory", "gpu_driver", "nvlink"), _GPU),
    "ib": "InfiniBand port",
    "ethernet": "Ethernet link",
    "filesystem": "file system",
    "disk": "disk",
    "services": "system service",
    "power_cooling": "node",
}


@dataclass(frozen=True, kw_only=True)
class Taxonomy:
    """The whole file."""

    version: str
    symptoms: tuple[Symptom, ...]
    causes: Mapping[str, Cause]
    variants: Mapping[str, str]
    """Next steps in special cases, by name (`next_steps`)."""
    named: Mapping[str, str]
    """Names of causes of which a verdict has a component of its own, by that component."""


@functools.cache
def load() -> Taxonomy:
    """The taxonomy of this release; raises MalformedInput if the file contradicts itself."""
    raw = tomllib.loads(_FILE.read_text("utf-8"))
    tables = [*raw["cause"], *own("cause")]
    causes = {c["word"]: _cause(c) for c in tables}
    if len(causes) < len(tables):
        raise errors.MalformedInput(
            "a cause is defined twice in taxonomy.toml and the files beside the rules"
        )
    symptoms = tuple(
        Symptom(
            word=s["word"],
            name=s["name"],
            domains=tuple(records.Domain(d) for d in s["domains"]),
            likely=s["likely"],
            causes=tuple(s["causes"]),
        )
        for s in raw["symptom"]
    )
    named = {w for s in symptoms for w in s.causes} | {w for c in causes.values() for w in c.leads_to}
    if unknown := sorted(named - causes.keys()):
        raise errors.MalformedInput(f"{_FILE.name} names causes it does not define: {', '.join(unknown)}")
    return Taxonomy(
        version=raw["version"], symptoms=symptoms, causes=causes, variants=raw["variants"], named=raw["named"]
    )


def own(table: str) -> list[dict[str, Any]]:
    """The rows of a table (`cause`, `signature`) in the rules' own files, `rules/<rule>.toml`."""
    paths = sorted(_RULES.glob("*.toml"))
    return [row for path in paths for row in tomllib.loads(path.read_text("utf-8")).get(table, [])]


def _cause(raw: Mapping[str, object]) -> Cause:
    values = dict(raw)
    values["domain"] = records.Domain(str(raw["domain"]))
    values["severity"] = records.Severity(str(raw["severity"]))
    leads_to = raw["leads_to"]
    assert isinstance(leads_to, list)
    values["leads_to"] = frozenset(leads_to)
    return Cause(**values)  # type: ignore[arg-type]


@functools.cache
def cause(word: str) -> Cause:
    """The cause of a word; raises NotFound that lists the valid words."""
    known = load().causes
    if word not in known:
        raise errors.NotFound(f"there is no cause {word!r}; valid: {', '.join(sorted(known))}")
    return known[word]


def name(word: str, component: str | None = None) -> str:
    """`gpu lost`: a cause's name for people, or what it is called with the verdict's own component (`licences in use`)."""
    return load().named.get(component or "") or word.replace("_", " ")


@functools.cache
def until_reset() -> frozenset[str]:
    """Causes that stay until the part is reset or its node restarts."""
    return frozenset(word for word, c in load().causes.items() if c.until_reset)
