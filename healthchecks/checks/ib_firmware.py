"""HCA firmware is the same on all boards of a kind, and the one the site wants."""

from __future__ import annotations

from probing_cluster.core import records
from probing_cluster.healthchecks import findings, registry
from probing_cluster.healthchecks.readers import ib


def judge(ports: list[ib.IbPort], limits: registry.Limits) -> findings.Finding:
    boards: dict[str | None, dict[str, str]] = {}
    for port in ports:
        if port.firmware and not port.virtual:
            boards.setdefault(port.board, {})[port.hca] = port.firmware
    if not boards:
        return findings.absent("no HCA tells its firmware")
    wanted = dict(entry.partition("=")[::2] for entry in limits["firmware"])
    parts = [findings.ok("")]
    for board, by_hca in boards.items():
        versions = list(by_hca.values())
        given = wanted.get(board or "") or wanted.get("*")
        usual = given or max(set(versions), key=versions.count)
        make, others = (findings.fail, "the site has") if given else (findings.warn, "the others have")
        odd = {h: v for h, v in by_hca.items() if v != usual}
        parts += [make(f"{h} has firmware {v}, {others} {usual}", device=h) for h, v in odd.items()]
    listed = ", ".join(sorted({v for by_hca in boards.values() for v in by_hca.values()}))
    return findings.merge(parts, healthy=f"firmware {listed}")


def _learn(ports: list[ib.IbPort]) -> dict[str, list[str]]:
    pairs = {f"{p.board}={p.firmware}" for p in ports if p.board and p.firmware and not p.virtual}
    return {"firmware": sorted(pairs)}


CHECK = registry.Check(
    proves="All HCAs of a kind run the same firmware, the one the site chose.",
    component="ib",
    domain=records.Domain.SYSTEM_SOFTWARE,
    severity=records.Severity.LOW,
    lane="fabric",
    period_s=3600.0,
    fails="an HCA's firmware differs from the site file",
    warns="HCAs with the same board id differ among themselves",
    needs="an HCA that tells its firmware",
    next_step="mlxfwmanager (or mstflint) brings it in line when the node is empty.",
    read=ib.ports,
    judge=judge,
    learn=_learn,
    thresholds=(
        registry.Threshold(
            "firmware",
            [],
            "",
            "board id and version, as MT_0000000838=28.39.2048, or *=28.39.2048",
            "site (genconf); GCM manifest",
        ),
    ),
)
