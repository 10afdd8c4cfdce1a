"""A round of tests that a person asks for: which nodes may be taken, and the job that takes them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import campaign, way_back
from probing_cluster.core import errors, records, settings
from probing_cluster.slurm_plugins.acts import job_steps

NAME = re.compile("probing-diagnose-[0-9a-f]{8}")
"""The job of a round that a person asked for: the beginning of the round's id."""
_MOST_NAMED = 4


@records.record
class DiagnosisRequest:
    """What is to be tested, and how."""

    round_id: uuid.UUID = records.doc("the round's identity")
    names: tuple[str, ...] = records.doc("nodes under test")
    references: tuple[str, ...] = records.doc("idle nodes to hold them against", default=())
    tests: tuple[str, ...] = records.doc("names of tests", default=())
    every_link: bool = records.doc("test every pair", default=False)


def why_taken(name: str, node: view.Node | None) -> str:
    """Why a node takes no job of ours, in words; empty for one that does, now or once its jobs have ended."""
    if node is None:
        return f"Slurm does not list {name}"
    if node.ours:
        return f"{name} is drained by us: Slurm starts no job there; `probing-ctl repair release {name}` tests it in a reservation"
    out = way_back.not_ours(node)
    return f"{name} takes no job: {out}" if out else ""


def require_free(names: Sequence[str], nodes: Mapping[str, view.Node]) -> None:
    """Raises NotPermitted for nodes that take no job of ours: drained, down or reserved."""
    out = [why for name in names if (why := why_taken(name, nodes.get(name)))]
    if out:
        raise errors.NotPermitted("; ".join(out[:_MOST_NAMED]) + (" …" if len(out) > _MOST_NAMED else ""))


def wanted(
    config: settings.Settings, nodes: Mapping[str, view.Node], question: DiagnosisRequest
) -> job_steps.StepWanted:
    """The job that holds the nodes; raises UsageError where no partition has them all."""
    everyone = (*question.names, *question.references)
    partitions = set.intersection(*(set(nodes[n].partitions) for n in everyone))
    if not partitions:
        raise errors.UsageError("no partition has all these nodes; name those of one partition")
    return job_steps.StepWanted(
        name=f"probing-diagnose-{question.round_id.hex[:8]}",
        nodes=everyone,
        partition=min(partitions),
        account=config.diagnostics.account,
        gpus=min(nodes[n].n_gpus or 0 for n in everyone),
        limit_s=config.diagnostics.round_s + 60,
    )


def round_request(
    question: DiagnosisRequest, nodes: Mapping[str, view.Node], places: Mapping[str, str], job_id: int
) -> campaign.RoundRequest:
    """The question as the job that holds the nodes answers it."""
    everyone = (*question.names, *question.references)
    return campaign.RoundRequest(
        round_id=question.round_id,
        job_id=job_id,
        nodes=question.names,
        references=question.references,
        hosts={n: nodes[n].address for n in everyone},
        places=places,
        tests=question.tests,
        every_link=question.every_link,
    )
