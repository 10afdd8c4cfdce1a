"""VBIOS, InfoROM, GSP firmware and driver agree, with each other and with the site."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import gpus, nvml

_FIELDS = ("vbios", "inforom", "gsp_firmware")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The snapshot, and the version of the driver that is loaded in the kernel."""

    snapshot: nvml.NvmlSnapshot
    kernel_driver: str | None


def read(node: nodeview.NodeView) -> Reading:
    return Reading(
        snapshot=gpus.snapshot(node), kernel_driver=parse_driver(node.text("/proc/driver/nvidia/version"))
    )


def parse_driver(text: str | None) -> str | None:
    """550.90.07 of the first line of /proc/driver/nvidia/version."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text or "")
    return match[1] if match else None


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    snapshot = reading.snapshot
    parts = [findings.ok("")]
    wanted = limits["driver"]
    if wanted and snapshot.driver_version and snapshot.driver_version != wanted:
        parts.append(
            findings.fail(f"driver {snapshot.driver_version}, the site has {wanted}", device="driver")
        )
    if reading.kernel_driver and snapshot.driver_version and reading.kernel_driver != snapshot.driver_version:
        text = f"the kernel runs driver {reading.kernel_driver}, the libraries are {snapshot.driver_version}"
        parts.append(findings.warn(text, device="driver"))
    for field in _FIELDS:
        parts += _field(field, snapshot.gpus, limits[field])
    known = ", ".join(
        f"{f} {v}"
        for f in _FIELDS
        if (v := next((getattr(g, f) for g in snapshot.gpus if getattr(g, f)), None))
    )
    return findings.merge(parts, healthy=f"driver {snapshot.driver_version}; {known}")


def _field(field: str, there: tuple[nvml.NvmlGpu, ...], wanted: str | None) -> list[findings.Finding]:
    parts: list[findings.Finding] = []
    by_model: dict[str | None, list[nvml.NvmlGpu]] = {}
    for gpu in there:
        if getattr(gpu, field) is not None:
            by_model.setdefault(gpu.name, []).append(gpu)
    for alike in by_model.values():
        versions = [getattr(g, field) for g in alike]
        usual = wanted or max(set(versions), key=versions.count)
        make = findings.fail if wanted else findings.warn
        others = "the site has" if wanted else "the others have"
        odd = (g for g in alike if getattr(g, field) != usual)
        parts += [gpus.bad(make, g, f"{field} {getattr(g, field)}, {others} {usual}") for g in odd]
    return parts


CHECK = registry.Check(
    proves="Driver, VBIOS, InfoROM and GSP firmware are the same on all GPUs of a model and the ones the site wants.",
    component="gpu",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="gpu",
    fails="a version differs from the one in the site file",
    warns="GPUs of one model differ, or the loaded driver and its libraries differ (a reboot is due)",
    needs="an NVIDIA GPU",
    next_step="Flash or install the missing version when the node is empty, then reboot.",
    read=read,
    judge=judge,
    learn=lambda reading: {
        "driver": reading.snapshot.driver_version,
        **{
            f: (v.pop() if len(v := {getattr(g, f) for g in reading.snapshot.gpus} - {None}) == 1 else None)
            for f in _FIELDS
        },
    },
    thresholds=tuple(
        registry.Threshold(
            k,
            None,
            "",
            f"{k} version every GPU must have; unset = all alike",
            "site (genconf); GCM vbios_mismatch",
            unset=str,
        )
        for k in ("driver", *_FIELDS)
    ),
)
