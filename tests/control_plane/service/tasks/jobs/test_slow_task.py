"""The service names slow ranks from heartbeats, once, as events that can hurt no node."""

from __future__ import annotations

from typing import Any

import fakes
import gang_rows
import pytest

from probing_cluster.attribution.verdict import findings
from probing_cluster.control_plane import context
from probing_cluster.control_plane.gangs import gang_pace
from probing_cluster.control_plane.service.tasks.jobs import slow
from probing_cluster.control_plane.service.tasks.nodes import actions
from probing_cluster.core import records
from probing_cluster.db import delivery


def events(service: context.Context, *kinds: str) -> list[records.HealthEvent]:
    """The events of job 7."""
    return service.store.events(job_id=7, kinds=kinds or ("rank_slow", "gang_drift"))


def run_windows(service: context.Context, n: int, slow_by: dict[int, float], first: int = 0) -> list[str]:
    """Some windows of the gang, a pass of the task after each."""
    announced = []
    for index in range(first, first + n):
        gang_rows.beat(service.store, 7, gang_rows.gang(index, slow=slow_by))
        announced.append(slow.run(service))
    return [s for s in announced if s]


def test_a_slow_rank_is_told_once_with_its_node_and_numbers(service: context.Context) -> None:
    """Rank 5 on n3: which, where, how much, and who waits; told again by another service it is the same event."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    announced = run_windows(service, 4, {5: 1.2})
    assert len(announced) == 1
    assert announced[0].startswith("job 7: rank 5 is slow: computing takes it 0.2")
    service.memory(slow.GangPaces).clear()
    run_windows(service, 4, {5: 1.2}, first=4)
    (event,) = events(service)
    assert (event.kind, event.code, event.node, event.job_id) == ("rank_slow", "compute", "n3", 7)
    assert (event.source, event.severity) == ("probe", records.Severity.INFO)
    assert event.measured is not None
    assert event.threshold is not None
    assert event.measured > event.threshold
    assert event.detail["waited_s"] > 0.03


def test_a_healthy_gang_is_not_spoken_of(service: context.Context) -> None:
    """Twenty windows of noise: no event but the pace itself."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    assert run_windows(service, 20, {}) == []
    assert events(service) == []
    (pace,) = events(service, "gang_pace")
    assert (pace.measured or 0) > 0.2


def test_it_is_told_as_soon_as_accounting_knows_the_job(service: context.Context) -> None:
    """Heartbeats come seconds after a start, accounting half a minute: nothing is lost between."""
    assert run_windows(service, 3, {5: 1.2}) == []
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    assert len(run_windows(service, 1, {5: 1.2}, first=3)) == 1


def test_drift_is_held_against_the_beginning_across_a_restart_of_the_service(
    service: context.Context,
) -> None:
    """The beginning is an event of its own: a service that starts later knows it."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    run_windows(service, 12, {})
    service.memory(slow.GangPaces).clear()
    announced = run_windows(service, 12, dict.fromkeys(range(8), 1.5), first=12)
    assert len(announced) == 1
    assert "the whole job has slowed down: computing takes 0.3" in announced[0]


@pytest.mark.parametrize(
    "first", [[1] * gang_pace.FIRST, [{"index": 0}] * gang_pace.FIRST, [{"x": 1}] * gang_pace.FIRST]
)
@pytest.mark.parametrize("node", ["n1", "n9"])
def test_a_beginning_that_a_node_made_up_stops_nobodys_pass(
    service: context.Context, node: str, first: list[Any]
) -> None:
    """One node's event about job 8 of another shape: the slow rank of job 7 is named all the same."""
    service.store.upsert_attempts([gang_rows.attempt(job, "n1", "n2", "n3", "n4") for job in (7, 8)])
    forged = records.HealthEvent(
        event_id=records.make_event_id("c", node, "probe", "forged"), cluster="c", node=node, at=fakes.NOW, observed_at=fakes.NOW,
        kind="gang_pace", severity=records.Severity.INFO, job_id=8, source="probe", message="", detail={"first": first},
    )  # fmt: skip
    delivery.Delivery(service.store.connection_uri(), "c", node).deliver(events=[forged])
    gang_rows.beat(service.store, 8, gang_rows.gang(0))
    slow.run(service)
    service.memory(slow.GangPaces).clear()
    assert run_windows(service, 4, {5: 1.2})


def test_a_slow_rank_moves_no_node_and_accuses_no_hardware(service: context.Context) -> None:
    """The users' word: the policy does nothing about it, attribution takes it for context."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    run_windows(service, 4, {5: 1.5})
    actions.run(service)
    assert isinstance(service.slurm, fakes.FakeSlurm)
    assert service.slurm.acts == []
    signature = findings.find(events(service)[0])
    assert (signature.role, signature.weight) == (findings.FindingRole.CONTEXT, 0.0)


def test_garbage_in_a_heartbeat_does_not_end_the_pass(service: context.Context) -> None:
    """One job's forged rows cost no other job its finding."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    for index in range(4):
        rows = gang_rows.gang(index, slow={5: 1.2})
        rows[0] |= {"window": {"index": 10**30, "steps": "x"}, "pid": "\x00"[:0]}
        gang_rows.beat(service.store, 7, rows)
        slow.run(service)
    assert [e.detail["rank"] for e in events(service)] == [5]


def test_a_node_that_is_none_of_the_jobs_makes_no_rank_slow(service: context.Context) -> None:
    """Root of n9 says that ranks 8 to 30 of job 7 are ten times as fast: nobody on n1 to n4 is slow by that."""
    service.store.upsert_attempts([gang_rows.attempt(7, "n1", "n2", "n3", "n4")])
    for index in range(5):
        forged = {r: gang_rows.row(r, window=gang_rows.window(index, 0.02, 0.3)) for r in range(64, 87)}
        forged[1] = forged[64]
        beat = records.AgentHeartbeat(
            cluster="c", node="n9", at=fakes.NOW, boot_id="b", jobs=(7,),
            ranks={f"7:{r}": row for r, row in forged.items()},
        )  # fmt: skip
        delivery.Delivery(service.store.connection_uri(), "c", "n9").deliver(heartbeat=beat)
        run_windows(service, 1, {}, first=index)
    assert events(service) == []
    assert service.memory(slow.GangPaces)[7].nodes == {"n1", "n2", "n3", "n4"}
    assert len(service.memory(slow.GangPaces)[7].windows) == 8
