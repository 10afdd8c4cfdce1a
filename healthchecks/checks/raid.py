"""Linux software RAID arrays are complete."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

_HEAD = re.compile(r"^(md\S+) : (active|inactive)\b")
_CONTAINER = re.compile(r"\bsuper external:[^/\s-]")
"""Metadata of the board's own (Intel's imsm, DDF): its container is no array and always inactive; an array in it names the container."""
_MEMBERS = re.compile(r"\[(\d+)/(\d+)\] \[([U_]+)\]")


@dataclass(frozen=True, kw_only=True)
class Array:
    """One md array."""

    name: str
    active: bool
    wanted: int | None = None
    there: int | None = None
    rebuilding: str = ""


def parse(text: str) -> list[Array]:
    """The arrays of a /proc/mdstat text."""
    found: list[Array] = []
    for block in re.split(r"\n(?=md)", "\n" + text):
        head = _HEAD.match(block.lstrip("\n"))
        if head is None or _CONTAINER.search(block):
            continue
        members = _MEMBERS.search(block)
        rebuild = re.search(r"(recovery|resync|reshape) *= *([0-9.]+%)", block)
        found.append(
            Array(
                name=head[1],
                active=head[2] == "active",
                wanted=int(members[1]) if members else None,
                there=int(members[2]) if members else None,
                rebuilding=f"{rebuild[1]} {rebuild[2]}" if rebuild else "",
            )
        )
    return found


def read(node: nodeview.NodeView) -> list[Array]:
    found = parse(node.text("/proc/mdstat") or "")
    if not found and not node.limits["count"]:
        raise findings.Absent("no software RAID array")
    return found


def judge(arrays: list[Array], limits: registry.Limits) -> findings.Finding:
    parts = findings.too_few(len(arrays), limits["count"], "arrays") + [_one(array) for array in arrays]
    return findings.merge(parts, healthy=f"{len(arrays)} arrays complete")


def _one(array: Array) -> findings.Finding:
    if not array.active:
        return findings.fail(f"{array.name} is inactive", device=array.name)
    if array.wanted is not None and array.there is not None and array.there < array.wanted:
        how = f", {array.rebuilding}" if array.rebuilding else ""
        text, low = f"{array.name} has {array.there} of {array.wanted} disks{how}", records.Severity.LOW
        facts = findings.amount(array.there, array.wanted, "count")
        return findings.fail(text, device=array.name, severity=low, **facts)
    if array.rebuilding:
        return findings.warn(f"{array.name}: {array.rebuilding}", device=array.name)
    return findings.ok(array.name, device=array.name)


CHECK = registry.Check(
    proves="Every software RAID array runs with all its disks.",
    component="block",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    hard=True,
    fails="an array is inactive (high), degraded or missing (low for degraded)",
    warns="an array is being rebuilt or checked after a change",
    needs="a software RAID array in /proc/mdstat",
    next_step="mdadm --detail names the lost disk; replace and add it.",
    read=read,
    judge=judge,
    learn=lambda arrays: {"count": len(arrays)},
    thresholds=(
        registry.Threshold("count", None, "count", "arrays that must be there", "site (genconf)", unset=int),
    ),
)
