"""A round of tests that a person asks for: which nodes may be taken, and the job that takes them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence

from probing_cluster.control_plane.policy import view
from probing_cluster.control_plane.repair import campaign
from probing_cluster.core import errors, hostlist, records, settings, vocabulary
from probing_cluster.slurm_plugins.acts import job_steps

NAME = re.compile("probing-diagnose-[0-9a-f]{8}")
"""The job of a round that a person asked for: the beginning of the round's id."""


@records.record
class Question:
    """What is to be tested, and how."""

    round_id: uuid.UUID = records.doc("the round's identity")
    names: tuple[str, ...] = records.doc("nodes under test")
    references: tuple[str, ...] = records.doc("idle nodes to hold them against", default=())
    tests: tuple[str, ...] = records.doc("names of tests", default=())
    every_link: bool = records.doc("test every pair", default=False)


def require_free(names: Sequence[str], nodes: Mapping[str, view.Node]) -> None:
    """Raises NotPermitted for nodes that take no job of ours: drained, down or reserved."""
    ours = [n for n in names if nodes[n].ours]
    if ours:
        raise errors.NotPermitted(
            f"{hostlist.compress(ours)} is drained by us: Slurm starts no job there; `probing-ctl repair release {ours[0]}` "
            "tests it in a reservation"
        )
    out = [n for n in names if nodes[n].states & vocabulary.UNTOUCHABLE_STATES]
    if out:
        states = "+".join(sorted(nodes[out[0]].states))
        raise errors.NotPermitted(
            f"{hostlist.compress(out)} takes no job: Slurm shows {out[0]} {states}; resume it first"
        )


def wanted(
    config: settings.Settings, nodes: Mapping[str, view.Node], question: Question
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


def asked(
    question: Question, nodes: Mapping[str, view.Node], places: Mapping[str, str], job_id: int
) -> campaign.Asked:
    """The question as the job that holds the nodes answers it."""
    everyone = (*question.names, *question.references)
    return campaign.Asked(
        round_id=question.round_id,
        job_id=job_id,
        nodes=question.names,
        references=question.references,
        hosts={n: nodes[n].address for n in everyone},
        places=places,
        tests=question.tests,
        every_link=question.every_link,
    )
