"""The certificates by which the agent gets into the database hold for a while yet."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from pathlib import Path

from probing_cluster.core import certificates, errors, records
from probing_cluster.healthchecks import findings, nodeview, registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """Days until one file's certificates end; negative when they have ended."""

    path: str
    ends_at: datetime
    left_days: float
    authority: bool


def read(node: nodeview.NodeView) -> list[Reading]:
    if not node.spec.certificates:
        raise findings.Absent("the agent's settings name no certificate")
    return [_read(node, one) for one in node.spec.certificates]


def _read(node: nodeview.NodeView, one: certificates.CertificateFile) -> Reading:
    try:
        ends_at = certificates.ends(Path(node.path(str(one.path))), authority=one.authority)
    except (errors.MalformedInput, OSError) as exc:
        raise findings.Undetermined(f"{one.path}: {getattr(exc, 'strerror', None) or exc}") from exc
    left_days = (ends_at - node.now).total_seconds() / 86400
    return Reading(path=str(one.path), ends_at=ends_at, left_days=left_days, authority=one.authority)


def judge(readings: list[Reading], limits: registry.Limits) -> findings.Finding:
    parts = [_judge(one, limits["authority_warn_days" if one.authority else "warn_days"]) for one in readings]
    first = min(readings, key=lambda one: one.left_days)
    return findings.merge(parts, healthy=f"the first to end does so on {first.ends_at:%Y-%m-%d}")


def _judge(one: Reading, limit: float) -> findings.Finding:
    # The date, not the days left: a result is stored when it changes, and stays true.
    text = f"{Path(one.path).name} {'ends' if one.left_days > 0 else 'ended'} on {one.ends_at:%Y-%m-%d}"
    facts = findings.amount(round(one.left_days, 1), limit, "days")
    make = findings.warn if one.left_days <= limit else findings.ok
    return make(text, device=Path(one.path).name, **facts)


CHECK = registry.Check(
    proves="The certificates by which the agent gets into the database hold for a while yet.",
    component="agent",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    period_s=3600.0,
    fails="never: a node is no worse for it, but is soon unheard",
    warns="the agent's certificate ends within warn_days, or its authority's within authority_warn_days",
    needs="sslcert or sslrootcert in the agent's database URL",
    next_step="ansible-playbook site.yml renews our own authority's; docs/operate.md has the rest. The agent needs no restart.",
    read=read,
    judge=judge,
    thresholds=(
        registry.Threshold(
            "warn_days",
            30.0,
            "days",
            "days before the end of its own certificate at which we warn",
            "ours: the roles renew at 60 days, so a monthly run was missed",
        ),
        registry.Threshold(
            "authority_warn_days",
            180.0,
            "days",
            "the same for the authority's",
            "ours: a new one must reach every host first",
        ),
    ),
)
