"""Users can be looked up (LDAP, SSSD)."""

from __future__ import annotations

import re

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

NOT_FOUND = 2


def remote_services(text: str) -> list[str]:
    """Network services that the passwd line of an nsswitch.conf names."""
    match = re.search(r"^\s*passwd:\s*(.*)$", text, re.MULTILINE)
    local = {"files", "compat", "db", "systemd", "altfiles", "mymachines"}
    return [w for w in (match[1].split() if match else []) if w not in local and not w.startswith("[")]


def read(node: nodeview.NodeView) -> dict[str, bool]:
    """Whether each user of the site file was found."""
    users = list(node.limits["users"])
    if not users:
        services = remote_services(node.text("/etc/nsswitch.conf") or "")
        hint = f" (users come from {', '.join(services)}: name one)" if services else ""
        raise findings.Absent(f"the site file names no user to look up{hint}")
    found: dict[str, bool] = {}
    for user in users:
        answer = node.run("getent", "passwd", user, deadline_s=node.limits["answer_s"])
        if answer.code not in (0, NOT_FOUND):
            raise findings.Undetermined(f"getent ended with {answer.code}: {answer.err.strip()[:100]}")
        found[user] = answer.code == 0
    return found


def judge(found_by_user: dict[str, bool], _: registry.Limits) -> findings.Finding:
    parts = [
        findings.ok(u, device=u) if there else findings.fail(f"user {u} is unknown here", device=u)
        for u, there in found_by_user.items()
    ]
    return findings.merge(parts, healthy=f"{', '.join(found_by_user)} found")


CHECK = registry.Check(
    proves="Accounts of the directory service are known on this node, so jobs can start as their users.",
    component="service",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="tools",
    deadline_s=12.0,
    fails="a user of the site file is unknown (no answer at all is an error)",
    warns="never",
    needs="a user named in the site file: one that only the directory service knows",
    next_step="sssctl domain-status, or getent passwd USER with and without the cache (sss_cache -E).",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold("users", [], "", "users that must be known", "site; GCM check-authentication"),
        registry.Threshold("answer_s", 5.0, "s", "longest an answer may take", "ours"),
    ),
)
