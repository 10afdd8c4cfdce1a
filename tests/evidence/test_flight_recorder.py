"""Dumps are loaded without trust, and the verdict follows the evidence, not the order or the loudest."""

from __future__ import annotations

import collections
import itertools
import json
import os
import pickle
from typing import Any

import pytest

from probing_cluster.core.errors import MalformedInput
from probing_cluster.evidence.flight_recorder import load, model, verdict
from tests.every_case import every


def entry(seq: int, op: str = "nccl:all_reduce", group: str = "0", **fields: Any) -> dict[str, Any]:
    """One recorded collective that is still outstanding."""
    return {
        "process_group": (group, "default_pg" if group == "0" else "tp"),
        "pg_id": int(group),
        "profiling_name": op,
        "collective_seq_id": seq,
        "input_sizes": [[8]],
        "state": "scheduled",
        "retired": False,
        "time_created_ns": 1000 + seq,
        "timeout_ms": 600000,
        "is_p2p": False,
        **fields,
    }


def dump(
    rank: int,
    entries: list[dict[str, Any]],
    enqueued: int | None = None,
    completed: int | None = None,
    ranks: str = "[0, 1, 2, 3]",
    **top: Any,
) -> model.RankDump:
    """One rank's dump with one group."""
    raw: dict[str, Any] = {
        "version": "2.10",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "entries": entries,
        **top,
    }
    if enqueued is not None:
        raw["pg_status"] = {
            "0": {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
        }
    return model.parse(rank, pickle.dumps(raw))


class Evil:
    """A pickle that runs a command when loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch /nonexistent/probing",))


@every(
    "value, protocol",
    itertools.product(
        [
            Evil(),
            {"entries": [Evil()]},
            collections.OrderedDict(a=1),
            os.system,
            {1, 2}.__class__,
            bytearray(b"x"),
        ],
        range(6),
    ),
)
def test_pickles_that_name_anything_are_refused(value: object, protocol: int) -> None:
    """Nothing but plain values is built, whatever the protocol."""
    data = pickle.dumps(value, protocol=protocol)
    if isinstance(value, bytearray) and protocol < 5:
        assert b"bytearray" in data
    with pytest.raises(MalformedInput):
        load.loads(data)


@every(
    "data",
    [
        b"",
        b"\x80",
        b"garbage",
        b"{",
        b"[1, 2",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"(" * 100_000,
        b"[" * 100_000,
        b"\x80\x02P1\n.",
    ],
)
def test_broken_dumps_are_refused(data: bytes) -> None:
    """Truncated, hostile and senseless bytes raise MalformedInput and nothing else."""
    with pytest.raises(MalformedInput):
        model.parse(0, data)


def test_a_dump_that_is_too_big_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes and opcodes are bounded before anything is built."""
    monkeypatch.setattr(load, "MAX_BYTES", 100)
    with pytest.raises(MalformedInput, match="bytes"):
        load.loads(b"[" + b"1," * 100 + b"1]")
    monkeypatch.undo()
    monkeypatch.setattr(load, "MAX_OPCODES", 50)
    with pytest.raises(MalformedInput, match="values"):
        load.loads(pickle.dumps(list(range(1000))))


@every(("text", "version"), [("2.10", (2, 10)), ("2.9", (2, 9)), ("1.4", (1, 4)), (None, (1, 0))])
def test_versions_are_two_integers(text: str | None, version: tuple[int, int]) -> None:
    """2.10 is newer than 2.9; a dump without a version is an old one."""
    raw = {"version": text} if text else {}
    assert model.parse(0, pickle.dumps(raw)).version == version


def test_a_schema_of_the_future_is_refused() -> None:
    """A new major version is said to be unknown, not guessed at."""
    with pytest.raises(MalformedInput, match="schema 3"):
        model.parse(0, pickle.dumps({"version": "3.0"}))


def test_json_and_pickle_say_the_same() -> None:
    """JSON's text numbers, lists for pairs and absent entries give the same dump."""
    raw = {
        "version": "2.10",
        "pg_status": {
            "0": {
                "last_enqueued_collective": 3,
                "last_started_collective": -1,
                "last_completed_collective": 2,
            }
        },
        "entries": [entry(3)],
    }
    text = json.loads(json.dumps(raw))
    text["pg_status"]["0"] = {k: str(v) for k, v in text["pg_status"]["0"].items()}
    assert model.parse(0, pickle.dumps(raw)) == model.parse(0, json.dumps(text).encode())
    assert model.parse(0, b'{"version": "2.10"}').entries == ()


@every(
    ("name", "rank"),
    [
        ("rank_3", 3),
        ("_dump_12", 12),
        ("comm_lib_trace_rank_0.json", 0),
        ("x/nccl_trace_rank_7.pkl", 7),
        ("LABEL.json", None),
        ("rank00_fr.json", 0),
        ("dump-rank-12.partial.json", 12),
        ("franklin7_fr.json", None),
    ],
)
def test_rank_of_a_file_name(name: str, rank: int | None) -> None:
    """The rank is the number the name ends with."""
    assert load.rank_of(name) == rank


def test_a_rank_that_did_not_arrive_is_named() -> None:
    """Three ranks wait in number 5, one never issued it and waits for nothing."""
    dumps = [dump(r, [entry(5)], 5, 4) for r in (0, 1, 3)] + [dump(2, [], 4, 4)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks, found.group, found.seq, found.op, found.waiting) == (
        "missing_rank",
        (2,),
        "0",
        5,
        "all_reduce",
        (0, 1, 3),
    )


def test_a_rank_held_up_elsewhere_is_not_at_fault() -> None:
    """Rank 1 is behind in the big group only because rank 0 left it waiting in the small one."""
    small = {"0": {"name": "0", "ranks": "[0, 1, 2]"}, "1": {"name": "1", "ranks": "[0, 1]"}}
    raws = {
        0: [entry(4, retired=True)],
        1: [entry(4, retired=True), entry(1, group="1", time_created_ns=2000)],
        2: [entry(4, retired=True), entry(5)],
    }
    dumps = [
        model.parse(r, pickle.dumps({"version": "2.10", "pg_config": small, "entries": e}))
        for r, e in raws.items()
    ]
    assert verdict.judge(dumps).ranks == (0,)


@every(
    ("fields", "kind"),
    [
        ({"profiling_name": "nccl:broadcast"}, "mismatch_op"),
        ({"input_sizes": [[16]]}, "mismatch_shape"),
        ({"input_dtypes": ["Half"]}, "mismatch_shape"),
    ],
)
def test_the_odd_one_out_is_named(fields: dict[str, Any], kind: str) -> None:
    """Whoever brought another operation, size or type at the same number is at fault, not the majority."""
    dumps = [dump(r, [entry(5, **(fields if r == 0 else {}))], 5, 4) for r in range(4)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks, found.domains) == (kind, (0,), ("user_program",))


def test_the_odd_part_of_a_coalesced_operation_is_found() -> None:
    """Its parts share one number: the second of three differs on rank 1."""
    parts = {r: [[4], [5] if r != 1 else [4], [6]] for r in range(4)}
    dumps = [
        dump(r, [entry(5, "nccl:_broadcast_oop", input_sizes=[s]) for s in parts[r]], 5, 4) for r in range(4)
    ]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("mismatch_shape", (1,))
    cut = [*dumps[:3], dump(3, [entry(5, "nccl:_broadcast_oop", input_sizes=[[6]])], 5, 4)]
    assert verdict.judge(cut).kind == "all_inside"


def test_two_ranks_that_disagree_are_both_named() -> None:
    """Without a majority nobody is picked."""
    dumps = [dump(0, [entry(5)], ranks="[0, 1]"), dump(1, [entry(5, input_sizes=[[9]])], ranks="[0, 1]")]
    assert verdict.judge(dumps).ranks == (0, 1)


@every("op", ["nccl:all_to_all", "nccl:gather", "nccl:all_gather"])
def test_sizes_that_may_differ_are_no_mismatch(op: str) -> None:
    """All-to-all and its kin carry different sizes by design."""
    dumps = [dump(r, [entry(5, op, input_sizes=[[8 + r]])], 5, 4) for r in range(4)]
    assert verdict.judge(dumps).kind == "all_inside"


def test_a_device_that_finished_least_is_named() -> None:
    """Everybody issued number 9, rank 3's device finished less than its peers."""
    dumps = [dump(r, [entry(9)], 9, 8) for r in range(3)] + [dump(3, [entry(8), entry(9)], 9, 7)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks, found.domains[0]) == ("device_stuck", (3,), "hardware")


def test_stages_of_a_pipeline_are_not_compared() -> None:
    """Groups that send and receive differ in their counts by design."""
    sends = [
        dump(r, [entry(5, "nccl:send 0->1", is_p2p=True)], 11986 if r % 2 else 13698, 5) for r in range(4)
    ]
    assert verdict.judge(sends).kind == "all_inside"


def test_all_inside_is_the_network() -> None:
    """All entered the same collective and none came out: no rank is named."""
    found = verdict.judge([dump(r, [entry(9)], 9, 8) for r in range(4)])
    assert (found.kind, found.ranks, found.seq, found.waiting) == ("all_inside", (), 9, (0, 1, 2, 3))


def test_a_pair_that_is_stuck_in_its_own_group_is_named_where_all_others_wait_for_it() -> None:
    """Ranks 0 and 1 never came to the gang's collective: no sentence may say that they entered it."""
    members = {"0": range(4), "7": [0, 1]}
    config = {g: {"name": g, "ranks": str(list(m))} for g, m in members.items()}
    pair = [entry(1, "nccl:all_to_all", group="7", state="scheduled", time_created_ns=2 * 10**9)]
    last = {g: {"last_enqueued_collective": n, "last_started_collective": -1, "last_completed_collective": n - 1} for g, n in (("0", 0), ("7", 1))}  # fmt: skip
    dumps = [dump(r, pair, pg_config=config, pg_status=last) for r in (0, 1)]
    dumps += [calls(r, [], ["0"], world=4, timed=False, members={"0": [0, 1, 2, 3]}) for r in (2, 3)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks, found.group, found.waiting) == ("all_inside", (0, 1), "7", (2, 3))
    assert "the group (0, 1) entered all_to_all number 1 of group 7" in found.meaning


def test_where_every_group_of_its_own_is_stuck_no_rank_is_named() -> None:
    """Two pairs, each inside its own collective: nobody waits for anybody else."""
    members = {"0": [0, 1, 2, 3], "1": [0, 1], "2": [2, 3]}
    dumps = [calls(r, ["0"], [str(1 + r // 2)], world=4, timed=False, members=members) for r in range(4)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("all_inside", ())
    assert "Every rank of the group (0, 1) entered" in found.meaning


def test_a_missing_dump_is_named_when_nothing_else_explains() -> None:
    """The process that ended before it could dump is the one to look at."""
    found = verdict.judge([dump(r, [entry(9)], 9, 8) for r in (0, 1, 3)])
    assert (found.kind, found.ranks, found.missing_dumps) == ("no_dump", (2,), (2,))


def test_nobody_waits_is_healthy_and_nothing_is_unknown() -> None:
    """Finished work is no fault; no dumps are no verdict."""
    done = [dump(r, [entry(9, state="completed", retired=True)], 9, 9) for r in range(4)]
    assert verdict.judge(done).kind == "healthy"
    assert verdict.judge([]).kind == "unknown"


def test_frames_say_what_the_rank_was_doing() -> None:
    """The innermost frames of the last collective of the rank at fault are kept, cleaned and bounded."""
    frames = [{"name": "step\x07", "filename": "/x/train.py", "line": 12}] * 40
    last = entry(4, retired=True, state="completed", frames=frames)
    found = verdict.judge([dump(0, [last], 4, 4), *(dump(r, [entry(5)], 5, 4) for r in (1, 2, 3))])
    assert found.doing[0] == "step /x/train.py:12"
    assert len(found.doing) <= 16


# ---- Gloo ------------------------------------------------------------------------------------------------------


def gloo(rank, last, *, completed=None, waiting=False, gaps_s=(), timeout_ms=5000):
    """A dump as Gloo leaves it: no members, no start or end of anything, what timed out retired like what was done."""
    at, entries = 1_000_000_000, []
    for seq in range(1, last + 1):
        at += int((dict(gaps_s).get(seq, 0.01)) * 1e9)
        entries.append(
            {
                "process_group": ("0", "default_pg"),
                "pg_id": 0,
                "profiling_name": "gloo:all_reduce",
                "collective_seq_id": seq,
                "input_sizes": [[8]],
                "input_dtypes": ["Float"],
                "state": "scheduled",
                "retired": not (waiting and seq == last),
                "time_created_ns": at,
                "timeout_ms": timeout_ms,
                "is_p2p": False,
            }
        )
    status = {"last_enqueued_collective": last, "last_started_collective": -1}
    status["last_completed_collective"] = last if completed is None else completed
    raw = {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[]"}},
        "pg_status": {"0": status},
        "entries": entries,
    }
    return model.parse(rank, json.dumps(raw).encode()), model.parse(rank, pickle.dumps(raw))


def both(*dumps, **over):
    """The verdict over the dumps, which is the same from JSON and from pickles."""
    text, binary = verdict.judge([d[0] for d in dumps], **over), verdict.judge([d[1] for d in dumps], **over)
    assert (text.kind, text.ranks) == (binary.kind, binary.ranks)
    return text


def test_gloo_says_nothing_of_devices():
    """Ranks whose last operation timed out count it as completed, others do not: no GPU stands still for that."""
    dumps = [gloo(0, 4, completed=3, waiting=True), gloo(1, 4), gloo(2, 4), gloo(3, 4)]
    assert both(*dumps).kind not in ("device_stuck", "all_inside")


@every("world_size", [4, None])
def test_a_killed_rank_without_a_dump_is_the_culprit_and_no_victim_is(world_size):
    """A broadcast's root is ahead of those who wait for it, and one of them is gone."""
    found = both(gloo(0, 5), gloo(2, 5), gloo(3, 4), world_size=world_size)
    assert (found.kind, found.ranks) == ("no_dump", (1,))


def test_a_rank_of_gloo_that_left_a_dump_and_did_not_issue_is_still_found():
    """Nobody is gone: the one behind is whom they wait for."""
    assert both(gloo(0, 5), gloo(1, 5), gloo(2, 4), gloo(3, 5), world_size=4).ranks == (2,)


def test_a_rank_that_came_after_the_timeout_is_found_by_its_own_clock():
    """By then all have issued the same and all of it is retired; another node's clock may be anything."""
    late = gloo(2, 4, gaps_s=((4, 9.0),))
    found = both(gloo(0, 4), gloo(1, 4, gaps_s=((1, 4000.0),)), late, gloo(3, 4))
    assert (found.kind, found.ranks, found.seq) == ("missing_rank", (2,), 4)
    assert both(gloo(0, 4), gloo(1, 4), gloo(2, 4), gloo(3, 4)).kind == "healthy"
    pause = [gloo(r, 4, gaps_s=((4, 9.0),)) for r in range(4)]
    assert both(*pause).kind == "healthy"


# ---- who waits for whom across groups, and whose device never began -------------------------------------------


def calls(rank, done, last, *, world, backend="nccl", timed=True, binary=True, members=None):
    """A dump of a rank whose collectives `done` are over and which waits in `last`, each a group's name (its number there follows)."""
    members, count, entries = members or {}, dict[str, int](), []
    for n, group in enumerate([*done, *last]):
        count[group] = count.get(group, 0) + 1
        over, gone = n < len(done), backend == "gloo"
        entries.append(entry(
            count[group], f"{backend}:all_reduce", group, time_created_ns=10**18 + n * 10**9, retired=over or gone,
            state="completed" if over and not gone else "started" if timed and not gone else "scheduled",
        ))  # fmt: skip
    everyone = list(range(world))
    config = {
        g: {"name": g, "desc": f"g{g}", "ranks": str(members.get(g, everyone))} for g in count if not members
    }
    config |= {g: {"name": g, "desc": f"g{g}", "ranks": str(m)} for g, m in members.items() if rank in m}
    raw = {"version": "2.10", "pg_config": config, "entries": entries}
    return model.parse(rank, pickle.dumps(raw) if binary else json.dumps(raw).encode())


@every(
    "world, how, steps",
    itertools.product([3, 4, 8], [{}, {"timed": False}, {"binary": False}, {"backend": "gloo"}], [0, 3]),
)
def test_a_rank_that_calls_two_groups_in_another_order_is_named(
    world: int, how: dict[str, Any], steps: int
) -> None:
    """Everybody waits: the one in the second group for the others, they in the first one for it."""
    before = ["0", "1"] * steps
    dumps = [calls(r, before, ["1"] if r == 1 else ["0"], world=world, **how) for r in range(world)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("mismatch_op", (1,)), found.meaning


def test_two_halves_that_call_two_groups_in_another_order_are_all_named() -> None:
    """There is no majority."""
    dumps = [calls(r, ["0", "1"], ["1"] if r < 2 else ["0"], world=4) for r in range(4)]
    assert verdict.judge(dumps).ranks == (0, 1, 2, 3)


def test_devices_that_began_two_groups_in_another_order_are_told_from_hosts_that_did() -> None:
    """All hosts issued both; each device began the one for which the other waits."""
    dumps = []
    for rank in range(4):
        begun, left = ("1", "0") if rank == 2 else ("0", "1")
        state = {begun: "started", left: "scheduled"}
        listed = [entry(1, group=g, state=state[g], time_created_ns=10**9 + int(g)) for g in ("0", "1")]
        config = {g: {"name": g, "desc": g, "ranks": "[0, 1, 2, 3]"} for g in ("0", "1")}
        dumps.append(dump(rank, listed, pg_config=config))
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("mismatch_op", (2,)), found.meaning


def test_three_ranks_that_wait_in_a_circle_are_all_named_and_who_waits_for_them_is_not() -> None:
    """Each is in the group of the next; a fourth waits for the whole world."""
    members = {"1": [0, 1], "2": [1, 2], "3": [2, 0], "9": [0, 1, 2, 3]}
    dumps = [calls(r, [], [g], world=4, members=members) for r, g in enumerate(["1", "2", "3", "9"])]
    assert verdict.judge(dumps).ranks == (0, 1, 2)


def test_a_chain_of_groups_that_ends_at_one_rank_is_no_circle() -> None:
    """Who waits for nobody is why the others wait, whatever groups lie between."""
    members = {"1": [0, 1], "2": [1, 2], "9": [0, 1, 2, 3]}
    dumps = [calls(0, ["1"], ["1"], world=4, members=members), calls(1, ["1", "2"], ["2"], world=4, members=members),
             calls(2, ["2"], [], world=4, members=members), calls(3, [], ["9"], world=4, members=members)]  # fmt: skip
    assert verdict.judge(dumps).ranks == (2,)


@pytest.mark.parametrize("idle", [(4,), (2, 3), (4, 5, 6, 7)])
@pytest.mark.parametrize("binary", [True, False])
def test_a_device_that_never_began_what_the_others_began_is_named(
    idle: tuple[int, ...], binary: bool
) -> None:
    """All hosts issued it and none finished; only some devices began."""
    dumps = [calls(r, ["0"] * 3, ["0"], world=8, timed=r not in idle, binary=binary) for r in range(8)]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks) == ("device_stuck", idle), found.meaning


def test_a_device_that_is_busy_with_another_collective_is_not_stuck() -> None:
    """It began something else, for which it waits; where no start is recorded at all, nothing is said of devices."""
    members = {"0": [0, 1, 2, 3], "1": [3, 4]}
    dumps = [calls(r, [], ["0"], world=5, members=members) for r in range(3)]
    waits = [entry(1, group="1", state="started"), entry(1, state="scheduled", time_created_ns=10**9)]
    dumps.append(dump(3, waits, pg_config={g: {"name": g, "ranks": str(m)} for g, m in members.items()}))
    dumps.append(calls(4, [], [], world=5, members=members))
    assert verdict.judge(dumps).kind != "device_stuck"
    assert (
        verdict.judge([calls(r, ["0"], ["0"], world=4, timed=False) for r in range(4)]).kind == "all_inside"
    )


@every("idle", [(3,), (0, 2)])
def test_a_rank_that_has_issued_nothing_at_all_is_missing(idle: tuple[int, ...]) -> None:
    """Its dump lists the group, with -1 for how far it came, and has no entry."""
    dumps = [
        dump(r, [], -1, -1) if r in idle else dump(r, [entry(1, state="started")], 1, -1) for r in range(4)
    ]
    found = verdict.judge(dumps)
    assert (found.kind, found.ranks, found.seq) == ("missing_rank", idle, 1), found.meaning
