"""PCIe errors that devices report about themselves (AER)."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import digits, records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import pci

_FILES = {"correctable": "TOTAL_ERR_COR", "nonfatal": "TOTAL_ERR_NONFATAL", "fatal": "TOTAL_ERR_FATAL"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the totals grew, by `0000:3b:00.0 fatal`, and how many devices report."""

    grown: counters.Growth
    devices: int


def parse(text: str | None, total: str) -> int | None:
    """The total of an aer_dev_* file; the sum of its lines where it has none; None when empty."""
    counts = {
        name: int(n)
        for name, _, n in (line.rpartition(" ") for line in (text or "").splitlines())
        if digits.is_number(n)
    }
    return counts.get(total, sum(counts.values())) if counts else None


def read(node: nodeview.NodeView) -> Reading:
    values: dict[str, int | None] = {}
    reporting = 0
    for address in node.names(pci.DEVICES):
        first = node.text(f"{pci.DEVICES}/{address}/aer_dev_correctable")
        if first is None:
            continue
        reporting += 1
        values[f"{address} correctable"] = parse(first, _FILES["correctable"])
        for kind in ("nonfatal", "fatal"):
            values[f"{address} {kind}"] = parse(
                node.text(f"{pci.DEVICES}/{address}/aer_dev_{kind}"), _FILES[kind]
            )
    if not reporting:
        raise findings.Absent("no device reports PCIe errors")
    return Reading(
        grown=counters.growth(node, {k: v for k, v in values.items() if v is not None}), devices=reporting
    )


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    when = "since boot" if reading.grown.first else "since the last look"
    for key, count in reading.grown.by_key.items():
        address, _, kind = key.partition(" ")
        facts = {"device": address, "detail": {"pci_bus_id": address}}
        rate, most = reading.grown.per_hour(key), limits[f"{kind}_per_hour"]
        if count and rate > most:
            # What happened before our first look may long be repaired: shown, not acted on.
            make = findings.fail if kind == "fatal" and not reading.grown.first else findings.warn
            text = f"{address}: {count} {kind} PCIe errors {when}"
            parts.append(make(text, measured=round(rate, 2), threshold=most, unit="per_hour", **facts))
    return findings.merge(parts, healthy=f"few PCIe errors on {reading.devices} devices")


CHECK = registry.Check(
    proves="No PCIe device reports new errors on its link.",
    component="pcie",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.LOW,
    lane="fabric",
    fails="new fatal errors since the last look",
    warns="new non-fatal errors, or correctable ones faster than their limit, or fatal ones since boot",
    needs="a device with advanced error reporting",
    next_step="`dmesg | grep AER` names the error; reseat the card, swap the riser, then the card.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "correctable_per_hour",
            100.0,
            "per_hour",
            "correctable errors per device and hour above which we warn",
            "ours: links retrain a few times a day at most",
        ),
        registry.Threshold(
            "nonfatal_per_hour",
            0.0,
            "per_hour",
            "non-fatal errors per device and hour above which we warn",
            "PCIe: uncorrected errors are never normal",
        ),
        registry.Threshold(
            "fatal_per_hour",
            0.0,
            "per_hour",
            "fatal errors per device and hour above which it fails",
            "PCIe: uncorrected errors are never normal",
        ),
    ),
)
