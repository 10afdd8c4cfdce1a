"""AMD's GPUs through AMD SMI: one that is lost, a driver that went away, errors that could not be corrected, heat.

Asked only where the amdgpu driver is loaded (or was, when GPUs were last seen), so that other nodes pay nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, Edge, Judgement
from probing_cluster.probe_agent.sources import polled

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
DRIVER = "sys/module/amdgpu/initstate"
HANGS_NEEDED = 3
"""Readings in a row that must not return before the node counts as faulty."""
LASTING = 3
"""Readings in a row before heat counts, and before a GPU that refuses its own address counts as lost."""


async def read(reach: polled.Reach, memory: Mapping[str, Any], context: polled.Context) -> Mapping[str, Any]:
    """The answer of amdsmi_child; without the driver the library is not asked."""
    del memory, context
    if not (await reach.files((DRIVER,)))["files"]:
        return {"lack": "driver", "message": "the amdgpu driver is not loaded"}
    return await reach.amdsmi()


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.Context) -> Judgement:
    """Conditions, edges and what was learned."""
    known = {} if context.relearn else {str(k): dict(v) for k, v in memory.get("gpus", {}).items()}
    if "gpus" not in raw:
        return _unavailable(raw, known, memory)
    counters = baseline.Baseline.of(memory, context.boot_id)
    same_boot = memory.get("boot_id") == context.boot_id
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})) if same_boot else {})
    present: list[Condition] = []
    edges: list[Edge] = []
    answering: dict[str, Mapping[str, Any]] = {}
    for gpu in raw["gpus"]:
        if gpu["pci_bus_id"] is None:
            continue
        answering[gpu["pci_bus_id"]] = gpu
        known[gpu["pci_bus_id"]] = {"index": gpu["index"], "uuid": gpu["uuid"]}
        present += _heat(gpu, streaks)
        edges += _ecc(gpu, counters)
    lost = [p for p in sorted(known) if streaks.at_least(f"{p}:lost", LASTING, holds=p not in answering)]
    present += [_lost(p, known[p], len(answering), len(known)) for p in lost]
    quiet = {_name(k) for p, k in known.items() if p not in answering and p not in lost}
    return Judgement(
        present=tuple(present),
        edges=tuple(edges),
        unknown=frozenset(quiet | {_name(g) for p, g in answering.items() if g["failed"]}),
        healthy=frozenset(
            n
            for p, g in answering.items()
            if not g["failed"]
            for n in (_name(g), g["uuid"], p, gpus.pci_key(p))
            if n
        ),
        memory={
            "boot_id": context.boot_id,
            "gpus": known,
            "counters": counters.values,
            "streaks": streaks.counts,
        },
        state="ok" if known else "absent",
    )


def hung(why: str, memory: Mapping[str, Any]) -> Judgement:
    """A reading that never returned; the third in a row is a fault of the node."""
    hangs = int(memory.get("hangs", 0)) + 1
    what = Condition(
        kind="driver",
        code="amdsmi_hang",
        device="amdsmi",
        severity=HIGH,
        message=f"AMD SMI has not answered {hangs} times in a row: {why}",
        measured=float(hangs),
        unit="count",
    )
    return Judgement(
        present=(what,) if hangs >= HANGS_NEEDED else (),
        unknown=frozenset({"*"}),
        memory={**memory, "hangs": hangs},
    )


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


def _ecc(gpu: Mapping[str, Any], counters: baseline.Baseline) -> list[Edge]:
    """Counts that rose since the last reading; one that fell began anew with the driver."""
    found: list[Edge] = []
    for name, code, severity in (
        ("uncorrectable", "uncorrectable", HIGH),
        ("deferred", "deferred", LOW),
        ("correctable", "corrected", INFO),
    ):
        key = f"{gpu['pci_bus_id']}:{name}"
        before = counters.values.get(key, 0)
        moved = counters.move(key, (gpu["ecc"] or {}).get(name))
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
            Edge(what=what, latches=severity is HIGH, value=f"{gpu['pci_bus_id']}:{name}:{moved.position}")
        )
    return found


SOURCE = polled.Polled(
    name="amdsmi",
    source="amdsmi",
    read=read,
    judge=judge,
    hung=hung,
    reads="AMD SMI (libamd_smi.so) in a resident child, only where the amdgpu driver is loaded",
    stands="GPU gone (3 readings), driver gone, three readings that never returned, uncorrectable ECC · deferred ECC, heat · corrected ECC by powers of ten",
)
