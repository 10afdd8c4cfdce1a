"""Every NVLink is up and does not keep repeating itself."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import counters, findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml, pci

FABRIC_COMPLETED = 3

_ERRORS = ("replay", "recovery", "crc")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The GPUs, how their link error counters grew, and what to compare their links with."""

    gpus: tuple[nvml.NvmlGpu, ...]
    grown: counters.Growth
    switched: bool
    """Whether the GPUs hang on NVSwitches: then all of a model have the same links."""
    best: dict[str, int]
    """Most links up in this boot, by UUID."""


def read(node: nodeview.NodeView) -> Reading:
    node_gpus = gpus.present(node)
    if not any(g.links for g in node_gpus) and not any(g.lost or "nvlink" in g.unread for g in node_gpus):
        raise findings.Absent("no NVLink on this node")
    try:
        switched = any(f.is_nvswitch for f in pci.functions(node))
    except findings.Absent:
        switched = False
    best = {str(k): int(v) for k, v in node.memory.get("best", {}).items()}
    node.memory["best"] = best | {
        g.uuid: max(_up(g), best.get(g.uuid, 0)) for g in node_gpus if g.uuid and not g.lost
    }
    switched = switched or any(g.fabric_state == FABRIC_COMPLETED for g in node_gpus)
    return Reading(
        gpus=node_gpus, grown=counters.growth(node, totals(node_gpus)), switched=switched, best=best
    )


def _up(gpu: nvml.NvmlGpu) -> int:
    return sum(1 for link in gpu.links if link.active)


def totals(node_gpus: tuple[nvml.NvmlGpu, ...]) -> dict[str, int | None]:
    """Errors of each kind over all links of a GPU, by `gpu0 replay`."""
    found: dict[str, int | None] = {}
    for gpu in node_gpus:
        for kind in _ERRORS:
            counts = [getattr(link, f"{kind}_errors_total") for link in gpu.links]
            known = [c for c in counts if c is not None]
            found[f"{gpu.device} {kind}"] = sum(known) if known else None
    return found


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    twins: dict[str | None, int] = {}
    for gpu in reading.gpus:
        twins[gpu.name] = max(twins.get(gpu.name, 0), _up(gpu))

    def one(gpu: nvml.NvmlGpu) -> findings.Finding:
        if "nvlink" in gpu.unread:
            return gpus.unseen(gpu, f"NVLink state cannot be read: {gpu.unread['nvlink']}")
        if gpu.mig:
            return findings.absent(f"{gpu.device} is in MIG mode: NVLink is off", device=gpu.device)
        up, wanted = _up(gpu), _wanted(gpu, reading, limits, twins[gpu.name])
        if up < wanted:
            down = ", ".join(str(link.link) for link in gpu.links if not link.active)
            text = f"{up} of {wanted} NVLinks up (down: {down or 'not listed'})"
            return gpus.bad(findings.fail, gpu, text, **findings.amount(up, wanted, "count"))
        if not up:
            return findings.absent(f"{gpu.device}: NVLink is not connected", device=gpu.device)
        return _errors(gpu, reading.grown, limits)

    total = sum(_up(g) for g in reading.gpus)
    return findings.merge(
        gpus.each(reading.gpus, one), healthy=f"{total} NVLinks up on {gpus.count(reading.gpus)}"
    )


def _wanted(gpu: nvml.NvmlGpu, reading: Reading, limits: registry.Limits, twins: int) -> int:
    if limits["links"] is not None:
        return int(limits["links"])
    # Boards leave links unconnected by design, and bridges join some GPUs only: without NVSwitches a GPU
    # is compared with itself earlier in this boot, and with its twins never.
    own = reading.best.get(gpu.uuid or "", 0)
    if not reading.switched:
        return own
    # A single one without any may be given to a virtual machine without its links.
    return max(own, twins) or (len(gpu.links) if len(reading.gpus) > 1 else 0)


def _errors(gpu: nvml.NvmlGpu, grown: counters.Growth, limits: registry.Limits) -> findings.Finding:
    for kind in _ERRORS:
        rate, most = grown.per_hour(f"{gpu.device} {kind}"), limits[f"{kind}_per_hour"]
        if rate > most:
            when = "since boot" if grown.first else "since the last look"
            text = f"{grown.by_key[f'{gpu.device} {kind}']} NVLink {kind} errors {when}"
            return gpus.bad(
                findings.warn, gpu, text, measured=round(rate, 2), threshold=most, unit="per_hour"
            )
    return gpus.ok(gpu)


CHECK = registry.Check(
    proves="Every NVLink of every GPU is up, and none keeps repeating packets.",
    component="nvlink",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="gpu",
    hard=True,
    fails="a GPU has fewer links up than the site file says, or than it had in this boot; behind NVSwitches also: than a "
    "GPU of the same model, or none at all",
    warns="replay, recovery or CRC errors grow faster than their limit (growth, never lifetime counts)",
    needs="a GPU with NVLink that is connected, and not in MIG mode",
    next_step="Check nvswitch_fabric and the SXid lines; reset all GPUs of the baseboard; if one link stays down, replace the GPU or board.",
    read=read,
    judge=judge,
    learn=lambda reading: {
        "links": min(
            (sum(1 for link in g.links if link.active) for g in reading.gpus if g.links), default=None
        )
    },
    thresholds=(
        registry.Threshold(
            "links",
            None,
            "count",
            "links up per GPU; unset = as many as earlier in this boot, behind NVSwitches as many as its twins",
            "site (genconf) or SKU preset",
            unset=int,
        ),
        registry.Threshold(
            "replay_per_hour",
            60.0,
            "per_hour",
            "replays per GPU and hour above which we warn",
            "ours; GCM fails on any lifetime count",
        ),
        registry.Threshold(
            "recovery_per_hour",
            1.0,
            "per_hour",
            "link recoveries per GPU and hour above which we warn",
            "ours; GCM fails on any lifetime count",
        ),
        registry.Threshold(
            "crc_per_hour",
            360.0,
            "per_hour",
            "flit CRC errors per GPU and hour above which we warn",
            "DCGM NVLink health: 100 CRC errors per second is far beyond; ours is one per 10 s",
        ),
    ),
)
