"""Preempted attempts beside older conditions. Slurm names their cause, so a condition only removes a `ruled_out` sentence."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.passes import event_weight
from probing_cluster.attribution.verdict import eliminate, signatures, view_builder
from probing_cluster.core import records


def struck(
    conditions: Iterable[records.HealthEvent], n_gpus: int | None, *, gpus_known: bool
) -> frozenset[str] | None:
    """First words (`eliminate.STRUCK`) of the sentences that these conditions remove; None if the judge is needed.

    `gpus_known`: the attempt's GPUs are recorded, so that a failed GPU of its nodes may be none of them.
    """
    words = set()
    for event in conditions:
        signature = signatures.of(event)
        sort = (event.kind, event.code, event.severity)
        if not event_weight.changes_preempted(*sort, recovered=event.detail.get("recovered") is True):
            continue
        of_gpu = view_builder.means_gpu(event, signature)
        if event.job_id is not None or (of_gpu and (gpus_known or n_gpus == 0)):
            return None
        word = eliminate.STRUCK.get(signature.cause)
        if word is not None:
            words.add(word)
        elif event_weight.is_named_alone(event.kind, signature.cause):
            return None
    return frozenset(words)
