"""Fans, voltages, power supplies and temperatures as the BMC judges them."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

_CRITICAL = {
    "cr": "critical",
    "nr": "non-recoverable",
    "lcr": "critical",
    "ucr": "critical",
    "lnr": "non-recoverable",
    "unr": "non-recoverable",
}
_REDUNDANT = ("ac lost", "redundancy lost", "non-redundant")
"""A lost supply or fan whose twin carries on: shown, not acted on."""

_DISCRETE_BAD = (
    "failure detected",
    "predictive failure",
    "drive fault",
)


def parse(text: str) -> list[tuple[str, str, str]]:
    """(sensor, status word, reading) of `ipmitool sdr elist` (`FAN1 | 41h | ok | 29.1 | 8000 RPM`)."""
    rows = ([f.strip() for f in line.split("|")] for line in text.splitlines())
    return [(row[0], row[2].lower(), row[4]) for row in rows if len(row) >= 5]


def read(node: nodeview.NodeView) -> list[tuple[str, str, str]]:
    if not any(node.exists(f"/dev/{name}") for name in ("ipmi0", "ipmi/0", "ipmidev/0")):
        raise findings.Absent("no BMC (no /dev/ipmi0)")
    answer = node.run("ipmitool", "sdr", "elist")
    sensors = parse(answer.out)
    if not sensors:
        raise findings.Undetermined(f"ipmitool: {(answer.err or answer.out).strip()[:150] or 'no sensor'}")
    return sensors


def judge(sensors: list[tuple[str, str, str]], limits: registry.Limits) -> findings.Finding:
    parts = [_one(*row) for row in sensors if row[0] not in limits["ignore"]]
    judged = sum(p.outcome is not records.Outcome.ABSENT for p in parts)
    return findings.merge(parts, healthy=f"{judged} sensors in order")


def _one(name: str, status: str, value: str) -> findings.Finding:
    if status in ("ns", "na", ""):
        return findings.absent(f"{name} has no reading", device=name)
    if status in _CRITICAL:
        return findings.fail(f"{name} is {_CRITICAL[status]}: {value}", device=name)
    if any(word in value.lower() for word in _REDUNDANT):
        return findings.warn(f"{name}: {value}", device=name)
    if any(word in value.lower() for word in _DISCRETE_BAD):
        return findings.fail(f"{name}: {value}", device=name)
    if status in ("nc", "lnc", "unc"):
        return findings.warn(f"{name} is outside its normal range: {value}", device=name)
    return findings.ok(name, device=name)


CHECK = registry.Check(
    proves="Fans turn, both power supplies deliver, and no temperature or voltage is critical.",
    component="ipmi",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="ipmi",
    deadline_s=30.0,
    period_s=900.0,
    fails="a sensor is critical or non-recoverable, or a part reports a failure",
    warns="a sensor is outside its normal range, or redundancy is lost (a supply without power)",
    needs="a BMC (/dev/ipmi0) and ipmitool",
    next_step="The sensor names the part; one lost power supply often is a cable or a PDU.",
    read=read,
    judge=judge,
    thresholds=(registry.Threshold("ignore", [], "", "sensors never judged", "site; GCM check-sensors"),),
)
