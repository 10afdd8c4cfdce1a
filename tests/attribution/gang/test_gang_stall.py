"""A stopped gang: the right rank, kind and domain, from cases small enough to check by eye."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probing_cluster.attribution.gang import align, finding, missing_ranks, stacks, stall, views
from probing_cluster.core.records import Confidence, Domain

WAIT = (views.StackFrame(function="all_reduce", file="torch/distributed/distributed_c10d.py", line=2800),)
LOOP = (views.StackFrame(function="spin", file="/home/alice/train.py", line=12),)
LOADER = (
    views.StackFrame(function="_try_get_data", file="torch/utils/data/dataloader.py", line=1200),
    views.StackFrame(function="main", file="/home/alice/train.py", line=30),
)
SAVE = (
    views.StackFrame(function="save", file="torch/serialization.py", line=900),
    views.StackFrame(function="main", file="/home/alice/train.py", line=40),
)
NATIVE = (
    views.StackFrame(function="busy_wait", file="libuser.so", line=0),
    views.StackFrame(function="main", file="/home/alice/train.py", line=50),
)


def call(
    seq: int, *, left: bool = False, group: str = "0", op: str = "all_reduce", numel: int = 4, size: int = 4
) -> views.Call:
    """A collective, still inside unless `left`."""
    return views.Call(group=group, seq=seq, op=op, numel=numel, dtype_code=1, group_size=size, left=left)


def rank(number: int, *calls: views.Call, **more: Any) -> views.RankView:
    """A live rank, two per node."""
    values: dict[str, Any] = {
        "stack": WAIT if calls and not calls[-1].left else (),
        "phase": "training",
        "state": "S",
    }
    return views.RankView(
        rank=number, node=f"n{number // 2 + 1}", pid=100 + number, alive=more.pop("alive", True), calls=calls, **(values | more)
    )  # fmt: skip


def gang(odd: views.RankView) -> list[views.RankView]:
    """Ranks 0, 1, 3 wait in call 8; rank 2 is `odd`."""
    done = call(7, left=True)
    return [rank(0, done, call(8)), rank(1, done, call(8)), odd, rank(3, done, call(8))]


DONE = call(7, left=True)


def burning(
    *, samples: int = 100, evaluating: int = 0, elsewhere: int = 0, holds_gil: bool = True
) -> views.RankView:
    """Rank 2, which uses the CPU; of what is neither, the interpreter's own C code has the rest."""
    ran = views.CpuSamples(samples=samples, evaluating=evaluating, elsewhere=elsewhere, where="libfoo.so")
    return rank(2, DONE, stack=LOOP, state="R", holds_gil=holds_gil, ran=ran)


CASES = [
    (rank(2, DONE, stack=LOOP, state="R"), {}, "user_code", Domain.USER_PROGRAM, "train.py:12"),
    (rank(2, DONE, stack=LOOP, moved=True), {}, "python_loop", Domain.USER_PROGRAM, "train.py:12"),
    (burning(evaluating=9, elsewhere=91), {}, "python_loop", Domain.USER_PROGRAM, "train.py:12"),
    (burning(elsewhere=97), {}, "gil_held", Domain.USER_PROGRAM, "train.py:12"),
    (burning(elsewhere=97, holds_gil=False), {}, "user_code", Domain.USER_PROGRAM, "train.py:12"),
    (burning(elsewhere=40), {}, "user_code", Domain.USER_PROGRAM, "train.py:12"),
    (burning(samples=9, elsewhere=9), {}, "user_code", Domain.USER_PROGRAM, "train.py:12"),
    (
        rank(2, DONE, stack=NATIVE, state="R", holds_gil=True),
        {},
        "gil_held",
        Domain.USER_PROGRAM,
        "train.py:50",
    ),
    (rank(2, DONE, stack=LOADER), {}, "dataloader", Domain.USER_PROGRAM, "train.py:30"),
    (
        rank(2, DONE, stack=SAVE, phase="checkpointing", state="D"),
        {},
        "checkpoint_io",
        Domain.SYSTEM_SOFTWARE,
        "train.py:40",
    ),
    (rank(2, DONE, stack=LOOP, state="T"), {}, "rank_stopped", Domain.UNKNOWN, "train.py:12"),
    (rank(2, DONE, alive=False, exit_note="signal 9"), {}, "rank_dead", Domain.UNKNOWN, ""),
    (rank(2, DONE, alive=False), {"n2": {"oom"}}, "rank_dead", Domain.USER_PROGRAM, ""),
    (rank(2, DONE, stack=LOOP), {"n2": {"gpu_lost"}}, "gpu_lost", Domain.HARDWARE, "train.py:12"),
    (rank(2, DONE, stack=LOOP), {"n2": {"ib_link"}}, "link_down", Domain.HARDWARE, "train.py:12"),
    (rank(2, DONE, call(8, op="broadcast")), {}, "collective_mismatch", Domain.USER_PROGRAM, ""),
    (rank(2, DONE, call(8, numel=5)), {}, "collective_mismatch", Domain.USER_PROGRAM, ""),
    (rank(2, DONE), {}, "missing", Domain.UNKNOWN, ""),
    (
        rank(2, DONE, stack=LOOP, state="S", holds_gil=True),
        {},
        "gil_held",
        Domain.USER_PROGRAM,
        "train.py:12",
    ),
    (rank(2, DONE, stack=LOADER, workers="SD"), {}, "storage_io", Domain.SYSTEM_SOFTWARE, "train.py:30"),
    (rank(2, DONE, phase="ended", alive=False), {}, "rank_ended", Domain.UNKNOWN, ""),
]


@pytest.mark.parametrize(("odd", "faults", "kind", "domain", "where"), CASES, ids=[c[2] for c in CASES])
def test_the_rank_that_did_not_arrive(
    odd: views.RankView, faults: dict[str, set[str]], kind: str, domain: Domain, where: str
) -> None:
    """Rank 2 of n2 is named with what it was doing, whatever the other ranks think."""
    found = stall.judge(gang(odd), world_size=4, node_faults=faults)
    assert (found.kind, found.ranks, found.nodes, found.domain) == (kind, (2,), ("n2",), domain)
    assert where in found.where
    assert found.confidence is not Confidence.CERTAIN


def native(*functions: tuple[str, str]) -> tuple[views.StackFrame, ...]:
    """C functions, innermost first."""
    return tuple(views.StackFrame(function=f, file=lib, line=0, is_native=True) for f, lib in functions)


IN_C = native(
    ("strcmp", "libc.so.6"),
    ("lfind", "libc.so.6"),
    ("ffi_call", "libffi.so.8"),
    ("PyCFuncPtr_call", "_ctypes.so"),
)


def test_evidence_names_the_c_function() -> None:
    """The C function that the rank is in and its callers, without the glue between Python and C; the line stays Python's."""
    stuck = rank(2, DONE, stack=LOOP, state="S", holds_gil=True, native=IN_C)
    found = stall.judge(gang(stuck), world_size=4)
    assert found.kind == "gil_held"
    assert "rank 2: in C, strcmp (libc.so.6), called by lfind" in found.proof
    assert "train.py:12" in found.where
    unsure = stall.judge(gang(dataclasses.replace(stuck, holds_gil=False)), world_size=4)
    assert (unsure.kind, unsure.proof[-1]) == ("user_code", found.proof[-1])


def test_evidence_names_the_interpreters_functions_where_there_are_no_others() -> None:
    """As in a regular expression that does not end."""
    matching = native(("sre_ucs1_match", "libpython3.11.so.1.0"), ("pattern_match", "libpython3.11.so.1.0"))
    found = stall.judge(gang(rank(2, DONE, stack=LOOP, state="R", native=matching)), world_size=4)
    assert "rank 2: in C, sre_ucs1_match (libpython3.11.so.1.0), called by pattern_match" in found.proof


def test_c_functions_change_no_verdict() -> None:
    """Python's frames and the samples alone decide the kind."""
    for odd, faults, kind, _, _ in CASES:
        with_native = dataclasses.replace(odd, native=IN_C)
        found = stall.judge(gang(with_native), world_size=4, node_faults=faults)
        assert found.kind == kind
        if kind not in missing_ranks.NATIVE_KINDS:
            assert not any("in C," in line for line in found.proof)


def test_a_traced_process_was_stopped_by_no_signal() -> None:
    """A debugger holds it; whether its user's or root's, nobody knows."""
    traced = gang(rank(2, DONE, stack=LOOP, state="t"))
    found = stall.judge(traced, world_size=4)
    assert (found.kind, found.domain, found.ranks) == ("rank_stopped", "unknown", (2,))
    assert "held by a tracer" in found.summary
    both = stall.judge([rank(0, DONE, state="T"), *traced[1:]])
    assert (both.ranks, "stopped by a signal" in both.summary) == ((0,), True)
    # The agent reads who traces it: the job's own user is no fault of the system. Two ranks may have two tracers.
    own = stall.judge(gang(rank(2, DONE, stack=LOOP, state="t", traced_by_owner=True)), world_size=4)
    assert (own.kind, own.domain) == ("rank_stopped", "user_program")
    assert "held by a tracer of its own user" in own.summary
    two = stall.judge([rank(0, DONE, state="t"), *gang(rank(2, DONE, state="t", traced_by_owner=True))[1:]])
    assert (two.ranks, two.domain) == ((0, 2), "unknown")


@pytest.mark.parametrize(
    ("functions", "itself"),
    [
        (("kill", "os_kill"), True),
        (("kill", "os_killpg"), True),
        (("+0x8ade0", "raise", "signal_raise_signal"), True),
        (("+0x8ade0", "signal_pthread_kill"), True),
        (("wait4", "os_waitpid"), False),
        (("clock_nanosleep", "time_sleep"), False),
        (("+0x85e50", "+0x90d00", "PyThread_acquire_lock_timed", "os_kill"), False),
        ((), False),
    ],
)
def test_a_stopped_process_inside_its_own_kill_stopped_itself(
    functions: tuple[str, ...], itself: bool
) -> None:
    """Functions as read from processes that were stopped: os.kill, raise_signal and pthread_kill, or from outside."""
    native = tuple(views.StackFrame(function=f, file="libc.so.6", line=0, is_native=True) for f in functions)
    odd = rank(2, DONE, stack=LOOP, state="T", native=native)
    found = stall.judge(gang(odd), world_size=4)
    expected = ("stopped_itself", "user_program") if itself else ("rank_stopped", "unknown")
    assert (found.kind, found.domain) == expected
    assert found.ranks == (2,)
    if itself:
        guessed = tuple(dataclasses.replace(f, is_scanned=True) for f in native)
        assert stall.judge(gang(dataclasses.replace(odd, native=guessed))).kind == "rank_stopped"
        # Of several stopped ranks those are named that somebody else stopped.
        both = [rank(0, DONE, state="T"), *gang(odd)[1:]]
        assert (stall.judge(both).kind, stall.judge(both).ranks) == ("rank_stopped", (0,))


@pytest.mark.parametrize(
    "odd",
    [
        rank(2, DONE, call(8, op="barrier"), loader_ends=1),
        rank(2, DONE, stack=LOOP, loader_ends=1),
        rank(2, DONE, phase="ended", alive=False, loader_ends=1),
    ],
    ids=["waits at the end of its loop", "goes on elsewhere", "has left"],
)
def test_a_rank_with_fewer_batches(odd: views.RankView) -> None:
    """Its data loader has come to its end, the others' have not: whatever it does next, that is why."""
    others = [dataclasses.replace(r, loader_ends=0) for r in gang(odd) if r is not odd]
    found = stall.judge([odd, *others], world_size=4)
    assert (found.kind, found.ranks, found.domain) == ("uneven_input", (2,), Domain.USER_PROGRAM)


@pytest.mark.parametrize("phase", sorted(missing_ranks.BUSY_PHASES))
def test_what_legitimately_takes_long_is_no_stall(phase: str) -> None:
    """The others wait for a rank that saves or compiles; only when its own patience has ended it is at fault."""
    patient = stall.judge(gang(rank(2, DONE, stack=SAVE, phase=phase, stalled=False)), world_size=4)
    assert (patient.kind, patient.ranks, patient.confidence) == ("busy", (2,), Confidence.UNKNOWN)
    assert patient.kind in finding.PATIENT
    stuck = stall.judge(gang(rank(2, DONE, stack=SAVE, phase=phase, stalled=True)), world_size=4)
    assert stuck.kind == "checkpoint_io"


def test_two_that_receive_from_each_other_are_a_deadlock() -> None:
    """Both wait in point-to-point calls, and the others for both."""
    receive = views.Call(group="0", seq=3, op="recv", numel=4, dtype_code=1, group_size=4, is_p2p=True)
    ranks = [rank(0, DONE, call(8)), rank(1, DONE, call(8)), rank(2, DONE, receive), rank(3, DONE, receive)]
    found = stall.judge(ranks, world_size=4)
    assert (found.kind, found.ranks, found.domain) == ("deadlock", (2, 3), Domain.USER_PROGRAM)


def test_groups_entered_in_another_order_are_a_deadlock() -> None:
    """Ranks 2 and 3 wait in different groups that both belong to; the page does not list a group's members."""
    done = call(7, left=True)
    ranks = [
        rank(0, done, call(8)),
        rank(1, done, call(8)),
        rank(2, done, call(1, group="a", size=2)),
        rank(3, done, call(1, group="b", size=2)),
    ]
    found = stall.judge(ranks, world_size=4)
    assert (found.kind, found.ranks, found.domain) == ("deadlock", (2, 3), Domain.USER_PROGRAM)


def test_a_smaller_group_that_has_met_is_not_a_deadlock() -> None:
    """Both members are inside and do not come out: that is between them."""
    done = call(7, left=True)
    ranks = [rank(i, done, call(8)) for i in (0, 1)]
    ranks += [rank(i, done, call(1, group="a", size=2)) for i in (2, 3)]
    found = stall.judge(ranks, world_size=4)
    assert (found.kind, found.ranks, found.domain) == ("inside_collective", (2, 3), Domain.UNKNOWN)


def test_uneven_sizes_of_mixtures_of_experts_are_no_mismatch() -> None:
    """all_to_all brings what each rank has; only another operation is one."""
    many = [rank(i, call(8, op="all_to_all_single", numel=10 + i)) for i in range(4)]
    assert stall.judge(many, world_size=4).kind == "inside_collective"
    odd = [*many[:3], rank(3, call(8, op="all_reduce"))]
    assert stall.judge(odd, world_size=4).kind == "collective_mismatch"


def test_ranks_that_nobody_told_of() -> None:
    """The others wait for them: their node is lost, or its agent."""
    found = stall.judge(gang(rank(2, DONE))[:2] + gang(rank(2, DONE))[3:], world_size=4)
    assert (found.kind, found.ranks, found.nodes, found.confidence) == (
        "missing",
        (2,),
        (),
        Confidence.POSSIBLE,
    )


def test_who_waited_and_is_gone_does_not_wait_now() -> None:
    """Ranks 0 and 1 gave up after a timeout and ended; rank 3 still waits for rank 2."""
    gave_up = dataclasses.replace(call(8, left=True), raised=True, waited_s=30.0)
    ranks = [
        rank(0, DONE, gave_up, phase="ended", alive=False),
        rank(1, DONE, gave_up, phase="ended", alive=False),
        rank(2, DONE, stack=LOOP),
        rank(3, DONE, call(8)),
    ]
    found = stall.judge(ranks, world_size=4)
    assert found.ranks == (2,)
    assert found.proof[:2] == (
        "rank 3 waits in all_reduce at group 0 #8",
        "ranks 0-1 waited in all_reduce at group 0 #8, and no longer do",
    )


def test_who_gave_up_and_lives_does_not_wait_now() -> None:
    """Rank 0 got an exception from its collective and handles it; its call still shows for whom it waited."""
    gave_up = dataclasses.replace(call(8, left=True), raised=True, waited_s=30.0)
    ranks = [
        rank(0, DONE, gave_up),
        rank(1, DONE, call(8)),
        rank(2, DONE, stack=LOOP),
        rank(3, DONE, call(8)),
    ]
    found = stall.judge(ranks, world_size=4)
    assert found.ranks == (2,)
    assert found.proof[:2] == (
        "ranks 1,3 wait in all_reduce at group 0 #8",
        "rank 0 waited in all_reduce at group 0 #8, and no longer does",
    )


def test_who_left_because_a_collective_failed_is_a_victim() -> None:
    """Rank 2 was killed; the others got an exception and ended in order, or were ended."""
    failed = dataclasses.replace(call(8, left=True), raised=True)
    others = [rank(i, call(7, left=True), failed, phase="ended") for i in (0, 1, 3)]
    found = stall.judge([*others, rank(2, DONE, alive=False)], world_size=4)
    assert (found.kind, found.ranks) == ("rank_dead", (2,))


def test_every_kind_has_a_meaning() -> None:
    """Every kind that judge returns is documented, in the code and in the manual."""
    assert {case[2] for case in CASES} <= set(finding.KINDS)
    page = (Path(__file__).resolve().parents[3] / "docs" / "probe.md").read_text("utf-8")
    for kind, meaning in finding.KINDS.items():
        assert f"| `{kind}` | {meaning} |" in page


def test_code_that_python_did_not_run_is_told_with_its_library() -> None:
    """The samples are the proof; what could be either is only possible."""
    native = stall.judge(gang(burning(elsewhere=97)), world_size=4)
    assert any("97 in libraries (libfoo.so most)" in p for p in native.proof)
    assert native.confidence is Confidence.LIKELY
    either = stall.judge(gang(burning(elsewhere=40)), world_size=4)
    assert either.confidence is Confidence.POSSIBLE


def test_a_fault_on_another_node_convicts_nobody_else() -> None:
    """A GPU fault on a node whose ranks all arrived is not why rank 2 is in a loop."""
    found = stall.judge(gang(rank(2, DONE, stack=LOOP)), world_size=4, node_faults={"n1": {"gpu_lost"}})
    assert (found.kind, found.domain) == ("user_code", Domain.USER_PROGRAM)


def test_everybody_inside_is_the_network_or_unknown() -> None:
    """All arrived, none leaves: a link fault makes it hardware, nothing makes it unknown."""
    ranks = gang(rank(2, DONE, call(8)))
    unknown = stall.judge(ranks, world_size=4)
    assert (unknown.kind, unknown.domain, unknown.ranks) == ("inside_collective", Domain.UNKNOWN, ())
    network = stall.judge(ranks, world_size=4, node_faults={"n2": {"ib_link"}})
    assert (network.domain, network.nodes) == (Domain.HARDWARE, ("n2",))


def test_the_chain_of_waiting_is_followed_to_its_end() -> None:
    """Pipeline: 0,1 wait for 2 in group a; 2 waits for 3 in group b; 3 loops: rank 3 is the culprit."""
    a, b = call(5, group="a", size=3), call(9, group="b", size=2)
    ranks = [
        rank(0, a),
        rank(1, a),
        rank(2, call(4, group="a", size=3, left=True), b),
        rank(3, call(8, group="b", size=2, left=True), stack=LOOP),
    ]
    found = stall.judge(ranks, world_size=4)
    assert (found.kind, found.ranks) == ("user_code", (3,))


def test_a_circle_of_waiting_is_a_deadlock() -> None:
    """0 waits for 1 in a, 1 waits for 0 in b: the program's own order is wrong."""
    a = call(1, group="a", size=2)
    b = call(1, group="b", size=2)
    ranks = [
        rank(0, call(0, group="b", size=2, left=True), a),
        rank(1, call(0, group="a", size=2, left=True), b),
    ]
    found = stall.judge(ranks, world_size=2)
    assert (found.kind, found.ranks, found.domain) == ("deadlock", (0, 1), Domain.USER_PROGRAM)


def test_gradients_reduced_in_backward_are_told_by_stacks() -> None:
    """Without calls on the page, the rank whose stack is not waiting is the culprit."""
    backward = (views.StackFrame(function="_engine_run_backward", file="torch/autograd/graph.py", line=800),)
    ranks = [rank(i, stack=backward, steps=6) for i in (0, 1, 3)] + [rank(2, stack=LOADER, steps=6)]
    found = stall.judge(ranks, world_size=4)
    assert (found.kind, found.ranks) == ("dataloader", (2,))


def test_a_rank_far_ahead_is_not_missing() -> None:
    """A rank whose ring has gone past the stuck sequence arrived long ago."""
    ahead = rank(2, *[call(s, left=True) for s in range(20, 84)])
    meeting = align.meetings(gang(ahead), 4)[0]
    assert meeting.missing == ()


def test_point_to_point_counts_are_never_compared() -> None:
    """Pipeline stages issue different numbers of sends and receives, legitimately."""
    send = views.Call(group="0", seq=11986, op="send", numel=4, dtype_code=1, group_size=2, is_p2p=True)
    receive = views.Call(group="0", seq=13698, op="recv", numel=4, dtype_code=1, group_size=2, is_p2p=True)
    assert align.meetings([rank(0, send), rank(1, receive)], 2) == []


@given(st.permutations(range(4)), st.sampled_from(CASES))
def test_order_changes_nothing(order: list[int], case: tuple[Any, ...]) -> None:
    """Snapshots arrive in any order; the finding is the same."""
    ranks = gang(case[0])
    assert stall.judge([ranks[i] for i in order], world_size=4, node_faults=case[1]) == stall.judge(
        ranks, world_size=4, node_faults=case[1]
    )


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda c: st.lists(c) | st.dictionaries(st.text(), c),
    )
)
def test_forged_snapshots_are_dropped_or_bounded(raw: Any) -> None:
    """Forged content of a snapshot gives a view or None, never a crash."""
    entry = raw if isinstance(raw, dict) else {"rank": 1, "calls": raw, "stack": raw}
    view = views.from_snapshot("n1", entry)
    assert view is None or stall.judge([view]).kind


def test_merged_stacks_fold_ranks() -> None:
    """Five hundred ranks in one place are one line."""
    tree = stacks.merge([(i, WAIT if i != 3 else LOOP) for i in range(500)])
    assert stacks.render(tree) == [
        "[0-2,4-499] all_reduce (torch/distributed/distributed_c10d.py:2800)",
        "[3] spin (/home/alice/train.py:12)",
    ]


def test_ranges() -> None:
    """Rank sets as people write them."""
    rng = random.Random(7)
    numbers = [0, 1, 2, 5, 7, 8]
    rng.shuffle(numbers)
    assert stacks.ranges(numbers) == "0-2,5,7-8"
