"""The clock is synchronised."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

SYNCHRONISED_FILE = "/run/systemd/timesync/synchronized"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The program that keeps the clock, whether it is locked to a source, and how far off it is (None: not reported)."""

    keeper: str
    locked: bool
    offset_s: float | None = None


def parse_chrony(text: str) -> Reading:
    """`chronyc -c tracking`: comma-separated; field 4 is the offset, the last one the leap status."""
    fields = text.strip().split(",")
    if len(fields) < 14:
        raise findings.Undetermined(f"chronyc said {text.strip()[:100]!r}")
    locked = fields[-1] in ("Normal", "Insert second", "Delete second") and fields[0] not in ("", "00000000")
    return Reading(keeper="chrony", locked=locked, offset_s=abs(float(fields[4])))


def parse_ntpq(text: str) -> Reading:
    """`ntpq -c rv`: leap status word and offset in milliseconds."""
    values = dict(
        part.strip().partition("=")[::2]
        for line in text.splitlines()
        for part in line.split(",")
        if "=" in part
    )
    offset = values.get("offset")
    locked = "leap_alarm" not in text and "sync_unspec" not in text and bool(values)
    return Reading(keeper="ntpd", locked=locked, offset_s=abs(float(offset)) / 1000 if offset else None)


def read(node: nodeview.NodeView) -> Reading:
    if node.which("chronyc"):
        answer = node.run("chronyc", "-c", "tracking")
        if answer.code == 0:
            return parse_chrony(answer.out)
    if node.which("ntpq"):
        answer = node.run("ntpq", "-c", "rv")
        if answer.code == 0 and "leap" in answer.out:
            return parse_ntpq(answer.out)
    if node.exists("/run/systemd/timesync"):
        return Reading(keeper="systemd-timesyncd", locked=node.exists(SYNCHRONISED_FILE))
    if node.which("chronyc") or node.which("ntpq"):
        raise findings.Undetermined("no time daemon answers")
    raise findings.Absent("no time daemon (chrony, ntpd or systemd-timesyncd) on this node")


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    if not reading.locked:
        return findings.warn(f"{reading.keeper} is not synchronised")
    if reading.offset_s is None:
        return findings.ok(f"{reading.keeper} is synchronised")
    facts = {"measured": round(reading.offset_s, 6), "unit": "s"}
    text = f"{reading.keeper}: {reading.offset_s * 1000:.3f} ms off"
    for make, limit in ((findings.fail, limits["offset_fail_s"]), (findings.warn, limits["offset_warn_s"])):
        if reading.offset_s > limit:
            return make(text, threshold=limit, **facts)
    return findings.ok(text, threshold=limits["offset_warn_s"], **facts)


CHECK = registry.Check(
    proves="The node's clock agrees with the cluster's: munge credentials hold and logs can be compared.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="tools",
    fails="the clock is off by more than offset_fail_s",
    warns="it is off by more than offset_warn_s, or not synchronised",
    needs="chrony, ntpd or systemd-timesyncd",
    next_step="chronyc sources -v: are the servers reachable? A clock that runs away by itself is a failing board.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "offset_warn_s",
            0.1,
            "s",
            "offset above which we warn",
            "ours: events of two nodes can no longer be put in order",
        ),
        registry.Threshold(
            "offset_fail_s",
            60.0,
            "s",
            "offset that fails",
            "MUNGE: credentials live 300 s, and slurmd refuses RPCs well before",
        ),
    ),
)
