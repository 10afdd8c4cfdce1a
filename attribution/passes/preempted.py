"""Preempted attempts beside conditions from before their windows: Slurm names the cause, so that such a condition only strikes a sentence."""

from __future__ import annotations

from collections.abc import Iterable

from probing_cluster.attribution.passes import event_weight
from probing_cluster.attribution.verdict import eliminate, signatures, view_builder
from probing_cluster.core import records


def struck(
    conditions: Iterable[records.HealthEvent], n_gpus: int | None, *, gpus_known: bool
) -> frozenset[str] | None:
    """The words (`eliminate.STRUCK`) whose sentences these conditions strike; None where the judge has to look.

    `gpus_known`: something tells which GPUs of its nodes the attempt had, so that a GPU of theirs may be none of its own.
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
