"""Services that are meant to run do."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import pci

CGROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")
"""cgroup v2, and the v1 hierarchy of systemd."""

WANTS = "/etc/systemd/system"

SYSTEMD = "/run/systemd/system"
"""Exists exactly where systemd is the init system (sd_booted)."""


def read(node: nodeview.NodeView) -> dict[str, str]:
    """State by unit: active, or systemd's own word for what it is instead; "" when nobody could tell."""
    units = list(node.limits["units"]) or [
        u for u in node.limits["if_enabled"] if _enabled(node, u) and _has_hardware(node, u)
    ]
    if not units:
        raise findings.Absent("none of the usual services is enabled here")
    if not node.exists(SYSTEMD):
        raise findings.Absent("systemd does not run this node")
    states = {unit: "active" for unit in units if running(node, unit)}
    rest = [u for u in units if u not in states]
    if rest:
        try:
            answer = node.run("systemctl", "is-active", *rest)
        except findings.Absent:
            return states | dict.fromkeys(rest, "")
        words = answer.out.split()
        states |= dict(zip(rest, words, strict=True)) if len(words) == len(rest) else dict.fromkeys(rest, "")
    return states


def _has_hardware(node: nodeview.NodeView, unit: str) -> bool:
    """False of a daemon of NVIDIA's that an image for all nodes enables where its hardware is not.

    NVSwitches from Blackwell on are none on this bus: nvswitch_fabric judges their GPUs.
    """
    if not unit.startswith("nvidia-"):
        return True
    try:
        found = pci.functions(node)
    except findings.Absent:
        return True
    return any(f.is_nvswitch if "fabricmanager" in unit else f.is_gpu for f in found)


def _enabled(node: nodeview.NodeView, unit: str) -> bool:
    targets = (
        "multi-user.target.wants",
        "graphical.target.wants",
        "sysinit.target.wants",
        "basic.target.wants",
    )
    return any(unit in node.names(f"{WANTS}/{t}") for t in targets)


def running(node: nodeview.NodeView, unit: str) -> bool:
    """Whether the unit's cgroup holds processes: true without asking systemd; false says nothing yet."""
    for base in CGROUPS:
        events = node.text(f"{base}/{unit}/cgroup.events")
        if events is not None:
            return "populated 1" in events
        if node.text(f"{base}/{unit}/cgroup.procs"):
            return True
    return False


def judge(states: dict[str, str], _: registry.Limits) -> findings.Finding:
    return findings.merge(
        [_one(unit, state) for unit, state in states.items()],
        healthy=f"running: {', '.join(u.removesuffix('.service') for u in states)}",
    )


def _one(unit: str, state: str) -> findings.Finding:
    if state in ("active", "reloading"):
        return findings.ok(unit, device=unit)
    if not state:
        return findings.unseen(f"{unit}: systemd cannot be asked", device=unit)
    if state in ("activating", "deactivating", "maintenance"):
        return findings.warn(f"{unit} is {state}", device=unit)
    return findings.fail(f"{unit} is {state}", device=unit)


CHECK = registry.Check(
    proves="The daemons that jobs depend on are running.",
    component="service",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="tools",
    fails="a unit is failed or inactive",
    warns="a unit is starting or stopping",
    needs="systemd, and a unit of the site file, or one of the usual ones enabled for a systemd target",
    next_step="systemctl status and journalctl -u tell why; a unit that fails again after a restart needs a person.",
    read=read,
    judge=judge,
    learn=lambda states: {"units": [u for u, state in states.items() if state == "active"]},
    thresholds=(
        registry.Threshold(
            "units",
            [],
            "",
            "systemd units that must be active; empty = those of if_enabled that are enabled",
            "site (genconf); NHC check_ps_service, GCM service-status",
        ),
        registry.Threshold(
            "if_enabled",
            [
                "munge.service",
                "sssd.service",
                "chronyd.service",
                "chrony.service",
                "nvidia-persistenced.service",
                "nvidia-fabricmanager.service",
                "nvidia-imex.service",
                "openibd.service",
                "autofs.service",
                "ssh.service",
                "sshd.service",
            ],
            "",
            "units judged only where they are enabled and their hardware is (slurmd has its own check)",
            "ours",
        ),
    ),
)
