"""The agents' events about a gang become one view of it: the right step, each rank once, before the teardown."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from probing_cluster.attribution.gang import snapshots
from probing_cluster.attribution.verdict import onset, view_builder


def entry(rank: int, *, pid: int | None = None, seq: int = 8, **over: Any) -> dict[str, Any]:
    """A rank that waits in a collective of four."""
    waits = {"group": "0", "seq": seq, "op": "all_reduce", "numel": 4, "group_size": 4, "left": False}
    values = {"rank": rank, "pid": pid or 100 + rank, "alive": True, "phase": "training", "steps": seq, "step_id": 0, "stalled": True, "calls": [waits]}  # fmt: skip
    return values | over


def lost(rank: int, **over: Any) -> dict[str, Any]:
    """A rank that has not arrived, and loops."""
    done = {"group": "0", "seq": 7, "op": "all_reduce", "numel": 4, "group_size": 4, "left": True}
    spin = {"function": "spin", "file": "/home/alice/train.py", "line": 7}
    return entry(rank, **{"calls": [done], "stack": [spin], "moved": True, **over})


def snapshot(make: Any, node: str, *entries: dict[str, Any], before_end_s: float = 60) -> Any:
    """The snapshot of one node."""
    detail = {"ranks": list(entries), "world_size": 4}
    return make.finding("rank_snapshot", before_end_s, node=node, source="probe", detail=detail)


def test_the_last_snapshot_of_each_node_counts(make: Any) -> None:
    """Of two pictures of one node the later; the gang stopped when its last rank had got on."""
    stall = make.finding("rank_stall", 70, node="n1", source="probe", measured=30.0)
    findings = [
        snapshot(make, "n2", entry(2), entry(3), before_end_s=80),
        snapshot(make, "n1", entry(0), entry(1)),
        snapshot(make, "n2", lost(2), entry(3)),
        stall,
    ]
    gang = snapshots.gang(findings)
    assert gang is not None
    assert (gang.world_size, gang.nodes) == (4, {"n1", "n2"})
    assert gang.onset_at == make.end - timedelta(seconds=100)
    found = snapshots.judge(gang, {})
    assert (found.kind, found.ranks, found.nodes) == ("python_loop", (2,), ("n2",))


def test_an_idle_process_with_a_ranks_number_does_not_stand_for_it(make: Any) -> None:
    """A compile worker has the number of its rank and is younger. A rank that was started anew is younger, too, and counts."""
    worker = entry(0, pid=900, steps=0, calls=[], phase="loading", phase_age_s=1.0)
    rank, dead = entry(0, phase_age_s=500.0), entry(0, alive=False, phase_age_s=500.0)
    for before in (rank, dead):
        gang = snapshots.gang([snapshot(make, "n1", before, worker, entry(1))])
        assert gang is not None
        assert [r.pid for r in gang.ranks if r.rank == 0] == [100 if before is rank else 900]


def test_the_teardown_of_a_job_is_no_evidence(make: Any) -> None:
    """Snapshots from the teardown, when Slurm kills tasks, do not hide earlier ones."""
    before = [snapshot(make, "n1", entry(0), entry(1)), snapshot(make, "n2", lost(2), entry(3))]
    dying = snapshot(make, "n1", entry(0, alive=False), entry(1), before_end_s=1)
    gang = snapshots.gang([*before, dying], end_at=make.end)
    assert gang is not None
    assert snapshots.judge(gang, {}).ranks == (2,)
    only = snapshots.gang([dying], end_at=make.end)
    assert only is not None
    assert len(only.ranks) == 2


def progress(make: Any, node: str, rank: int, steps: int, before_end_s: float) -> Any:
    """The last step of a node's ranks, as its agent reports it after the end."""
    detail = {"rank": rank, "steps": steps, "phase": "ended", "restart_count": 0}
    return make.finding(
        "last_progress", before_end_s, node=node, pid=100 + rank, source="probe", detail=detail
    )


def stopped_and_continued(make: Any, trained: int = 500, before_end_s: float = 2.0) -> list[Any]:
    """Rank 2 was stopped 68 s before the end; after SIGCONT the gang trained on for so many steps."""
    stalls = [
        make.finding("rank_stall", 68, node=node, pid=100 + rank, source="probe", measured=10.0, detail={"rank": rank, "steps": 8})
        for rank, node in ((0, "n1"), (2, "n2"))
    ]  # fmt: skip
    shown = [
        snapshot(make, "n1", entry(0), entry(1), before_end_s=66),
        snapshot(make, "n2", lost(2, state="T", steps=8), entry(3), before_end_s=65),
    ]
    ranks = ((0, "n1"), (2, "n2"))
    after = [progress(make, node, rank, 8 + trained, before_end_s) for rank, node in ranks]
    return [*stalls, *shown, *after]


def test_a_stall_that_ended_is_not_why_a_job_died(make: Any) -> None:
    """The gang trained on until rank 2 raised an error, or was killed: neither verdict is "never continued"."""
    events = stopped_and_continued(make)
    detail = {"rank": 2, "exception": "ValueError", "first_cause": True, "role": "root", "domains": ["user_program"]}  # fmt: skip
    raised = make.finding("python_exception", node="n1", detail=detail, message="ValueError: bad batch")
    verdict = make.judge(*events, raised, last_progress_at=make.end - timedelta(seconds=2))
    assert verdict.cause == "user_error"
    assert "stopped" not in verdict.summary
    gone = {"rank": 2, "steps": 508, "phase": "training", "step_id": 0, "world_size": 4}
    dead = make.finding("rank_dead", 1, node="n2", pid=102, source="probe", detail=gone)
    killed = make.judge(*events, dead, last_progress_at=make.end - timedelta(seconds=2))
    assert killed.cause == "rank_killed"
    assert "stopped" not in killed.summary
    found = snapshots.gang([*events, dead], end_at=make.end)
    assert found is not None
    assert found.onset_at == dead.at


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT"])
@pytest.mark.parametrize("before_end_s", [0.5, -0.4, -12.0], ids=["before", "in its last second", "while it was being killed"])  # fmt: skip
def test_a_job_that_trained_on_after_a_stall_did_not_hang_when_it_was_ended(
    make: Any, state: str, before_end_s: float
) -> None:
    """Nor is anybody at fault: its pages show ranks as they were torn down."""

    def trained(steps: int) -> list[Any]:
        gone = {"stack": [], "moved": False, "stalled": False, "steps": 8 + steps}
        waits = (entry(rank, steps=8 + steps, seq=409) for rank in (0, 1))
        left = snapshot(make, "n1", *waits, before_end_s=-1.5)
        torn = snapshot(make, "n2", *(lost(rank, **gone) for rank in (2, 3)), before_end_s=-1.6)
        return [*stopped_and_continued(make, steps, before_end_s), left, torn]

    events = trained(94)
    attempt = make.attempt(state=state, exit_code=0, time_limit_s=None, cancelled_by="alice" if state == "CANCELLED" else None)  # fmt: skip
    verdict = make.judge(*events, attempt=attempt, last_progress_at=onset.last_progress(attempt, events))
    assert verdict.cause == ("user_cancelled" if state == "CANCELLED" else "time_limit")
    assert "Hung" not in verdict.summary
    assert "why it hung" not in verdict.next_step
    assert verdict.stalled_at is None
    # Those that Slurm only woke to end them hung to the end.
    woken = trained(1)
    hung = make.judge(*woken, attempt=attempt, last_progress_at=onset.last_progress(attempt, woken))
    assert hung.summary.startswith("Hung since")
    assert hung.cause == "rank_stopped"


def test_ranks_that_stood_still_at_the_end_hung_however_long_they_were_being_killed(make: Any) -> None:
    """The snapshot shortly before the end proves it: Slurm woke them. One that shows them at work proves nothing."""

    def judged(**over: Any) -> Any:
        look = (snapshot(make, "n1", entry(0, **over), entry(1, **over), before_end_s=5), snapshot(make, "n2", lost(2, **{"state": "T", "steps": 8, **over}), entry(3, **over), before_end_s=5))  # fmt: skip
        events = [*stopped_and_continued(make, 300, -29.0), *look]
        attempt = make.attempt(state="CANCELLED", exit_code=0, cancelled_by="alice")
        return make.judge(*events, attempt=attempt, last_progress_at=onset.last_progress(attempt, events))

    assert judged().cause == "rank_stopped"
    assert judged().summary.startswith("Hung since")
    at_work = judged(state="R", steps=200, stalled=False)
    assert at_work.cause == "user_cancelled"
    assert "Hung" not in at_work.summary


def test_a_death_shows_too_how_far_its_rank_had_come(make: Any) -> None:
    """The agent of a killed rank reports no last step of it besides."""
    gone = {"rank": 2, "steps": 508, "phase": "training", "step_id": 0, "world_size": 4}
    dead = make.finding("rank_dead", 1, node="n2", pid=102, source="probe", detail=gone)
    found = snapshots.gang([*stopped_and_continued(make)[:4], dead], end_at=make.end)
    assert found is not None
    assert found.onset_at == dead.at


def test_a_gang_that_goes_on_after_a_stall_is_not_judged(make: Any) -> None:
    """Somebody asked for its stacks again; that alone is no sign of trouble."""
    later = [entry(0, steps=90), entry(1, steps=90)]
    assert (
        snapshots.gang([*stopped_and_continued(make)[:4], snapshot(make, "n1", *later, before_end_s=30)])
        is None
    )


@pytest.mark.parametrize(
    ("trained", "before_end_s", "over"),
    [(1, 1.0, False), (2, 50.0, True), (50, 1.0, True)],
    ids=["woken to be ended", "a slow step long before the end", "trained on to the end"],
)
def test_steps_of_ranks_that_are_woken_to_be_ended_do_not_end_a_stall(
    make: Any, trained: int, before_end_s: float, over: bool
) -> None:
    """Slurm sends SIGCONT before it ends a job: a stopped rank may finish its step."""
    found = snapshots.gang(stopped_and_continued(make, trained, before_end_s), end_at=make.end)
    assert (found is None) is over
    assert found is None or snapshots.judge(found, {}).kind == "rank_stopped"


@pytest.mark.parametrize(("age_s", "over"), [(3.0, False), (45.0, True)], ids=["as it was ended", "before"])
def test_a_step_counts_when_it_was_made_and_not_when_it_was_reported(
    make: Any, age_s: float, over: bool
) -> None:
    """The pages are read as the job ends; the step that they show may be from long before Slurm woke the rank."""
    shown = [snapshot(make, "n1", entry(0), entry(1)), snapshot(make, "n2", lost(2, state="T"), entry(3))]
    later = [entry(0, steps=9, step_age_s=age_s), entry(1, steps=9, step_age_s=age_s)]
    left = snapshot(make, "n1", *later, before_end_s=4)
    found = snapshots.gang([*shown, left], end_at=make.end)
    assert found is not None
    assert (snapshots.judge(found, {}).kind != "rank_stopped") is over


def test_a_gang_without_steps_went_on_by_its_collectives(make: Any) -> None:
    """Its program has no optimizer; the picture after the end shows hundreds of calls more."""
    shown = [
        snapshot(make, "n1", entry(0, steps=0), entry(1, steps=0)),
        snapshot(make, "n2", lost(2, state="T", steps=0), entry(3, steps=0), before_end_s=61),
    ]
    for seq, over in ((9, False), (300, True)):
        left = snapshot(make, "n1", entry(0, steps=0, seq=seq), entry(1, steps=0, seq=seq), before_end_s=-2)
        found = snapshots.gang([*shown, left], end_at=make.end)
        assert found is not None
        assert (snapshots.judge(found, {}).kind != "rank_stopped") is over


def test_the_first_to_die_is_dead_and_takes_others_with_it(make: Any) -> None:
    """Also in an older snapshot, or without one; a rank that died soon after the first died because of it."""
    findings = [snapshot(make, "n1", entry(0), entry(1))]
    for rank, before_end_s in ((3, 30.5), (1, 30)):
        detail = {"rank": rank, "steps": 7, "phase": "training", "step_id": 0}
        findings.append(
            make.finding(
                "rank_dead",
                before_end_s,
                node=f"n{rank // 2 + 1}",
                pid=100 + rank,
                source="probe",
                detail=detail,
            )
        )
    gang = snapshots.gang(findings)
    assert gang is not None
    assert {r.rank: r.alive for r in gang.ranks} == {0: True, 1: True, 3: False}
    found = snapshots.judge(gang, {})
    assert (found.kind, found.ranks, found.nodes) == ("rank_dead", (3,), ("n2",))


def test_whom_our_requeue_ended_is_no_evidence(make: Any) -> None:
    """The first to die of it is as dead as one that died before, which counts."""
    lost = make.xid(79, 3, 20)
    requeue = make.action("requeue", -5, job_id=4242, event_ids=(lost.event_id,))
    detail = {"rank": 3, "steps": 7, "phase": "training", "step_id": 0}
    for before_end_s, counts in ((4.0, False), (12.0, True)):
        dead = make.finding("rank_dead", before_end_s, node="n2", pid=103, source="probe", detail=detail)
        alive = snapshot(make, "n1", entry(0), entry(1), before_end_s=before_end_s)
        attempt = make.attempt(state="REQUEUED", exit_code=0)
        verdict = make.judge(lost, dead, alive, attempt=attempt, actions=(requeue,))
        assert verdict.cause == "gpu_lost"
        assert (dead.event_id in verdict.evidence) is counts


@pytest.mark.parametrize(("tasks", "left"), [("3", True), ("0", False), ("2-3", False)])
def test_a_dead_rank_that_left_with_a_code_of_its_own_was_not_killed(
    make: Any, tasks: str, left: bool
) -> None:
    """srun reports the code of exactly this task; a line about another, or about several, does not count."""
    detail = {"rank": 3, "steps": 7, "phase": "training", "step_id": 0}
    dead = make.finding("rank_dead", 12, node="n2", pid=103, source="probe", detail=detail)
    alive = snapshot(make, "n1", entry(0), entry(1), before_end_s=4.0)
    exited = make.finding("task_exit", detail={"rank": 3, "tasks": tasks, "exit_code": 9, "first_cause": False})  # fmt: skip
    verdict = make.judge(alive, dead, exited, attempt=make.attempt(exit_code=9))
    assert (verdict.cause == "user_error", "ended by itself with exit code 9" in verdict.summary) == (left, left)  # fmt: skip


@pytest.mark.parametrize(
    ("tasks", "beside", "left"),
    [
        ("0-2", None, True),
        ("2-3", None, False),  # it is named
        ("0-1", None, False),  # tasks may be launchers, one a node
        (None, None, False),  # nothing says how any ended
        ("0-2", "oom_kill_suspected", False),  # a shell's word that a process was killed, whosever
        ("0-2", "memory", False),
    ],
)
def test_a_dead_rank_that_srun_does_not_name_left_with_0(
    make: Any, tasks: str | None, beside: str | None, left: bool
) -> None:
    """srun names every task that ends with another code, or by a signal."""
    detail = {"rank": 3, "steps": 7, "phase": "training", "step_id": 0}
    dead = make.finding("rank_dead", 12, node="n2", pid=103, source="probe", detail=detail)
    events = [snapshot(make, "n1", entry(0), entry(1), before_end_s=4.0), dead]
    if tasks:
        events.append(
            make.finding("task_exit", detail={"tasks": tasks, "exit_code": 1, "first_cause": False})
        )
    if beside == "memory":
        events.append(make.event(12, kind="oom", code="killed", source="kernel", job_id=4242))
    elif beside:
        events.append(make.finding(beside, message="run.sh: line 3: 811 Killed", detail={"first_cause": False}))  # fmt: skip
    verdict = make.judge(*events)
    assert ("exit code 0" in verdict.summary) is left
    if left:
        assert verdict.cause == "missing_rank"
        assert "rank 3 on n2" in verdict.summary
        assert "end early" in verdict.next_step


def together(make: Any, rank: int, before_end_s: float, step_id: int = 0) -> Any:
    """A death of a rank that all others of its node died with."""
    detail = {"rank": rank, "steps": 7, "phase": "training", "step_id": step_id, "together": True}
    node = f"n{rank // 2 + 1}"
    return make.finding("rank_dead", before_end_s, node=node, pid=100 + rank, source="probe", detail=detail)


def test_a_node_that_lost_all_its_ranks_is_named_with_all_of_them(make: Any) -> None:
    """The first of them is unknown; the ranks of n1 wait."""
    lost_ranks = [together(make, 3, 70.1), together(make, 2, 70)]
    gang = snapshots.gang([snapshot(make, "n1", entry(0), entry(1)), *lost_ranks])
    assert gang is not None
    found = snapshots.judge(gang, {})
    assert (found.kind, found.ranks, found.nodes) == ("rank_dead", (2, 3), ("n2",))


def test_ranks_that_a_script_starts_anew_have_not_failed_now(make: Any) -> None:
    """All of step 0 died everywhere, step 1 imports torch: no reason to judge a gang that runs."""
    dead = [together(make, rank, 70 + rank / 100) for rank in range(4)]
    now = [snapshot(make, "n1", entry(0, pid=7, step_id=1, phase="importing", calls=[], stalled=False))]
    assert snapshots.gang([*now, *dead]) is None
    assert snapshots.gang([*now, *dead], end_at=make.end) is not None


def test_pages_of_an_earlier_step_are_not_the_gang(make: Any) -> None:
    """Preprocessing by srun has left four ended ranks with the same numbers; a launcher has started rank 1 anew."""
    past = [entry(i, pid=50 + i, step_id=0, phase="ended", alive=False, stalled=False) for i in range(2)]
    replaced = entry(1, pid=77, step_id=1, alive=False)
    gang = snapshots.gang([snapshot(make, "n1", *past, replaced, entry(0, step_id=1), entry(1, step_id=1))])
    assert gang is not None
    assert [(r.rank, r.step_id, r.alive) for r in sorted(gang.ranks, key=lambda r: r.rank)] == [
        (0, 1, True),
        (1, 1, True),
    ]


@pytest.mark.parametrize(
    ("place", "detail", "restart_count", "own"),
    [
        ({}, {}, None, True),
        ({"node": "n3"}, {}, None, False),
        ({"at_s": 76}, {}, None, False),
        ({"at_s": 1}, {}, None, True),
        ({"at_s": 76}, {"restart_count": 1}, 1, True),
        ({}, {"restart_count": 1}, 0, False),
        ({"node": "n3"}, {"restart_count": 1}, None, False),
    ],
    ids=["its own", "another node", "after its end", "as it ended", "named as its own", "the next start", "no count in accounting"],
)  # fmt: skip
def test_ranks_of_the_jobs_next_start_are_no_evidence_of_this_one(
    make: Any, place: dict[str, Any], detail: dict[str, Any], restart_count: int | None, own: bool
) -> None:
    """A requeued job starts within the window of its earlier attempt, on other nodes or the same."""
    at = make.end + timedelta(seconds=place.get("at_s", -70))
    found = make.finding(
        "rank_stall", node=place.get("node", "n1"), at=at, source="probe", measured=30.0, detail=detail
    )
    attempt = make.attempt(state="REQUEUED", exit_code=0, restart_count=restart_count)
    view = view_builder.build(make.case(found, attempt=attempt))
    assert view is not None
    assert [f.event for f in view.findings] == [found] * own


def test_nothing_told_is_no_gang(make: Any) -> None:
    """Neither a stall alone nor another source makes one."""
    assert snapshots.gang([make.finding("rank_stall", 70, source="probe", measured=30.0)]) is None
    assert snapshots.gang([make.finding("rank_snapshot", 70, detail={"ranks": [entry(0)]})]) is None


def test_gpus_that_spin_on_little_power_are_proof_of_waiting(make: Any) -> None:
    """100 % busy at idle watts: a collective that does not end, not training; forged or missing figures say nothing."""

    def proof(*gpus: Any) -> tuple[str, ...]:
        shot = snapshot(make, "n1", entry(0), entry(1), entry(2), entry(3))
        shot = dataclasses.replace(shot, detail={**shot.detail, "gpus": list(gpus)})
        gang = snapshots.gang([shot])
        assert gang is not None
        return tuple(p for p in snapshots.judge(gang, {}).proof if "GPUs" in p)

    spins = {"uuid": "GPU-1", "utilization_frac": 1.0, "power_w": 118.0, "power_limit_w": 700.0}
    trains = {**spins, "power_w": 640.0}
    assert proof(spins, trains) == (
        "n1: 1 of 2 GPUs are fully busy on at most 118 of 700 W: their kernels wait",
    )
    assert proof(trains, {**spins, "utilization_frac": 0.3}) == ()
    assert (
        proof(
            {**spins, "power_w": None}, {**spins, "power_limit_w": "x"}, {**spins, "power_w": True}, 7, None
        )
        == ()
    )
    assert proof() == ()


def test_ranks_that_nobody_told_of_are_on_the_silent_nodes(make: Any) -> None:
    """n1 has a snapshot, n2 has none: the awaited rank is on n2."""
    gang = snapshots.gang([snapshot(make, "n1", entry(0), entry(1))])
    assert gang is not None
    found = snapshots.judge(gang, {}, ("n1", "n2"))
    assert (found.kind, found.ranks, found.nodes) == ("missing", (2, 3), ("n2",))
    assert "n2" in found.summary


def test_who_gave_up_had_arrived(make: Any) -> None:
    """A timeout ends the call of those that waited before Slurm ends the job; they print their traceback meanwhile."""

    def gave_up(rank: int, seq: int = 8, waited_s: float = 40.05) -> dict[str, Any]:
        printing = {"function": "getmodule", "file": "/usr/lib/python3.11/inspect.py", "line": 998}
        call = {"group": "0", "seq": seq, "op": "all_reduce", "numel": 4, "group_size": 4, "left": True, "raised": True, "waited_s": waited_s}  # fmt: skip
        return entry(rank, calls=[call], stack=[printing], stalled=True)

    for others in ([gave_up(0), entry(1), gave_up(3)], [gave_up(0), gave_up(1), gave_up(3)]):
        found = snapshots.gang([snapshot(make, "n1", *others[:2]), snapshot(make, "n2", lost(2), others[2])])
        assert found is not None
        named = snapshots.judge(found, {})
        assert (named.kind, named.ranks, named.nodes) == ("python_loop", (2,), ("n2",))
    # What raises at once is an error of the call: whoever makes it is not waiting.
    at_once = [gave_up(0, waited_s=0.01), entry(1)]
    found = snapshots.gang([snapshot(make, "n1", *at_once), snapshot(make, "n2", entry(2), entry(3))])
    assert found is not None
    assert [r.rank for r in found.ranks if r.inside() is None] == [0]


def test_of_ranks_without_calls_the_look_before_they_gave_up_counts(make: Any) -> None:
    """Gradients are reduced inside backward: by stacks alone, whom a timeout has ended looks like one that never came."""
    backward = {"function": "backward", "file": "/opt/torch/autograd/graph.py", "line": 824}
    printing = {"function": "getmodule", "file": "/usr/lib/python3.11/inspect.py", "line": 998}

    def look(before_end_s: float, waiting: dict[str, Any], steps: int = 8) -> list[Any]:
        known: dict[str, Any] = {"calls": [], "steps": steps}
        first, second = entry(0, stack=[waiting], **known), entry(1, stack=[backward], **known)
        looping, third = lost(2, **known), entry(3, stack=[backward], **known)
        return [
            snapshot(make, "n1", first, second, before_end_s=before_end_s),
            snapshot(make, "n2", looping, third, before_end_s=before_end_s),
        ]

    def ranks(*events: Any) -> tuple[int, ...]:
        gang = snapshots.gang(events, end_at=make.end)
        assert gang is not None
        return snapshots.judge(gang, {}).ranks

    assert ranks(*look(50, backward), *look(8, printing)) == (2,)
    # A look at another step, or at some of the nodes, is no look at this stall.
    assert ranks(*look(50, backward, steps=7), *look(8, printing)) == (0, 2)
    assert ranks(look(50, backward)[0], *look(8, printing)) == (0, 2)
    # Calls tell by themselves who came, and later is better.
    later = [snapshot(make, "n1", entry(0), lost(1), before_end_s=8), snapshot(make, "n2", entry(2), entry(3), before_end_s=8)]  # fmt: skip
    assert ranks(*look(50, backward), *later) == (1,)
