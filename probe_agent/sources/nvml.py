"""GPUs through NVML: what is wrong now, what moved since the last reading, and the Xids the driver announced.

A driver that does not load, a GPU that is lost or gone and a call that never returns are findings, not exceptions.
The NVML Xid event and the kernel's Xid line speak of one fault and are both kept, as two sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import clock, records
from probing_cluster.core.catalogue import xid
from probing_cluster.healthchecks.readers import nvml, pci
from probing_cluster.probe_agent.faults import baseline, gpus
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import nvml_gpu, polled, sysfs

HIGH, LOW, INFO = records.Severity.HIGH, records.Severity.LOW, records.Severity.INFO
LINKS_EVERY = 6
"""Readings between two of the NVLinks: they are most of the calls, and a link that goes down is said by an Xid."""

_DRIVER_SEVERITY = {"LIB_RM_VERSION_MISMATCH": LOW}
"""Running jobs live on after a driver update without a reboot; new ones cannot start."""


async def read(
    reader: polled.NodeReader, memory: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The snapshot and the Xids since the last reading; NVLinks in their turn, or when it matters."""
    turn = int(memory.get("round", 0)) % LINKS_EVERY == 0
    answer = await reader.nvml(links=turn or context.closely)
    if context.expect_gpus and not context.inventory.of_maker(gpus.NVIDIA).gpus and _no_driver(answer):
        # The number may be one of another maker's GPUs: those of AMD are the amdsmi source's.
        bus = await reader.files([f"{pci.DEVICES}/*/{name}" for name in ("class", "vendor")])
        return {**answer, "foreign": _foreign(bus)}
    return answer


def _no_driver(answer: Mapping[str, Any]) -> bool:
    read_now = nvml.from_json(answer["snapshot"])
    return isinstance(read_now, nvml.NvmlUnavailable) and (
        read_now.kind is nvml.SnapshotLack.ABSENT or read_now.code == "DRIVER_NOT_LOADED"
    )


def _foreign(bus: Mapping[str, Any]) -> bool:
    """Whether the GPUs on the PCI bus are another maker's."""
    base = pci.DEVICES
    found = [
        pci.PciFunction(
            address=address,
            vendor=sysfs.number(bus, f"{base}/{address}/vendor") or 0,
            device_id=0,
            class_code=(sysfs.number(bus, f"{base}/{address}/class") or 0) >> 8,
        )
        for (address,) in sysfs.matching(bus, rf"{base}/([^/]+)/class")
    ]
    return pci.foreign_gpus(found) and not any(f.is_gpu for f in found)


def parse(raw: Mapping[str, Any]) -> tuple[nvml.NvmlSnapshot | nvml.NvmlUnavailable, list[dict[str, Any]]]:
    """The answer of nvml_child as values."""
    return nvml.from_json(raw["snapshot"]), list(raw["xids"])


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """Conditions, edges and what was learned."""
    snapshot, xids = parse(raw)
    same_boot = memory.get("boot_id") == context.boot_id
    kept: dict[str, Any] = {
        "boot_id": context.boot_id,
        "expected": int(memory.get("expected", 0)),
        "links": dict(memory.get("links", {})),
        "round": (int(memory.get("round", 0)) + 1) % LINKS_EVERY,
        "numbers": dict(memory.get("numbers", {})) if same_boot else {},
        "streaks": dict(memory.get("streaks", {})) if same_boot else {},
    }
    edges = [_xid_edge(x, kept["numbers"], context) for x in xids]
    if isinstance(snapshot, nvml.NvmlUnavailable):
        if raw.get("foreign"):
            return Judgement(edges=tuple(edges), memory=kept, state="absent")
        return _unavailable(snapshot, kept, edges, memory, context)
    return _available(snapshot, kept, edges, memory, context, links_read=bool(raw.get("links", True)))


def hung(why: str, memory: Mapping[str, Any]) -> Judgement:
    """A reading that never returned; the third in a row is a fault of the node."""
    return polled.silent_library("nvml", "NVML", why, memory)


def _available(
    snapshot: nvml.NvmlSnapshot,
    kept: dict[str, Any],
    edges: list[ConditionEdge],
    memory: Mapping[str, Any],
    context: polled.PollContext,
    *,
    links_read: bool,
) -> Judgement:
    counters = baseline.Baseline.of(memory, context.boot_id)
    streaks = baseline.Streaks(counts=kept["streaks"])
    before = context.inventory.of_maker(gpus.NVIDIA)
    well = [g for g in snapshot.gpus if g.lost is None and g.uuid]
    expected = context.expect_gpus or (
        len(well) if context.relearn else max(kept["expected"], len(before.gpus), len(snapshot.gpus))
    )
    inventory = before.merged((_gpu(g) for g in well), complete=len(well) >= expected)
    present = _absent(snapshot, inventory, expected, well)
    reset: set[str] = set()
    for gpu in well:
        name = inventory.by_uuid(gpu.uuid)
        assert name is not None
        found = nvml_gpu.judge(gpu, name, counters, streaks, kept["links"], links_read=links_read)
        present += found.present
        edges += found.edges
        reset |= {gpu.uuid or ""} if found.was_reset else set()
    bad = {c.gpu_uuid for c in present if c.severity is HIGH}
    return Judgement(
        present=tuple(present),
        edges=tuple(edges),
        unknown=frozenset(inventory_name(inventory, g) for g in well if g.unread),
        healthy=frozenset(n for g in well if g.uuid not in bad for n in _names(inventory, g)),
        reset=frozenset(reset),
        memory={**kept, "expected": expected, "counters": counters.values, "streaks": streaks.counts},
        state="ok" if snapshot.gpus or expected else "absent",
        inventory=context.inventory.with_maker(gpus.NVIDIA, inventory),
    )


def _absent(
    snapshot: nvml.NvmlSnapshot, inventory: gpus.Inventory, expected: int, well: list[nvml.NvmlGpu]
) -> list[Condition]:
    """GPUs that NVML calls lost, and those it does not show any more."""
    uuids = {g.uuid for g in well}
    gone = [g for g in inventory.gpus if g.uuid not in uuids]
    words = {g.uuid: _lost_word(g, snapshot) for g in gone}
    found = [
        Condition(
            kind="gpu_lost",
            code=words[g.uuid] or "MISSING",
            device=g.device,
            gpu_uuid=g.uuid,
            pci_bus_id=g.pci_bus_id or None,
            severity=HIGH,
            message=f"{g.uuid} ({g.device}, serial {g.serial or 'unknown'}) {_gone_word(words[g.uuid])}",
            measured=float(len(well)),
            threshold=float(expected),
            unit="count",
        )
        for g in gone
    ]
    short = expected - len(well) - len(gone)
    if short > 0:
        found.append(_short(short, expected, len(well)))
    return found


def _lost_word(gone: gpus.Gpu, snapshot: nvml.NvmlSnapshot) -> str | None:
    """NVML's own word for a GPU it still lists; None when it is not listed at all."""
    for listed in snapshot.gpus:
        same = listed.uuid == gone.uuid if listed.uuid else listed.index == gone.index
        if same or (listed.pci_bus_id and gpus.pci_key(listed.pci_bus_id) == gpus.pci_key(gone.pci_bus_id)):
            return listed.lost
    return None


def _gone_word(word: str | None) -> str:
    return f"is lost: NVML says {word}" if word else "is gone: NVML does not show it any more"


def _short(short: int, expected: int, present: int) -> Condition:
    """GPUs that are configured and were never found, so that they have no UUID to name."""
    return Condition(
        kind="gpu_lost",
        code="MISSING",
        device="gpu",
        severity=HIGH,
        message=f"{short} of {expected} GPUs are not there: NVML shows {present}",
        measured=float(present),
        threshold=float(expected),
        unit="count",
    )


def _unavailable(
    why: nvml.NvmlUnavailable,
    kept: dict[str, Any],
    edges: list[ConditionEdge],
    memory: Mapping[str, Any],
    context: polled.PollContext,
) -> Judgement:
    """No snapshot: on a node that has (or must have) GPUs that is a fault; elsewhere there is nothing to see."""
    kept["counters"] = dict(memory.get("counters", {})) if memory.get("boot_id") == context.boot_id else {}
    before = context.inventory.of_maker(gpus.NVIDIA)
    expected = context.expect_gpus or max(kept["expected"], len(before.gpus))
    if context.relearn:
        expected = context.expect_gpus
    kept["expected"] = expected
    state = "absent" if why.kind is nvml.SnapshotLack.ABSENT else f"{why.kind}: {why.message}"
    if not expected:
        return Judgement(edges=tuple(edges), memory=kept, state="absent")
    what = Condition(
        kind="gpu_lost" if why.kind is nvml.SnapshotLack.LOST else "driver",
        code=why.code or str(why.kind).upper(),
        device="nvml",
        severity=_DRIVER_SEVERITY.get(why.code or "", HIGH),
        message=f"no GPU of this node's {expected} can be reached: {why.message}",
        measured=0.0,
        threshold=float(expected),
        unit="count",
    )
    # The GPUs' own conditions cannot be read either: they stay as they were.
    unknown = frozenset(g.device for g in before.gpus)
    return Judgement(present=(what,), edges=tuple(edges), unknown=unknown, memory=kept, state=state)


def _xid_edge(
    event: Mapping[str, Any], numbers: dict[str, int], context: polled.PollContext
) -> ConditionEdge:
    """One Xid of the event set; numbered per boot, GPU and code, since NVML keeps no position of its own."""
    code = int(event["code"])
    where = event.get("uuid") or event.get("pci_bus_id") or "unknown"
    key = f"{where}:{code}"
    numbers[key] = numbers.get(key, 0) + 1
    gpu = context.inventory.by_uuid(event.get("uuid"))
    entry = xid.lookup(code)
    return ConditionEdge(
        what=Condition(
            kind="xid",
            code=str(code),
            device=gpu.device if gpu is not None else str(where),
            gpu_uuid=event.get("uuid"),
            pci_bus_id=event.get("pci_bus_id"),
            severity=entry.severity,
            message=f"NVML reports Xid {code}: {entry.meaning}",
        ),
        value=f"{where}:{numbers[key]}",
        at=min(context.now, clock.from_epoch_s(float(event["at_s"]))),
        folds=True,
    )


def inventory_name(inventory: gpus.Inventory, gpu: nvml.NvmlGpu) -> str:
    """How the inventory calls a GPU of the snapshot."""
    known = inventory.by_uuid(gpu.uuid)
    return known.device if known is not None else gpu.device


def _names(inventory: gpus.Inventory, gpu: nvml.NvmlGpu) -> list[str]:
    names = [inventory_name(inventory, gpu), gpu.uuid, gpu.pci_bus_id, gpus.pci_key(gpu.pci_bus_id)]
    return [n for n in names if n]


def _gpu(gpu: nvml.NvmlGpu) -> gpus.Gpu:
    return gpus.Gpu(
        uuid=gpu.uuid or "",
        index=gpu.index,
        minor=gpu.minor,
        pci_bus_id=gpu.pci_bus_id or "",
        serial=gpu.serial or "",
        name=gpu.name or "",
    )


SOURCE = polled.Polled(
    name="nvml",
    source="nvml",
    read=read,
    judge=judge,
    hung=hung,
    reads="NVML in a resident child, with its Xid event set",
    stands="GPU lost or gone, driver not loaded, three readings that never returned, failed row remap, NVLink down, fabric failed · pending remap or page retirement, PCIe width, hardware throttling, heat, driver/library mismatch · corrected ECC, replays, link errors by powers of ten",
)
