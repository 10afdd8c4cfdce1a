"""Slurm's reasons for a job that waits, as its owner reads them."""

from __future__ import annotations

import pytest

from probing_cluster.core.catalogue import pending_reasons


@pytest.mark.parametrize(
    ("reason", "never", "words"),
    [
        ("PartitionNodeLimit", True, "more nodes than its partition"),
        ("QOSMaxGRESPerJob", True, "one job of its account or QOS"),
        ("AssocMaxWallDurationPerJobLimit", True, "one job of its account or QOS"),
        ("QOSMinGRES", True, "one job of its account or QOS"),
        ("InvalidQOS", True, "may not be used here"),
        ("JobHeldUser", False, "scontrol release {job}"),
        ("JobHeldAdmin", False, "only they can release it"),
        ("job requeued in held state", False, "scontrol release {job}"),
        ("QOSMaxGRESPerUser", False, "once their other jobs end"),
        ("AssocGrpCpuLimit", False, "once their other jobs end"),
        ("(Priority)", False, "jobs of higher priority"),
        ("Resources", False, "once enough are free"),
        ("ReqNodeNotAvail, UnavailableNodes:n[4-5]", False, "down, drained or reserved"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", False, "reserved"),
    ],
)  # fmt: skip
def test_a_reason_is_a_sentence_with_the_way_out(reason: str, never: bool, words: str) -> None:
    """And shows whether the job can start at all."""
    found = pending_reasons.of(reason)
    assert found is not None
    assert found.never is never
    assert words in found.words
    assert found.words.format(job="66")
    assert "{job}" not in found.why  # which is also given for a job that has ended


@pytest.mark.parametrize("reason", ["", "None", "SomethingNew", "PriorityX"])
def test_an_unknown_reason_has_no_sentence(reason: str) -> None:
    """It is shown as Slurm writes it."""
    assert pending_reasons.of(reason) is None
