"""RAS's status text, as NCCL's user guide and source print it, read without ever failing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence import nccl_ras

HEAD = """NCCL version 2.28.7 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

"""
INCOMPLETE = """INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
DEAD = """DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213

Warnings
========

"""
MISMATCH = """Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have launched up to operation 6650
  Rank 2 has launched up to operation 6649 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 7 has not launched any operations -- [process information not found]

"""
ERROR = """#0-0 (27a079b828ff1a75) ERROR
  Asynchronous error on 1 rank
  Rank 3 reported ncclRemoteError -- GPU 3 managed by process 483075 on node 172.16.64.210

Warnings
========

"""


def problems(body: str) -> tuple[nccl_ras.RasProblem, ...]:
    """The problems in a status with this end."""
    status = nccl_ras.parse(HEAD + body)
    assert status is not None
    assert status.version == "2.28.7"
    return status.problems


def test_a_job_that_gets_on_has_no_problem() -> None:
    """A summary, two empty sections."""
    assert problems("Warnings\n========\n\n") == ()


def test_a_process_that_does_not_answer_is_named_with_its_rank() -> None:
    """The guide's stopped process: which pid where, and which rank of the communicator that is."""
    first, second, third = problems(INCOMPLETE)
    assert (first.kind, first.processes) == ("incomplete", (("172.16.64.213", 3487984),))
    assert (second.kind, second.communicator, second.ranks) == ("incomplete", "0-0", (21,))
    assert (third.kind, third.words) == (
        "timeout",
        "Encountered 2 communication timeouts while gathering communicator data",
    )


def test_a_dead_process_is_dead() -> None:
    """After a minute RAS gives it up; the rank's line of newer releases names rank, pid and node at once."""
    first, second = problems(DEAD)
    assert (first.kind, first.processes) == ("dead", (("172.16.64.213", 3487984),))
    assert (second.ranks, second.processes) == ((21,), (("172.16.64.213", 3487984),))


def test_ranks_that_are_behind_are_named_and_are_no_grave_fault() -> None:
    """Counts differ in a healthy job, too: that alone accuses nobody."""
    status = nccl_ras.parse(HEAD + MISMATCH)
    assert status is not None
    (found,) = status.problems
    assert (found.kind, found.ranks, found.processes) == ("mismatch", (2, 7), (("172.16.64.210", 483074),))
    assert status.grave == ()


def test_an_error_that_a_rank_reported_is_grave() -> None:
    """Asynchronous errors are what NCCL itself gave up on."""
    status = nccl_ras.parse(HEAD + ERROR)
    assert status is not None
    assert [(p.kind, p.ranks) for p in status.grave] == [("error", (3,))]


@pytest.mark.parametrize(
    "text", ["", "HTTP/1.1 400 Bad Request", "x" * 100_000, "DEAD\n  Process 1 on node a managing GPU 0"]
)
def test_what_is_no_status_is_none(text: str) -> None:
    """Anybody may listen on a port."""
    assert nccl_ras.parse(text) is None


def test_a_flood_of_problems_is_cut() -> None:
    """A hostile answer gives bounded problems of bounded size."""
    ranks = "".join(f"  Rank {i} -- [process information not found]\n" for i in range(10_000))
    found = problems("".join(f"#0-{i} (ab) MISMATCH\n{ranks if i < 2 else ''}\n" for i in range(1000)))
    assert len(found) == nccl_ras.MAX_PROBLEMS
    assert len(found[0].ranks) == nccl_ras.MAX_RANKS


@given(st.text(max_size=400), st.sampled_from([INCOMPLETE, DEAD, MISMATCH, ERROR]), st.integers(0, 600))
def test_no_text_makes_it_fail(noise: str, body: str, at: int) -> None:
    """Cut, mixed and garbled statuses are read as far as they go."""
    text = HEAD + body
    assert nccl_ras.parse(text[:at] + noise + text[at:]) is None or nccl_ras.parse(text) is not None
