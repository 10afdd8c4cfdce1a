"""Every filesystem that should be mounted is mounted."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import mounts


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The mount table and what fstab wants mounted (path to type)."""

    mounted: tuple[mounts.Mount, ...]
    fstab: dict[str, str]
    real: dict[str, str] = field(default_factory=dict)
    """Paths that are no mount points by name, and where their links lead."""


def read(node: nodeview.NodeView) -> Reading:
    fstab = parse_fstab(node.text(mounts.FSTAB) or "") if node.limits["fstab"] else {}
    named = [entry.partition("=")[0] for entry in node.limits["paths"]]
    mounted = tuple(mounts.table(node, named))
    there = {m.path for m in mounted}
    lacking = [p for p in (*named, *fstab) if p not in there]
    real = {p: place for p in lacking if (place := _real(node, p)) != p}
    return Reading(mounted=mounted, fstab=fstab, real=real)


def _real(node: nodeview.NodeView, path: str) -> str:
    """Where the path leads: an image that cannot be written has /home and /mnt as links into /var."""
    top = os.path.realpath(node.path("/"))
    found = os.path.realpath(node.path(path))
    return "/" + os.path.relpath(found, top) if found.startswith(top) else path


def parse_fstab(text: str) -> dict[str, str]:
    """Path to type of what fstab mounts at boot: neither noauto, nor on demand, nor nofail, nor for users to mount."""
    unwanted = {"noauto", "nofail", "x-systemd.automount", "bind"}
    return {
        row.path: row.type
        for row in mounts.fstab_rows(text)
        if not row.for_users and unwanted.isdisjoint(row.options)
    }


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    by_path = {m.path: m for m in reading.mounted}
    by_path |= {path: by_path[place] for path, place in reading.real.items() if place in by_path}
    parts = [_wanted(entry, by_path) for entry in limits["paths"]]
    named = {entry.partition("=")[0] for entry in limits["paths"]}
    parts += [
        findings.fail(f"{path} of fstab is not mounted", device=path, severity=records.Severity.LOW)
        if path not in by_path
        else findings.ok(path)
        for path in reading.fstab
        if path not in named
    ]
    return findings.merge(
        parts,
        healthy=f"{findings.plural(len(parts), 'mount')} in place" if parts else "no mount is asked for",
    )


def _wanted(entry: str, by_path: dict[str, mounts.Mount]) -> findings.Finding:
    path, _, kind = entry.partition("=")
    mount = by_path.get(path)
    if mount is None:
        return findings.fail(f"{path} is not mounted", device=path)
    if mount.type == "autofs":
        return findings.ok(f"{path} is mounted on demand", device=path)
    if kind and mount.type != kind:
        return findings.fail(f"{path} is {mount.type}, not {kind}", device=path)
    return findings.ok(path, device=path)


CHECK = registry.Check(
    proves="Every filesystem the jobs need is mounted, with the right type.",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.HIGH,
    hard=True,
    fails="a path of the site file is not a mount point, or has another type (high); one of fstab only is not mounted (low)",
    warns="never",
    needs="paths in the site file, or filesystems in fstab",
    next_step="Mount it; look for `not responding` or `evicted` in the kernel log and at the file server.",
    read=read,
    judge=judge,
    learn=lambda reading: {"paths": [f"{m.path}={m.type}" for m in reading.mounted if m.network]},
    thresholds=(
        registry.Threshold(
            "paths",
            [],
            "",
            "mount points that must be there, as /scratch or /scratch=lustre",
            "site (genconf); NHC check_fs_mount",
        ),
        registry.Threshold(
            "fstab",
            True,
            "",
            "whether fstab's own mounts must be there too",
            "GCM check-storage check-mountpoint",
        ),
    ),
)
