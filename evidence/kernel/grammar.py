"""Shared by all families of kernel messages: findings, the meaning of codes, and the context of earlier lines."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from probing_cluster.core import digits, sanitize
from probing_cluster.core.catalogue import slurm_cgroup
from probing_cluster.core.records import Severity, doc, record

SOFTWARE = "system_software"
INFO, LOW, HIGH = Severity.INFO, Severity.LOW, Severity.HIGH

PCI = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
FULL_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_MEMORY_LIMIT = 256
_MAX_PID = 2**32 - 1


@record
class KernelFinding:
    """One kernel message understood."""

    kind: str = doc("word of docs/evidence.md")
    code: str | None = doc("the kind's own code")
    severity: Severity = doc("info, low or high")
    domains: tuple[str, ...] = doc("failure domains it can speak for, likeliest first")
    meaning: str = doc("one sentence")
    next_step: str = doc("what to do, one sentence")
    message: str = doc("the message without prefixes, control characters removed")
    device: str | None = doc(
        "the part concerned: nvswitch0, mlx5_3, nvme0n1, a DIMM label, a server", default=None
    )
    pci_bus_id: str | None = doc("lower case, function kept when logged", default=None)
    pid: int | None = doc("process id named", default=None)
    process: str | None = doc("process name named", default=None)
    job_id: int | None = doc("Slurm job id when the message itself names its cgroup", default=None)
    repeat: int = doc("times rsyslog says it was repeated", default=1)
    detail: Mapping[str, Any] = doc("further decoded fields", default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class LineFact:
    """Severity, domains, meaning and next step of a code, unless the message overrides them."""

    severity: Severity
    domains: tuple[str, ...]
    meaning: str
    next_step: str


def fact(severity: Severity, domains: str, meaning: str, next_step: str) -> LineFact:
    """A `LineFact`; `domains` are words with blanks between them."""
    return LineFact(severity=severity, domains=tuple(domains.split()), meaning=meaning, next_step=next_step)


Facts = Mapping[tuple[str, str], LineFact]
"""(kind, code) to meaning; code "*" stands for codes that are numbers of the message's own."""


@dataclass(kw_only=True, slots=True)
class KernelContext:
    """Facts from earlier lines of the same log that later ones need; bounded."""

    tables: dict[str, OrderedDict[str, Any]] = field(default_factory=dict)

    def put(self, table: str, key: str, value: Any) -> None:
        """Remember `value`, forgetting the oldest when the table is full."""
        entries = self.tables.setdefault(table, OrderedDict())
        entries[key] = value
        entries.move_to_end(key)
        if len(entries) > _MEMORY_LIMIT:
            entries.popitem(last=False)

    def get(self, table: str, key: str) -> Any:
        """The value put for `key`, or None."""
        entries = self.tables.get(table)
        return entries.get(key) if entries else None

    def pop(self, table: str, key: str) -> Any:
        """The same, and forget it."""
        entries = self.tables.get(table)
        return entries.pop(key, None) if entries else None


Read = Callable[[str, KernelContext], KernelFinding | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class LineFamily:
    """One family of messages: `read` is only called when one of `triggers` is in the message."""

    name: str
    triggers: tuple[str, ...]
    read: Read
    facts: Facts


def make(facts: Facts, kind: str, code: str, message: str, **fields: Any) -> KernelFinding:
    """The finding for (kind, code), its meaning from the family's facts; `fields` override."""
    fact_of_kind = facts.get((kind, code)) or facts[kind, "*"]
    values: dict[str, Any] = {
        "severity": fact_of_kind.severity,
        "domains": fact_of_kind.domains,
        "meaning": fact_of_kind.meaning,
        "next_step": fact_of_kind.next_step,
    }
    values.update(fields)
    for name in ("device", "process"):
        if values.get(name) is not None:
            values[name] = sanitize.clean(values[name], 256)
    return KernelFinding(kind=kind, code=code, message=sanitize.clean(message), **values)


def recoded(finding: KernelFinding, facts: Facts, code: str) -> KernelFinding:
    """The finding under another code of its kind, with that code's meaning."""
    known = facts[finding.kind, code]
    return replace(
        finding,
        code=code,
        severity=known.severity,
        domains=known.domains,
        meaning=known.meaning,
        next_step=known.next_step,
    )


def pci(text: str | None) -> str | None:
    """A PCI address in our form: lower case, four-digit domain, function kept when there."""
    if text is None or not re.fullmatch(PCI, text):
        return None
    text = text.lower()
    head, _, rest = text.partition(":")
    if len(head) == 8 and head.startswith("0000"):
        return f"{head[4:]}:{rest}"
    return text


def bus_address(address: str) -> str:
    """`address` without its function, for comparing what different lines call one device."""
    return address.partition(".")[0]


def number(text: str | None, limit: int = _MAX_PID) -> int | None:
    """A decimal number within `limit`, or None."""
    if text is None or not digits.is_number(text):
        return None
    value = int(text)
    return value if value <= limit else None


def job_of(path: str) -> int | None:
    """The Slurm job of a cgroup path such as `/slurm/uid_1000/job_4242/step_0`; None for others (SLUIDs too)."""
    found = slurm_cgroup.of_path(path)
    return found.job_id if found else None


def sluid_of(path: str) -> dict[str, str]:
    """`{"sluid": …}` of a cgroup path as Slurm 26.05 makes them on v2; empty for others. Which job it is, the node knows."""
    found = slurm_cgroup.of_path(path)
    return {"sluid": found.sluid} if found and found.sluid else {}


_UNKNOWN = frozenset({"", "<unknown>", "unknown", "..."})


def name(text: str | None) -> str | None:
    """A process name without its quotes; None for the driver's ways to say unknown."""
    if text is None:
        return None
    text = sanitize.clean(text, 256).strip().strip("'\"`").strip()
    return None if text.lower() in _UNKNOWN else text
