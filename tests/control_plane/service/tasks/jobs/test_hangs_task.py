"""A gang that hangs is requeued where its owner or the site asked for it, after one more look at every node; every outcome is a row."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import gang_rows
import pytest

from probing_cluster.control_plane import context, journal
from probing_cluster.control_plane.policy import restart_acts
from probing_cluster.control_plane.service import turns
from probing_cluster.control_plane.service.tasks.jobs import hangs
from probing_cluster.core import records
from probing_cluster.db import delivery

NODES = ("n1", "n2")


def beat(service: context.Context, node: str, acknowledged: list[uuid.UUID], *, steps: int = 40) -> None:
    """The node's next heartbeat: its two ranks stand at the step, and what was asked of it is done."""
    first = 2 * NODES.index(node)
    ranks = {f"7:{r}": gang_rows.row(r, steps=steps, stalled=True) for r in (first, first + 1)}
    made = records.AgentHeartbeat(
        cluster="c", node=node, at=service.clock.now(), boot_id="b", jobs=(7,), ranks=ranks
    )
    door = delivery.Delivery(service.store.connection_uri(), "c", node)
    door.deliver(heartbeat=made, acknowledged=acknowledged)


def calls(service: context.Context, node: str) -> list[uuid.UUID]:
    """What the node is asked for."""
    found = delivery.Delivery(service.store.connection_uri(), "c", node).deliver(events=[]).requests
    assert {(r.verb, r.job_id) for r in found} <= {("collect", 7)}
    return [r.request_id for r in found]


@pytest.fixture
def hanging(service: context.Context, slurm: fakes.FakeSlurm) -> context.Context:
    """Rank 3 on n2 was stopped more than the grace ago; both nodes beat."""
    attempt = gang_rows.attempt(7, *NODES)
    service.store.upsert_attempts([attempt])
    slurm.held[7] = fakes.live_job(7, state="RUNNING", start_at=attempt.start_at, nodes=NODES)
    verdict = records.GangVerdict(
        gang_id=uuid.UUID(int=1), cluster="c", job_id=7, submit_at=attempt.submit_at, kind="rank_stopped", ranks=(3,), nodes=("n2",),
        domain=records.Domain.SYSTEM_SOFTWARE, confidence=records.Confidence.LIKELY, summary="rank 3 on n2 was stopped",
        onset_at=fakes.NOW - timedelta(seconds=120), made_at=fakes.NOW - timedelta(seconds=61), detail={"steps": 40, "ranks_seen": 4},
    )  # fmt: skip
    service.store.save_gang_verdicts([verdict])
    for node in NODES:
        beat(service, node, [])
    return service


def wishing(
    service: context.Context, *, site: str = "tell", owner: str = "", observe_only: bool = False
) -> None:
    """What the site and the job's owner want done."""
    policy = dataclasses.replace(service.config.policy, on_hang=site, observe_only=observe_only)
    service.config = dataclasses.replace(service.config, policy=policy)
    if owner:
        (attempt,) = service.store.attempts(job_ids=[7])
        assert attempt.start_at is not None
        allocation = records.JobAllocation(
            cluster="c", node="n1", job_id=7, at=attempt.start_at, detail={"on_hang": owner}
        )
        delivery.Delivery(service.store.connection_uri(), "c", "n1").deliver(allocations=[allocation])


def looked_again(service: context.Context, *, steps: int = 40) -> str:
    """One pass that asks, what the nodes answer, one pass that decides."""
    assert "all nodes asked once more" in hangs.run(service)
    requests = {node: calls(service, node) for node in NODES}
    assert all(requests.values())
    for node in NODES:
        beat(service, node, requests[node], steps=steps)
    return hangs.run(service)


@pytest.mark.parametrize("wish", [{"site": "requeue"}, {"owner": "requeue"}])
def test_it_is_requeued_where_it_was_asked_for(
    hanging: context.Context, slurm: fakes.FakeSlurm, wish: dict[str, str]
) -> None:
    """By the site or by its owner; once, and it is known by which hang."""
    wishing(hanging, **wish)
    assert looked_again(hanging) == "hang of job 7: requeue goes on"
    assert slurm.acts == [("requeue_held", "7")]
    (row,) = hanging.store.drains(actions=["requeue"])
    assert restart_acts.is_begun(row)
    assert (row.node, row.job_id, row.detail["cause"]) == ("n2", 7, "rank_stopped")
    assert hangs.run(hanging) == ""
    assert slurm.acts == [("requeue_held", "7")]


def test_a_node_under_test_counts_against_the_budget(
    hanging: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The requeue would leave the node of the fault out."""
    (verdict,) = hanging.store.gang_verdicts()
    hanging.store.save_gang_verdicts([dataclasses.replace(verdict, domain=records.Domain.HARDWARE)])
    fakes.spend_budget_on_a_test(hanging, "n4")
    wishing(hanging, site="requeue")
    assert looked_again(hanging).startswith("hang of job 7 denied: budget: 1 of 1 nodes of the cluster taken")
    assert slurm.acts == []


def test_it_waits_while_drains_take_nodes_of_the_same_budget(
    hanging: context.Context, slurm: fakes.FakeSlurm
) -> None:
    """The node that its requeue leaves out counts against the budget."""
    wishing(hanging, site="requeue")
    with turns.take(dataclasses.replace(hanging, journal=journal.Journal()), "actions") as theirs:
        assert theirs
        looked_again(hanging)
        assert slurm.acts == []
    assert hangs.run(hanging).startswith("hang of job 7")


@pytest.mark.parametrize("wish", [{}, {"site": "requeue", "owner": "tell"}])
def test_it_is_left_alone_where_it_was_not(
    hanging: context.Context, slurm: fakes.FakeSlurm, wish: dict[str, str]
) -> None:
    """Nobody is even asked; the owner's word goes before the site's."""
    wishing(hanging, **wish)
    assert hangs.run(hanging) == ""
    assert (calls(hanging, "n1"), slurm.acts, hanging.store.drains()) == ([], [], [])


def test_only_allocations_of_hanging_jobs_are_read(
    hanging: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every two seconds a pass looks for what the owners of those jobs wish; the cluster's other allocations are not read."""
    wishing(hanging, owner="requeue")
    (attempt,) = hanging.store.attempts(job_ids=[7])
    assert attempt.start_at is not None
    other = records.JobAllocation(cluster="c", node="n1", job_id=8, at=attempt.start_at)
    delivery.Delivery(hanging.store.connection_uri(), "c", "n1").deliver(allocations=[other])
    jobs = fakes.jobs_of_allocations_read(hanging.store, monkeypatch)
    hangs.run(hanging)
    assert jobs == {7}


def test_answers_of_all_hanging_gangs_are_read_at_once(
    hanging: context.Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fabric that stalls hangs hundreds of jobs; a look asks the database once for all."""
    wishing(hanging, site="requeue")
    (verdict,) = hanging.store.gang_verdicts(open_only=True)
    hanging.store.upsert_attempts([gang_rows.attempt(8, *NODES)])
    second = dataclasses.replace(verdict, gang_id=uuid.UUID(int=2), job_id=8)
    hanging.store.save_gang_verdicts([second])
    read, reads = hanging.store.beats_after, list[set[uuid.UUID]]()

    def counted(ids: Any) -> Any:
        reads.append(set(ids))
        return read(ids)

    monkeypatch.setattr(hanging.store, "beats_after", counted)
    hangs.run(hanging)
    assert [len(ids) for ids in reads] == [2 * len(NODES)]


def test_observe_only_simulates(hanging: context.Context, slurm: fakes.FakeSlurm) -> None:
    """The row says what would have been done."""
    wishing(hanging, site="requeue", observe_only=True)
    assert looked_again(hanging) == "hang of job 7 simulated: observe-only"
    assert [(r.state, r.action) for r in hanging.store.drains()] == [("simulated", "requeue")]
    assert slurm.acts == []


def test_a_gang_that_got_on_meanwhile_is_left_alone(hanging: context.Context, slurm: fakes.FakeSlurm) -> None:
    """All ranks are looked at once more just before."""
    wishing(hanging, site="requeue")
    assert looked_again(hanging, steps=41) == "hang of job 7 skipped: its ranks have got on since"
    assert slurm.acts == []
