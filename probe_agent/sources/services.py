"""Daemons a GPU node lives by: systemd units, or processes by name where systemd does not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probing_cluster.core import records
from probing_cluster.probe_agent.faults import baseline
from probing_cluster.probe_agent.faults.conditions import Condition, ConditionEdge, Judgement
from probing_cluster.probe_agent.sources import polled, sysfs

LOW, INFO = records.Severity.LOW, records.Severity.INFO
KNOWN: Mapping[str, records.Severity] = {
    "slurmd.service": LOW,
    "munge.service": LOW,
    "nvidia-fabricmanager.service": LOW,
    "nvidia-imex.service": LOW,
    "nvidia-persistenced.service": INFO,
    "openibd.service": INFO,
    "sssd.service": LOW,
    "chronyd.service": INFO,
    "chrony.service": INFO,
    "ssh.service": INFO,
    "sshd.service": INFO,
}
"""Units looked at by default; one counts from when it was first seen running."""
LASTING = 2
_FIELDS = "Id,LoadState,ActiveState,SubState,NRestarts,UnitFileState"
_RUNNING = {"active", "reloading"}


async def read(
    reader: polled.NodeReader, _: Mapping[str, Any], context: polled.PollContext
) -> Mapping[str, Any]:
    """The answer of systemd; without one the names of the running processes, where the site expects services."""
    wanted = context.expect_services or tuple(KNOWN)
    # The directory exists exactly where systemd is process 1 (sd_booted(3)).
    managed = await reader.files([], links=["/run/systemd/system"])
    if "/run/systemd/system" in managed["errors"]:
        result = await reader.command("systemctl", "show", f"--property={_FIELDS}", "--no-pager", *wanted)
        if result is not None and result.returncode == 0:
            return {"units": result.stdout.decode("utf-8", "replace")}
    if not context.expect_services:
        return {}
    return {"processes": await reader.files(["/proc/[0-9]*/comm"])}


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """Unit to its properties, from `systemctl show`: blocks of KEY=value parted by empty lines."""
    found: dict[str, dict[str, str]] = {}
    for block in text.split("\n\n"):
        pairs = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        if pairs.get("Id"):
            found[pairs["Id"]] = pairs
    return found


def parse(raw: Mapping[str, Any], wanted: tuple[str, ...]) -> dict[str, tuple[bool, str, int | None]]:
    """Service to (runs, systemd's word for its state, restarts)."""
    if "units" in raw:
        units = parse_units(raw["units"])
        return {name: _of_unit(u) for name, u in units.items() if u.get("LoadState") == "loaded"}
    if "processes" in raw:
        running = {str(text).strip() for text in raw["processes"]["files"].values()}
        # The kernel keeps fifteen characters of a process's name.
        return {w: _by_name(w.removesuffix(".service")[:15] in running) for w in wanted}
    return {}


def _switched_off(raw: Mapping[str, Any]) -> set[str]:
    """Units that somebody stopped and disabled: a site that needs them no more."""
    units = parse_units(raw.get("units", ""))
    return {
        n
        for n, u in units.items()
        if u.get("ActiveState") == "inactive" and u.get("UnitFileState") == "disabled"
    }


def _of_unit(unit: Mapping[str, str]) -> tuple[bool, str, int | None]:
    state = unit.get("ActiveState", "unknown")
    return (
        state in _RUNNING,
        f"{state}/{unit.get('SubState', 'unknown')}",
        sysfs.as_number(unit.get("NRestarts")),
    )


def _by_name(runs: bool) -> tuple[bool, str, int | None]:
    return runs, "running" if runs else "not running", None


def judge(raw: Mapping[str, Any], memory: Mapping[str, Any], context: polled.PollContext) -> Judgement:
    """A service that once ran (or that the site expects) and runs no more."""
    units = parse(raw, context.expect_services)
    streaks = baseline.Streaks(counts=dict(memory.get("streaks", {})))
    counters = baseline.Baseline.of(memory, context.boot_id)
    learned = set() if context.relearn else set(memory.get("learned", ()))
    learned -= _switched_off(raw)
    learned |= {name for name, (runs, _, _) in units.items() if runs} | set(context.expect_services)
    present: list[Condition] = []
    edges: list[ConditionEdge] = []
    for name, (runs, word, restarts) in units.items():
        if streaks.at_least(name, LASTING, holds=name in learned and not runs):
            present.append(_condition(name, "down", KNOWN.get(name, LOW), f"{name} does not run ({word})"))
        moved = counters.move(name, restarts)
        if moved is not None and moved.delta and not moved.was_reset:
            what = _condition(
                name, "restarted", INFO, f"{name} was restarted by systemd, {moved.value} times since boot"
            )
            edges.append(ConditionEdge(what=what, value=moved.position, latches=False))
    unknown = frozenset(learned - set(units))
    kept = {
        "boot_id": context.boot_id,
        "learned": sorted(learned),
        "streaks": streaks.counts,
        "counters": counters.values,
    }
    state = "ok" if units else "absent"
    return Judgement(present=tuple(present), edges=tuple(edges), unknown=unknown, memory=kept, state=state)


def _condition(name: str, code: str, severity: records.Severity, message: str) -> Condition:
    return Condition(kind="service", code=code, device=name, severity=severity, message=message)


SOURCE = polled.Polled(
    name="services",
    source="service",
    read=read,
    judge=judge,
    every=6,
    reads="`systemctl show`, or process names for the site's list",
    stands="– · slurmd, munge, fabric manager, IMEX, sssd down · others down, restarts",
)
