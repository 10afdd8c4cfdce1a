"""Every GPU that should be here is here and answers."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml, pci


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What NVML, the PCI bus and Slurm each say."""

    nvml: nvml.NvmlSnapshot | nvml.NvmlUnavailable
    on_pci: tuple[str, ...] | None
    """Addresses of GPUs bound to the NVIDIA driver or to none; None = the bus cannot be seen."""
    configured: int | None
    """None also where Slurm's number may not be one of NVIDIA GPUs."""
    allocated: dict[int, tuple[str, ...]]


def read(node: nodeview.NodeView) -> Reading:
    found = gpus.on_pci(node)
    mine = None if found is None else tuple(f.address for f in found if f.driver in (None, "nvidia"))
    return Reading(
        nvml=gpus.reading(node),
        on_pci=mine,
        configured=gpus.configured(node),
        allocated=dict(node.expected.allocated or {}),
    )


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    wanted: int | None = limits["expected"] if limits["expected"] is not None else reading.configured
    if isinstance(reading.nvml, nvml.NvmlUnavailable):
        return _unavailable(reading.nvml, reading.on_pci, wanted)
    there = reading.nvml.gpus
    if limits["expected"] is None and any(g.mig or "mig" in g.unread for g in there):
        wanted = None  # Slurm counts slices of GPUs, NVML whole ones
    if not there and not wanted and not reading.on_pci:
        return findings.absent("no NVIDIA GPU on this node")
    parts = [
        gpus.bad(findings.fail, g, f"lost ({g.lost})", measured=0.0, unit="count") for g in there if g.lost
    ]
    parts += _number(there, reading.on_pci or (), wanted)
    parts += _identity(there, reading.allocated, limits["model"])
    note = "as expected" if wanted else "(no number is configured)"
    return findings.merge(parts or [findings.ok("")], healthy=f"{gpus.count(there)} {note}")


def _number(
    there: tuple[nvml.NvmlGpu, ...], on_pci: tuple[str, ...], wanted: int | None
) -> list[findings.Finding]:
    counted = findings.amount(len(there), wanted, "count")
    known = {pci.bus_device(g.pci_bus_id) for g in there if g.pci_bus_id}
    unlisted = [a for a in on_pci if known and pci.bus_device(a) not in known]
    # A lost GPU may have no address in NVML any more: it is the one that is missing there, and counted as lost.
    if len(unlisted) <= sum(1 for g in there if g.lost and not g.pci_bus_id):
        unlisted = []
    if wanted is not None and len(there) < wanted:
        where = f"; on the PCI bus but not in NVML: {', '.join(unlisted)}" if unlisted else ""
        return [findings.fail(f"{len(there)} of {wanted} GPUs answer{where}", **counted)]
    if wanted is not None and len(there) > wanted:
        return [findings.warn(f"{len(there)} GPUs where {wanted} are configured", **counted)]
    return [
        findings.warn(
            f"the GPU at {a} is on the PCI bus and NVML does not list it", device=a, detail={"pci_bus_id": a}
        )
        for a in unlisted
    ]


def _unavailable(
    lack: nvml.NvmlUnavailable, on_pci: tuple[str, ...] | None, wanted: int | None
) -> findings.Finding:
    if (lack.kind is nvml.SnapshotLack.ABSENT and not on_pci and not wanted) or gpus.unused_library(
        lack, on_pci, wanted
    ):
        return findings.absent("no NVIDIA GPU on this node")
    if lack.code in ("DRIVER_NOT_LOADED", "GPU_IS_LOST", "RESET_REQUIRED") and (on_pci or wanted):
        number = wanted if wanted is not None else len(on_pci or ())
        return findings.fail(
            f"no GPU answers: {lack.message}", measured=0.0, threshold=float(number), unit="count"
        )
    if lack.code == "LIB_RM_VERSION_MISMATCH":
        return findings.fail(f"driver and NVML library differ: {lack.message}", severity=records.Severity.LOW)
    # A missing library may be our own wrong path: that must never cost a healthy node.
    return findings.unseen(lack.message, timed_out=lack.kind is nvml.SnapshotLack.HANG)


def _identity(
    there: tuple[nvml.NvmlGpu, ...], allocated: dict[int, tuple[str, ...]], model: str | None
) -> list[findings.Finding]:
    parts: list[findings.Finding] = []
    uuids = {g.uuid for g in there}
    if None not in uuids:
        parts += [
            findings.fail(f"{uuid} of job {job} is gone", device=uuid, detail={"gpu_uuid": uuid})
            for job, given in sorted(allocated.items())
            for uuid in given
            if uuid.startswith("GPU-") and uuid not in uuids  # a MIG slice has a UUID of its own
        ]
    if model:
        low = records.Severity.LOW
        parts += [
            gpus.bad(findings.fail, g, f"is a {g.name}, not a {model}", severity=low)
            for g in there
            if g.name is not None and model.lower() not in g.name.lower()
        ]
    return parts


def _learn(reading: Reading) -> dict[str, int | str | None]:
    if isinstance(reading.nvml, nvml.NvmlUnavailable) or not reading.nvml.gpus:
        return {}
    return {"expected": len(reading.nvml.gpus), "model": reading.nvml.gpus[0].name}


CHECK = registry.Check(
    proves="All GPUs that Slurm and the site file promise are there, are the right model and answer.",
    component="gpu",
    domain=records.Domain.HARDWARE,
    severity=records.Severity.HIGH,
    lane="gpu",
    deadline_s=5.0,
    hard=True,
    fails="a GPU is lost or missing, the driver is not loaded, or a running job's GPU UUID is gone; "
    "low: another model, driver and library of different versions",
    warns="more GPUs than configured, or one on the PCI bus that NVML does not list",
    needs="an NVIDIA GPU on the PCI bus, in NVML, in Slurm's configuration or in the site file",
    next_step="Look for Xid 79 and AER lines around the time; reset or power-cycle the node; "
    "if the same slot is lost again, reseat or replace that GPU.",
    read=read,
    judge=judge,
    learn=_learn,
    thresholds=(
        registry.Threshold(
            "expected",
            None,
            "count",
            "GPUs the node must have; unset = what slurm.conf configures, where that can only mean whole NVIDIA GPUs",
            "Slurm's Gres=gpu; GCM check-nvidia-smi gpu_num hard-codes 8",
            unset=int,
        ),
        registry.Threshold(
            "model", None, "", "text every GPU's name must contain; unset = any", "site", unset=str
        ),
    ),
)
