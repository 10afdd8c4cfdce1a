"""Xid errors the driver logged in this boot, since a person last cleared them."""

from __future__ import annotations

from typing import Any

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import kernel_log

MAX_KEPT = 200


def read(node: nodeview.NodeView) -> list[dict[str, Any]]:
    """Distinct (code, GPU) seen: count, worst severity, last time. Clearing forgets them."""
    kept: dict[str, dict[str, Any]] = dict(node.memory.get("seen", {}))
    for line in kernel_log.fresh(node):
        if (found := parse(line.text)) is not None:
            key = f"{found['code']}@{found['pci_bus_id']}"
            kept[key] = {**found, "count": kept.get(key, {}).get("count", 0) + 1, "at_s": line.at_s}
    node.memory["seen"] = dict(list(kept.items())[-MAX_KEPT:])
    if not kept and not node.exists("/proc/driver/nvidia"):
        raise findings.Absent("no NVIDIA driver on this node")
    return list(kept.values())


def parse(text: str) -> dict[str, Any] | None:
    """The Xid (or loss of a GPU) a kernel message reports; None for any other message."""
    if "NVRM" not in text:
        return None
    # Here and not above: the catalogues behind it are the largest import of a sweep, for nodes that have an Xid.
    from probing_cluster.evidence.kernel import grammar, nvrm, xid

    context = grammar.KernelContext()
    found = xid.read(text, context) or nvrm.read(text, context)
    if found is None or found.kind not in ("xid", "gpu_lost"):
        return None
    return {
        "code": found.code or found.kind,
        "pci_bus_id": found.pci_bus_id,
        "severity": found.severity.value,
        "meaning": found.meaning,
    }


def judge(rows: list[dict[str, Any]], limits: registry.Limits) -> findings.Finding:
    parts: list[findings.Finding] = []
    for one in rows:
        severity = _severity(one, limits)
        times = f", {one['count']} times" if one["count"] > 1 else ""
        text = f"Xid {one['code']} on {one['pci_bus_id'] or 'a GPU'}{times}: {one['meaning']}"
        make = findings.ok if severity is records.Severity.INFO else findings.fail
        detail = {"code": one["code"], "pci_bus_id": one["pci_bus_id"]}
        parts.append(make(text, device=one["pci_bus_id"], severity=severity, detail=detail))
    codes = sorted({str(one["code"]) for one in rows})
    return findings.merge(
        parts or [findings.ok("")],
        healthy=f"only harmless Xids: {', '.join(codes)}" if codes else "no Xid in this boot",
    )


def _severity(one: dict[str, Any], limits: registry.Limits) -> records.Severity:
    code = str(one["code"])
    for severity, key in (
        (records.Severity.INFO, "ignore"),
        (records.Severity.HIGH, "high"),
        (records.Severity.LOW, "low"),
    ):
        if code in limits[key]:
            return severity
    return records.Severity(one["severity"])


CHECK = registry.Check(
    proves="The NVIDIA driver has logged no hardware error in this boot since a person last cleared it.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    fails="an Xid whose catalogue severity is high or low (the finding has that severity), or a GPU that fell off the bus",
    warns="never: Xids of user programs (13, 31, 43, 45 …) and unknown ones are kept, not judged",
    needs="the NVIDIA driver and a readable kernel log",
    next_step="`probing-ctl classify` on the kernel log says what the code means and what to do; clear it after the repair.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "high",
            [],
            "",
            "codes taken as high whatever the catalogue says",
            "NVIDIA Xid catalogue (core/catalogue)",
        ),
        registry.Threshold("low", [], "", "codes taken as low", "NVIDIA Xid catalogue (core/catalogue)"),
        registry.Threshold("ignore", [], "", "codes never judged", "site"),
    ),
)
