"""A person's verdict about one attempt: checked against what the attempt and its node have, stored, and noted."""

from __future__ import annotations

import dataclasses
import re
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from probing_cluster.core import clock, errors, hostlist, records, sanitize, vocabulary

if TYPE_CHECKING:
    from probing_cluster.attribution.verdict import taxonomy
    from probing_cluster.control_plane.policy import actions
    from probing_cluster.db import store as db_store

_GPU = re.compile(r"gpu(?P<index>[0-9]{1,9})")
GpuCount = Callable[[records.JobAttempt, str], int | None]
"""How many GPUs a node that an attempt ran on has; None where that is not known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManualVerdict:
    """What a person says of one attempt."""

    job: str
    attempt: int | None
    """None for the last that ended."""
    cause: str
    note: str
    node: str | None
    device: str | None
    author: str


def taxonomy_cause(word: str) -> taxonomy.Cause:
    """The cause of docs/causes.md of that name; raises UsageError for none."""
    from probing_cluster.attribution.verdict import taxonomy

    return taxonomy.cause(word)


def gpu_count(slurm: actions.SlurmOperations, cluster: str) -> GpuCount:
    """How many GPUs Slurm configures for a node that an attempt ran on; None where it does not say, or for another cluster's."""

    def count(attempt: records.JobAttempt, node: str) -> int | None:
        if attempt.cluster != cluster:
            return None
        try:
            found = slurm.node(node)
        except errors.SlurmUnavailable:
            return None
        return found.n_gpus if found is not None else None

    return count


def set_verdict(
    store: db_store.Store,
    given: ManualVerdict,
    count: GpuCount = lambda *_: None,
) -> str:
    """Stores a person's verdict, on a job of the store's cluster, and the note of it; what was replaced by what. Raises NotFound and UsageError.

    What the person did not say is kept from the one before where the cause is the same. `count`: see gpu_count.
    """
    from probing_cluster.control_plane.imports import job_outputs

    cause = taxonomy_cause(given.cause)
    attempt = job_outputs.attempt_of(store, given.job, given.attempt)
    if given.node and attempt.nodes and given.node not in attempt.nodes:
        ran_on = hostlist.compress(attempt.nodes)
        raise errors.NotFound(
            f"{given.node} is no node of job {given.job}: attempt {attempt.attempt} ran on {ran_on}"
        )
    if attempt.state == "COMPLETED":
        raise errors.UsageError(
            f"attempt {attempt.attempt} of job {given.job} completed: it has no failure to name the cause of; "
            f"name one that failed with --attempt N (probing-report {given.job} shows them)"
        )
    judged = store.verdicts(job_ids=[attempt.job_id], cluster=attempt.cluster)
    before = next((v for v in judged if v.submit_at == attempt.submit_at), None)
    if before is not None and before.cause == given.cause:
        given = dataclasses.replace(
            given, node=given.node or before.node, device=given.device or before.device
        )
    given = _placed(given, attempt, cause)
    if given.node and given.device:
        _require_device(given.node, given.device, count(attempt, given.node))
    store.save_verdicts([_by_hand(given, attempt, before, cause)])
    store.add_note(_note(given, attempt, before))
    was = before.cause if before else "no verdict"
    return f"attempt {attempt.attempt}: {was} -> {given.cause}, by {given.author}"


def _require_device(node: str, device: str, n_gpus: int | None) -> None:
    """Raises NotFound for a GPU beyond those of the node; parts of other kinds, and GPUs of an unknown number, are believed."""
    found = _GPU.fullmatch(device)
    if found is None or not n_gpus or int(found["index"]) < n_gpus:
        return
    those = "gpu0" if n_gpus == 1 else f"gpu0 to gpu{n_gpus - 1}"
    raise errors.NotFound(
        f"{node} has no {device}: Slurm has it with {vocabulary.plural(n_gpus, 'GPU')}, {those}"
    )


def _placed(given: ManualVerdict, attempt: records.JobAttempt, cause: taxonomy.Cause) -> ManualVerdict:
    """With the node at fault where hardware is: the only one where there is but one; raises UsageError for none."""
    if given.node or cause.domain is not records.Domain.HARDWARE or "{node}" not in cause.next_step:
        return given
    if len(attempt.nodes) == 1:
        return dataclasses.replace(given, node=attempt.nodes[0])
    ran_on = f", one of {hostlist.compress(attempt.nodes)}" if attempt.nodes else ""
    raise errors.UsageError(f"{cause.word} is a fault of a node: name it with --node NODE{ran_on}")


def _by_hand(
    given: ManualVerdict,
    attempt: records.JobAttempt,
    before: records.Verdict | None,
    cause: taxonomy.Cause,
) -> records.Verdict:
    """The person's verdict, with the evidence of the one before."""
    from probing_cluster.attribution.verdict import phrases

    note = sanitize.clean(given.note) or f"Set to {given.cause} by {given.author}."
    return records.Verdict(
        cluster=attempt.cluster,
        job_id=attempt.job_id,
        submit_at=attempt.submit_at,
        attempt=attempt.attempt,
        cause=given.cause,
        domain=cause.domain,
        component=cause.component or None,
        node=given.node,
        device=given.device,
        confidence=records.Confidence.CERTAIN,
        summary=note,
        next_step=phrases.next_step(
            cause.next_step,
            part=given.device,
            node=given.node,
            user=attempt.user,
            noun=cause.noun,
            job=attempt.ref,
        ),
        evidence=before.evidence if before else (),
        stalled_at=before.stalled_at if before else None,
        author=given.author,
        rules_version="person",
        made_at=clock.SYSTEM.now(),
    )


def _note(
    given: ManualVerdict, attempt: records.JobAttempt, before: records.Verdict | None
) -> records.OperatorNote:
    return records.OperatorNote(
        note_id=uuid.uuid4(),
        cluster=attempt.cluster,
        at=clock.SYSTEM.now(),
        author=given.author,
        subject=f"attempt:{attempt.job_id}:{int(attempt.submit_at.timestamp())}",
        action="verdict",
        note=sanitize.clean(given.note),
        detail={"cause": given.cause, "replaced": before.cause if before else None},
    )
