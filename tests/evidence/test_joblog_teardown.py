"""Processes that lose each other when the work is over have not failed; before that, they have."""

from __future__ import annotations

from dataclasses import replace

from probing_cluster.evidence.joblog import reader, teardown
from probing_cluster.evidence.joblog.grammar import JobFinding
from tests.every_case import every


def loss(*, thread: bool = False) -> JobFinding:
    """A lost peer, as the reader finds it."""
    found = next(iter(reader.read(["BrokenPipeError: [Errno 32] Broken pipe"])))
    return replace(found, detail={**found.detail, "thread": thread}, kind="python_consequence")


@every(
    ("before", "of_main", "of_thread"),
    [
        (["step 40/40 loss 0.1", "training finished"], True, True),
        (["training finished", "step 41/80 loss 0.1"], False, False),
        (["step 40/40 loss 0.1", "removing old files"], False, True),
        (["step 39/40 loss 0.1"], False, False),
        (["epoch 3/3 step 39/40 loss 0.1"], False, False),
        (["step 40 loss 0.1"], False, False),
        (["training not finished"], False, False),
        (["+ kill 4410", "+ wait"], False, False),
        (["+ kill -0 4410"], False, False),
        (["+ kill 4410", "+ srun ./grow"], False, False),
        (["[########] | 100% Completed | 12m"], True, True),
        (["INFO:__main__:Done."], False, False),  # perhaps with a part
        (
            ["2031-07-02 08:00:01,3 INFO train.py:7 finished, best 0.8 in epoch 7"],
            False,
            False,
        ),  # of a fold, perhaps
        (["2031-07-02 08:00:01,3 INFO store.py:7 finished in 7 s"], False, False),
        (["2031-07-02 08:00:01,3 INFO train.py:7 not finished, best 0.8"], False, False),
        (["2031-07-02 08:00:01,3 INFO train.py:7 finished", "step 41/80 loss 0.1"], False, False),
        (["[########] | 100% Completed | 12m", "starting the second press"], False, False),
        (["+ pkill viewer"], False, False),
        (["+ ray stop", "starting the press"], False, False),
        (["[########] | 100% Completed | 12m", "[##      ] | 25% Completed | 3m"], False, False),
        ([], False, False),
    ],
)
def test_a_loss_comes_after_the_work(before: list[str], of_main: bool, of_thread: bool) -> None:
    """The program reports it; a thread's loss needs no more than that the last counter has reached its total."""
    for thread, expected in ((False, of_main), (True, of_thread)):
        found = teardown.after_work(loss(thread=thread), before)
        assert (found.detail.get("after_work") is True) == expected


@every(
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


@every(
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


DONE = ["step 40 loss 0.1", "training finished, best epoch 27 (0.3)"]
TERM = "*** SIGTERM received at time=1759219301 on cpu 7 ***"
NO_POD = "error: resource(s) were asked for, but none was named"


@every(
    "lines",
    [
        [*DONE, "keeper: ERROR Error keeping media/7.json: timed out", "keeper: kept 5 files", "exit 0"],
        [*DONE, "ERROR: the reader died unexpectedly, shutting down"],
        [*DONE, "[n4:12] PMIX ERROR: UNREACHABLE in file server.c at line 7"],
        ["step 39/40", "step 40/40", "ERROR: the reader died unexpectedly, shutting down", "done: rc=0"],
        [
            "step 39/40",
            "Press is stopping with exit code 0",
            "ERROR Sender: Still have 1 requests outstanding when connection from n4 is closed",
        ],
        ["step 39 loss 0.1", "total wall time 811.2 s", "ERROR: Connection to n4 has been closed"],
        [
            "Ran 7 tests in 8.1s",
            "",
            "OK",
            'pod "press" deleted',
            NO_POD,
            "waiting for the pods",
            NO_POD,
            "no pod is left",
        ],
        [*DONE, NO_POD, "removed the scratch directory"],
        [*DONE, "keeper: ERROR Error keeping media/7.json: timed out", "keeper: trouble resolved after 7 s"],
        [*DONE, f"(Press pid=81) {TERM}", "(Press pid=81) PC: @     0x7f9  (unknown)  epoll_wait"],
    ],
)
def test_noise_beside_a_good_end_is_no_cause(lines: list[str]) -> None:
    """What is no loss needs an end with code 0, or a script that clears away and goes on."""
    assert not any(found.first_cause for found in reader.read(lines))


@every(
    ("lines", "cause"),
    [
        ([*DONE, "ERROR: cannot send the must, connection closed"], 3),
        ([*DONE, "ERROR: connection closed, must not stored"], 3),
        ([*DONE, "ERROR: no grapes left to press", "exit code: 1"], 3),
        ([*DONE, "ERROR: no grapes left to press", "bye"], 3),
        (
            [
                *DONE,
                "keeper: ERROR Error keeping media/7.json: timed out",
                "other: trouble resolved after 7 s",
            ],
            3,
        ),
        (["step 40 loss 0.1", "[rank2] Must.recv failed: Connection was closed."], 2),
        (["step 40 loss 0.1", "[rank2] Must.recv failed: Connection was closed. (during shutdown)"], 2),
        (["step 40/99", "ERROR: node n4 unreachable (exiting)"], 2),
        (["step 40/99", "ERROR: link of GPU 4 closed (shutdown)"], 2),
        (
            [
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                "[rank2] Must.recv failed: Connection was closed. (during shutdown)",
            ],
            1,
        ),
        (
            [
                "OSError: [Errno 28] No space left on device",
                "[rank2] Must.recv failed: Connection was closed. (during shutdown)",
            ],
            1,
        ),
        ([*DONE, TERM, "PC: @     0x7f9  (unknown)  epoll_wait"], 3),
        (
            [
                "step 40 loss 0.1",
                f"(Press pid=81) {TERM}",
                "(Press pid=81) PC: @     0x7f9  (unknown)  epoll_wait",
            ],
            2,
        ),
        ([*DONE, "ERROR: the reader died unexpectedly, shutting down", "exit 1"], 3),
        ([*DONE, "removing old grapes", "sell.py: error: unrecognized arguments: --dry", "job ended"], 4),
        (["step 39/40", "step 40/40", "ERROR: the reader died unexpectedly, shutting down", "done: rc=1"], 3),
        (["step 39/40", "step 40/40", "ERROR: no grapes left to press", "done: rc=0"], 3),
        (["step 38/40", "step 39/40", "ERROR: the reader died unexpectedly, shutting down", "done: rc=0"], 3),
        (["fetched, exit code: 0", "ERROR: Connection to n4 has been closed"], 2),
        (["curl -s keeper/health", "OK", "ERROR: Connection to n4 has been closed"], 3),
        (["training finished, epoch 3 of 9", "ERROR: Connection to n4 has been closed"], 2),
    ],
)
def test_an_error_without_such_an_end_is_the_cause(lines: list[str], cause: int) -> None:
    assert [found.line for found in reader.read(lines) if found.first_cause] == [cause]
