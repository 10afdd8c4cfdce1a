"""slurmd and munged run on this node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.checks import services
from probing_cluster.healthchecks.readers import procs, slurm_conf

_OWN_AUTH = re.compile(r"^\s*AuthType\s*=\s*auth/slurm\b", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Whether each daemon runs, and those of them that are stuck in D state."""

    running: dict[str, bool]
    stuck: tuple[str, ...]


def read(node: nodeview.NodeView) -> Reading:
    installed = node.which("slurmd") or any(
        node.exists(p) for p in ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf")
    )
    everyone = procs.listing(node)
    daemons = [d for d in node.limits["daemons"] if d != "munged" or _munge_is_used(node)]
    named = {name: [p for p in everyone if p.name == name] for name in daemons}
    if not installed and not named.get("slurmd"):
        raise findings.Absent("no slurmd on this node")
    # A daemon in a process namespace that we do not see still populates its unit's cgroup.
    running = {name: bool(found) or services.running(node, _unit(name)) for name, found in named.items()}
    return Reading(
        running=running, stuck=tuple(n for n, found in named.items() if any(p.state == "D" for p in found))
    )


def _munge_is_used(node: nodeview.NodeView) -> bool:
    # Slurm 23.11 and later can do without MUNGE (auth/slurm), also where its packages brought it.
    if any(_OWN_AUTH.search(node.text(place) or "") for place in slurm_conf.PLACES):
        return False
    return node.exists("/etc/munge/munge.key") or node.which("munged") is not None


def _unit(daemon: str) -> str:
    return "munge.service" if daemon == "munged" else f"{daemon}.service"


def judge(reading: Reading, _: registry.Limits) -> findings.Finding:
    parts = [findings.ok("")]
    parts += [
        findings.fail(f"{name} does not run", device=name)
        for name, count in reading.running.items()
        if not count
    ]
    parts += [findings.warn(f"{name} is in D state", device=name) for name in reading.stuck]
    return findings.merge(parts, healthy=f"{', '.join(reading.running)} run")


CHECK = registry.Check(
    proves="The daemons through which Slurm runs jobs here are alive.",
    component="slurm",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="slurmd does not run, or munged where MUNGE is installed and Slurm does not authenticate by itself",
    warns="one of them is stuck in D state",
    needs="slurmd installed, or its configuration directory",
    next_step="journalctl -u slurmd and slurmd.log; a slurmd that will not stay up often finds less memory or GPUs than configured.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "daemons",
            ["slurmd", "munged"],
            "",
            "process names that must be there",
            "GCM check-service; NHC check_ps_service",
        ),
    ),
)
