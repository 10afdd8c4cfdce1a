"""AMD's GPUs through AMD SMI: one that is lost, a driver that went away, errors that could not be corrected, heat.

Asked only where the amdgpu driver is loaded (or was, when GPUs were last seen), so that other nodes pay nothing.
The GPUs join the node's inventory, so that a kernel line's address and a number or a name of Slurm's mean one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from probing_cluster.core import digits, records
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
DRIVER = "sys/module/amdgpu/initstate"
DEVICES = "sys/bus/pci/devices"
_RENDER = re.compile(rf"{DEVICES}/([^/]+)/drm/renderD\d+/dev")
LASTING = 3
"""Readings in a row before heat counts, and before a GPU that refuses its own address counts as lost."""


async def read(
    reader: polled.NodeReader, memory: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The answer of amdsmi_child, and what sysfs says of GPUs met for the first time; without the driver the library is not asked."""
    del context
    if not (await reader.files((DRIVER,)))["files"]:
        return {"lack": "driver", "message": "the amdgpu driver is not loaded"}
    raw = await reader.amdsmi()
    met = {str(g["pci_bus_id"]) for g in raw.get("gpus", ()) if g["pci_bus_id"] is not None}
    fresh = sorted(met - memory.get("chips", {}).keys())
    if not fresh:
        return raw
    found = await reader.files(
        [f"{DEVICES}/{a}/{name}" for a in fresh for name in ("unique_id", "drm/renderD*/dev")]
    )
    return {**raw, "chips": chips(found, fresh)}


def chips(raw: Mapping[str, Any], addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Address to the number that its chip carries (`serial`, hexadecimal) and that of its render device (`minor`)."""
    minors = {}
    for path in raw["files"]:
        if found := _RENDER.fullmatch(path):
            number = (sysfs.text(raw, path) or "").rpartition(":")[2].strip()
            minors[found[1]] = int(number) if digits.is_number(number) else None
    return {
        a: {"serial": (sysfs.text(raw, f"{DEVICES}/{a}/unique_id") or "").strip(), "minor": minors.get(a)}
        for a in addresses
    }


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """Conditions, edges and what was learned."""
    known = {} if context.relearn else {str(k): dict(v) for k, v in memory.get("gpus", {}).items()}
    if "gpus" not in raw:
        return _unavailable(raw, known, memory)
    counters = baseline.Baseline.of(memory, context.boot_id)
    same_boot = memory.get("boot_id") == context.boot_id
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})) if same_boot else {})
    present: list[Condition] = []
    edges: list[ConditionEdge] = []
    answering = _named([g for g in raw["gpus"] if g["pci_bus_id"] is not None], known)
    reset: set[str] = set()
    for address, gpu in answering.items():
        known[address] = {"index": gpu["index"], "uuid": gpu["uuid"]}
        present += _heat(gpu, streaks)
        found, was_reset = _ecc(gpu, counters)
        edges += found
        reset |= {gpu["uuid"]} if was_reset and gpu["uuid"] else set()
    chips_of = {**memory.get("chips", {}), **raw.get("chips", {})}
    known = {p: gpu for p, gpu in known.items() if p in answering or not _elsewhere(p, answering, chips_of)}
    lost = [p for p in sorted(known) if streaks.at_least(f"{p}:lost", LASTING, holds=p not in answering)]
    present += [_lost(p, known[p], len(answering), len(known)) for p in lost]
    unanswered = {_name(k) for p, k in known.items() if p not in answering and p not in lost}
    return Judgement(
        present=tuple(present),
        edges=tuple(edges),
        unknown=frozenset(unanswered | {_name(g) for p, g in answering.items() if g["failed"]}),
        healthy=frozenset(
            n
            for p, g in answering.items()
            if not g["failed"]
            for n in (_name(g), g["uuid"], p, gpus.pci_key(p))
            if n
        ),
        reset=frozenset(reset),
        inventory=context.inventory.with_maker(gpus.AMD, _inventory(known, chips_of)),
        memory={
            "boot_id": context.boot_id,
            "chips": {a: chip for a, chip in chips_of.items() if a in known},
            "gpus": known,
            "counters": counters.values,
            "streaks": streaks.counts,
        },
        state="ok" if known else "absent",
    )


def hung(why: str, memory: Mapping[str, Any]) -> Judgement:
    """A reading that never returned; the third in a row is a fault of the node."""
    return polled.silent_library("amdsmi", "AMD SMI", why, memory)


def _unavailable(
    raw: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], memory: Mapping[str, Any]
) -> Judgement:
    """No reading: a fault where GPUs were seen before; a missing library only says that nobody can look."""
    lack, message = str(raw.get("lack", "unknown")), str(raw.get("message", ""))
    kept = {**{k: v for k, v in memory.items() if k != "hangs"}, "gpus": dict(known)}
    if not known:
        return Judgement(memory=kept, state="absent" if lack == "driver" else f"{lack}: {message}")
    unknown = frozenset(_name(k) for k in known.values())
    if lack == "library":
        return Judgement(memory=kept, unknown=unknown | {"amdsmi"}, state=f"{lack}: {message}")
    what = Condition(
        kind="driver",
        code=lack.upper(),
        device="amdsmi",
        severity=HIGH,
        message=f"none of this node's {len(known)} AMD GPUs can be reached: {message}",
        measured=0.0,
        threshold=float(len(known)),
        unit="count",
    )
    return Judgement(present=(what,), unknown=unknown, memory=kept, state=f"{lack}: {message}")


def _named(
    listed: Iterable[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The GPUs that answer, by address; while one is missing the library counts anew, and names stay as they were."""
    answering = {str(g["pci_bus_id"]): g for g in listed}
    if known.keys() <= answering.keys():
        return answering
    return {a: {**g, "index": known[a]["index"]} if a in known else g for a, g in answering.items()}


def _elsewhere(address: str, answering: Iterable[str], chips_of: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the chip of an address answers at another: a partition that was joined again, or a renumbered bus."""
    serial = str(chips_of.get(address, {}).get("serial") or "")
    return any(
        gpus.pci_key(a) == gpus.pci_key(address)
        or (serial.strip("0x") and chips_of.get(a, {}).get("serial") == serial)
        for a in answering
    )


def _inventory(
    known: Mapping[str, Mapping[str, Any]], chips_of: Mapping[str, Mapping[str, Any]]
) -> gpus.Inventory:
    """Every GPU known, one that is gone too; one without a UUID is called by its chip's number, else by its address."""
    made = []
    for address, gpu in known.items():
        chip = chips_of.get(address, {})
        serial = str(chip.get("serial") or "")
        uuid = gpu.get("uuid") or (f"GPU-{serial}" if serial else address)
        made.append(
            gpus.Gpu(
                uuid=uuid,
                index=gpu["index"],
                minor=chip.get("minor"),
                pci_bus_id=address,
                serial=serial,
                maker=gpus.AMD,
            )
        )
    return gpus.Inventory(gpus=tuple(sorted(made, key=lambda g: (g.index, g.uuid))))


def _name(gpu: Mapping[str, Any]) -> str:
    return f"gpu{gpu['index']}"


def _lost(address: str, gpu: Mapping[str, Any], present: int, expected: int) -> Condition:
    return Condition(
        kind="gpu_lost",
        code="MISSING",
        device=_name(gpu),
        gpu_uuid=gpu.get("uuid"),
        pci_bus_id=address,
        severity=HIGH,
        message=f"the AMD GPU at {address} is gone: AMD SMI does not show it any more, {LASTING} readings in a row",
        measured=float(present),
        threshold=float(expected),
        unit="count",
    )


def _heat(gpu: Mapping[str, Any], streaks: baseline.Streaks) -> list[Condition]:
    value, limit = gpu["temperature_c"], gpu["critical_c"]
    hot = bool(value is not None and limit and value >= limit)
    if not streaks.at_least(f"{gpu['pci_bus_id']}:heat", LASTING, holds=hot):
        return []
    return [
        Condition(
            kind="thermal",
            code="gpu",
            device=_name(gpu),
            gpu_uuid=gpu["uuid"],
            pci_bus_id=gpu["pci_bus_id"],
            severity=LOW,
            message=f"{_name(gpu)}: temperature {value} °C is at its limit of {limit} °C",
            measured=float(value),
            threshold=float(limit),
            unit="c",
        )
    ]


def _ecc(gpu: Mapping[str, Any], counters: baseline.Baseline) -> tuple[list[ConditionEdge], bool]:
    """Counts that rose since the last reading; and whether one fell: then the GPU or its driver began anew."""
    found: list[ConditionEdge] = []
    fell = False
    for name, code, severity in (
        ("uncorrectable", "uncorrectable", HIGH),
        ("deferred", "deferred", LOW),
        ("correctable", "corrected", INFO),
    ):
        key = f"{gpu['pci_bus_id']}:{name}"
        before = counters.values.get(key, 0)
        moved = counters.move(key, (gpu["ecc"] or {}).get(name))
        fell |= moved is not None and moved.was_reset
        if moved is None or moved.was_reset or not moved.delta:
            continue
        if severity is INFO and baseline.decade(before) == baseline.decade(moved.value):
            continue
        what = Condition(
            kind="ecc",
            code=code,
            device=_name(gpu),
            gpu_uuid=gpu["uuid"],
            pci_bus_id=gpu["pci_bus_id"],
            severity=severity,
            message=f"{_name(gpu)}: {moved.delta} more {name} errors, {moved.value} in all",
            measured=float(moved.delta),
            unit="count",
            detail={"total": moved.value},
        )
        found.append(
            ConditionEdge(
                what=what, latches=severity is HIGH, value=f"{gpu['pci_bus_id']}:{name}:{moved.position}"
            )
        )
    return found, fell


SOURCE = polled.Polled(
    name="amdsmi",
    source="amdsmi",
    read=read,
    judge=judge,
    hung=hung,
    reads="AMD SMI (libamd_smi.so) in a resident child, only where the amdgpu driver is loaded",
    stands="GPU gone (3 readings), driver gone, three readings that never returned, uncorrectable ECC · deferred ECC, heat · corrected ECC by powers of ten",
)
