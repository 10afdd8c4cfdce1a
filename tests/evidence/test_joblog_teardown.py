"""Processes that lose each other when the work is over have not failed; before that, they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from probing_cluster.evidence.joblog import reader, teardown
from probing_cluster.evidence.joblog.grammar import JobFinding


def loss(*, thread: bool = False) -> JobFinding:
    """A lost peer, as the reader finds it."""
    found = next(iter(reader.read(["BrokenPipeError: [Errno 32] Broken pipe"])))
    return replace(found, detail={**found.detail, "thread": thread}, kind="python_consequence")


@pytest.mark.parametrize(
    ("before", "of_main", "of_thread"),
    [
        (["step 40/40 loss 0.1", "training finished"], True, True),
        (["training finished", "step 41/80 loss 0.1"], False, False),
        (["step 40/40 loss 0.1", "removing old files"], False, True),
        (["step 39/40 loss 0.1"], False, False),
        (["epoch 3/3 step 39/40 loss 0.1"], False, False),
        (["step 40 loss 0.1"], False, False),
        (["training not finished"], False, False),
        ([], False, False),
    ],
)
def test_a_loss_comes_after_the_work(before: list[str], of_main: bool, of_thread: bool) -> None:
    """The program reports it; a thread's loss needs no more than that the last counter has reached its total."""
    for thread, expected in ((False, of_main), (True, of_thread)):
        found = teardown.after_work(loss(thread=thread), before)
        assert (found.detail.get("after_work") is True) == expected


def test_another_failure_after_the_work_is_one() -> None:
    """Only such losses may follow."""
    lost = teardown.after_work(loss(), ["training finished"])
    assert teardown.is_teardown(lost, [lost, lost])
    assert not teardown.is_teardown(lost, [lost, loss()])
