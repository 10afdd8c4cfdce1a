"""Slurm's reasons for a job that waits, as its owner reads them."""

from __future__ import annotations

import re

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
    assert words.format(job=66) in found.words("66")
    assert found.words("66", "named").endswith("; named") is ("{named}" in found.way_out)
    assert "{job}" not in found.why  # which is also given for a job that has ended


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Priority", "jobs of higher priority were ahead of it"),
        ("Dependency", "it was to begin after the jobs that it depended on"),
        ("DependencyNeverSatisfied", "the job that it waited for ended in a way that its --dependency did not accept"),
        ("JobHeldUser", "held by its owner"),
        ("QOSMaxGRESPerJob", "it asked for more, or less,"),
        ("QOSMaxGRESPerUser", "had reached a limit"),
    ],
)  # fmt: skip
def test_of_a_job_that_has_ended_a_reason_is_past(reason: str, words: str) -> None:
    """It waits no more: nothing is ahead of it."""
    found = pending_reasons.of(reason)
    assert found is not None
    assert found.why_past.startswith(words) or words in found.why_past


def test_no_reason_of_an_ended_job_speaks_of_the_present() -> None:
    """Of every row; what a partition, account or QOS may have is true still."""
    present = re.compile(r"\b(?:is|are|waits|needs|begins|depends)\b|\bit (?:asks|has|can|may)\b")
    for _pattern, row in pending_reasons._TABLE:
        sentence = re.sub(r"\([^)]*\)", "", row.why_past)  # what stands there is a command
        assert not present.search(sentence), row.why_past


@pytest.mark.parametrize("reason", ["", "None", "SomethingNew", "PriorityX"])
def test_an_unknown_reason_has_no_sentence(reason: str) -> None:
    """It is shown as Slurm writes it."""
    assert pending_reasons.of(reason) is None
