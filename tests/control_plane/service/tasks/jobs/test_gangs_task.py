"""A stall on one node makes every node of the job tell what its ranks do, once."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import fakes
import gang_rows
import pytest
import sqlalchemy as sa

from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.control_plane.service.tasks.jobs import gangs
from probing_cluster.core import records
from probing_cluster.db import delivery
from probing_cluster.reports import job_ref


def stall(n: int, job_id: int, node: str = "n2") -> records.HealthEvent:
    """What an agent says of a rank that has stopped."""
    return records.HealthEvent(
        event_id=uuid.UUID(int=n), cluster="c", node=node, at=fakes.NOW - timedelta(seconds=3), observed_at=fakes.NOW,
        kind="rank_stall", severity=records.Severity.INFO, source="probe", message="rank 3 has not got on", job_id=job_id,
    )  # fmt: skip


def attempt(job_id: int, *nodes: str, end: bool = False) -> records.JobAttempt:
    """A gang on some nodes."""
    began = fakes.NOW - timedelta(hours=1)
    return records.JobAttempt(
        cluster="c", job_id=job_id, submit_at=began, start_at=began, end_at=fakes.NOW if end else None,
        state="FAILED" if end else "RUNNING", nodes=nodes, run_key=str(job_id),
    )  # fmt: skip


def calls(service: context.Context, node: str) -> list[tuple[str, int | None]]:
    """What a node's agent learns with its next delivery."""
    ack = delivery.Delivery(service.store.connection_uri(), "c", node).deliver(events=[])
    return [(r.verb, r.job_id) for r in ack.requests]


def test_the_other_nodes_of_a_stalled_job_are_asked_once(service: context.Context) -> None:
    """n1 and n3 are asked, n2 has told already, n4 runs another job; a second pass asks nobody again."""
    for node in ("n1", "n3", "n4"):
        fakes.deliver(service.store, node)
    service.store.upsert_attempts([attempt(7, "n1", "n2", "n3"), attempt(8, "n4")])
    fakes.deliver(service.store, "n2", stall(1, 7))
    assert gangs.run(service) == "jobs 7: 2 nodes asked"
    assert calls(service, "n1") == calls(service, "n3") == [("collect", 7)]
    assert calls(service, "n4") == []
    assert gangs.run(service) == ""
    fakes.deliver(service.store, "n2", stall(2, 7))
    assert gangs.run(service) == "jobs 7: 2 nodes asked"


def test_a_job_that_has_ended_is_not_asked_about(service: context.Context) -> None:
    """Its Epilog collects."""
    service.store.upsert_attempts([attempt(7, "n1", "n2", end=True)])
    fakes.deliver(service.store, "n2", stall(1, 7))
    assert gangs.run(service) == "jobs 7: 0 nodes asked"


def rank(number: int, *, arrived: bool = True, **over: object) -> dict[str, object]:
    """A rank in a node's snapshot: inside the eighth all_reduce, or in a loop after the seventh."""
    call = {
        "group": "0", "seq": 8 if arrived else 7, "op": "all_reduce", "numel": 4, "group_size": 6, "left": not arrived,
    }  # fmt: skip
    spin = [{"function": "spin", "file": "/home/alice/train.py", "line": 12}]
    values = {
        "rank": number,
        "pid": 100 + number,
        "alive": True,
        "phase": "training",
        "steps": 7,
        "stalled": True,
    }
    return {**values, "calls": [call], "stack": [] if arrived else spin, "moved": not arrived, **over}


def snapshot(n: int, node: str, *ranks: dict[str, object]) -> records.HealthEvent:
    """What an agent tells when it is asked."""
    return dataclasses.replace(
        stall(n, 7, node), kind="rank_snapshot", detail={"ranks": list(ranks), "world_size": 6}
    )


def stopped(service: context.Context) -> None:
    """A gang on three nodes of which n2 has told of its stall."""
    service.store.upsert_attempts([attempt(7, "n1", "n2", "n3")])
    fakes.deliver(service.store, "n2", stall(1, 7), snapshot(2, "n2", rank(2), rank(3)))


def test_who_is_at_fault_is_named_when_all_nodes_have_told(service: context.Context) -> None:
    """Not before; then once, with the rank, its node, its line and everybody's stacks."""
    stopped(service)
    assert "2 nodes asked" in gangs.run(service)
    fakes.deliver(service.store, "n1", snapshot(3, "n1", rank(0), rank(1)))
    assert gangs.run(service) == ""
    fakes.deliver(service.store, "n3", snapshot(4, "n3", rank(4), rank(5, arrived=False)))
    assert "rank 5 on n3 did not arrive" in gangs.run(service)
    assert gangs.run(service) == ""
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert (found.kind, found.ranks, found.nodes) == ("python_loop", (5,), ("n3",))
    assert (found.domain, found.confidence) == (records.Domain.USER_PROGRAM, records.Confidence.LIKELY)
    assert found.location == "spin (/home/alice/train.py:12)"
    assert found.detail["tree"] == ["[5] spin (/home/alice/train.py:12)"]
    assert len(found.evidence) == 3


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever(service: context.Context) -> None:
    """After a while those that came are judged."""
    stopped(service)
    fakes.deliver(service.store, "n3", snapshot(4, "n3", rank(4), rank(5, arrived=False)))
    assert "nodes asked" in gangs.run(service)
    assert service.store.gang_verdicts() == []
    service.clock.at += gangs.PATIENCE
    assert "rank 5" in gangs.run(service)


def test_a_long_checkpoint_is_waited_for(service: context.Context) -> None:
    """Everybody waits for rank 5, which saves within its own patience: that is no stall."""
    stopped(service)
    fakes.deliver(service.store, "n1", snapshot(3, "n1", rank(0), rank(1)))
    saving = rank(5, arrived=False, phase="checkpointing", stalled=False)
    fakes.deliver(service.store, "n3", snapshot(4, "n3", rank(4), saving))
    gangs.run(service)
    assert service.store.gang_verdicts() == []


def test_a_gang_that_gets_on_again_is_over(service: context.Context) -> None:
    """A further step ends it; so does the attempt's end."""
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    beat = service.store.heartbeats(["n1"])[0]
    ranks = {"7:0": {"pid": 100, "alive": True, "steps": 8}}
    delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver(
        events=[], heartbeat=dataclasses.replace(beat, at=fakes.NOW, ranks=ranks)
    )
    gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert found.ended_at == service.clock.now()


@pytest.mark.parametrize("lives_on", [True, False], ids=["training", "its ranks end"])
def test_a_stall_that_is_over_is_not_named_again(service: context.Context, lives_on: bool) -> None:
    """The pictures of the stall are still fresh when the job ends a minute later and its ranks leave the heartbeats."""
    test_a_gang_that_gets_on_again_is_over(service)
    ended_at = service.store.gang_verdicts(job_ids=[7])[0].ended_at
    service.clock.at += timedelta(seconds=20)
    gang_rows.beat(service.store, 7, {0: gang_rows.row(0, steps=8)} if lives_on else {}, per_node=2)
    if not lives_on:
        fakes.deliver(service.store, "n1")
    gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert found.ended_at == ended_at


def test_ranks_that_went_on_before_they_died_were_not_stalled(service: context.Context) -> None:
    """The stall ended before it was judged; then the job ends, and the last heartbeat shows dead ranks that are further."""
    stopped(service)
    fakes.deliver(service.store, "n1", snapshot(3, "n1", rank(0), rank(1)))
    fakes.deliver(service.store, "n3", snapshot(4, "n3", rank(4), rank(5, arrived=False)))
    dead = {5: gang_rows.row(5, pid=105, steps=90, alive=False)}
    gang_rows.beat(service.store, 7, dead, per_node=2)
    gangs.run(service)
    assert service.store.gang_verdicts() == []


def test_ranks_that_went_on_until_their_job_ended_were_not_stalled(service: context.Context) -> None:
    """Their agents report the last step when the heartbeats no longer show them."""
    stopped(service)
    fakes.deliver(service.store, "n1", snapshot(3, "n1", rank(0), rank(1)))
    last = [
        dataclasses.replace(
            stall(20 + n, 7, f"n{n}"), kind="last_progress", at=fakes.NOW, pid=98 + 2 * n, detail={"rank": 2 * n - 2, "steps": 90},
        )
        for n in (1, 2, 3)
    ]  # fmt: skip
    fakes.deliver(service.store, "n3", snapshot(4, "n3", rank(4), rank(5, arrived=False)), last[2])
    for n in (1, 2):
        fakes.deliver(service.store, f"n{n}", last[n - 1])
    gangs.run(service)
    assert service.store.gang_verdicts() == []


@pytest.mark.parametrize("lives", [True, False])
def test_ranks_that_are_being_ended_do_not_change_what_was_found(
    service: context.Context, lives: bool
) -> None:
    """Who ends a job wakes its stopped rank first: for a second it looks like the others. Only of a gang that lives on it counts."""
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    for n, node in enumerate(("n1", "n2", "n3")):
        late = snapshot(10 + n, node, rank(2 * n), rank(2 * n + 1))
        fakes.deliver(service.store, node, dataclasses.replace(late, at=service.clock.now()))
    assert gangs.run(service) == ""
    beat = service.store.heartbeats(["n1"])[0]
    ranks = {"7:0": {"pid": 100, "alive": lives, "steps": 7}}
    delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver(
        events=[], heartbeat=dataclasses.replace(beat, at=fakes.NOW, ranks=ranks)
    )
    assert gangs.run(service) == ""
    service.clock.at += gangs.SECOND_THOUGHTS
    gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert found.kind == ("inside_collective" if lives else "python_loop")


@pytest.mark.parametrize("gone", [True, False])
def test_ranks_that_die_as_a_node_goes_away_do_not_change_what_was_found(
    service: context.Context, gone: bool
) -> None:
    """n2 crashes under a gang that hangs at a rank of n3: its peers on n1 die of that, and rank 5 has not arrived as before."""
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    service.clock.at += timedelta(seconds=1)
    died = dataclasses.replace(
        stall(20, 7, "n1"), kind="rank_dead", pid=100, at=service.clock.now(), detail={"rank": 0, "pid": 100, "steps": 7, "world_size": 6}
    )  # fmt: skip
    gang_rows.beat(service.store, 7, {n: gang_rows.row(n, steps=7) for n in range(1, 6)}, per_node=2)
    fakes.deliver(service.store, "n1", died)
    if gone:
        with service.store.engine.begin() as connection:
            long_ago = sa.text("update probing.agent_heartbeat set received_at = now() - interval '25 s' where node = 'n2'")  # fmt: skip
            connection.execute(long_ago)
    for _ in range(2):
        service.clock.at += gangs.SECOND_THOUGHTS
        gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert found.kind == ("python_loop" if gone else "rank_dead")


def test_a_gang_whose_job_has_ended_is_over(service: context.Context) -> None:
    """Nothing stands of an attempt that is no more."""
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    service.store.upsert_attempts([attempt(7, "n1", "n2", "n3", end=True)])
    gangs.run(service)
    assert service.store.gang_verdicts(open_only=True) == []


def test_that_a_hang_is_over_is_not_left_to_the_next_poll(service: context.Context) -> None:
    """A node has released the job: accounting is asked about it at once, and not of one that runs on."""
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    sacct = service.run_slurm
    assert isinstance(sacct, fakes.Sacct)
    began, now = fakes.NOW - timedelta(hours=1), service.clock.now()
    times = {
        name: str(int(at.timestamp())) for name, at in (("Submit", began), ("Start", began), ("End", now))
    }
    sacct.rows = [fakes.row(7, State="CANCELLED by 0", Eligible=times["Submit"], **times)]
    gangs.run(service)
    assert sacct.calls == []
    behind = timedelta(hours=1)  # the node's clock; the report comes now
    released = records.JobAllocation(
        cluster="c", node="n1", job_id=7, at=began - behind, released_at=now - behind
    )
    fakes.deliver(service.store, "n1", allocations=[released])
    gangs.run(service)
    assert service.store.gang_verdicts(open_only=True) == []
    sacct.calls.clear()
    gangs.run(service)
    assert sacct.calls == []


@pytest.mark.parametrize(
    ("gpu", "before_s", "kind"),
    [("GPU-a", 0, "gpu_lost"), ("GPU-b", 0, "python_loop"), ("GPU-a", 300, "python_loop")],
    ids=["its own", "a neighbour's", "outlived"],
)
def test_a_fault_of_what_the_gang_held_is_why_it_stopped(
    service: context.Context, gpu: str, before_s: float, kind: str
) -> None:
    """Not one of a GPU of somebody else's on the same node, nor one that its ranks went on after."""
    stopped(service)
    held = dataclasses.replace(attempt(7, "n1", "n2", "n3"), n_gpus=1, gpus={"n3": ("GPU-a",)})
    service.store.upsert_attempts([held])
    lost = dataclasses.replace(
        stall(9, 7, "n3"), at=fakes.NOW - timedelta(seconds=4 + before_s), kind="xid", code="79", source="kernel",
        severity=records.Severity.HIGH, job_id=None, gpu_uuid=gpu, message="Xid 79",
    )  # fmt: skip
    fakes.deliver(service.store, "n1", snapshot(3, "n1", rank(0), rank(1)))
    fakes.deliver(service.store, "n3", lost, snapshot(4, "n3", rank(4), rank(5, arrived=False)))
    gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert (found.kind, found.ranks) == (kind, (5,))


def test_a_node_that_is_none_of_the_jobs_says_nothing_about_it(service: context.Context) -> None:
    """Root of n4 forges snapshots, a stall and ranks of job 7: no verdict changes, none stands for ever, nobody is asked."""
    service.store.upsert_attempts([attempt(7, "n1", "n2", "n3"), attempt(8, "n4")])
    forged = rank(5, arrived=False, steps=10**9)
    fakes.deliver(service.store, "n4", stall(50, 7, "n4"), snapshot(51, "n4", forged, rank(0, arrived=False)))
    assert gangs.run(service) == ""
    assert (calls(service, "n1"), service.store.gang_verdicts()) == ([], [])
    test_who_is_at_fault_is_named_when_all_nodes_have_told(service)
    fakes.deliver(service.store, "n4", stall(52, 7, "n4"), snapshot(53, "n4", forged))
    gang_rows.beat(service.store, 7, {6: gang_rows.row(6, steps=10**9)}, per_node=2)  # from n4, and not heard
    gangs.run(service)
    (found,) = service.store.gang_verdicts(job_ids=[7])
    assert (found.nodes, found.detail["steps"], found.ended_at) == (("n3",), 7, None)
    board = gang_board.find(service.store, "c", job_ref.parse("7"), service.clock.now())
    assert [r["node"] for r in gang_board.ranks(service.store, board, fakes.NOW)["ranks"]] == []
    assert gang_board.stacks_of(service.store, board, fakes.NOW)["n_ranks"] == 6
