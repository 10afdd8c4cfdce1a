"""A node that stopped answering, or came back rebooted: the catch-all when nothing before it says why."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution import claims, scene

LOST, REBOOT = "node_lost", "node_reboot"
STATES = frozenset({"NODE_FAIL", "BOOT_FAIL"})


def rule(case: scene.Scene) -> Iterable[claims.Claim]:
    """NODE_FAIL is Slurm's word for it; a reboot seen while the attempt still ran says more."""
    boots = [s for s in case.of(REBOOT) if s.when is scene.When.RUNNING and not s.ours]
    boots = [s for s in boots if s.at > case.start_at]
    yield from claims.collect(case, REBOOT, "node_lost", boots)
    if case.state in STATES:
        yield _lost(case)


def _lost(case: scene.Scene) -> claims.Claim:
    node = case.lost_node
    seen = [s for s in (*case.of(LOST), *case.of(REBOOT)) if s.when is not scene.When.BEFORE_START]
    told = [s.event for s in seen if s.event.node == node]
    confirmed = case.attempt.failed_node is not None or bool(told) or len(case.attempt.nodes) == 1
    return claims.Claim(
        cause=LOST,
        weight=0.97 if confirmed else 0.9,
        at=min((e.at for e in told), default=case.end_at),
        rule="node_lost",
        node=node,
        evidence=tuple(told),
        nodes=frozenset({node} if node else ()),
        n_sources=1 + bool(told),
    )
