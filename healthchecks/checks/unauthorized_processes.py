"""No user computes outside Slurm."""

from __future__ import annotations

from dataclasses import dataclass

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry
from probing_cluster.healthchecks.readers import procs


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Processes of ordinary users outside any Slurm step, and the uids with jobs here (None: not known)."""

    outside: tuple[procs.Process, ...]
    with_jobs: frozenset[int] | None


def read(node: nodeview.NodeView) -> Reading:
    least = node.limits["uid_min"]
    everyone = procs.listing(node)
    if not procs.slurm_scopes(node) and node.expected.uids is None:
        raise findings.Absent("Slurm uses no cgroups here and nobody told whose jobs are on the node")
    # 65534 is nobody: containers and daemons, not a person.
    mine = [p for p in everyone if p.uid is not None and least <= p.uid != 65534 and p.state not in "ZX"]
    outside = [p for p in mine if procs.belongs_to_a_job(node, p) is False]
    return Reading(outside=tuple(outside), with_jobs=node.expected.uids)


def judge(reading: Reading, limits: registry.Limits) -> findings.Finding:
    allowed = set(limits["allow_users"])
    parts = [findings.ok("")]
    by_uid: dict[int, list[procs.Process]] = {}
    for process in reading.outside:
        if (
            process.uid is not None
            and str(process.uid) not in allowed
            and process.name not in limits["allow_names"]
        ):
            by_uid.setdefault(process.uid, []).append(process)
    for uid, running in by_uid.items():
        has_job = reading.with_jobs is not None and uid in reading.with_jobs
        why = "outside the user's jobs" if has_job else "outside any job"
        names = ", ".join(sorted({p.name for p in running})[:4])
        text = f"uid {uid} runs {len(running)} processes {why} ({names})"
        detail = {"uid": uid, "pids": [p.pid for p in running[:20]]}
        facts = findings.amount(len(running), 0, "count")
        parts.append(findings.warn(text, device=f"uid {uid}", detail=detail, **facts))
    return findings.merge(parts, healthy="no user process outside Slurm")


CHECK = registry.Check(
    proves="Ordinary users' processes on this node all belong to Slurm jobs.",
    component="node",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    fails="never: a stray shell is no reason to lose a node",
    warns="a user with a uid from uid_min on has processes in no Slurm cgroup (without cgroups: has processes and no job)",
    needs="processes in /proc, and Slurm's cgroups or the list of its jobs' owners",
    next_step="Ask the user or end them; pam_slurm_adopt puts ssh sessions into the user's job.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "uid_min", 1000, "", "lowest uid of an ordinary user", "login.defs UID_MIN; NHC MAX_SYS_UID"
        ),
        registry.Threshold("allow_users", [], "", "uids that may", "site; NHC check_ps_unauth_users"),
        registry.Threshold(
            "allow_names",
            ["systemd", "(sd-pam)", "dbus-daemon"],
            "",
            "process names that may: what systemd starts for every login",
            "systemd user@.service",
        ),
    ),
)
