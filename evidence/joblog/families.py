"""The families of job-log messages: one file each, one registration here."""

from __future__ import annotations

import re

from probing_cluster.core.sanitize import literals
from probing_cluster.evidence import listings, locales
from probing_cluster.evidence.joblog import chain, shown_text, step_output
from probing_cluster.evidence.joblog.grammar import LogFact, LogFamily
from probing_cluster.evidence.joblog.last_errors import refuted, trailing_errors
from probing_cluster.evidence.joblog.messages import (
    batch,
    codes,
    crashes,
    data_loader,
    languages,
    launchers,
    node,
    process,
    python,
    slurm,
    tools,
    workflows,
)
from probing_cluster.evidence.joblog.messages.communication import (
    coordination,
    gloo,
    hccl,
    horovod,
    megatron,
    mpi,
    nccl,
    nvshmem,
    torch_nccl,
)
from probing_cluster.evidence.joblog.messages.devices import accelerators, cuda, kernel_lines, rocm

FAMILIES: tuple[LogFamily, ...] = (
    slurm.FAMILY,
    crashes.FAMILY,
    mpi.FAMILY,
    torch_nccl.FAMILY,
    hccl.FAMILY,
    horovod.FAMILY,
    nccl.FAMILY,
    gloo.FAMILY,
    rocm.FAMILY,
    accelerators.FAMILY,
    cuda.FAMILY,
    nvshmem.FAMILY,
    coordination.FAMILY,
    megatron.FAMILY,
    data_loader.FAMILY,
    python.FAMILY,
    workflows.FAMILY,
    batch.FAMILY,
    codes.FAMILY,
    languages.FAMILY,
    kernel_lines.FAMILY,
    process.FAMILY,
    tools.FAMILY,
    launchers.FAMILY,
    node.FAMILY,
)
JUDGE_MENTION = (cuda.FAMILY, codes.FAMILY, workflows.FAMILY)
"""Families that decide themselves whether a line reports an error or mentions it."""
"""The registration; the first family that recognises a line gives its finding."""
_COLLECTIVES = (
    "reduce(",
    "barrier(",
    "broadcast(",
    "gather(",
    "scatter(",
    "all_to_all",
    "_tensor(",
    "_base(",
    "_single(",
    "_list(",
    "_object(",
    ".send(",
    ".recv(",
    "isend(",
    "irecv(",
)
_FRAMES = ("in barrier", "in all_", "in broadcast", "in reduce_")
OWN_TRIGGERS = (*dict.fromkeys(t for family in FAMILIES for t in family.triggers), *locales.TRIGGERS)
ANY_OWN = re.compile(literals.any_of(OWN_TRIGGERS))
TRIGGERS = (
    *OWN_TRIGGERS,
    *_COLLECTIVES,
    *_FRAMES,
    *trailing_errors.TRIGGERS,
    "[ RUN ",
    "=== RUN ",
    " OK ] ",
    "Traceback",
    *chain.UNRAISED_TRIGGERS,
    "ProcessGroup",
    "NCCL WARN",
    "WorkNCCL",
    "lines of output",
    *refuted.TRIGGERS,
    *step_output.TRIGGERS,
    *shown_text.TRIGGERS,
    *listings.TRIGGERS,
)
"""A line without any of these is not read, unless the reader follows a message over several lines."""


def facts() -> dict[str, LogFact]:
    """Every kind that can be found in a job log and what it means."""
    return {kind: fact for family in FAMILIES for kind, fact in family.facts.items()}
