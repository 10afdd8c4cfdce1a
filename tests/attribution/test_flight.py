"""Dumps of two nodes, judged together."""

from __future__ import annotations

import json
import pickle

import pytest

from probing_cluster.core import records
from probing_cluster.evidence.flight_recorder import digest, model

C = records.Confidence


def dump(rank, entries, enqueued, completed, world=4):
    """One rank's dump with the default group."""
    ranks = str(list(range(world)))
    raw = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {
            "0": {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
        },
        "entries": entries,
    }
    return model.parse(rank, pickle.dumps(raw))


def entry(seq, op="nccl:all_reduce", state="scheduled", size=8):
    """One collective of the default group."""
    return {
        "process_group": ("0", "default_pg"),
        "pg_id": 0,
        "profiling_name": op,
        "collective_seq_id": seq,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "time_created_ns": 1000 + seq,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 41}],
    }


@pytest.fixture
def digests(make):
    """Events as the agents of n1 (ranks 0, 1) and n2 (ranks 2, 3) deliver them, through JSON."""

    def events(*dumps):
        return [
            make.finding(
                "dump",
                node="n1" if d.rank < 2 else "n2",
                source="dump",
                detail=json.loads(json.dumps(digest.make(d))),
            )
            for d in dumps
        ]

    return events


def test_the_rank_that_did_not_arrive_is_found_on_the_other_node(make, digests):
    """Three wait in number 7, rank 3 of n2 issued 6 and waits for nothing."""
    waiting = [dump(r, [entry(7)], 7, 6) for r in (0, 1, 2)]
    v = make.judge(*digests(*waiting, dump(3, [entry(6, state="completed")], 6, 6)))
    assert (v.cause, v.domain) == ("missing_rank", records.Domain.USER_PROGRAM)
    assert "Rank 3 did not issue all_reduce number 7" in v.summary
    assert "step train.py:41" in v.summary + v.next_step


def test_ranks_of_two_nodes_that_disagree_are_a_mismatch(make, digests):
    """Rank 2 brings another size to number 7."""
    dumps = [dump(r, [entry(7, size=8 if r != 2 else 16)], 7, 6) for r in range(4)]
    v = make.judge(*digests(*dumps))
    assert (v.cause, v.confidence) == ("collective_mismatch", C.LIKELY)
    other = [
        dump(r, [entry(7, op="nccl:all_gather" if r == 1 else "nccl:all_reduce")], 7, 6) for r in range(4)
    ]
    assert make.judge(*digests(*other)).cause == "collective_mismatch"


def test_everybody_inside_points_at_the_network_at_most_as_possible(make, digests):
    """All four entered number 7 and none came out; a port that is down on n2 makes it likely."""
    dumps = digests(*[dump(r, [entry(7)], 7, 6) for r in range(4)])
    v = make.judge(*dumps)
    assert (v.cause, v.confidence) == ("ib_link", C.POSSIBLE)
    down = make.event(30, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
    assert make.judge(*dumps, down).node == "n2"


def test_dumps_of_half_the_gang_convict_nobody(make, digests):
    """Nothing is said of ranks whose dumps are missing: they may have ended first."""
    v = make.judge(*digests(dump(0, [entry(7)], 7, 6), dump(1, [entry(7)], 7, 6)))
    assert v.cause not in ("missing_rank", "collective_mismatch")


def test_a_nodes_own_verdict_over_all_dumps_is_enough(make, digests):
    """If every rank ran on one node, that node has judged the dumps with all their operations."""
    digest = make.finding("missing_rank", source="dump", node="n1", detail={"ranks": [1]})
    v = make.judge(digest, *digests(*[dump(r, [entry(7)], 7, 6) for r in range(4)]))
    assert v.cause == "missing_rank"


def test_a_forged_digest_breaks_nothing(make):
    """A job may write anything into a dump."""
    odd = [
        {"rank": "0"},
        {"rank": -1},
        {"rank": 1, "groups": 7, "outstanding": "x", "last": []},
        {
            "rank": 2,
            "groups": {"0": {"size": "all"}},
            "outstanding": [{"sizes": [["a"]], "seq": None}],
            "last": {},
        },
    ]
    events = [make.finding("dump", source="dump", detail=d) for d in odd]
    assert make.judge(*events).confidence in (C.POSSIBLE, C.UNKNOWN)
