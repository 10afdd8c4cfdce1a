"""NVMe drives: the controller is alive and the drive does not report its own end."""

from __future__ import annotations

import json
from dataclasses import dataclass

from probing_cluster.core import digits, errors, records
from probing_cluster.healthchecks import findings, nodeview, registry

CLASS = "/sys/class/nvme"

_READ_ONLY = 0x08

_CRITICAL = {
    0x01: "spare capacity is low",
    0x02: "temperature limit passed",
    0x04: "reliability is degraded",
    0x08: "media is read-only",
    0x10: "backup of volatile memory failed",
}
"""NVMe specification, SMART log, critical warning."""


@dataclass(frozen=True, kw_only=True)
class Drive:
    """One controller; `log` is its SMART log, None when nobody could read it."""

    name: str
    state: str | None
    log: dict[str, int | None] | None
    problem: str = ""


def parse(text: str) -> dict[str, int | None]:
    """`nvme smart-log -o json`, whose key names changed over its versions, by one set of names."""
    data = json.loads(text)
    if not isinstance(data, dict):
        raise errors.MalformedInput("the SMART log is no JSON object")
    warning = data.get("critical_warning")
    names = {
        "critical_warning": warning.get("value") if isinstance(warning, dict) else warning,
        "spare_pct": data.get("avail_spare", data.get("available_spare")),
        "spare_least_pct": data.get("spare_thresh", data.get("available_spare_threshold")),
        "used_pct": data.get("percent_used", data.get("percentage_used")),
    }
    return {name: value if isinstance(value, int) else None for name, value in names.items()}


def read(node: nodeview.NodeView) -> list[Drive]:
    names = [n for n in node.names(CLASS) if digits.is_number(n.removeprefix("nvme"))]
    local = [n for n in names if (node.text(f"{CLASS}/{n}/transport") or "pcie") == "pcie"]
    if not local and not node.limits["count"]:
        raise findings.Absent("no NVMe drive")
    return [_drive(node, name) for name in local]


def _drive(node: nodeview.NodeView, name: str) -> Drive:
    state = node.text(f"{CLASS}/{name}/state")
    if state not in (None, "live"):
        return Drive(name=name, state=state, log=None)
    try:
        answer = node.run("nvme", "smart-log", f"/dev/{name}", "-o", "json")
        return Drive(
            name=name,
            state=state,
            log=parse(answer.out) if answer.code == 0 else None,
            problem=answer.err.strip()[:200],
        )
    except findings.Absent as exc:
        return Drive(name=name, state=state, log=None, problem=exc.args[0])
    except (ValueError, errors.MalformedInput):
        return Drive(name=name, state=state, log=None, problem="nvme smart-log answered no JSON")


def judge(drives: list[Drive], limits: registry.Limits) -> findings.Finding:
    parts = findings.too_few(len(drives), limits["count"], "NVMe drives")
    parts += [_one(drive, limits) for drive in drives]
    blind = sum(drive.log is None and drive.state in (None, "live") for drive in drives)
    note = f" (no SMART log of {blind}: {drives[0].problem})" if blind else ""
    return findings.merge(parts, healthy=f"{findings.plural(len(drives), 'NVMe drive')} alive{note}")


def _one(drive: Drive, limits: registry.Limits) -> findings.Finding:
    if drive.state in ("dead", "deleting", "deleting (no IO)"):
        return findings.fail(f"{drive.name} is {drive.state}", device=drive.name)
    if drive.state not in (None, "live"):
        return findings.warn(f"{drive.name} is {drive.state}", device=drive.name)
    if drive.log is None:
        missing = drive.problem.endswith("not installed")
        text = f"{drive.name}: {drive.problem or 'no SMART log'}"
        return (findings.ok if missing and drive.state else findings.unseen)(text, device=drive.name)
    if drive.log["critical_warning"] is None:
        return findings.unseen(f"{drive.name}: its SMART log has no critical warning", device=drive.name)
    return _judge_log(drive.name, drive.log, limits)


def _judge_log(name: str, log: dict[str, int | None], limits: registry.Limits) -> findings.Finding:
    low = records.Severity.LOW
    if warning := log["critical_warning"]:
        warnings = (
            ", ".join(text for bit, text in _CRITICAL.items() if warning & bit) or f"warning {warning:#x}"
        )
        return findings.fail(
            f"{name}: {warnings}", device=name, severity=None if warning & _READ_ONLY else low
        )
    spare, least, used = log["spare_pct"], log["spare_least_pct"], log["used_pct"]
    if spare is not None and least is not None and spare < least:
        facts = findings.amount(spare / 100, least / 100, "frac")
        return findings.fail(f"{name}: {spare} % spare left", device=name, severity=low, **facts)
    for make, limit in ((findings.fail, limits["used_fail_frac"]), (findings.warn, limits["used_warn_frac"])):
        if used is not None and used / 100 > limit:
            text = f"{name}: {used} % of its write endurance used"
            return make(text, device=name, severity=low, **findings.amount(used / 100, limit, "frac"))
    return findings.ok(name, device=name)


CHECK = registry.Check(
    proves="Every NVMe drive is alive and says of itself that it will stay so.",
    component="block",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="tools",
    deadline_s=10.0,
    period_s=900.0,
    fails="a controller is dead, or its media read-only (high); another critical warning, spare below the drive's limit, or endurance used up (low)",
    warns="a controller is resetting, or much of its endurance is used",
    needs="an NVMe drive on PCIe (the SMART log also needs nvme-cli)",
    next_step="Copy off what matters and replace the drive.",
    read=read,
    judge=judge,
    learn=lambda drives: {"count": len(drives)},
    thresholds=(
        registry.Threshold(
            "count",
            None,
            "count",
            "drives that must be there",
            "site (genconf); AzNHC: 8 on ND H100 v5",
            unset=int,
        ),
        registry.Threshold(
            "used_warn_frac", 0.8, "frac", "used endurance above which we warn", "GCM check-blockdev 80 %"
        ),
        registry.Threshold(
            "used_fail_frac", 1.0, "frac", "used endurance above which it fails", "GCM check-blockdev 100 %"
        ),
    ),
)
