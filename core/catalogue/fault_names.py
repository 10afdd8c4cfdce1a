"""A node's active faults as people count them: one per broken part, under the strongest of its names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from probing_cluster.core import records, sanitize

_KINDS = ("xid", "sxid", "gpu_lost", "nvlink", "pcie", "ib_link")
"""Kinds that name the fault best, the best first; a check that fails beside one of them is a sign of it."""
_SEVERITIES = ("high", "low", "info")
LIBRARIES = frozenset({"nvml", "amdsmi"})
"""Vendors' libraries as the part of a fault: through them no GPU of the node can be reached. They are no part of a node."""
COUNT = "gpu_count"
"""The check that counts a node's GPUs through NVML: without the library it misses them all, and that is no fault of its own."""
_WORDS = {"xid": "Xid", "sxid": "SXid"}
_PCI_FUNCTION = re.compile(r"\.[0-7]$")


@records.record
class NamedFault:
    """One broken part of a node."""

    name: str = records.doc("`Xid 79 gpu0`")
    severity: str = records.doc("high, low or info; the worst of its signs")
    since: datetime | None = records.doc("when the first sign was seen; null when its agent does not say")
    keys: tuple[str, ...] = records.doc("the agent's faults that are signs of it, `kind:part`")
    best: str = records.doc("the sign that names it, one of `keys`", default="")

    @property
    def words(self) -> str:
        """`Xid 79 gpu0 (high, 4 signs)`."""
        signs = f", {len(self.keys)} signs" if len(self.keys) > 1 else ""
        return f"{self.name} ({self.severity}{signs})"


def named(faults: object) -> list[NamedFault]:
    """A heartbeat's faults, those of one part together, the worst first; what is no fault's shape is left out."""
    given = faults if isinstance(faults, Mapping) else {}
    shaped = {str(key): fault for key, fault in given.items() if isinstance(fault, Mapping)}
    groups = [_fault(group) for group in _by_part(shaped)]
    return sorted(groups, key=lambda f: (_SEVERITIES.index(f.severity), f.name))


def _by_part(faults: Mapping[str, Mapping[str, Any]]) -> Iterable[dict[str, Mapping[str, Any]]]:
    """Faults that share a device, a PCI address or a GPU's UUID, directly or through another."""
    groups: list[tuple[set[str], dict[str, Mapping[str, Any]]]] = []
    for key, fault in faults.items():
        parts, members = _parts(key, fault), {key: fault}
        joined = [g for g in groups if g[0] & parts]
        for group in joined:
            parts |= group[0]
            members |= group[1]
            groups.remove(group)
        groups.append((parts, members))
    return [members for _, members in groups]


def _parts(key: str, fault: Mapping[str, Any]) -> set[str]:
    _, _, part = key.partition(":")
    named = [part, *(fault.get(name) for name in ("device", "pci_bus_id", "gpu_uuid"))]
    found = {_PCI_FUNCTION.sub("", text.lower()) for text in named if isinstance(text, str) and text}
    if found == {COUNT}:
        found.add("nvml")
    return found or {key}  # a fault of the node as a whole is one of its own


def _fault(group: Mapping[str, Mapping[str, Any]]) -> NamedFault:
    best = min(group, key=lambda key: (_rank(key, group[key]), key))
    starts = [at for at in (_since(fault) for fault in group.values()) if at is not None]
    return NamedFault(
        name=_name(best, group[best]),
        severity=min((_severity(fault) for fault in group.values()), key=_SEVERITIES.index),
        since=min(starts, default=None),
        keys=tuple(sorted(group)),
        best=best,
    )


def _rank(key: str, fault: Mapping[str, Any]) -> tuple[int, int]:
    kind = _kind(key, fault)
    named = _KINDS.index(kind) if kind in _KINDS else len(_KINDS) + (kind == "check")
    return _SEVERITIES.index(_severity(fault)), named


def _name(key: str, fault: Mapping[str, Any]) -> str:
    kind, code, device = _kind(key, fault), fault.get("code"), fault.get("device") or key.partition(":")[2]
    words = [_WORDS.get(kind, "" if kind == "check" and code else kind)]
    words += [str(code)] if isinstance(code, str | int) and kind in {*_WORDS, "check"} else []
    words += [device] if isinstance(device, str) and device != code else []
    return sanitize.clean(" ".join(filter(None, words)) or key, 60)


def _kind(key: str, fault: Mapping[str, Any]) -> str:
    kind = fault.get("kind")
    return kind if isinstance(kind, str) and kind else key.partition(":")[0]


def _severity(fault: Mapping[str, Any]) -> str:
    text = fault.get("severity")
    return text if isinstance(text, str) and text in _SEVERITIES else "info"


def _since(fault: Mapping[str, Any]) -> datetime | None:
    text = fault.get("since")
    try:
        at = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)
