"""Local filesystems have room."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import mounts


def judge(usages: list[mounts.Usage], limits: registry.Limits) -> findings.Finding:
    chosen = [
        u
        for u in usages
        if (limits["network"] or not u.mount.network) and u.mount.path not in limits["ignore"]
    ]
    return findings.merge(
        [_one(u, limits) for u in chosen if u.size_bytes != 0 and not u.mount.read_only],
        healthy=f"{len(chosen)} filesystems have room" if chosen else "no local filesystem to judge",
    )


def _one(usage: mounts.Usage, limits: registry.Limits) -> findings.Finding:
    path, used = usage.mount.path, usage.used_frac
    if used is None:
        return findings.unseen(
            f"{path} cannot be asked: {usage.error}", device=path, timed_out=usage.timed_out
        )
    text = f"{path} is {used:.0%} full ({(usage.free_bytes or 0) / 1e9:.1f} GB free)"
    facts = {"device": path, "measured": round(used, 4), "unit": "frac"}
    # A tmpfs is filled by the jobs that run now, and is theirs to fill.
    if used > limits["fail_frac"] and usage.mount.type != "tmpfs":
        return findings.fail(text, threshold=limits["fail_frac"], **facts)
    if used > limits["warn_frac"]:
        return findings.warn(text, threshold=limits["warn_frac"], **facts)
    return findings.ok(text, **facts)


CHECK = registry.Check(
    proves="Local filesystems have room for logs, spool and temporary files.",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="mounts",
    fails="a local, writable filesystem on a disk is used above fail_frac",
    warns="any of them, a tmpfs too, above warn_frac",
    needs="a local writable filesystem",
    next_step="Find what fills it (du -x); stale job directories in /tmp and core files are the usual ones.",
    read=mounts.usages,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "warn_frac",
            0.90,
            "frac",
            "used share above which we warn",
            "ours; GCM's 0.80 warns on healthy nodes",
        ),
        registry.Threshold(
            "fail_frac",
            0.97,
            "frac",
            "used share above which it fails",
            "ours: ext4's reserve of 5 % is already being eaten; GCM 0.85",
        ),
        registry.Threshold(
            "network",
            False,
            "",
            "whether network filesystems are judged too: their filling up is not the node's fault",
            "ours",
        ),
        registry.Threshold("ignore", [], "", "mount points never judged", "site"),
    ),
)
