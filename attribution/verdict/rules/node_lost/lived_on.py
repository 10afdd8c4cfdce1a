"""Nodes that Slurm gave up and that did not stop: their agents lived on, or report again in the same boot."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.attribution.verdict import claims, evidence_view, node_faults, phrases
from probing_cluster.core import hostlist, records


def of_living_nodes(claim: claims.Claim, nodes: Sequence[str]) -> claims.Claim:
    """The claim for a node that lived on, or nodes of which one was given up. If Slurm did not reach it either, it was cut off; else only Slurm gave it up."""
    node, agents = hostlist.compress(nodes), "agents" if len(nodes) > 1 else "agent"
    unreached = tuple(e for e in claim.evidence if e.kind in node_faults.SILENCES)
    if unreached:
        sentence = f"{node} answered neither Slurm nor its agent's database, and Slurm gave it up (NODE_FAIL); its agent lived on: its network failed, or the machine stood still"
        next_step = (
            f"Look at the network of {node} and at its switch; a virtual machine may have been suspended"
        )
    else:
        sentence = f"Slurm reported NODE_FAIL, but the {agents} of {node} kept reporting: somebody set {'a' if len(nodes) > 1 else 'the'} node DOWN, its slurmd stopped, or a restarted slurmctld did not find the job there"
        next_step = f"See who set {node} DOWN and why (`scontrol show node {node}`, `sacctmgr show event nodes={node}`); else look at its slurmd, and at slurmctld's log."
    return claims.replace_claim(
        claim,
        weight=min(claim.weight, 0.9),
        at=min((e.at for e in unreached), default=claim.at),
        evidence=unreached,
        n_sources=1 + bool(unreached),
        domain=records.Domain.UNKNOWN,
        sentence=sentence,
        next_step=next_step,
    )


def answers_again(view: evidence_view.EvidenceView, claim: claims.Claim) -> claims.Claim:
    """The claim, of a lost node that is heard again in the same boot: its daemons or its network failed, and nothing shows a broken machine."""
    back_at = view.case.returned.get(claim.node or "")
    if claim.cause != node_faults.LOST or claim.node is None or back_at is None:
        return claim
    node, cap = claim.node, claims.less_confident(claim.cap, records.Confidence.LIKELY)
    if not claim.sentence and (shown := node_faults.shown_before_loss(view, node)) and claims.weigh(shown):
        # A lockup, a thermal stop: the machine may have stood still, and it is no matter of daemons alone.
        return claims.replace_claim(claim, cap=cap)
    again = phrases.answers_again(back_at, view.end_at)
    return claims.replace_claim(
        claim,
        weight=min(claim.weight, claims.ANSWERED),
        cap=cap,
        domain=records.Domain.UNKNOWN,
        sentence=f"{claim.sentence or f'{node} stopped answering Slurm'}; {again}: its daemons or its network failed, and the machine did not stop",
        next_step=f"Read the logs of slurmd and of the agent on {node} around that time, and look at its network and its switch.",
    )
