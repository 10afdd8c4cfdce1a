"""Ranks and stacks of a running job: whose they are, what is shown, and what only a stop may accuse."""

from __future__ import annotations

import dataclasses
import os
import uuid
from datetime import timedelta

import fakes
import gang_rows
import pytest

from probing_cluster.control_plane import context
from probing_cluster.control_plane.door import callers, report_door
from probing_cluster.control_plane.gangs import gang_board, gang_mesh
from probing_cluster.control_plane.service import restart_picture
from probing_cluster.core import clock, errors, records, vocabulary
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref
from probing_cluster.web import site as web_site

ALICE = callers.Caller(uid=2001, name="alice")
BOB = callers.Caller(uid=2002, name="bob")
ROOT = callers.Caller(uid=0, name="root")


def board(store: db_store.Store, op: str, ref: str = "7") -> dict[str, object]:
    """The document of a job."""
    gang = gang_board.find(store, "c", job_ref.parse(ref), fakes.NOW)
    return gang_board.DOCUMENTS[op](store, gang, fakes.NOW)


def answer(service: context.Context, caller: callers.Caller, **request: object) -> dict[str, object]:
    """The door's answer about job 7 to a caller who has been identified."""
    calls = {"v": 1, "op": "ranks", "job": "7"} | request
    return report_door.answer(service, callers.Callers(service), caller, calls)


@pytest.fixture
def stuck(service: context.Context) -> context.Context:
    """alice's job 7 on n1 and n2: rank 2 loops, the others wait for it, everybody has told."""
    store = service.store
    store.upsert_attempts([gang_rows.attempt(7, "n1", "n2")])
    rows = {r: gang_rows.row(r, stalled=True, inside="" if r == 2 else "all_reduce 0#41") for r in range(4)}
    gang_rows.beat(store, 7, rows)
    gang_rows.stall(store, 7)
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        stacks = [gang_rows.entry(r, gang_rows.LOOP if r == 2 else gang_rows.REDUCE) for r in ranks]
        gang_rows.snapshot(store, 7, node, stacks)
    return service


@pytest.mark.parametrize("op", ["ranks", "stacks"])
def test_only_the_owner_and_operators_are_answered(stuck: context.Context, op: str) -> None:
    """alice and root see the job, bob gets not a word of it, and cannot have its nodes asked."""
    assert answer(stuck, ALICE, op=op)["ok"]
    assert answer(stuck, ROOT, op=op)["ok"]
    refused = answer(stuck, BOB, op=op, fresh=True)
    assert (refused["ok"], refused["error"]) == (False, "not_permitted")
    assert "rows" not in refused
    assert stuck.memory(report_door.CallersRequests).stacks == {}
    nameless = dataclasses.replace(BOB, name="")
    assert answer(stuck, nameless, op=op)["error"] == "not_permitted"


def test_a_node_that_is_none_of_the_jobs_is_asked_nothing(stuck: context.Context) -> None:
    """It names alice's job in its heartbeat: no question of hers goes there, and none of its rows comes into her answer."""
    foreign = records.AgentHeartbeat(cluster="c", node="n9", at=fakes.NOW, boot_id="b", jobs=(7,))
    delivery.Delivery(stuck.store.connection_uri(), "c", "n9").deliver(heartbeat=foreign)
    given = {"scans": '[{"table": "cluster.ranks"}]', "deadline_s": 5}
    found = answer(stuck, ALICE, op="ask", given=given)
    assert found["ok"], found
    assert found["rows"]["nodes"] == ["n1", "n2"]  # type: ignore[index]
    requested_nodes = {row["node"] for row in stuck.store.rows("SELECT node FROM probing.node_request", {})}
    assert requested_nodes == {"n1", "n2"}


def test_a_node_that_is_none_of_the_jobs_tells_of_no_rank_and_no_step(stuck: context.Context) -> None:
    """It calls a rank of alice's dead, another slow, and says how far her job had come: neither mesh nor Now, nor a restart, heed it."""
    gang = gang_board.find(stuck.store, "c", job_ref.parse("7"), fakes.NOW)
    own, statement = gang_mesh.of(stuck.store, gang), web_site.statement("now_jobs")
    at = clock.SYSTEM.now()
    for node, kind in (("n9", "rank_dead"), ("n9", "rank_slow"), ("n9", "last_progress")):
        event = records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node=node, at=at, observed_at=at, kind=kind, source="probe", job_id=7,
            severity=records.Severity.INFO, message="forged", detail={"rank": 77, "steps": 9, "world_size": 4},
        )  # fmt: skip
        delivery.Delivery(stuck.store.connection_uri(), "c", node).deliver(events=[event])
        assert gang.attempt is not None
        assert not restart_picture._within(event, gang.attempt)
    shown = gang_mesh.of(stuck.store, gang)
    assert own is not None
    assert shown is not None
    assert shown.mesh.states == own.mesh.states
    assert "forged" not in {row["summary"] for row in stuck.store.rows(statement, {"cluster": "c"})}


def test_a_job_nobody_knows_is_not_found(service: context.Context) -> None:
    """No accounting, no Prolog: exit code 3 for the command."""
    assert answer(service, ROOT)["error"] == "not_found"
    with pytest.raises(errors.NotFound):
        board(service.store, "ranks", "99")


def test_a_job_that_accounting_does_not_know_yet_belongs_to_its_prologs_uid(service: context.Context) -> None:
    """In its first half minute the owner is the uid that Slurm told the Prolog, never the page's word."""
    gang_rows.beat(service.store, 7, {0: gang_rows.row(0)})
    allocation = records.JobAllocation(cluster="c", node="n1", job_id=7, at=fakes.NOW, uid=os.getuid())
    fakes.deliver(service.store, "n1", allocations=[allocation])
    gang_rows.beat(service.store, 7, {0: gang_rows.row(0)})
    assert len(board(service.store, "ranks")["ranks"]) == 1  # type: ignore[arg-type]
    assert answer(service, BOB)["error"] == "not_permitted"


def test_the_ranks_of_this_job_and_no_other(stuck: context.Context) -> None:
    """Two jobs share a node: each board has its own ranks; a node that says nothing is named."""
    stuck.store.upsert_attempts([gang_rows.attempt(8, "n1", "n9", user="bob")])
    shared = records.AgentHeartbeat(
        cluster="c", node="n1", at=fakes.NOW, jobs=(7, 8),
        ranks={"7:0": gang_rows.row(0), "8:0": gang_rows.row(0, phase="loading")},
    )  # fmt: skip
    delivery.Delivery(stuck.store.connection_uri(), "c", "n1").deliver(heartbeat=shared)
    seven, eight = board(stuck.store, "ranks"), board(stuck.store, "ranks", "8")
    assert [(r["node"], r["rank"]) for r in seven["ranks"]] == [("n1", 0), ("n2", 2), ("n2", 3)]  # type: ignore[attr-defined]
    assert [(r["rank"], r["phase"]) for r in eight["ranks"]] == [(0, "loading")]  # type: ignore[attr-defined]
    assert eight["silent_nodes"] == ["n9"]


def test_a_node_that_is_heard_no_more_is_silent(
    stuck: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranks are shown as they were, and marked; of an ended job no node is waited for."""
    assert board(stuck.store, "ranks")["silent_nodes"] == []
    monkeypatch.setattr(stuck.store, "silences_s", lambda cluster: {"n1": 2.0, "n2": 300.0})
    document = board(stuck.store, "ranks")
    assert {(r["node"], r["silent"]) for r in document["ranks"]} == {("n1", False), ("n2", True)}  # type: ignore[attr-defined]
    assert document["silent_nodes"] == ["n2"]
    stuck.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", end=True)])
    assert board(stuck.store, "ranks")["silent_nodes"] == []


def test_array_tasks_are_named_as_people_name_them(service: context.Context) -> None:
    """500_2 is the job with raw id 502."""
    task = dataclasses.replace(gang_rows.attempt(502, "n1"), array_job_id=500, array_task_id=2)
    service.store.upsert_attempts([task])
    gang_rows.beat(service.store, 502, {0: gang_rows.row(0)})
    assert board(service.store, "ranks", "500_2")["job_id"] == 502
    with pytest.raises(errors.NotFound):
        board(service.store, "ranks", "500_3")


def test_stacks_of_all_nodes_are_one_tree_and_name_who_is_missing(stuck: context.Context) -> None:
    """Where the ranks part, who went where, and the verdict on a gang that has stopped."""
    document = board(stuck.store, "stacks")
    tree = document["tree"]
    assert isinstance(tree, dict)
    assert (tree["ranks"], tree["frames"]) == ("0-3", ["main (/home/alice/train.py:40)"])
    assert [f["ranks"] for f in tree["forks"]] == ["0-1,3", "2"]
    finding = document["finding"]
    assert isinstance(finding, dict)
    assert (finding["kind"], finding["ranks"], finding["nodes"]) == ("user_code", "2", ["n2"])
    assert "train.py:31" in finding["where"]
    assert finding["at"] == document["at"]


def test_nobody_is_accused_in_a_gang_that_gets_on(stuck: context.Context) -> None:
    """Stacks taken for curiosity: some rank is always elsewhere, and that is no finding."""
    later = fakes.NOW + gang_board.STOPPED_BEFORE + timedelta(seconds=30)
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        stacks = [gang_rows.entry(r, gang_rows.LOOP if r == 2 else gang_rows.REDUCE) for r in ranks]
        gang_rows.snapshot(stuck.store, 7, node, stacks, at=later)
    document = board(stuck.store, "stacks")
    assert document["finding"] is None
    assert document["n_ranks"] == 4


def test_stacks_of_a_stall_that_ended_are_still_shown(stuck: context.Context) -> None:
    """The gang went on from there, and rank 0 died; the last stacks are those of the stall, the finding is that death."""
    dead = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=fakes.NOW + timedelta(seconds=50), observed_at=fakes.NOW,
        kind="rank_dead", source="probe", severity=records.Severity.INFO, message="rank 0 is gone", job_id=7, pid=1000,
        detail={"rank": 0, "steps": 900, "world_size": 4},
    )  # fmt: skip
    delivery.Delivery(stuck.store.connection_uri(), "c", "n1").deliver(events=[dead])
    document = board(stuck.store, "stacks")
    assert document["n_ranks"] == 4
    assert document["finding"]["kind"] == "rank_dead"  # type: ignore[index]


def test_stacks_of_different_moments_are_not_merged(stuck: context.Context) -> None:
    """A node that told an hour ago is silent about now."""
    gang_rows.snapshot(
        stuck.store, 7, "n1", [gang_rows.entry(0, gang_rows.LOOP)], at=fakes.NOW + timedelta(hours=1)
    )
    document = board(stuck.store, "stacks")
    assert (document["n_ranks"], document["silent_nodes"]) == (1, ["n2"])


@pytest.mark.parametrize("after_s", [20, 600])
@pytest.mark.parametrize("ended", [True, False], ids=["ended", "accounting does not know it yet"])
def test_looks_at_a_dying_job_do_not_hide_the_last_stacks(
    stuck: context.Context, after_s: float, *, ended: bool
) -> None:
    """A look while it died met ranks that were ending, and the pages that it left hold no stack: those of the hang stay."""
    dying = {"stack_error": vocabulary.STACK_CAME_TOO_LATE}
    for later_s, more in ((after_s, dying), (after_s + 5, {"state": ""})):
        for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
            left = [gang_rows.entry(r, [], **more) for r in ranks]
            gang_rows.snapshot(stuck.store, 7, node, left, at=fakes.NOW + timedelta(seconds=later_s))
    end_at = fakes.NOW + timedelta(seconds=after_s + 4) if ended else None
    attempt = dataclasses.replace(gang_rows.attempt(7, "n1", "n2", end=ended), end_at=end_at)
    stuck.store.upsert_attempts([attempt])
    if end_at is not None:
        killed = records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node="n1", at=end_at - timedelta(seconds=1), observed_at=end_at, kind="rank_dead",
            source="probe", severity=records.Severity.INFO, message="rank 0 is gone", job_id=7, pid=1000, detail={"rank": 0},
        )  # fmt: skip
        delivery.Delivery(stuck.store.connection_uri(), "c", "n1").deliver(events=[killed])
    document = board(stuck.store, "stacks")
    assert document["at"] == clock.iso_z(fakes.NOW)
    assert (document["n_ranks"], document["tree"]["ranks"], document["without"]) == (4, "0-3", {})  # type: ignore[index]
    finding = document["finding"]
    assert isinstance(finding, dict)
    assert (finding["kind"], finding["ranks"], finding["nodes"]) == ("user_code", "2", ["n2"])


@pytest.mark.parametrize(("last_steps", "n_ranks"), [(40, 4), (900, 2)], ids=["stood still", "went on"])
def test_a_node_looked_at_as_the_others_gave_up_does_not_hide_theirs(
    stuck: context.Context, last_steps: int, n_ranks: int
) -> None:
    """n2 is asked ten minutes later, when ranks of n1 time out: those of n1 are shown as they stood, unless they had gone on since."""
    partial = [
        gang_rows.entry(2, gang_rows.LOOP),
        gang_rows.entry(3, gang_rows.REDUCE) | {"stack": [], "stack_error": vocabulary.STACK_CAME_TOO_LATE},
    ]
    gang_rows.snapshot(stuck.store, 7, "n2", partial, at=fakes.NOW + timedelta(minutes=10))
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        left = [gang_rows.entry(r, [], steps=last_steps) for r in ranks]
        gang_rows.snapshot(stuck.store, 7, node, left, at=fakes.NOW + timedelta(minutes=11))
    end_at = fakes.NOW + timedelta(seconds=659)
    attempt = dataclasses.replace(gang_rows.attempt(7, "n1", "n2", end=True), end_at=end_at)
    stuck.store.upsert_attempts([attempt])
    document = board(stuck.store, "stacks")
    assert (document["at"], document["n_ranks"]) == (clock.iso_z(fakes.NOW + timedelta(minutes=10)), n_ranks)
    if n_ranks == 4:
        assert document["finding"]["ranks"] == "2"  # type: ignore[index]


def test_ranks_whose_stacks_cannot_be_read_are_news(stuck: context.Context) -> None:
    """They sleep in the kernel by now: where they had been before says nothing of it."""
    later = fakes.NOW + timedelta(seconds=40)
    asleep = [gang_rows.entry(r, [], state="D", stack_error="no answer within 10 s") for r in (2, 3)]
    gang_rows.snapshot(stuck.store, 7, "n2", asleep, at=later)
    document = board(stuck.store, "stacks")
    assert (document["at"], document["without"]) == (clock.iso_z(later), {"no answer within 10 s": "2-3"})


def test_nodes_are_asked_once_however_often_a_user_asks(stuck: context.Context) -> None:
    """A user in a loop costs the nodes one request in half a minute; a job that has ended costs none."""
    for _ in range(5):
        answer(stuck, ALICE, op="stacks", fresh=True)
    calls = delivery.Delivery(stuck.store.connection_uri(), "c", "n2").deliver(events=[])
    assert [(r.verb, r.job_id) for r in calls.requests] == [("collect", 7)]
    requests = stuck.memory(report_door.CallersRequests)
    requests.stacks = {job: s - gang_board.ASK_TTL_S for job, s in requests.stacks.items()}
    answer(stuck, ALICE, op="stacks", fresh=True)
    calls = delivery.Delivery(stuck.store.connection_uri(), "c", "n2").deliver(events=[])
    assert len(calls.requests) == 2, "half a minute later they are asked again"
    stuck.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", end=True)])
    gang = gang_board.find(stuck.store, "c", job_ref.parse("7"), fakes.NOW)
    assert gang_board.ask(stuck.store, gang) == 0


def test_forged_snapshots_break_nothing(stuck: context.Context) -> None:
    """A page may claim anything: what is no rank is left out, the rest is shown."""
    forged = [
        5,
        None,
        {},
        {"rank": "x"},
        {"rank": 3, "stack": [7, {"line": "y"}]},
        gang_rows.entry(0, gang_rows.LOOP),
    ]
    gang_rows.snapshot(stuck.store, 7, "n1", forged, at=fakes.NOW + timedelta(seconds=1))  # type: ignore[arg-type]
    assert board(stuck.store, "stacks")["n_ranks"] == 3


def test_what_the_service_has_said_is_what_is_shown(stuck: context.Context) -> None:
    """One answer to one question: the standing verdict, not a second judgement; once it has ended, none."""
    verdict = records.GangVerdict(
        gang_id=uuid.uuid4(), cluster="c", job_id=7, submit_at=gang_rows.attempt(7).submit_at, kind="dataloader",
        ranks=(2,), nodes=("n2",), domain=records.Domain.USER_PROGRAM, confidence=records.Confidence.LIKELY,
        summary="rank 2 waits for its data loader", onset_at=fakes.NOW, made_at=fakes.NOW,
    )  # fmt: skip
    stuck.store.save_gang_verdicts([verdict])
    finding = board(stuck.store, "stacks")["finding"]
    assert isinstance(finding, dict)
    assert (finding["kind"], finding["summary"]) == ("dataloader", verdict.summary)
    findings = board(stuck.store, "ranks")["findings"]
    assert [f["words"] for f in findings] == [verdict.summary]  # type: ignore[attr-defined]
    stuck.store.save_gang_verdicts([dataclasses.replace(verdict, ended_at=fakes.NOW)])
    assert board(stuck.store, "ranks")["findings"] == []
