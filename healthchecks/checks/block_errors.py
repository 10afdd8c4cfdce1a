"""I/O errors of this node's own disks in the kernel log, since a person last cleared them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from probing_cluster.core import records
from probing_cluster.evidence.kernel import message_start
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import kernel_log, mapped_devices

_PATTERNS = (
    (
        "io",
        re.compile(r"(?:critical medium|critical target|I/O) error, dev ([\w-]+)"),
    ),
    ("io", re.compile(r"Buffer I/O error on dev(?:ice)? ([\w-]+)")),
    (
        "dead",
        re.compile(
            r"nvme (nvme\d+): (?:Removing after probe failure|Device not ready; aborting|Disabling device after reset failure)"
        ),
    ),
    ("readonly", re.compile(r"EXT4-fs \(([\w-]+)\): Remounting filesystem read-only")),
    (
        "readonly",
        re.compile(
            r"XFS \(([\w-]+)\): (?:Corruption of in-memory data|Filesystem has been shut down|log I/O error)"
        ),
    ),
)
"""Linux block layer, nvme driver, ext4 and xfs."""

_NOT_OURS = re.compile(r"(?:loop|ram|sr|fd|zram|nbd|ublkb|dm-uuid-mpath)\d*")


_HINT = re.compile(r"critical target error, dev .{1,64} op 0x[39]:\((?:DISCARD|WRITE_ZEROES)\)")
"""A well drive that has no such command refuses it at each fstrim."""

MAX_DISKS, MAX_TIMES = 100, 100


@dataclass(frozen=True, kw_only=True)
class Broken:
    """Errors of one kind on one disk: within the window for plain I/O errors, since boot for the others."""

    device: str
    what: str
    recent: int


def parse(text: str) -> tuple[str, str] | None:
    """(what, device) of a message about a disk's error; None for any other.

    The kernel quotes users (mount options, names of files and processes): only its own words where a message begins count.
    """
    if "error" not in text and "nvme" not in text and "Remounting" not in text and "XFS" not in text:
        return None
    if message_start.quoting(text) not in (None, "block") or _HINT.search(text):
        return None
    for what, pattern in _PATTERNS:
        match = message_start.match(pattern, text)
        if match is not None and not _NOT_OURS.match(match[1]):
            return what, match[1]
    return None


def read(node: nodeview.NodeView) -> list[Broken]:
    """Every disk with errors since boot or since cleared."""
    kept: dict[str, list[float]] = {k: list(v) for k, v in node.memory.get("seen", {}).items()}
    for line in kernel_log.fresh(node):
        found = parse(line.text)
        if found is not None and not _left_out(node, found[1]) and len(kept) < MAX_DISKS:
            kept.setdefault(f"{found[1]} {found[0]}", []).append(line.at_s)
    node.memory["seen"] = {k: times[-MAX_TIMES:] for k, times in kept.items() if times}
    now_s = counters.since_boot_s(node)
    return [_broken(key, times, now_s, node.limits["window_s"]) for key, times in node.memory["seen"].items()]


def _left_out(node: nodeview.NodeView, device: str) -> bool:
    if mapped_devices.without_a_drive(Path(node.path(mapped_devices.BLOCK)), device):
        return True
    # A stick, or the BMC's virtual CD: no job's data.
    disk = re.sub(r"(?<=[a-z])\d+$", "", device)
    return "1" in (node.text(f"/sys/block/{device}/removable"), node.text(f"/sys/block/{disk}/removable"))


def _broken(key: str, times: list[float], now_s: float, window_s: float) -> Broken:
    device, _, what = key.partition(" ")
    # A filesystem that shut down stays so; a single bad read of last month does not.
    recent = len(times) if what != "io" else sum(now_s - at <= window_s for at in times)
    return Broken(device=device, what=what, recent=recent)


def judge(broken: list[Broken], limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    words = {"io": "I/O errors", "dead": "controller losses", "readonly": "emergency remounts or shutdowns"}
    for one in (b for b in broken if b.recent):
        make = findings.fail if one.what != "io" or one.recent >= limits["errors_fail"] else findings.warn
        text = f"{one.device}: {one.recent} {words[one.what]}"
        facts = findings.amount(one.recent, limits["errors_fail"], "count")
        parts.append(make(text, device=one.device, **facts))
    return findings.merge(parts, healthy="no disk error lately")


CHECK = registry.Check(
    proves="No disk of this node has lately failed to read or write, or shut its filesystem down in this boot.",
    component="block",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    fails="errors_fail I/O errors on one disk within window_s, a lost NVMe controller, or a filesystem shut down or turned read-only after errors",
    warns="fewer I/O errors within window_s",
    needs="a readable kernel log",
    next_step="nvme_smart and disk_smart tell whether the drive knows; replace it, or clear the check after a repair.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "errors_fail",
            2,
            "count",
            "I/O errors on one disk within the window that fail",
            "ours: one may be a bad sector being remapped; GCM fails on any",
        ),
        registry.Threshold("window_s", 86400.0, "s", "how far back plain I/O errors count", "ours"),
    ),
)
