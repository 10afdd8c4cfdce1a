"""Local filesystems have inodes left."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import mounts


def judge(usages: list[mounts.Usage], limits: registry.Limits) -> findings.Finding:
    chosen = [
        u
        for u in usages
        if not u.mount.network and not u.mount.read_only and u.mount.path not in limits["ignore"]
    ]
    return findings.merge([_one(u, limits) for u in chosen], healthy=f"{len(chosen)} filesystems have inodes")


def _one(usage: mounts.Usage, limits: registry.Limits) -> findings.Finding:
    path, used = usage.mount.path, usage.inodes_used_frac
    if usage.error is not None:
        return findings.unseen(
            f"{path} cannot be asked: {usage.error}", device=path, timed_out=usage.timed_out
        )
    if used is None:
        return findings.absent(f"{path} does not count inodes", device=path)
    text = f"{path} has used {used:.0%} of its inodes"
    facts = {"device": path, "measured": round(used, 4), "unit": "frac"}
    if used > limits["fail_frac"] and usage.mount.type != "tmpfs":
        return findings.fail(text, threshold=limits["fail_frac"], **facts)
    if used > limits["warn_frac"]:
        return findings.warn(text, threshold=limits["warn_frac"], **facts)
    return findings.ok(text, device=path)


CHECK = registry.Check(
    proves="Local filesystems can still make files.",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="mounts",
    fails="a local, writable filesystem on a disk has used more of its inodes than fail_frac",
    warns="more than warn_frac",
    needs="a local filesystem that counts inodes",
    next_step="Find the directory with millions of files (often /tmp or a container store) and empty it.",
    read=mounts.usages,
    judge=judge,
    thresholds=(
        registry.Threshold("warn_frac", 0.90, "frac", "used share above which we warn", "ours; GCM 0.80"),
        registry.Threshold("fail_frac", 0.98, "frac", "used share above which it fails", "ours; GCM 0.85"),
        registry.Threshold("ignore", [], "", "mount points never judged", "site"),
    ),
)
