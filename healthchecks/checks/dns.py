"""Names can be looked up."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, nodeview, registry

NOT_FOUND = 2
"""getent's exit code for "no such name"."""


def read(node: nodeview.NodeView) -> dict[str, str]:
    """What looking up each name gave: an address, or "" when there is none."""
    names = list(node.limits["names"]) or [node.spec.node]
    if node.which("getent") is None:
        raise findings.Absent("getent is not installed")
    found: dict[str, str] = {}
    for name in names:
        answer = node.run("getent", "ahosts", name, deadline_s=node.limits["answer_s"])
        if answer.code not in (0, NOT_FOUND):
            raise findings.Undetermined(f"getent ended with {answer.code}: {answer.err.strip()[:100]}")
        found[name] = (answer.out.split() or [""])[0]
    return found


def judge(addresses: dict[str, str], limits: registry.Limits) -> findings.Finding:
    # Our own name may be in nobody's DNS; only names the site asks for are worth a node.
    make = findings.fail if limits["names"] else findings.warn
    parts = [
        findings.ok(n, device=n) if address else make(f"{n} has no address", device=n)
        for n, address in addresses.items()
    ]
    return findings.merge(parts, healthy=f"{', '.join(addresses)} found")


CHECK = registry.Check(
    proves="Host names can be looked up in time, by the way every program does it.",
    component="service",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="tools",
    deadline_s=12.0,
    fails="a name of the site file has no address (no answer at all is an error)",
    warns="the node's own name has no address",
    needs="getent",
    next_step="getent ahosts NAME, then /etc/resolv.conf and the server it names.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "names", [], "", "names that must have an address; empty = the node's own", "site"
        ),
        registry.Threshold(
            "answer_s", 5.0, "s", "longest an answer may take", "resolv.conf: one timeout of 5 s"
        ),
    ),
)
