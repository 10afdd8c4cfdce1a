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
        (["+ kill 4410", "+ wait"], True, True),
        (["+ kill -0 4410"], False, False),
        (["+ kill 4410", "+ srun ./grow"], False, False),
        (["[########] | 100% Completed | 12m"], True, True),
        (["[########] | 100% Completed | 12m", "[##      ] | 25% Completed | 3m"], False, False),
        ([], False, False),
    ],
)
def test_a_loss_comes_after_the_work(before: list[str], of_main: bool, of_thread: bool) -> None:
    """The program reports it; a thread's loss needs no more than that the last counter has reached its total."""
    for thread, expected in ((False, of_main), (True, of_thread)):
        found = teardown.after_work(loss(thread=thread), before)
        assert (found.detail.get("after_work") is True) == expected


@pytest.mark.parametrize(
    "line",
    [
        "Training complete. The weights can be loaned from out/",
        "Training finished, 91.5% of the samples are right",
        "Run finished: 412/500 right",
        "Job 8123 finished at 11:30",
        "Simulation completed; see the figures of each cell",
        "All done. Next: plot.py",
        "Training finished on 3 of 4 GPUs",
        "Training finished 500/500",
    ],
)
def test_words_behind_the_end_of_the_work_take_nothing_from_it(line: str) -> None:
    assert teardown.after_work(loss(), ["loss 0.5", line]).detail.get("after_work") is True


@pytest.mark.parametrize(
    "line",
    [
        "Training will be finished at 11:30",
        "Each simulation completed",
        "Training finished 40%",
        "Work finished: 40% done",
        "Run finished: 4/8",
        "Run 4 of 8 finished",
        "Training finished 400/500 samples",
        "Job 81 finished",
        "The run finished reading",
        "Training is done for the first of them",
    ],
)
def test_the_end_of_a_part_is_not_that_of_the_work(line: str) -> None:
    assert teardown.after_work(loss(), ["loss 0.5", line]).detail.get("after_work") is None


def test_another_failure_after_the_work_is_one() -> None:
    """Only such losses may follow."""
    lost = teardown.after_work(loss(), ["training finished"])
    assert teardown.is_teardown(lost, [lost, lost])
    assert not teardown.is_teardown(lost, [lost, loss()])
