"""The site file: which checks run on which nodes, with which limits and severities.

One TOML file for the whole cluster, read in order, later words override earlier ones:

1. the defaults of each check;
2. the top of the file: `sku = "h100"` (a preset), then `[checks.<name>]`;
3. each `[[nodes]]` section whose `match` names this node, in the order of the file: its
   `sku`, then its `[nodes.checks.<name>]`.

Brackets in `match` always mean a hostlist; `*` and `?` make it a glob.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, hostlist, records, settings
from probing_cluster.healthchecks import registry

COMMON_KEYS: Mapping[str, type[Any]] = {
    "enabled": bool,
    "severity": str,
    "deadline_s": float,
    "period_s": float,
}
"""Keys that every check takes besides its own thresholds."""

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, kw_only=True)
class CheckPlan:
    """One check as it runs on one node."""

    check: registry.Check
    enabled: bool
    severity: records.Severity
    limits: Mapping[str, Any]
    deadline_s: float
    period_s: float


@dataclass(frozen=True, kw_only=True)
class SiteSection:
    """A part of the file: what it says about the nodes it matches (None: all of them)."""

    match: tuple[str, ...] | None = None
    checks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def matches(self, node: str) -> bool:
        return self.match is None or any(_matches(pattern, node) for pattern in self.match)


@dataclass(frozen=True, kw_only=True)
class CheckSite:
    """The whole file; without one, the defaults."""

    sections: tuple[SiteSection, ...] = ()

    def plan(self, node: str) -> dict[str, CheckPlan]:
        """Every check as it runs on `node`, by name."""
        overrides: dict[str, dict[str, Any]] = {}
        for section in self.sections:
            if section.matches(node):
                for name, values in section.checks.items():
                    overrides.setdefault(name, {}).update(values)
        return {name: _plan(check, overrides.get(name, {})) for name, check in registry.load().items()}


def _plan(check: registry.Check, overrides: Mapping[str, Any]) -> CheckPlan:
    own = {k: v for k, v in overrides.items() if k not in COMMON_KEYS}
    return CheckPlan(
        check=check,
        enabled=overrides.get("enabled", True),
        severity=records.Severity(overrides.get("severity", check.severity)),
        limits={**check.defaults, **own},
        deadline_s=overrides.get("deadline_s", check.deadline_s),
        period_s=overrides.get("period_s", check.period_s),
    )


@functools.lru_cache(maxsize=512)
def _hosts(pattern: str) -> frozenset[str]:
    return frozenset(hostlist.expand(pattern))


def _matches(pattern: str, node: str) -> bool:
    hosts = _hosts(pattern)
    return node in hosts or any(("*" in h or "?" in h) and fnmatch.fnmatchcase(node, h) for h in hosts)


def preset_names() -> list[str]:
    """The SKUs with a preset."""
    return sorted(p.stem for p in PRESETS.glob("*.toml"))


@functools.cache
def preset(name: str) -> Mapping[str, Mapping[str, Any]]:
    """The checks section of an SKU preset; raises SettingsError listing the known ones."""
    if name not in preset_names():
        raise errors.SettingsError(f"unknown sku {name!r}; valid: {', '.join(preset_names())}")
    path = PRESETS / f"{name}.toml"
    return _checks(tomllib.loads(path.read_text(encoding="utf-8"))["checks"], str(path.name))


def load(path: Path) -> CheckSite:
    """The site file at `path`; raises SettingsError naming file, section and key."""
    try:
        text = settings.read(path).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise errors.SettingsError(f"{path} is not UTF-8 text: {exc}") from exc
    return parse(text, where=str(path))


def parse(text: str, *, where: str = "site file") -> CheckSite:
    """The site written in TOML `text`; raises SettingsError naming section and key."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise errors.SettingsError(f"{where}: {exc}") from exc
    _known(tables, ("sku", "checks", "nodes"), where)
    sections = [_section(tables, None, where)]
    listed = tables.get("nodes", [])
    if not isinstance(listed, list):
        raise errors.SettingsError(f"{where}: nodes must be written [[nodes]]")
    for i, table in enumerate(listed, start=1):
        at = f"{where}: [[nodes]] number {i}"
        _known(table, ("match", "sku", "checks"), at)
        sections.append(_section(table, _patterns(table.get("match"), at), at))
    return CheckSite(sections=tuple(sections))


def _known(table: Mapping[str, Any], valid: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in valid:
            raise errors.SettingsError(f"{where}: unknown key {key!r}; valid: {', '.join(sorted(valid))}")


def _patterns(match: Any, where: str) -> tuple[str, ...]:
    listed = [match] if isinstance(match, str) else match
    if (
        not isinstance(listed, list)
        or not listed
        or not all(isinstance(p, str) and p.strip() for p in listed)
    ):
        raise errors.SettingsError(
            f'{where}: match must be a node pattern or a list of them, as "gpu[001-016]" or "gpu*"'
        )
    for pattern in listed:
        try:
            _hosts(pattern)
        except errors.MalformedInput as exc:
            raise errors.SettingsError(f"{where}: match {pattern!r}: {exc}") from exc
    return tuple(listed)


def _section(table: Mapping[str, Any], match: tuple[str, ...] | None, where: str) -> SiteSection:
    merged: dict[str, dict[str, Any]] = {}
    if "sku" in table:
        if not isinstance(table["sku"], str):
            raise errors.SettingsError(f"{where}: sku must be one of {', '.join(preset_names())}")
        merged = {name: dict(values) for name, values in preset(table["sku"]).items()}
    for name, values in _checks(table.get("checks", {}), where).items():
        merged.setdefault(name, {}).update(values)
    return SiteSection(match=match, checks=merged)


def _checks(tables: Any, where: str) -> dict[str, dict[str, Any]]:
    if not isinstance(tables, dict):
        raise errors.SettingsError(f"{where}: checks must be written [checks.<name>]")
    known = registry.load()
    overrides: dict[str, dict[str, Any]] = {}
    for name, values in tables.items():
        if name not in known:
            raise errors.SettingsError(f"{where}: unknown check {name!r}; valid: {', '.join(known)}")
        if not isinstance(values, dict):
            raise errors.SettingsError(f"{where}: {name} must be a section [checks.{name}]")
        overrides[name] = {
            k: _value(known[name], k, v, f"{where}: [checks.{name}]") for k, v in values.items()
        }
    return overrides


def _value(check: registry.Check, key: str, value: Any, where: str) -> Any:
    kinds = {**COMMON_KEYS, **{t.key: t.kind for t in check.thresholds}}
    if key not in kinds:
        raise errors.SettingsError(f"{where} unknown key {key!r}; valid: {', '.join(sorted(kinds))}")
    kind: type[Any] = kinds[key]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise errors.SettingsError(f"{where} {key} must be {_type_name(kind)}, not {value!r}")
    if isinstance(value, list) and not all(isinstance(item, str) for item in value):
        raise errors.SettingsError(f"{where} {key} must be a list of strings, not {value!r}")
    if key == "severity" and value not in list(records.Severity):
        raise errors.SettingsError(f"{where} severity must be {', '.join(records.Severity)}, not {value!r}")
    if key == "deadline_s" and not 0 < float(value) <= registry.MAX_DEADLINE_S:
        raise errors.SettingsError(
            f"{where} deadline_s must be above 0 and at most {registry.MAX_DEADLINE_S:g}"
        )
    return value


def _type_name(kind: type) -> str:
    return {float: "a number", int: "a whole number", bool: "true or false", str: "a string"}.get(
        kind, "a list of strings"
    )


class SiteFile:
    """The site file as it is now, read again when it changes; a broken new one keeps the old."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the file on disk is not the one in force; None when it is."""
        self._version: tuple[int, ...] | None = None
        self._loaded = False
        self._site = CheckSite()

    def current(self) -> CheckSite:
        """The last good version of the file; the defaults where there never was one."""
        if self.path is None:
            return self._site
        try:
            stat = self.path.stat()
        except OSError as exc:
            # A file that went away is a push that went wrong, not a wish for the defaults; one that
            # never was there is no site file.
            never = isinstance(exc, FileNotFoundError) and self._version is None
            self.problem = (
                None if never else f"{self.path}: {exc.strerror}; its last good version is in force"
            )
            return self._site
        version = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if version != self._version:
            self._version = version
            self._reload()
        return self._site

    def _reload(self) -> None:
        assert self.path is not None
        try:
            self._site = load(self.path)
            self._loaded, self.problem = True, None
        except errors.SettingsError as exc:
            stands = "its last good version is" if self._loaded else "the defaults are"
            self.problem = f"the site file is broken and {stands} in force: {exc}"


def describe(plan: CheckPlan) -> dict[str, Any]:
    """A plan as plain values, for `explain` and JSON."""
    values = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name != "check"}
    return {**values, "severity": plan.severity.value, "limits": dict(plan.limits)}
