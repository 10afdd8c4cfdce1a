"""I/O errors of this node's own disks in the kernel log, since a person last cleared them."""

from __future__ import annotations

import re
from datetime import datetime

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, kernel_log, nodeview, registry

_PATTERNS = (
    ("io", re.compile(r"(?:blk_update_request: )?(?:critical medium|critical target|I/O) error, dev (\w+)")),
    ("io", re.compile(r"Buffer I/O error on dev(?:ice)? ([\w-]+)")),
    (
        "dead",
        re.compile(
            r"nvme (nvme\d+): (?:Removing after probe failure|Device not ready; aborting|controller is down; will reset)"
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

_NOT_OURS = re.compile(r"(?:loop|ram|sr|fd|zram|nbd|dm-uuid-mpath)\d*")


def parse(text: str) -> tuple[str, str] | None:
    """(what, device) of a message about a disk's error; None for any other."""
    if "error" not in text and "nvme" not in text and "Remounting" not in text and "XFS" not in text:
        return None
    for what, pattern in _PATTERNS:
        match = pattern.search(text)
        if match is not None and not _NOT_OURS.match(match[1]):
            return what, match[1]
    return None


def read(node: nodeview.NodeView) -> dict[str, dict[str, float]]:
    """By device: how many errors of each kind since boot or since cleared."""
    kept: dict[str, dict[str, float]] = dict(node.memory.get("seen", {}))
    cleared_at = node.memory.get("cleared_at")
    if cleared_at and node.memory.get("cleared_done") != cleared_at:
        kept, node.memory["cleared_done"] = {}, cleared_at
    cleared_s = -1.0
    if cleared_at and node.uptime_s is not None:
        cleared_s = node.uptime_s - (node.now - datetime.fromisoformat(cleared_at)).total_seconds()
    for line in kernel_log.fresh(node):
        found = parse(line.text) if line.at_s >= cleared_s else None
        if found is not None and len(kept) < 100:
            counts = kept.setdefault(found[1], {})
            counts[found[0]] = counts.get(found[0], 0) + 1
    node.memory["seen"] = kept
    return kept


def judge(seen: dict[str, dict[str, float]], limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    for device, counts in seen.items():
        total = int(sum(counts.values()))
        words = {
            "io": "I/O errors",
            "dead": "controller losses",
            "readonly": "emergency remounts or shutdowns",
        }
        text = f"{device}: " + ", ".join(f"{int(n)} {words[k]}" for k, n in counts.items())
        make = findings.fail if total >= limits["errors_fail"] or set(counts) - {"io"} else findings.warn
        parts.append(
            make(
                text,
                device=device,
                measured=float(total),
                threshold=float(limits["errors_fail"]),
                unit="count",
            )
        )
    return findings.merge(parts, healthy="no disk error in this boot")


CHECK = registry.Check(
    name="block_errors",
    proves="No disk of this node has failed to read or write in this boot since a person last cleared it.",
    component="block",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    fails="errors_fail I/O errors on one disk, a lost NVMe controller, or a filesystem shut down or turned read-only after errors",
    warns="a single I/O error",
    needs="a readable kernel log",
    next_step="nvme_smart and disk_smart tell whether the drive knows; replace it, or clear the check after a repair.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            key="errors_fail",
            default=2,
            kind=int,
            unit="count",
            meaning="I/O errors on one disk that fail",
            source="ours: one may be a bad sector being remapped; GCM fails on any",
        ),
    ),
)
