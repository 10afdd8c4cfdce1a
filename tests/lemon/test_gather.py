from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta

import lemon_fleet as fleet
import pytest

from probing_cluster.core import clock, records, vocabulary
from probing_cluster.db import delivery
from probing_cluster.db import store as db_store
from probing_cluster.lemon import gather

SINCE = fleet.END - timedelta(days=28)


def read(store: db_store.Store, cluster: str = "c") -> gather.LemonFacts:
    return gather.read(store.connection_uri(), cluster, SINCE, fleet.END)


def judged(store: db_store.Store, *, nodes: tuple[str, ...] = ("n1", "n2"), **changes: object) -> None:
    """Job 1 on `nodes`, laid at n1 by a verdict without any evidence."""
    changes = {
        "state": "FAILED",
        "failed_node": None,
        "author": "rules",
        "evidence": (),
        "incident_id": None,
    } | changes
    died = fleet.attempt(1, 2, 1, *nodes, state=changes["state"], failed_node=changes["failed_node"])
    store.upsert_attempts([died])
    store.save_verdicts(
        [
            records.Verdict(
                cluster="c", job_id=1, submit_at=died.submit_at, cause="gpu_lost", domain=records.Domain.HARDWARE,
                component="gpu", node="n1", confidence=records.Confidence.LIKELY, summary="", rules_version="1",
                made_at=fleet.END, author=str(changes["author"]), evidence=changes["evidence"], incident_id=changes["incident_id"],
            )
        ]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "attested"),
    [
        ({}, False),
        ({"author": "eve"}, True),
        ({"state": "NODE_FAIL", "failed_node": "n1"}, True),
        ({"state": "NODE_FAIL", "failed_node": "n2"}, False),
        ({"state": "NODE_FAIL"}, False),
        ({"state": "NODE_FAIL", "nodes": ("n1",)}, True),
        ({"state": "FAILED", "failed_node": "n1", "nodes": ("n1",)}, False),
    ],
)
def test_who_vouches_for_a_verdict(store: db_store.Store, changes: dict[str, object], attested: bool) -> None:
    """A person, or Slurm naming that very node; the rules' own verdict alone is not enough."""
    judged(store, **changes)
    (row,) = read(store).attempts.to_pylist()
    assert (row["fault_node"], row["attested"]) == ("n1", attested)


@pytest.mark.parametrize(
    ("source", "node", "attested"),
    [
        ("kernel", "n1", True),
        ("nvml", "n1", True),
        ("import", "n1", True),
        ("joblog", "n1", False),
        ("probe", "n1", False),
        ("dump", "n1", False),
        ("kernel", "n2", False),
    ],
)
def test_only_the_nodes_own_sources_vouch(
    store: db_store.Store, source: str, node: str, attested: bool
) -> None:
    """Job-side text does not, however much of it there is; nor does another node's kernel."""
    event = records.HealthEvent(
        event_id=uuid.UUID(int=7), cluster="c", node=node, at=fleet.at(1), observed_at=fleet.at(1), kind="xid",
        severity=records.Severity.HIGH, source=source, message="x",
    )  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", node).deliver(events=[event])
    judged(store, evidence=(event.event_id,))
    (row,) = read(store).attempts.to_pylist()
    assert row["attested"] is attested


def test_the_end_of_a_fault_is_not_another_one(store: db_store.Store) -> None:
    """A link that went down and came back is counted once."""
    down = records.HealthEvent(
        event_id=uuid.UUID(int=7), cluster="c", node="n1", at=fleet.at(1), observed_at=fleet.at(1), kind="ib_link",
        severity=records.Severity.HIGH, source="sysfs", message="x",
    )  # fmt: skip
    back = dataclasses.replace(
        down, event_id=uuid.UUID(int=8), severity=records.Severity.INFO, detail={"recovered": True}
    )
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(events=[down, back])
    assert [(r["kind"], r["severity"], r["n"]) for r in read(store).events.to_pylist()] == [
        ("ib_link", "high", 1)
    ]


def test_one_clusters_rows_of_the_window_and_no_others(store: db_store.Store) -> None:
    """Attempts that touch the window, running ones included; events, notes, drains and exclusions of this cluster."""
    store.upsert_attempts(
        [
            fleet.attempt(1, 40, 27, "n1"),
            dataclasses.replace(fleet.attempt(2, 3, 2, "n1"), end_at=None, state="RUNNING"),
            fleet.attempt(3, 40, 29, "n1"),
            fleet.attempt(4, 3, 2, "n1", cluster="other"),
            dataclasses.replace(fleet.attempt(5, 3, 2, "n1"), start_at=None, end_at=None, state="PENDING"),
        ]
    )
    fleet.note(store, "ticket", "n1", fleet.at(40))
    fleet.note(store, "deny", "n1", fleet.at(-1))
    fleet.note(store, "ack", "n1", fleet.at(1))
    store.save_exclusions(
        [records.JobExclusion(cluster=c, node="n1", job_id=1, at=fleet.at(1)) for c in ("c", "d")]
    )
    facts = read(store)
    assert sorted(facts.attempts["job_id"].to_pylist()) == [1, 2]
    assert facts.notes["action"].to_pylist() == ["ticket"]
    assert facts.exclusions.num_rows == 1
    assert read(store, "nowhere").attempts.num_rows == 0


def test_a_verdict_replaced_is_not_read(store: db_store.Store) -> None:
    """Judging again leaves one row per attempt, with the latest word."""
    judged(store)
    judged(store, author="eve")
    (row,) = read(store).attempts.to_pylist()
    assert row["attested"] is True


def test_slurms_outages_replace_our_drains() -> None:
    """Only those that began in the window; one that lasts has no end."""
    out = [
        gather.SlurmOutage(node="n1", start_at=fleet.at(d), end_at=None, reason="down") for d in (1, 28, 29)
    ]
    table = gather.outage_table(out, SINCE, fleet.END)
    assert table["start_us"].to_pylist() == [clock.to_us(fleet.at(d)) for d in (1, 28)]
    assert table["end_us"].null_count == 2


def test_what_was_found_out_about_ranks_is_read_as_the_jobs_word(store: db_store.Store) -> None:
    """A gang's verdict names nodes; it comes with a source that users can write, so it can only be shown."""
    made = records.GangVerdict(
        gang_id=uuid.UUID(int=1), cluster="c", job_id=1, submit_at=fleet.at(3), kind="rank_dead", ranks=(3,),
        nodes=("n1", "n2"), domain=records.Domain.UNKNOWN, confidence=records.Confidence.POSSIBLE, summary="x",
        onset_at=fleet.at(2), made_at=fleet.at(2),
    )  # fmt: skip
    store.save_gang_verdicts([made])
    rows = read(store).events.to_pylist()
    assert sorted((r["node"], r["kind"], r["code"]) for r in rows) == [
        ("n1", "rank_finding", "rank_dead"),
        ("n2", "rank_finding", "rank_dead"),
    ]
    assert {r["source"] for r in rows} <= vocabulary.JOB_SIDE_SOURCES


def test_only_an_incident_of_many_nodes_is_nobodys_own(store: db_store.Store) -> None:
    """The fault that a node's two victims share is that node's; a switch's is not."""
    fault, switch = uuid.UUID(int=7), uuid.UUID(int=8)
    judged(store, evidence=(fault,), incident_id=fault)
    assert read(store).attempts["incident"].to_pylist() == [None]
    judged(store, evidence=(fault,), incident_id=switch)
    assert read(store).attempts["incident"].to_pylist() == [str(switch)]


def test_a_job_whose_end_was_never_heard_uses_its_node_until_its_limit(store: db_store.Store) -> None:
    """Else it would excuse the node for weeks: a lemon fails often for the time that it is in use."""
    running = dataclasses.replace(fleet.attempt(1, 20, 1, "n1"), end_at=None, state="RUNNING")
    store.upsert_attempts(
        [dataclasses.replace(running, time_limit_s=7200.0), dataclasses.replace(running, job_id=2)]
    )
    ends = {r["job_id"]: r["end_us"] for r in read(store).attempts.to_pylist()}
    assert running.start_at is not None
    assert ends == {1: clock.to_us(running.start_at + timedelta(hours=2)), 2: None}
