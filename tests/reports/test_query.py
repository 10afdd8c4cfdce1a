from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import conftest_story as example
import psycopg
import pytest

from probing_cluster.core import errors, records, vocabulary
from probing_cluster.db import bulk, delivery
from probing_cluster.db import store as db_store
from probing_cluster.reports import job_ref, json_out, model, query, rows, text


def fill(store: db_store.Store, story: rows.ReportRows) -> None:
    """Stores the story the way the product does."""
    store.upsert_attempts(story.attempts)
    for node in {e.node for e in (*story.evidence, *story.others)}:
        events = [e for e in (*story.evidence, *story.others) if e.node == node]
        delivery.Delivery(store.connection_uri(), "c", node).deliver(events=events)
    store.save_verdicts(story.verdicts)
    for drain in story.drains:
        store.save_drain(drain)
    if story.account:
        bulk.load_run_accounts(store.connection_uri(), [story.account])


def read(url: str, ref: str) -> rows.ReportRows:
    with psycopg.connect(url, options="-c TimeZone=UTC") as link:
        return rows.from_json(query.fetch(link, "c", job_ref.parse(ref)))


def test_the_report_from_the_database_equals_the_report_from_the_records(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """One round trip through SQL and JSON loses and invents nothing."""
    fill(store, story)
    now = example.at("15:00:00")
    # No agent is stored of any node; of n2 there is what its kernel said.
    first, last = sorted(a.submit_at for a in story.attempts)
    unwatched = frozenset({(first, "n1"), (last, "n1"), (last, "n3")})
    given = dataclasses.replace(story, unwatched=unwatched, has_steps=False)
    expected = model.build(job_ref.parse("4242"), given, now=now)
    got = model.build(job_ref.parse("4242"), read(store.connection_uri(), "4242"), now=now)
    assert got == expected


def _returned(story: rows.ReportRows, at: datetime, *, by_hand: bool = False) -> rows.ReturnedNode:
    """That n2 came back after the attempt of which there is a verdict."""
    return rows.ReturnedNode(node="n2", at=at, by_hand=by_hand, submit_at=story.verdicts[0].submit_at)


@pytest.mark.parametrize(
    ("devices", "stays"),
    [(("/scratch",), True), ((None,), True), (("nvme0", "gpu3"), False), (("gpu3",), False), ((), False)],
)
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_was_repaired_stays_so_through_another_parts_fault(
    store: db_store.Store,
    story: rows.ReportRows,
    devices: tuple[str | None, ...],
    *,
    stays: bool,
    by_hand: bool,
) -> None:
    """A drain for a mount says nothing of GPU 3, and a later word about it is not when GPU 3 was repaired; where a drain's events are not known, nobody can tell."""
    fill(store, story)
    assert story.verdicts[0].device == "gpu3"

    def repair(opened_at: str, closed_at: str, state: str, events: tuple[records.HealthEvent, ...]) -> None:
        drain = records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node="n2", at=example.at(opened_at), action="drain", reason="probing: x",
            owner="probing", state="done", event_ids=tuple(e.event_id for e in events),
        )  # fmt: skip
        store.add_drain(drain)
        store.open_incident(
            records.RepairIncident(
                incident_id=uuid.uuid4(), cluster="c", node="n2", drain_id=drain.drain_id, reason=drain.reason, cause="gpu",
                state=state, opened_at=drain.at, changed_at=drain.at, closed_at=example.at(closed_at) if closed_at else None,
            )
        )  # fmt: skip

    def note(at: str) -> None:
        store.add_notes([
            records.OperatorNote(note_id=uuid.uuid4(), cluster="c", at=example.at(at), author="ada", subject="node:n2", action="repaired")
        ])  # fmt: skip

    found = [
        example.event(uuid.uuid4(), example.at("14:54:00"), node="n2", device=device) for device in devices
    ]
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(events=found)
    repair("14:21:00", "14:50:00", "lifted" if by_hand else "returned", ())
    if by_hand:
        note("14:50:00")
    first = _returned(story, example.at("14:50:00"), by_hand=by_hand)
    assert read(store.connection_uri(), "4242").returned == (first,)
    repair("14:55:00", "", "queued", tuple(found))
    assert read(store.connection_uri(), "4242").returned == ((first,) if stays else ())
    note("14:58:00")
    again = first if stays else _returned(story, example.at("14:58:00"), by_hand=True)
    assert read(store.connection_uri(), "4242").returned == (again,)


def test_a_node_that_came_back_is_known_by_its_latest_repair(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """Of the nodes that verdicts name; one that is in repair once more is not back."""
    fill(store, story)

    def repair(node: str, state: str, opened_at: datetime, closed_at: datetime | None) -> None:
        store.open_incident(
            records.RepairIncident(
                incident_id=uuid.uuid4(), cluster="c", node=node, drain_id=uuid.uuid4(), reason="probing: xid 79 gpu3", cause="gpu",
                state=state, opened_at=opened_at, changed_at=opened_at, closed_at=closed_at,
            )
        )  # fmt: skip

    back_at = example.at("14:50:00")
    repair("n1", "returned", example.at("14:21:00"), back_at)
    assert read(store.connection_uri(), "4242").returned == ()
    repair("n2", "returned", example.at("14:21:00"), back_at)
    assert read(store.connection_uri(), "4242").returned == (_returned(story, back_at),)
    repair("n2", "testing", example.at("14:55:00"), None)
    assert read(store.connection_uri(), "4242").returned == ()


def test_a_node_that_a_person_noted_as_repaired_is_back_until_its_next_repair(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """A site need not test nodes; a repair that began later is of a new fault."""
    fill(store, story)

    def note(node: str, at: datetime, action: str = "repaired") -> None:
        store.add_notes([
            records.OperatorNote(note_id=uuid.uuid4(), cluster="c", at=at, author="ada", subject=f"node:{node}", action=action)
        ])  # fmt: skip

    at = example.at("14:50:00")
    note("n1", at)
    note("n2", at, action="note")
    assert read(store.connection_uri(), "4242").returned == ()
    note("n2", at)
    by_hand = _returned(story, at, by_hand=True)
    assert read(store.connection_uri(), "4242").returned == (by_hand,)
    for opened_at, state, found in (("14:40:00", "lifted", (by_hand,)), ("14:55:00", "ticket", ())):
        opened = example.at(opened_at)
        store.open_incident(
            records.RepairIncident(
                incident_id=uuid.uuid4(), cluster="c", node="n2", drain_id=uuid.uuid4(), reason="probing: xid 79 gpu3", cause="gpu",
                state=state, opened_at=opened, changed_at=opened, closed_at=opened if state == "lifted" else None,
            )
        )  # fmt: skip
        assert read(store.connection_uri(), "4242").returned == found


@pytest.mark.parametrize("kind", ["first_step", "last_progress", "checkpoint"])
def test_a_step_that_the_probe_saw_is_known_to_the_report(
    store: db_store.Store, story: rows.ReportRows, kind: str
) -> None:
    """Of this cluster's job of that id, and not from before it."""
    fill(store, story)
    start_at = min(a.start_at for a in story.attempts if a.start_at)

    def deliver(cluster: str, at: datetime) -> None:
        event = records.HealthEvent(
            event_id=uuid.uuid4(), cluster=cluster, node="n1", at=at, observed_at=at, kind=kind, code="",
            severity=records.Severity.INFO, source="probe", message="", job_id=4242,
        )  # fmt: skip
        delivery.Delivery(store.connection_uri(), cluster, "n1").deliver(events=[event])

    deliver("elsewhere", start_at + timedelta(minutes=1))
    deliver("c", start_at - timedelta(days=1))
    assert read(store.connection_uri(), "4242").has_steps is False
    deliver("c", start_at + timedelta(minutes=1))
    assert read(store.connection_uri(), "4242").has_steps is True


def test_an_unknown_job_is_not_found(postgres_url: str) -> None:
    """A job without any attempt is an error of its own, not an empty report."""
    with pytest.raises(errors.NotFound):
        read(postgres_url, "1")


def test_array_tasks_and_het_components_are_found_by_how_people_name_them(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """123_4 and 123+1 find exactly that task or component, whatever its raw id."""
    store.upsert_attempts(
        [
            example.attempt(
                1, job_id=500 + task, array_job_id=500, array_task_id=task, start_at=example.at("14:03:00")
            )
            for task in (1, 2, 3)
        ]
        + [
            example.attempt(
                1, job_id=600 + part, het_job_id=600, het_offset=part, start_at=example.at("14:03:00")
            )
            for part in (0, 1)
        ]
    )
    url = store.connection_uri()
    assert [a.job_id for a in read(url, "500_2").attempts] == [502]
    assert [a.job_id for a in read(url, "600+1").attempts] == [601]
    assert {s.ref for s in read(url, "600").siblings} == {"600+0", "600+1"}
    whole = read(url, "500")
    assert (whole.n_siblings, {s.ref for s in whole.siblings}) == (3, {"500_1", "500_2", "500_3"})
    assert model.is_overview(job_ref.parse("500"), whole)
    died = next(a for a in read(url, "500_2").attempts)
    about = {"job_id": 502, "submit_at": died.submit_at, "attempt": died.attempt, "component": "gpu"}
    store.save_verdicts([records.Verdict.from_row(vars(story.verdicts[0]) | about)])
    reasons = {s.ref: (s.component, s.reason) for s in read(url, "500").siblings}
    assert reasons == {"500_1": (None, ""), "500_2": ("gpu", story.verdicts[0].summary), "500_3": (None, "")}
    for task, state in ((1, "COMPLETED"), (2, "RUNNING"), (3, "FAILED")):
        (old,) = read(url, f"500_{task}").attempts
        end_at = None if state == "RUNNING" else example.at("14:30:00")
        store.upsert_attempts([dataclasses.replace(old, state=state, end_at=end_at)])
    ordered = [s.state for s in read(url, "500").siblings]
    assert ordered == ["FAILED", "RUNNING", "COMPLETED"], "what runs may yet fail"
    with pytest.raises(errors.NotFound):
        read(url, "500_9")


def test_a_job_of_the_same_id_in_another_cluster_is_named_and_can_be_asked_for(store: db_store.Store) -> None:
    """An import of two clusters: the second one's job could not be reached, and no word was said of it."""
    for cluster, user in (("c", "alice"), ("d", "bob")):
        store.upsert_attempts(
            [example.attempt(1, job_id=84, cluster=cluster, user=user, start_at=example.at("14:03:00"))]
        )
    with psycopg.connect(store.connection_uri(), options="-c TimeZone=UTC") as link:
        for cluster, user, other in (("c", "alice", "d"), ("d", "bob", "c")):
            found = rows.from_json(query.fetch(link, cluster, job_ref.parse("84")))
            report = model.build(job_ref.parse("84"), found, now=example.at("15:00:00"))
            assert (report.cluster, report.user, report.other_clusters) == (cluster, user, (other,))
            assert f"probing-report 84 --cluster {other}" in " ".join(text.render(report).split())


def test_nothing_of_the_other_clusters_job_is_in_a_report(store: db_store.Store) -> None:
    """Job 84 of both on nodes of one name, at one time: another user's error message is nobody else's to read."""
    ran: dict[str, object] = {
        "start_at": example.at("14:03:00"),
        "end_at": example.at("14:40:00"),
        "nodes": ("n1", "n2"),
    }
    store.upsert_attempts(
        [
            example.attempt(1, job_id=84, user="alice", state="COMPLETED", **ran),
            example.attempt(1, job_id=84, cluster="d", user="bob", state="FAILED", exit_code=1, **ran),
        ]
    )

    def event(number: int, **changes: object) -> records.HealthEvent:
        values: dict[str, object] = {
            "event_id": uuid.UUID(int=number), "cluster": "d", "node": "n2", "at": example.at("14:10:00"),
            "observed_at": example.at("14:10:00"), "kind": "xid", "code": "79", "severity": records.Severity.HIGH,
            "source": "kernel", "message": "GPU has fallen off the bus of d's n2",
        }  # fmt: skip
        return records.HealthEvent(**(values | changes))

    of_job: dict[str, object] = {"job_id": 84, "severity": records.Severity.INFO}
    found_there = [
        event(1),
        event(2, **of_job, kind="python_exception", source="joblog", message="KeyError: 'bob'", detail={"first_cause": True}),
        event(3, **of_job, kind="rank_slow", code="compute", source="probe", message="rank 3 of bob is slow"),
        event(4, kind="dcgm", code=None, source="diagnostic", at=example.at("15:00:00"), message="d's n2 failed"),
    ]  # fmt: skip
    beat = records.AgentHeartbeat(cluster="d", node="n2", at=example.at("15:00:00"), boot_id="b")
    delivery.Delivery(store.connection_uri(), "d", "n2").deliver(events=found_there, heartbeat=beat)
    store.save_drain(example.drain("drain", example.at("14:11:00"), cluster="d", reason="probing: d's n2"))
    store.save_drain(example.drain("requeue", example.at("14:12:00"), cluster="d", job_id=84))
    found = read(store.connection_uri(), "84")
    read_there = (found.others, found.own_errors, found.pace, found.tested, found.drains)
    assert [len(rows_of) for rows_of in read_there] == [0] * 5
    assert {node for _, node in found.unwatched} == {"n1", "n2"}, (
        "the other cluster's agent watched nothing here"
    )
    with psycopg.connect(store.connection_uri(), options="-c TimeZone=UTC") as link:
        theirs = rows.from_json(query.fetch(link, "d", job_ref.parse("84")))
    assert len(theirs.others) == 1
    assert len(theirs.drains) == 2


@pytest.mark.parametrize("ahead_h", [-1, 0, 1])
def test_a_node_whose_clock_is_off_is_heard_by_the_servers_clock(store: db_store.Store, ahead_h: int) -> None:
    """An hour behind: its heartbeat has just come, so the report of its running job does not call it silent."""
    now = datetime.now(UTC)
    running = {
        "nodes": ("n2",),
        "state": "RUNNING",
        "end_at": None,
        "exit_code": None,
        "start_at": now - timedelta(hours=2),
    }
    store.upsert_attempts([example.attempt(1, job_id=84, submit_at=now - timedelta(hours=3), **running)])
    at = now + timedelta(hours=ahead_h)
    beat = records.AgentHeartbeat(cluster="c", node="n2", at=at, jobs=(84,), boot_id="b")
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(heartbeat=beat)
    found = read(store.connection_uri(), "84")
    report = model.build(job_ref.parse("84"), found, now=datetime.now(UTC))
    assert "has not been heard" not in str(report)
    assert found.read_at is not None
    assert timedelta() <= found.read_at - found.heartbeats[0].at < timedelta(minutes=1)
    assert [abs(b.at - now) < timedelta(minutes=5) for b in found.heartbeats] == [True]


def test_other_users_runs_of_the_same_name_stay_apart(store: db_store.Store) -> None:
    """A run is scoped to its user: a namesake's jobs and account never enter the report."""
    store.upsert_attempts(
        [
            example.attempt(1, job_id=1, run_key="sft", user="alice", start_at=example.at("14:03:00")),
            example.attempt(1, job_id=2, run_key="sft", user="alice", start_at=example.at("14:03:00")),
            example.attempt(1, job_id=3, run_key="sft", user="bob", start_at=example.at("14:03:00")),
        ]
    )
    assert read(store.connection_uri(), "1").run_jobs == (1, 2)


def test_the_output_of_a_jobs_first_second_is_its_own_also_before_the_next_job_of_its_id(
    store: db_store.Store,
) -> None:
    """Slurm cuts its times to whole seconds: its Prolog is behind its end."""
    midnight = example.at("00:00:00")
    begin, later = midnight - timedelta(seconds=20), midnight + timedelta(seconds=10)
    one = example.attempt(
        1, job_id=9, user="alice", submit_at=begin, start_at=begin, end_at=begin, state="FAILED"
    )
    other = example.attempt(
        1, job_id=9, user="bob", submit_at=later, start_at=later, end_at=later, state="FAILED"
    )
    store.upsert_attempts([one, other])
    allocations = [
        records.JobAllocation(
            cluster="c", node="n1", job_id=9, restart_count=0, at=at + timedelta(milliseconds=370),
            detail={"logs": [{"stream": "stdout", "path": path, "tail": ["x"]}]},
        )
        for at, path in ((begin, "/of_alice"), (later, "/of_bob"))
    ]  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(allocations=allocations)
    found = read(store.connection_uri(), f"9@{begin:%Y-%m-%d}")
    assert [a.user for a in found.attempts] == ["alice"]
    assert [log.path for log in found.logs] == ["/of_alice"]


def test_only_the_current_verdict_is_reported(store: db_store.Store, story: rows.ReportRows) -> None:
    """A replaced verdict is history, not an answer."""
    fill(store, story)
    newer = records.Verdict.from_row(
        vars(story.verdicts[0]) | {"author": "root", "summary": "It was the cable."}
    )
    store.save_verdicts([newer])
    assert [v.summary for v in read(store.connection_uri(), "4242").verdicts] == ["It was the cable."]


def test_other_faults_on_the_jobs_nodes_are_found_only_while_it_ran(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """Low and high events of the attempt's nodes and time are shown; info, other nodes and other times are not.

    Of the errors that are info because no table lists them all are shown, but a line that grades itself.
    """
    noise = example.event
    fill(store, story)
    import uuid

    during, low = example.at("14:10:00"), records.Severity.LOW
    events = {
        "shown": noise(uuid.UUID(int=1), during, severity=low),
        "info": noise(uuid.UUID(int=2), during, code="43", severity=records.Severity.INFO),
        "unlisted Xid": noise(uuid.UUID(int=5), during, code="999", severity=records.Severity.INFO),
        "unlisted SXid": noise(
            uuid.UUID(int=6), during, kind="sxid", code="99999", severity=records.Severity.INFO
        ),
        "graded": noise(
            uuid.UUID(int=7),
            during,
            kind="sxid",
            code="99999",
            severity=records.Severity.INFO,
            detail={"grade": "non-fatal"},
        ),
        "AER": noise(
            uuid.UUID(int=8), during, kind="pcie_aer", code="unknown", severity=records.Severity.INFO
        ),
        "corrected": noise(
            uuid.UUID(int=9), during, kind="pcie_aer", code="corrected", severity=records.Severity.INFO
        ),
        "late": noise(uuid.UUID(int=3), example.at("14:41:10") + timedelta(hours=1), severity=low),
    }
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(events=list(events.values()))
    delivery.Delivery(store.connection_uri(), "c", "n7").deliver(
        events=[noise(uuid.UUID(int=4), during, severity=low, node="n7")]
    )
    others = {e.event_id.int for e in read(store.connection_uri(), "4242").others}
    assert others - {79, 80} == {1, 5, 6, 8}


def test_what_the_output_of_a_job_that_completed_names_is_its_own_and_a_first_cause(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """Neither what followed from an error, nor another job's, nor the output of a job that failed: that one has a verdict."""
    fill(store, story)
    failed = example.attempt(1, job_id=7, state="FAILED", start_at=example.at("14:22:00"), nodes=("n1",))
    store.upsert_attempts([failed])
    events = [
        example.event(
            uuid.UUID(int=number), example.at("14:41:10"), node="n1", job_id=job, kind="python_exception",
            source=source, severity=records.Severity.INFO, detail={"first_cause": first},
        )
        for number, (job, source, first) in enumerate(
            ((4242, "joblog", True), (4242, "joblog", False), (4242, "agent", True), (7, "joblog", True)), 1
        )
    ]  # fmt: skip
    moved = dataclasses.replace(events[3], event_id=uuid.UUID(int=5), kind="directory_replaced", detail={})
    events.append(moved)
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(events=events)
    assert [e.event_id.int for e in read(store.connection_uri(), "4242").own_errors] == [1]
    assert read(store.connection_uri(), "7").own_errors == ()
    assert [e.event_id.int for e in read(store.connection_uri(), "7").moved] == [5]


def test_lines_about_tmp_hide_no_error_and_name_each_host_once(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """Every slurmstepd of a large job writes one, for every step."""
    fill(store, story)
    error, *moved = (
        example.event(
            uuid.UUID(int=number), example.at("14:41:10"), node="n1", job_id=4242, kind=kind, source="joblog",
            severity=records.Severity.INFO, detail=detail,
        )
        for number, (kind, detail) in enumerate(
            [("python_exception", {"first_cause": True})]
            + [("directory_replaced", {"host": f"n{n % 30}"}) for n in range(60)], 1
        )
    )  # fmt: skip
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(events=[*moved, error])
    found = read(store.connection_uri(), "4242")
    assert [e.event_id.int for e in found.own_errors] == [1]
    assert sorted({e.detail["host"] for e in found.moved}) == sorted({f"n{n}" for n in range(30)})
    assert len(found.moved) == 30


def test_what_concerns_another_jobs_processes_is_not_told(
    store: db_store.Store, story: rows.ReportRows
) -> None:
    """Two jobs share n2: the kernel's words about the neighbour's processes leave the database with nobody else's report."""
    fill(store, story)
    during, low = example.at("14:10:00"), records.Severity.LOW
    events = [
        example.event(
            uuid.UUID(int=1), during, severity=low, kind="oom", job_id=4242, message="Killed process 7 (mine)"
        ),
        example.event(
            uuid.UUID(int=2), during, severity=low, kind="oom", job_id=99, message="Killed process 8 (secret)"
        ),
        example.event(
            uuid.UUID(int=3),
            during,
            severity=low,
            kind="oom",
            job_id=None,
            message="Killed process 9 (whose?)",
        ),
        example.event(
            uuid.UUID(int=4), during, severity=low, kind="mount", job_id=None, message="/scratch hangs"
        ),
    ]
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(events=events)
    assert {e.event_id.int for e in read(store.connection_uri(), "4242").others} - {79, 80} == {1, 3, 4}
    neighbour = dataclasses.replace(
        story.attempts[0], job_id=99, user="bob", run_key="99", nodes=("n2",),
        start_at=during - timedelta(minutes=1), end_at=during + timedelta(minutes=1),
    )  # fmt: skip
    store.upsert_attempts([neighbour])
    assert {e.event_id.int for e in read(store.connection_uri(), "4242").others} - {79, 80} == {1, 4}


def test_the_pace_of_a_job_comes_with_its_report(store: db_store.Store, story: rows.ReportRows) -> None:
    """Slow ranks are found by the job, whatever their severity; the probe's other events stay out."""
    fill(store, story)
    slow = example.event(
        uuid.UUID(int=901), example.at("14:10:00"), kind="rank_slow", code="compute", source="probe",
        severity=records.Severity.INFO, job_id=4242, detail={"rank": 5},
    )  # fmt: skip
    others = [
        dataclasses.replace(slow, event_id=uuid.UUID(int=902), kind="rank_snapshot"),
        dataclasses.replace(slow, event_id=uuid.UUID(int=903), source="joblog"),
        dataclasses.replace(slow, event_id=uuid.UUID(int=904), job_id=7),
        dataclasses.replace(slow, event_id=uuid.UUID(int=905), at=example.at("01:00:00")),
    ]
    delivery.Delivery(store.connection_uri(), "c", slow.node).deliver(events=[slow, *others])
    found = read(store.connection_uri(), "4242").pace
    assert [(e.event_id, e.detail) for e in found] == [(slow.event_id, {"rank": 5})]


def test_the_stalls_of_a_job_come_with_its_report(store: db_store.Store, story: rows.ReportRows) -> None:
    """Those of this job, with every field."""
    fill(store, story)
    stall = records.GangVerdict(
        gang_id=uuid.UUID(int=1), cluster="c", job_id=4242, submit_at=example.at("14:00:00"), kind="python_loop",
        ranks=(5,), nodes=("n2",), domain=records.Domain.USER_PROGRAM, confidence=records.Confidence.LIKELY,
        summary="rank 5", location="train.py:7", proof=("waits",), evidence=(uuid.UUID(int=2),),
        onset_at=example.at("14:10:00"), made_at=example.at("14:10:12"), detail={"steps": 7},
    )  # fmt: skip
    other = dataclasses.replace(stall, gang_id=uuid.UUID(int=3), job_id=7)
    store.save_gang_verdicts([stall, other])
    assert read(store.connection_uri(), "4242").gangs == (stall,)


@pytest.mark.parametrize(
    ("written", "named", "others"),
    [
        ("900_[1-9:2%4]", (1, 3, 9), (0, 2, 4, 10)),
        ("900_[2,5-7]", (2, 5, 7), (1, 3, 8)),
        ("900_[0-8:4,9]", (0, 4, 8, 9), (2, 7)),
        ("900_[1-9:0]", (1, 2, 9), (10,)),
    ],
)
def test_the_rest_of_an_array_that_never_started_names_its_tasks(
    store: db_store.Store, written: str, named: tuple[int, ...], others: tuple[int, ...]
) -> None:
    """Accounting has one row for it; a task that its step leaves out is not among them."""
    event = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="", at=example.at("14:00:00"), observed_at=example.at("14:00:00"),
        kind=vocabulary.NEVER_STARTED, severity=records.Severity.INFO, job_id=900, source=vocabulary.ACCOUNTING,
        message="",
        detail={"job": written, "state": "CANCELLED", "cancelled_by": "alice", "user": "alice"},
    )  # fmt: skip
    bulk.load_events(store.connection_uri(), [event])
    with psycopg.connect(store.connection_uri()) as link:
        found = {n: query.never_started(link, "c", job_ref.parse(f"900_{n}")) for n in (*named, *others)}
    assert [n for n, words in found.items() if words] == list(named)


def test_an_id_that_nothing_knows_reads_no_other_jobs_events(store: db_store.Store) -> None:
    """Of a task that never started Slurm's own number is known too; whoever gives a wrong one makes nobody's events be read."""
    events = [
        records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node="", at=example.at("14:00:00") - timedelta(minutes=n),
            observed_at=example.at("14:00:00"), kind=vocabulary.NEVER_STARTED, severity=records.Severity.INFO,
            job_id=900 + n, source=vocabulary.ACCOUNTING, message="",
            detail={"job": f"{900 + n}_1", "raw_id": 70_000 + n, "state": "CANCELLED", "user": "alice"},
        )
        for n in range(3000)
    ]  # fmt: skip
    bulk.load_events(store.connection_uri(), events)
    plans: list[str] = []

    class Explained:
        """Notes, for each statement, the plan with the rows that it read."""

        def __init__(self, link: psycopg.Connection[tuple[Any, ...]]) -> None:
            self._link = link

        def execute(self, statement: Any, given: Any = None) -> Any:
            rows = self._link.execute(f"EXPLAIN (ANALYZE) {statement}", given).fetchall()  # type: ignore[arg-type]
            plans.append("\n".join(row[0] for row in rows))
            return self._link.execute(statement, given)

    with psycopg.connect(store.connection_uri(), autocommit=True) as link:
        link.execute("ANALYZE probing.health_event")
        assert query.never_started(Explained(link), "c", job_ref.parse("4242424")) is None
        task = query.never_started(Explained(link), "c", job_ref.parse("70042"))
    assert task is not None
    assert task.job == "942_1"
    assert len(plans) == 4
    assert [plan for plan in plans if "Rows Removed by Filter" in plan] == []


def test_a_noisy_part_hides_no_later_fault(store: db_store.Store) -> None:
    """A month of link errors filled the list with its first two days; the lost GPU at its end was not in it."""
    end = example.at("14:40:00")
    start = end - timedelta(days=40)
    attempt = example.attempt(
        1, job_id=84, state="FAILED", exit_code=1, submit_at=start, eligible_at=start, start_at=start, end_at=end,
        nodes=("n1", "n2"),
    )  # fmt: skip
    store.upsert_attempts([attempt])
    noise = [
        example.event(
            uuid.uuid4(), start + timedelta(hours=k), node="n2", severity=records.Severity.LOW,
            kind="link_errors", code="symbol", message="symbol errors on mlx5_0",
        )
        for k in range(60)
    ]  # fmt: skip
    fault = example.event(
        uuid.UUID(int=9), end - timedelta(hours=3), node="n2", code="79", message="off the bus"
    )
    of_n1 = example.event(
        uuid.UUID(int=8), start + timedelta(hours=1), node="n1", severity=records.Severity.LOW, message="odd"
    )
    delivery.Delivery(store.connection_uri(), "c", "n2").deliver(events=[*noise, fault])
    delivery.Delivery(store.connection_uri(), "c", "n1").deliver(events=[of_n1])
    found = read(store.connection_uri(), "84")
    listed = {e.event_id for e in found.others}
    assert listed == {fault.event_id, of_n1.event_id, *(e.event_id for e in noise[-49:])}
    assert found.left_out == {start: 11}
    report = model.build(job_ref.parse("84"), found, now=example.at("15:00:00"))
    printed = text.render(report)
    printed = printed if isinstance(printed, str) else "\n".join(printed)
    assert "off the bus" in printed
    assert "and 54 more (--json lists the 51 worst)" in printed
    document = json_out.document(report)
    assert document["attempts"][0]["other_events_left_out"] == 11


@pytest.mark.parametrize("written", ["4@2020-01-01", "4_7@2020-01-01T08:00:00Z", "4+1", "4"])
def test_a_job_is_named_as_it_was_written(written: str) -> None:
    """The end of a day is that day, no instant of microseconds."""
    assert str(job_ref.parse(written)) == written


def test_the_component_whose_task_failed_is_read_from_the_output(store: db_store.Store) -> None:
    """srun names the node of a task that failed in the first component's file; another job's and another cluster's lines count nothing."""
    start_at = example.at("14:03:00")
    store.upsert_attempts(
        [
            example.attempt(1, job_id=600 + part, het_job_id=600, het_offset=part, nodes=(node,), start_at=start_at)
            for part, node in enumerate(("n1", "n4"))
        ]
    )  # fmt: skip

    def deliver(cluster: str, job_id: int, host: str) -> None:
        at = start_at + timedelta(minutes=1)
        event = records.HealthEvent(
            event_id=uuid.uuid4(), cluster=cluster, node="n1", at=at, observed_at=at, kind="task_exit", code="",
            severity=records.Severity.INFO, source="joblog", message="", job_id=job_id, detail={"host": host},
        )  # fmt: skip
        delivery.Delivery(store.connection_uri(), cluster, "n1").deliver(events=[event])

    deliver("elsewhere", 600, "n1")
    deliver("c", 700, "n1")
    deliver("c", 600, "n4")
    siblings = read(store.connection_uri(), "600+1").siblings
    assert {s.ref: s.task_failed for s in siblings} == {"600+0": False, "600+1": True}
