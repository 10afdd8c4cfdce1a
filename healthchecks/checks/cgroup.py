"""cgroups are as Slurm needs them, and no dead job keeps one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import procs

ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Controllers that are on (None: cgroup v1), and jobs that have cgroups here but not in Slurm."""

    controllers: frozenset[str] | None
    leftover: tuple[str, ...]
    jobs: int


def job_of(name: str) -> int | None:
    """The job id of a cgroup named job_123; None for other names."""
    match = re.fullmatch(r"job_(\d+)", name)
    return int(match[1]) if match else None


def is_sluid(name: str) -> bool:
    """Whether a cgroup is named by its job's SLUID, as from 26.05 on."""
    return re.fullmatch(r"s[0-9A-HJKMNP-TV-Z]{13}", name) is not None


def read(node: nodeview.NodeView) -> Reading:
    text = node.text(f"{ROOT}/cgroup.controllers")
    scopes = procs.slurm_scopes(node)
    if text is None and not scopes and not node.names(ROOT):
        raise findings.Absent("no cgroup filesystem")
    running = node.expected.running
    names = {
        n
        for scope in scopes
        for top in ("", *(u for u in node.names(scope) if u.startswith("uid_")))
        for n in node.names(f"{scope}/{top}")
    }
    # An SLUID that the Prolog did not report is some job's; which, and whether it ended, is unknown.
    known = node.expected.sluids or {}
    jobs = {
        n: known.get(n) if is_sluid(n) else job_of(n) for n in names if is_sluid(n) or job_of(n) is not None
    }
    ended = (n for n, job in jobs.items() if running is not None and job is not None and job not in running)
    leftover = tuple(sorted(ended))
    lasting = _lasting(node, leftover)
    return Reading(
        controllers=None if text is None else frozenset(text.split()), leftover=lasting, jobs=len(jobs)
    )


def _lasting(node: nodeview.NodeView, now: tuple[str, ...]) -> tuple[str, ...]:
    # A job that ends while we look is in one list and not in the other: only what was so last time too counts.
    before = set(node.memory.get("leftover", []))
    node.memory["leftover"] = list(now)
    return tuple(n for n in now if n in before)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    if reading.controllers is not None:
        missing = [c for c in limits["controllers"] if c not in reading.controllers]
        parts += [findings.warn(f"cgroup controller {c} is not available", device=c) for c in missing]
    if reading.leftover:
        shown = ", ".join(reading.leftover[:4])
        parts.append(
            findings.warn(
                f"{len(reading.leftover)} ended jobs still have cgroups ({shown})", device=reading.leftover[0]
            )
        )
    return findings.merge(parts, healthy=f"controllers on, {reading.jobs} jobs")


CHECK = registry.Check(
    proves="Slurm can confine jobs here, and ended jobs leave nothing behind.",
    component="slurm",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="never",
    warns="a cgroup v2 controller that Slurm needs to confine jobs is off, or the cgroup of a job that is gone was there at two looks in a row",
    needs="a cgroup filesystem",
    next_step="A leftover cgroup usually holds a process in D state: cat its cgroup.procs.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "controllers",
            ["cpu", "cpuset", "memory"],
            "",
            "cgroup v2 controllers that must be available",
            "Slurm cgroup.conf: ConstrainCores, ConstrainRAMSpace",
        ),
    ),
)
