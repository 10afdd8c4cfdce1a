"""PCIe links of network adapters and NVMe drives (and of GPUs where NVML does not answer): width, speed, AER, presence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
ROOT = "/sys/bus/pci/devices"
LASTING = 3
_RESCAN = 30
"""Readings after which the bus is listed anew; in between only the devices of interest are read."""

_INTEREST = {
    "0x0302": "gpu",
    "0x0300": "gpu",
    "0x0207": "hca",
    "0x0200": "hca",
    "0x0c06": "hca",
    "0x0108": "nvme",
}
"""First digits of the class code to what it is; network adapters count only from Mellanox, GPUs only from NVIDIA."""
_VENDORS = {"gpu": "0x10de", "hca": "0x15b3"}
_LINK = (
    "current_link_width",
    "current_link_speed",
    "aer_dev_fatal",
    "aer_dev_nonfatal",
    "aer_dev_correctable",
)
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d+)$", re.MULTILINE)
_SPEED = re.compile(r"([\d.]+) GT/s")


@dataclass(frozen=True, kw_only=True)
class PcieDevice:
    """One device of interest as read."""

    address: str
    what: str
    width: int | None
    speed_gts: float | None
    errors: Mapping[str, int | None]
    """AER severity to count: fatal, nonfatal, correctable."""


async def read(
    reader: polled.NodeReader, memory: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The links of the devices of interest; now and then (and at first) the whole bus is listed to find them."""
    known: dict[str, str] = dict(memory.get("known", {}))
    another_boot = memory.get("boot_id") != context.boot_id
    due = int(memory.get("round", 0)) % _RESCAN == 0 or another_boot
    if due or not known:
        listed = await reader.files([f"{ROOT}/*/class", f"{ROOT}/*/vendor"], [f"{ROOT}/*/physfn"])
        known = interesting(listed)
    paths = [f"{ROOT}/{address}/{name}" for address in known for name in _LINK]
    raw = await reader.files(paths) if paths else {"files": {}, "errors": {}, "links": {}}
    return {**raw, "known": known, "scanned": due}


def interesting(raw: Mapping[str, Any]) -> dict[str, str]:
    """Address to what it is, of the devices worth watching: no virtual functions, which come and go at will."""
    found: dict[str, str] = {}
    virtual = {address for (address,) in sysfs.matching(raw, rf"{ROOT}/([^/]+)/physfn")}
    for (address,) in sysfs.matching(raw, rf"{ROOT}/([^/]+)/class"):
        what = _INTEREST.get((sysfs.text(raw, f"{ROOT}/{address}/class") or "")[:6])
        vendor = sysfs.text(raw, f"{ROOT}/{address}/vendor")
        if what is not None and address not in virtual and _VENDORS.get(what, vendor) == vendor:
            found[address] = what
    return found


def parse(raw: Mapping[str, Any]) -> list[PcieDevice]:
    """The devices that could be read."""
    return [
        _device(raw, address, what)
        for address, what in raw["known"].items()
        if any(f"{ROOT}/{address}/{n}" in raw["files"] for n in _LINK)
    ]


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """A link narrower or slower than it was, a device that is gone, uncorrected errors counted by the device itself."""
    same_boot = memory.get("boot_id") == context.boot_id
    counters = baseline.Baseline.of(memory, context.boot_id)
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})) if same_boot else {})
    best: dict[str, dict[str, Any]] = {} if context.relearn else dict(memory.get("best", {}))
    present: list[Condition] = []
    edges: list[ConditionEdge] = []
    devices = [d for d in parse(raw) if not _by_nvml(d.what, context)]
    addresses = {d.address for d in devices}
    # Earlier versions remembered virtual functions, too: those have no link.
    best = {a: link for a, link in best.items() if a in addresses or link["width"] or link["speed_gts"]}
    if raw["scanned"] and not same_boot:
        edges += _renumbered(best, devices, context)
    for device in devices:
        best[device.address] = _better(best.get(device.address, {}), device)
        present += _link(device, best[device.address], streaks, context)
        edges += _errors(device, counters, context)
    for address, link in best.items():
        gone = address not in addresses and not _by_nvml(link["what"], context)
        if streaks.at_least(f"{address}:gone", LASTING, holds=gone):
            text = f"{address} is gone from the PCIe bus"
            present.append(_condition(address, link["what"], "pcie_link", "missing", HIGH, text, context))
    return Judgement(
        present=tuple(present),
        edges=tuple(edges),
        memory={
            "boot_id": context.boot_id,
            "counters": counters.values,
            "streaks": streaks.counts,
            "best": best,
            "known": {a: w for a, w in raw["known"].items() if a in addresses or not raw["scanned"]},
            "round": (int(memory.get("round", 0)) + 1) % _RESCAN,
        },
        state="ok" if devices or best else "absent",
    )


def _by_nvml(what: str, context: polled.PollContext) -> bool:
    """GPUs are NVML's business while the node has an inventory of them; an idle GPU narrows its link on purpose."""
    return what == "gpu" and bool(context.inventory.of_maker(gpus.NVIDIA).gpus)


def _renumbered(
    best: dict[str, dict[str, Any]], devices: list[PcieDevice], context: polled.PollContext
) -> list[ConditionEdge]:
    """After a boot: where as many devices of a kind are new as are gone, firmware or a card has renumbered the bus."""
    found: list[ConditionEdge] = []
    for what in sorted({link["what"] for link in best.values()}):
        there = {d.address for d in devices if d.what == what}
        gone = sorted(a for a, link in best.items() if link["what"] == what and a not in there)
        new = sorted(there - best.keys())
        if not gone or len(gone) != len(new):
            continue
        for old in gone:
            del best[old]
        text = f"of {what} devices {', '.join(gone)} became {', '.join(new)} on the PCIe bus with this boot"
        moved = _condition(new[0], what, "pcie_link", "renumbered", INFO, text, context)
        found.append(ConditionEdge(what=moved, value=context.boot_id, latches=False))
    return found


def _better(known: Mapping[str, Any], device: PcieDevice) -> dict[str, Any]:
    return {
        "what": device.what,
        "width": max(known.get("width") or 0, device.width or 0) or None,
        "speed_gts": max(known.get("speed_gts") or 0.0, device.speed_gts or 0.0) or None,
    }


def _link(
    device: PcieDevice, best: Mapping[str, Any], streaks: baseline.Streaks, context: polled.PollContext
) -> list[Condition]:
    found: list[Condition] = []
    for code, value, was, severity, unit in (
        ("width", device.width, best["width"], LOW, "lanes"),
        ("speed", device.speed_gts, best["speed_gts"], INFO, "gts"),
    ):
        worse = bool(value and was and value < was)
        if streaks.at_least(f"{device.address}:{code}", LASTING, holds=worse):
            text = f"the PCIe link of {device.address} runs at {code} {value:g}, it was {was:g}"
            more = {"measured": float(value or 0), "threshold": float(was or 0), "unit": unit}
            found.append(
                _condition(device.address, device.what, "pcie_width", code, severity, text, context, **more)
            )
    return found


def _errors(
    device: PcieDevice, counters: baseline.Baseline, context: polled.PollContext
) -> list[ConditionEdge]:
    found: list[ConditionEdge] = []
    for code, severity in (("fatal", HIGH), ("nonfatal", LOW), ("correctable", INFO)):
        before = counters.values.get(f"{device.address}:{code}")
        moved = counters.move(f"{device.address}:{code}", device.errors.get(code))
        if moved is None or not moved.delta or moved.was_reset:
            continue
        if severity is INFO and baseline.decade(moved.value) <= baseline.decade(before or 0):
            continue
        text = f"{moved.delta} more {code} PCIe errors at {device.address}, {moved.value} since boot"
        what = _condition(
            device.address,
            device.what,
            "pcie_aer",
            code,
            severity,
            text,
            context,
            measured=float(moved.delta),
            unit="count",
        )
        found.append(ConditionEdge(what=what, value=moved.position, latches=severity is HIGH))
    return found


def _condition(
    address: str,
    what: str,
    kind: str,
    code: str,
    severity: records.Severity,
    message: str,
    context: polled.PollContext,
    **more: Any,
) -> Condition:
    gpu = context.inventory.by_pci(address)
    return Condition(
        kind=kind,
        code=code,
        device=gpu.device if gpu is not None else address,
        gpu_uuid=gpu.uuid if gpu is not None else None,
        pci_bus_id=address if gpus.pci_key(address) else None,
        severity=severity,
        message=message,
        detail={"what": what},
        **more,
    )


def _device(raw: Mapping[str, Any], address: str, what: str) -> PcieDevice:
    base = f"{ROOT}/{address}"
    speed = _SPEED.match(sysfs.text(raw, f"{base}/current_link_speed") or "")
    totals = {
        w: _TOTAL.search(sysfs.text(raw, f"{base}/aer_dev_{w}") or "")
        for w in ("fatal", "nonfatal", "correctable")
    }
    width = sysfs.number(raw, f"{base}/current_link_width")
    return PcieDevice(
        address=address,
        what=what,
        # A device that does not answer reads as all ones: 63 lanes is no width.
        width=width if width is not None and 0 < width <= 32 else None,
        speed_gts=float(speed[1]) if speed is not None else None,
        errors={w: int(m[1]) if m is not None else None for w, m in totals.items()},
    )


SOURCE = polled.Polled(
    name="pcie",
    source="sysfs",
    read=read,
    judge=judge,
    every=3,
    reads="`/sys/bus/pci/devices` of adapters, NVMe drives, and GPUs where NVML is not there",
    stands="gone from the bus, fatal AER · narrower link, non-fatal AER · slower link, corrected AER",
)
