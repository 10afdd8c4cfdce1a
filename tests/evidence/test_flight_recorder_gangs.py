"""Gangs that are run here, step by step, until one rank fails: whatever the layout and the failure, that rank is named."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.evidence.flight_recorder import model, verdict

_KEPT = 24
"""Entries of the recorder's ring."""


class Gang:
    """DP x TP ranks that call a tensor-parallel, a data-parallel and a world-wide collective in every step."""

    def __init__(self, dp: int, tp: int, backend: str, ahead: int) -> None:
        self.world, self.backend, self.ahead = dp * tp, backend, ahead
        self.members: dict[str, tuple[int, ...]] = {"0": tuple(range(self.world))}
        names: dict[int, list[str]] = {r: [] for r in range(self.world)}
        groups = [tuple(range(d * tp, d * tp + tp)) for d in range(dp) if tp > 1]
        groups += [tuple(range(t, self.world, tp)) for t in range(tp) if dp > 1 and tp > 1]
        for number, group in enumerate(groups, 1):
            self.members[str(number)] = group
            for rank in group:
                names[rank].append(str(number))
        self.calls = {r: [*names[r], "0"] for r in range(self.world)}
        self.issued: dict[int, int] = dict.fromkeys(range(self.world), 0)

    def place(self, rank: int, n: int) -> tuple[str, int]:
        """Group and number in it of the rank's n-th collective (from 0)."""
        step, which = divmod(n, len(self.calls[rank]))
        return self.calls[rank][which], step + 1

    def done(self, rank: int, n: int) -> bool:
        """Whether everybody has issued it, and everything before it is done on this rank."""
        group, seq = self.place(rank, n)
        return all(self._count(r, group) >= seq for r in self.members[group])

    def _count(self, rank: int, group: str) -> int:
        step, rest = divmod(self.issued[rank], len(self.calls[rank]))
        return step + (group in self.calls[rank][:rest])

    def finished(self, rank: int) -> int:
        """How many of its collectives are done, in order."""
        n = 0
        while n < self.issued[rank] and self.done(rank, n):
            n += 1
        return n

    def run(self, stops: dict[int, int]) -> None:
        """Until nobody gets on; a rank of `stops` issues so many collectives and no more."""
        moved = True
        while moved:
            moved = False
            for rank in range(self.world):
                while (
                    self.issued[rank] < stops.get(rank, 60)
                    and self.issued[rank] - self.finished(rank) < self.ahead
                ):
                    self.issued[rank] += 1
                    moved = True

    def dump(self, rank: int, *, as_json: bool, odd: dict[str, Any] | None = None) -> model.RankDump:
        """What the rank's recorder would write; `odd` changes its last entry."""
        entries, finished = [], self.finished(rank)
        for n in range(self.issued[rank]):
            group, seq = self.place(rank, n)
            gone = self.backend == "gloo" and n < self.issued[rank] - 1
            entries.append(
                {
                    "process_group": (group, "default_pg" if group == "0" else f"mesh {group}"),
                    "pg_id": int(group),
                    "profiling_name": f"{self.backend}:all_reduce",
                    "collective_seq_id": seq,
                    "input_sizes": [[64, seq]],
                    "state": "completed" if n < finished or gone else "scheduled",
                    "retired": n < finished or gone,
                    "time_created_ns": 10**18 + n * 10**9,
                    "timeout_ms": 600_000,
                    "is_p2p": False,
                }
            )
        if odd:
            entries[-1] |= odd
        status = {}
        for group in dict.fromkeys(self.calls[rank]):
            mine = [n for n in range(self.issued[rank]) if self.place(rank, n)[0] == group]
            over = [n for n in mine if n < finished]
            status[group] = {"last_enqueued_collective": len(mine), "last_started_collective": -1, "last_completed_collective": len(over)}  # fmt: skip
        raw = {
            "version": "2.10",
            "pg_config": {
                g: {
                    "name": g,
                    "desc": "default_pg" if g == "0" else f"mesh {g}",
                    "ranks": str(list(self.members[g])),
                }
                for g in dict.fromkeys(self.calls[rank])
            },
            "pg_status": status,
            "entries": entries[-_KEPT:],
        }
        return model.parse(rank, json.dumps(raw).encode() if as_json else pickle.dumps(raw))


@st.composite
def gangs(draw):
    """A gang, the rank that fails, and after how many collectives."""
    dp, tp = draw(st.sampled_from([(2, 1), (4, 1), (8, 1), (2, 2), (4, 2), (2, 4), (3, 3)]))
    gang = Gang(dp, tp, "nccl", draw(st.sampled_from([1, 2, 5])))
    culprit = draw(st.integers(0, gang.world - 1))
    return gang, culprit, draw(st.integers(3, 40)), draw(st.booleans())


def others(gang: Gang, without: int | None = None, *, as_json: bool) -> list[model.RankDump]:
    return [gang.dump(r, as_json=as_json) for r in range(gang.world) if r != without]


@given(gangs())
def test_a_rank_that_stopped_in_its_own_code_is_named(found) -> None:
    """It left a dump, waits for nothing, and everybody else waits for it or for somebody who does."""
    gang, culprit, after, as_json = found
    gang.run({culprit: after})
    # It waits for nothing: what it had issued is over where its peers came, too.
    made = verdict.judge(others(gang, as_json=as_json))
    if gang.finished(culprit) < gang.issued[culprit]:
        return  # it was ahead of its peers, who cannot know yet
    assert (made.kind, made.ranks) == ("missing_rank", (culprit,)), made.meaning


@given(gangs())
def test_a_killed_rank_is_named_and_no_victim_is(found) -> None:
    """No dump of it, in pickle and in JSON; that the others stopped at different places accuses none of them."""
    gang, culprit, after, as_json = found
    gang.run({culprit: after})
    made = verdict.judge(others(gang, culprit, as_json=as_json))
    assert (made.kind, made.ranks) == ("no_dump", (culprit,)), made.meaning
    assert made.missing_dumps == (culprit,)


@given(gangs(), st.sampled_from([{"profiling_name": "nccl:broadcast"}, {"input_sizes": [[63, 1]]}]))
def test_a_rank_that_came_with_something_else_is_named(found, odd) -> None:
    """Another operation or another size at one place."""
    gang, culprit, after, as_json = found
    after -= (after - 1) % len(gang.calls[culprit]) + 1 - len(gang.calls[culprit])  # the world's collective
    gang.run(dict.fromkeys(range(gang.world), after))
    dumps = [gang.dump(r, as_json=as_json, odd=odd if r == culprit else None) for r in range(gang.world)]
    made = verdict.judge(dumps)
    wanted = (culprit,) if gang.world > 2 else (0, 1)
    assert made.kind in ("mismatch_op", "mismatch_shape")
    assert made.ranks == wanted, made.meaning


@given(gangs())
def test_gloo_never_accuses_a_device(found) -> None:
    """Gloo retires what timed out; a killed rank is still the culprit."""
    gang, culprit, after, as_json = found
    gang.backend = "gloo"
    gang.run({culprit: after})
    assert verdict.judge(others(gang, as_json=as_json)).kind != "device_stuck"
    gone = verdict.judge(others(gang, culprit, as_json=as_json), world_size=gang.world)
    assert (gone.kind, gone.ranks) == ("no_dump", (culprit,)), gone.meaning


@given(stages=st.integers(3, 9), culprit=st.integers(0, 8), steps=st.integers(1, 5), binary=st.booleans())
def test_the_stage_of_a_pipeline_that_waits_for_nothing_is_named(
    stages: int, culprit: int, steps: int, binary: bool
) -> None:
    """All stages of a pipeline but one wait for a neighbour or for the reduction, whatever each has issued."""
    culprit %= stages

    def entry(seq: int, op: str, *, p2p: bool, waits: bool) -> dict[str, Any]:
        state = {"state": "scheduled", "retired": False} if waits else {"state": "completed", "retired": True}
        at = {"collective_seq_id": seq, "time_created_ns": 1_000 + seq, "is_p2p": p2p, "timeout_ms": 600_000}
        return {"process_group": ("0", "default_pg"), "pg_id": 0, "profiling_name": op, **at, **state}

    dumps = []
    for rank in range(stages):
        done = [entry(n, "nccl:all_reduce", p2p=False, waits=False) for n in range(1, steps + 1)]
        last = []
        if rank == 0 and culprit != 0:
            last = [entry(steps + 1, "nccl:all_reduce", p2p=False, waits=True)]
        elif rank != culprit:
            last = [entry(steps, f"nccl:recv {rank}<-{rank - 1}", p2p=True, waits=True)]
        sent = [entry(steps, f"nccl:send {rank}->{rank + 1}", p2p=True, waits=False)]
        ranks = str(list(range(stages)))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
        raw = {"version": "2.10", "pg_config": config, "entries": [*done, *sent, *last]}
        dumps.append(model.parse(rank, pickle.dumps(raw) if binary else json.dumps(raw).encode()))
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("missing_rank", (culprit,))


@pytest.mark.parametrize("culprit", [1, 2, 3])
def test_the_stage_that_posts_no_half_of_what_its_neighbours_wait_in_is_named(culprit: int) -> None:
    """Also where as many ranks have nothing left to do as wait: the first stage has sent everything."""
    stages, steps = 4, 3

    def entry(n: int, op: str, *, waits: bool) -> dict[str, Any]:
        state = {"state": "started", "retired": False} if waits else {"state": "completed", "retired": True}
        at = {"collective_seq_id": 0, "p2p_seq_id": n, "time_created_ns": 1_000 + n, "is_p2p": True}
        return {"process_group": ("0", "default_pg"), "pg_id": 0, "profiling_name": op, **at, **state}

    dumps = []
    for rank in range(stages):
        entries = []
        for n in range(1, steps + 1):
            last = n == steps
            if (last and rank == culprit) or (last and rank > culprit + 1):
                break
            if rank > 0:
                entries.append(entry(n, f"nccl:recv {rank}<-{rank - 1}", waits=last and rank == culprit + 1))
            if rank < stages - 1 and not (last and rank > culprit):
                op = f"nccl:send {rank}->{rank + 1}"
                entries.append(entry(n, op, waits=last and rank == culprit - 1))
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(stages)))}}
        raw = {"version": "2.10", "pg_config": config, "entries": entries}
        dumps.append(model.parse(rank, json.dumps(raw).encode()))
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("missing_rank", (culprit,)), found.meaning
    assert culprit not in found.waiting


@pytest.mark.parametrize(("rows_in", "rows_out", "odd"), [(19, 152, (2,)), (19, 115, ()), (32, 128, ())])
def test_ranks_of_a_list_gather_must_expect_the_same_result(
    rows_in: int, rows_out: int, odd: tuple[int, ...]
) -> None:
    """NCCL's list form takes another size from each rank; a rank whose result has another size waits for what nobody sends."""
    others_expect = 3 * 32 + rows_in if not odd else 4 * 32

    def dump(rank: int) -> model.RankDump:
        own = rank == 2
        entry = {
            "process_group": ["0", "default_pg"], "collective_seq_id": 5, "op_id": 5, "pg_id": 0, "is_p2p": False,
            "profiling_name": "nccl:all_gather", "time_created_ns": 1, "time_discovered_started_ns": 2,
            "time_discovered_completed_ns": None, "state": "started", "retired": False, "timeout_ms": 600000, "frames": [],
            "input_sizes": [[rows_in if own else 32, 8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
            "output_sizes": [[rows_out if own else others_expect, 8]],
        }  # fmt: skip
        document = {
            "version": "2.9", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": {"last_enqueued_collective": 5, "last_started_collective": 5, "last_completed_collective": 4}},
            "entries": [entry],
        }  # fmt: skip
        return model.parse(rank, json.dumps(document).encode())

    found = verdict.judge([dump(rank) for rank in range(4)])
    assert (found.kind == "mismatch_shape", found.ranks if odd else ()) == (bool(odd), odd)


def test_gloo_gathers_one_size_from_all_ranks() -> None:
    """NCCL's list gather may have a size for each rank; gloo's has none."""

    def dump(rank: int) -> model.RankDump:
        entry = {
            "process_group": ["0", "default_pg"], "collective_seq_id": 5, "op_id": 5, "pg_id": 0, "is_p2p": False,
            "profiling_name": "gloo:all_gather", "time_created_ns": 1, "time_discovered_started_ns": 2,
            "time_discovered_completed_ns": None, "state": "started", "retired": False, "timeout_ms": 600000, "frames": [],
            "input_sizes": [[19 if rank == 2 else 32, 8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
            "output_sizes": [[115, 8]],
        }  # fmt: skip
        status = {"last_enqueued_collective": 5, "last_started_collective": 5, "last_completed_collective": 4}
        document = {
            "version": "2.9",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": status},
            "entries": [entry],
        }
        return model.parse(rank, json.dumps(document).encode())

    found = verdict.judge([dump(rank) for rank in range(4)])
    assert (found.kind, found.ranks) == ("mismatch_shape", (2,))
