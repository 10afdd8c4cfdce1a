"""Every mounted filesystem answers."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import mounts

DEAD = {"ESTALE", "ENOTCONN", "EIO", "ESHUTDOWN", "EHOSTDOWN", "EREMOTEIO", "ENODEV"}
"""Errors that say the filesystem behind the mount is gone."""


def judge(usages: list[mounts.Usage], limits: registry.Limits) -> findings.Finding:
    def one(usage: mounts.Usage) -> findings.Finding:
        path = usage.mount.path
        what = f"{path} ({usage.mount.type})"
        if usage.timed_out:
            text, low = f"{what}: {usage.error}", records.Severity.LOW
            return findings.fail(
                text, device=path, severity=low, timed_out=True, threshold=mounts.MOUNT_DEADLINE_S, unit="s"
            )
        if usage.error in DEAD:
            return findings.fail(f"{what} answers {usage.error}", device=path)
        if usage.error in mounts.REFUSALS:
            return findings.ok(path, device=path)
        if usage.error is not None:
            return findings.unseen(f"{what} cannot be asked: {usage.error}", device=path)
        slow = limits["slow_s"]
        if usage.answer_s is not None and usage.answer_s > slow:
            text = f"{what} took {usage.answer_s:.1f} s to answer"
            return findings.warn(
                text, device=path, measured=round(usage.answer_s, 3), threshold=slow, unit="s"
            )
        return findings.ok(path, device=path)

    return findings.merge([one(u) for u in usages], healthy=f"{len(usages)} filesystems answer")


CHECK = registry.Check(
    proves="Every mounted filesystem answers in time; nothing on this node will sleep for ever in open().",
    component="filesystem",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.HIGH,
    lane="mounts",
    fails="a mount answers ESTALE, ENOTCONN or EIO (high), or not within its deadline (low)",
    warns="an answer took longer than slow_s",
    needs="a mounted filesystem with files; users' own mounts are not asked",
    next_step="Ask the file server; if it is well, unmount lazily and mount again, or reboot. "
    "Processes in D state on it cannot be killed.",
    read=mounts.usages,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "slow_s",
            2.0,
            "s",
            "an answer slower than this is a warning",
            "ours: 100 times a healthy NFS round trip under load",
        ),
    ),
)
