"""The meaning of each event: (kind, code, severity) to cause, role and lethality (`signatures.toml`, `rules/*.toml`)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from probing_cluster.attribution.verdict import taxonomy
from probing_cluster.core import errors, records

_FILE = Path(__file__).with_name("signatures.toml")


_RECOVERY = 0.01
"""A row of at most this lethality is a recovery."""


class Role(StrEnum):
    """How an event may count."""

    ROOT = "root"
    WEAK = "weak"
    USER = "user"
    CONSEQUENCE = "consequence"
    CONTEXT = "context"


class Scope(StrEnum):
    """The attempts that an event concerns."""

    GPU = "gpu"
    NODE = "node"
    LINK = "link"
    MOUNT = "mount"


@dataclass(frozen=True, kw_only=True)
class Signature:
    """How one sort of event counts."""

    kind: str
    codes: frozenset[str]
    cause: str
    role: Role
    lethality: float
    scope: Scope
    always: bool = False
    recovery: bool = False
    """True for an event that reports the end of a fault."""

    @property
    def is_back(self) -> bool:
        """True for a code that always means "it works again"."""
        return self.role is Role.CONTEXT and self.lethality <= _RECOVERY

    def bounded(self, severity: records.Severity) -> Signature:
        """The signature, weakened as the event's severity demands."""
        if self.always or severity is records.Severity.HIGH or self.role not in (Role.ROOT, Role.WEAK):
            return self
        if severity is records.Severity.LOW:
            return replace(self, role=Role.WEAK, lethality=min(self.lethality, 0.6))
        return replace(self, role=Role.CONTEXT, lethality=min(self.lethality, 0.1))


@dataclass(frozen=True, kw_only=True)
class _Table:
    of_severity: Mapping[tuple[str, str, records.Severity], Signature]
    exact: Mapping[tuple[str, str], Signature]
    prefixes: Mapping[str, tuple[tuple[str, Signature], ...]]
    any_code: Mapping[str, Signature]
    default: Mapping[records.Severity, Signature]


@functools.cache
def _load() -> _Table:
    raw = tomllib.loads(_FILE.read_text("utf-8"))
    of_severity: dict[tuple[str, str, records.Severity], Signature] = {}
    exact: dict[tuple[str, str], Signature] = {}
    any_code: dict[str, Signature] = {}
    prefixes: dict[str, list[tuple[str, Signature]]] = {}
    for row in [*raw["signature"], *taxonomy.own("signature")]:
        signature = _signature(row, row["kind"], frozenset(row["codes"]))
        for code in signature.codes:
            key = (signature.kind, code.lower())
            if severity := row.get("severity"):
                of_severity[*key, records.Severity(severity)] = signature
                continue
            if key in exact or (code == "*" and signature.kind in any_code):
                msg = (
                    f"{_FILE.name} (or a file beside the rules) says twice what {signature.kind} {code} means"
                )
                raise errors.MalformedInput(msg)
            if code == "*":
                any_code[signature.kind] = signature
            elif code.endswith("*"):
                prefixes.setdefault(signature.kind, []).append((code[:-1].lower(), signature))
            else:
                exact[key] = signature
    default = {
        records.Severity(s): replace(_signature(row, "", frozenset()), always=True)
        for s, row in raw["default"].items()
    }
    longest_first = {k: tuple(sorted(v, key=lambda p: (-len(p[0]), p[0]))) for k, v in prefixes.items()}
    return _Table(
        of_severity=of_severity, exact=exact, prefixes=longest_first, any_code=any_code, default=default
    )


def _signature(row: Mapping[str, Any], kind: str, codes: frozenset[str]) -> Signature:
    taxonomy.cause(row["cause"])
    return Signature(
        kind=kind,
        codes=codes,
        cause=row["cause"],
        role=Role(row["role"]),
        lethality=row["lethality"],
        scope=Scope(row["scope"]),
        always=row.get("always", False),
    )


def is_until_reset(event: records.HealthEvent) -> bool:
    """True for a fault that only a reset of the part or a restart of its node ends, such as a lost GPU."""
    found = of(event)
    return found.role is Role.ROOT and taxonomy.cause(found.cause).until_reset


def of(event: records.HealthEvent) -> Signature:
    """The signature of an event."""
    return _find(event.kind, event.code, event.severity, event.detail.get("recovered") is True)


def find(kind: str, code: str | None, severity: records.Severity, *, recovered: bool = False) -> Signature:
    """The signature of events of this kind, code and severity; there always is one."""
    return _find(kind, code, severity, recovered)


@functools.cache
def _find(kind: str, code: str | None, severity: records.Severity, recovered: bool) -> Signature:
    table = _load()
    text = (code or "").lower()
    found = table.of_severity.get((kind, text, severity)) or table.exact.get((kind, text))
    if found is None:
        found = next((s for p, s in table.prefixes.get(kind, ()) if text.startswith(p)), None)
    found = (found or table.any_code.get(kind) or table.default[severity]).bounded(severity)
    return (
        replace(found, role=Role.CONTEXT, lethality=0.0, recovery=True)
        if recovered or found.is_back
        else found
    )


def kinds() -> frozenset[str]:
    """Every kind in the table."""
    table = _load()
    return frozenset(table.any_code) | frozenset(table.prefixes) | frozenset(k for k, _ in table.exact)


def exact_sorts() -> frozenset[tuple[str, str]]:
    """Every (kind, lower-case code) with a row of its own."""
    return frozenset(_load().exact)


@functools.cache
def roots_of(causes: frozenset[str]) -> tuple[tuple[str, str | None], ...]:
    """The sorts of events whose signature is a root of one of these causes, for a database query.

    Each is (kind, code): code None = any, "x*" = every code that begins with x, else this code, in lower case.
    A longer code's own row, or the severity, may still give such an event another meaning.
    """
    table = _load()
    wanted: list[tuple[str, str | None]] = [
        (kind, None) for kind, s in table.any_code.items() if _is_root(s, causes)
    ]
    covered = {kind for kind, _ in wanted}
    wanted += [key for key, s in table.exact.items() if _is_root(s, causes)]
    wanted += [
        (kind, f"{prefix}*")
        for kind, rows in table.prefixes.items()
        for prefix, s in rows
        if _is_root(s, causes)
    ]
    sorts = {(kind, code) for kind, code in wanted if code is None or kind not in covered}
    return tuple(sorted(sorts, key=lambda s: (s[0], s[1] or "")))


def _is_root(signature: Signature, causes: frozenset[str]) -> bool:
    return signature.cause in causes and signature.role is Role.ROOT
