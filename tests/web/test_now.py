"""What the page of now makes of many jobs."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import fakes
import web_world

from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.policy import view
from probing_cluster.core import records
from probing_cluster.db import store as db_store
from probing_cluster.reports import phrase
from probing_cluster.web import site
from probing_cluster.web.live import now
from probing_cluster.web.pages import render

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def _job(job_id: int, **changes: Any) -> now.NowJob:
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "ref": str(job_id), "attempt": 1, "user": "ada", "account": "lab", "name": "sweep", "state": "FAILED",
        "cause": "user_error", "domain": "user_program", "kind": "died", "at": NOON - timedelta(seconds=job_id),
    }  # fmt: skip
    return now.NowJob(**values | changes)


def _picture(jobs: list[now.NowJob], **viewer: Any) -> now.Now:
    whole = now.Now(
        at=NOON, fresh=True, why_stale="", accounting_at=NOON, everything=True, jobs=jobs, nodes=[], incidents=[], budget=None
    )  # fmt: skip
    return now.of(web_keys.Viewer(**{"user": "root", "accounts": (), "operator": True} | viewer), whole)


def _death(job_id: int, hours: float = 1.0, **changes: Any) -> tuple[records.JobAttempt, records.Verdict]:
    """An attempt of bob's that ended so many hours ago, and why; both records take their changes."""
    end = datetime.now(UTC) - timedelta(hours=hours)
    values: dict[str, Any] = {
        "cluster": "c", "job_id": job_id, "submit_at": end - timedelta(hours=2), "start_at": end - timedelta(hours=1), "end_at": end, "state": "FAILED",
        "nodes": ("n1",), "n_gpus": 8, "user": "bob", "account": "lab", "name": "sweep", "run_key": str(job_id), "exit_code": 1,
        "cause": "user_error", "domain": records.Domain.USER_PROGRAM, "component": "x", "node": None, "confidence": records.Confidence.LIKELY,
        "summary": "s", "next_step": "Look.", "rules_version": "1", "made_at": end,
    }  # fmt: skip
    values |= changes
    of_both = [{f.name for f in dataclasses.fields(kind)} for kind in (records.JobAttempt, records.Verdict)]
    attempt, verdict = ({k: v for k, v in values.items() if k in names} for names in of_both)
    return records.JobAttempt(**attempt), records.Verdict(**verdict)


def _listed(
    store: db_store.Store, deaths: list[tuple[records.JobAttempt, records.Verdict]]
) -> list[now.NowJob]:
    """The page's list of these deaths; one without a cause has no verdict yet."""
    store.upsert_attempts([attempt for attempt, _ in deaths])
    store.save_verdicts([verdict for _, verdict in deaths if verdict.cause])
    return sorted(map(now.job_of, store.rows(site.statement("now_jobs"), {"cluster": "c"})), key=now._urgency)


def test_the_tasks_of_an_array_that_died_of_the_same_are_one_card(store: db_store.Store) -> None:
    """The latest stands for all; another cause, node, owner, name or state, or no cause yet, stands by itself."""
    tasks = [_death(n, 1 + n / 100) for n in range(1, 41)]
    gpu = {"cause": "gpu_lost", "domain": records.Domain.HARDWARE}
    others: list[dict[str, Any]] = [
        gpu | {"node": "n2"}, gpu | {"node": "n3"}, {"user": "ada"}, {"name": "other"}, {"state": "TIMEOUT"}, {"cause": ""}, {"cause": ""},
    ]  # fmt: skip
    jobs = _listed(store, [*tasks, *(_death(50 + n, **changes) for n, changes in enumerate(others))])
    found = {job.job_id: job.n_alike for job in jobs}
    assert found == {1: 39} | {50 + n: 0 for n in range(len(others))}
    assert _picture(jobs).n_more_jobs == 0


def test_no_flood_of_others_deaths_hides_a_job(store: db_store.Store) -> None:
    """An array of 1,100 tasks and 60 jobs under names of their own, and before them a large job that a lost node ended: nothing is left uncounted."""
    lost = {"state": "NODE_FAIL", "cause": "node_lost", "domain": records.Domain.HARDWARE, "node": "n7"}
    large = _death(1, 3, user="alice", account="other", name="llm", n_gpus=8000, **lost)
    tasks = [_death(1000 + n, 0.9) for n in range(1100)]
    jobs = _listed(store, [large, *tasks, *(_death(3000 + n, name=f"run{n}") for n in range(60))])
    for viewer, n in (
        ({}, 1161),
        ({"operator": False, "user": "alice"}, 1),
        ({"operator": False, "user": "bob"}, 1160),
        ({"operator": False, "user": "carl", "accounts": ("lab",)}, 1160),
    ):
        picture = _picture(jobs, **viewer)
        assert len(picture.jobs) <= now.SHOWN
        assert picture.n_own == min(n, 1160) * (n != 1)
        assert sum(1 + j.n_alike for j in picture.jobs) + picture.n_more_jobs == n
        assert (picture.jobs[0].job_id == 1) is (n != 1160)
        assert max(j.n_alike for j in picture.jobs) == (0 if n == 1 else 1099)


def test_a_job_that_asks_for_nothing_comes_last() -> None:
    """A preempted job has no domain, and would stand above what its owner has to mend."""
    jobs = [
        _job(1, state="PREEMPTED", cause="preempted", domain="unknown", next_step="Nothing: Slurm preempted it."),
        _job(2, next_step="Look at the program's own output."),
        _job(3, cause="node_refused", domain="hardware", next_step="Nothing for the job. Repair n4: it was refused before the job began."),
        _job(4, kind="slow"),
    ]  # fmt: skip
    assert [j.job_id for j in sorted(jobs, key=now._urgency)] == [4, 3, 2, 1]


def test_what_a_repair_has_ended_is_no_next_step(store: db_store.Store) -> None:
    """Once the node came back tested; not where it came back before the end, is in repair again, or a person ended the repair. A person's word that it is repaired is as good."""
    end_at = fakes.NOW - timedelta(hours=1)
    starts = [
        records.JobAttempt(
            cluster="c", job_id=n, attempt=1, submit_at=end_at - timedelta(hours=1), eligible_at=end_at - timedelta(hours=1),
            start_at=end_at - timedelta(hours=1), end_at=end_at, user="ada", account="lab", partition="gpu", name="x", n_gpus=8,
            state="FAILED", nodes=(f"n{n}",),
        )
        for n in range(7)
    ]  # fmt: skip
    store.upsert_attempts(starts)
    store.save_verdicts([
        records.Verdict(
            cluster="c", job_id=a.job_id, submit_at=a.submit_at, attempt=1, cause="gpu_lost", domain=records.Domain.HARDWARE, component="gpu",
            node=a.nodes[0], device="gpu3", confidence=records.Confidence.CERTAIN, summary="It fell off the bus.",
            next_step="Reseat or replace GPU 3.", rules_version="1", made_at=end_at,
        )
        for a in starts
    ])  # fmt: skip
    minute = timedelta(minutes=1)
    mount = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n6", at=end_at + 39 * minute, observed_at=end_at + 39 * minute, kind="mount", code="missing",
        severity=records.Severity.LOW, source="checks", message="it is gone", device="/scratch",
    )  # fmt: skip
    fakes.deliver(store, "n6", mount)
    of_mount = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n6", at=end_at + 40 * minute, action="drain", reason="probing: mount missing /scratch",
        owner="probing", state="done", event_ids=(mount.event_id,),
    )  # fmt: skip
    store.add_drain(of_mount)
    for node, state, opened_at, closed_at in (
        ("n0", "returned", end_at, end_at + 30 * minute),
        ("n1", "returned", end_at - 30 * minute, end_at - minute),
        ("n2", "returned", end_at, end_at + 30 * minute),
        ("n2", "queued", end_at + 40 * minute, None),
        ("n3", "lifted", end_at, end_at + 30 * minute),
        ("n6", "queued", end_at + 40 * minute, None),
    ):
        store.open_incident(
            records.RepairIncident(
                incident_id=uuid.uuid4(), cluster="c", node=node, drain_id=of_mount.drain_id if node == "n6" else uuid.uuid4(), reason="probing: xid 79 gpu3", cause="gpu",
                state=state, opened_at=opened_at, changed_at=opened_at, closed_at=closed_at,
            )
        )  # fmt: skip
    store.add_notes(
        records.OperatorNote(
            note_id=uuid.uuid4(), cluster="c", at=end_at + after, author="ada", subject=f"node:{n}", action="repaired"
        )
        for n, after in (("n2", 30 * minute), ("n4", -minute), ("n5", minute), ("n6", minute), ("n6", 45 * minute))
    )  # fmt: skip
    rows = store.rows(site.statement("now_jobs"), {"cluster": "c"})
    steps = {job.node: job.next_step for job in map(now.job_of, rows)}
    assert steps.pop("n0") == (
        f"n0 passed every test of its repair and came back into service at {phrase.stamp_z(end_at + 30 * minute)}."
    )
    for node in ("n5", "n6"):  # n6 is out for its mount since: its GPU stays repaired
        noted = f"{node} was noted as repaired at {phrase.stamp_z(end_at + minute)}."
        assert steps.pop(node) == noted
    assert steps == dict.fromkeys(("n1", "n2", "n3", "n4"), "Reseat or replace GPU 3.")


def _node(**changes: Any) -> dict[str, Any]:
    row = {
        "cluster": "c", "node": "n4", "state": "silent", "faults": {}, "jobs": [17], "failing": [], "drained": False,
        "drain_reason": None, "drained_at": None, "silent_since": NOON, "lemon_score": None, "lemon_verdict": None,
    }  # fmt: skip
    return row | changes


DOWN = view.Node(name="n4", states=frozenset({"DOWN", "NOT_RESPONDING"}), reason="Not responding")


def test_only_an_attempt_that_has_not_ended_runs_on_a_node() -> None:
    """Its last heartbeat still has job 17: Slurm ended that attempt, and the next one waits or runs elsewhere."""
    job = {"job_id": 17, "ref": "11_2", "user": "ada", "name": "train"}
    for on_nodes, state, n in (([], "silent", 0), (["n1"], "silent", 0), (["n4"], "silent", 1)):
        found = now.node_of(_node(state=state), {17: job | {"on_nodes": on_nodes}}, None, None, DOWN)
        assert [j["ref"] for j in found.jobs] == ["11_2"] * n
    assert not now.node_of(_node(), {}, None, None, DOWN).jobs
    assert now.node_of(_node(state="faulty"), {}, None, None, None).jobs, "accounting has not read it yet"


def test_slurms_state_of_a_silent_node_is_said_with_its_way_back() -> None:
    found = now.node_of(_node(), {}, None, None, DOWN)
    assert "Slurm has it DOWN+NOT_RESPONDING (Not responding)" in found.causes
    assert found.next_step == (
        "Slurm has it DOWN+NOT_RESPONDING: find out why it is down; once it answers: scontrol update NodeName=n4 State=RESUME."
    )
    booted = view.Node(name="n4", states=frozenset({"DOWN"}), reason="Node unexpectedly rebooted")
    for state in ("silent", "drained"):
        assert now.node_of(_node(state=state, drained=True), {}, None, None, booted).next_step == (
            "Slurm holds it DOWN since it booted unasked: see why it booted; scontrol update NodeName=n4 State=RESUME returns it untested"
            " (with ReturnToService=2 in slurm.conf such a node returns by itself)."
        )
    by_alice = view.Node(name="n4", states=frozenset({"DOWN"}), reason="alice: pdu work")
    assert now.node_of(_node(), {}, None, None, by_alice).next_step == (
        "Another set it DOWN (alice: pdu work): ask them; scontrol update NodeName=n4 State=RESUME brings it back."
    )
    assert "start its agent" in now.node_of(_node(), {}, None, None, None).next_step


def test_each_broken_part_has_its_next_step() -> None:
    """The signs of one part are one step; of more than two parts the rest are counted."""
    high = {"severity": "high", "message": ""}
    lost = {"kind": "gpu_lost", "device": "gpu3", **high}
    faults = {"gpu_lost:gpu3": lost, "xid:79:gpu3": {"kind": "xid", "code": "79", "device": "gpu3", **high}}
    one = now.node_of(_node(state="faulty"), {}, None, None, None).next_step
    assert "gpu" not in one.lower()
    row = _node(state="faulty", faults=faults)
    assert now.node_of(row, {}, None, None, None).next_step.count("GPU 3 of n4") == 1
    faults["gpu_lost:gpu5"] = lost | {"device": "gpu5"}
    two = now.node_of(row, {}, None, None, None).next_step
    assert ("GPU 3 of n4" in two, "GPU 5 of n4" in two, "more" in two) == (True, True, False)
    faults["gpu_lost:gpu6"] = lost | {"device": "gpu6"}
    assert now.node_of(row, {}, None, None, None).next_step.endswith(" And 1 more, on the node's page.")


def test_the_sign_that_names_a_fault_says_what_mends_it() -> None:
    """As the report of the job does; a check alone has its own step, and a sign of no known kind leaves it to the others."""
    check = {"kind": "check", "code": "gpu_xid", "device": "gpu0", "severity": "high", "message": ""}
    lost = {"kind": "xid", "code": "79", "device": "gpu0", "severity": "high", "message": ""}
    for faults, words in (
        ({"check:gpu0": check, "xid:gpu0": lost}, "Reseat or replace GPU 0 of n4"),
        ({"check:gpu0": check}, "`probing-ctl classify`"),
    ):
        found = now.node_of(_node(state="faulty", faults=faults), {}, None, None, None)
        assert found.next_step.startswith(words)
        assert "And 1 more" not in found.next_step


def test_a_node_without_its_driver_is_not_asked_for_its_gpus() -> None:
    driver = {
        "kind": "driver",
        "code": "DRIVER_NOT_LOADED",
        "device": "nvml",
        "severity": "high",
        "message": "",
    }
    count = {"kind": "check", "code": "gpu_count", "device": "gpu_count", "severity": "high", "message": ""}
    faults = {"driver:nvml": driver, "check:gpu_count": count}
    step = now.node_of(_node(state="faulty", faults=faults), {}, None, None, None).next_step
    assert step.startswith("Reload the GPU driver of n4")
    assert "reseat" not in step
    assert (
        "power-cycle"
        in now.node_of(
            _node(state="faulty", faults={"check:gpu_count": count}), {}, None, None, None
        ).next_step
    )


def test_a_node_whose_drain_was_denied_is_said_to_be_in_service() -> None:
    """With why, and with what drains it; not once it is out."""
    denied = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n4", at=NOON, action="drain", reason="probing: xid 79", owner="probing",
        state="denied", why_state="budget: 2 of 2 nodes of the cluster taken within 86400 s",
    )  # fmt: skip
    assert now.node_of(_node(state="faulty"), {}, None, denied, None).not_drained == (
        "still in service, not drained: budget: 2 of 2 nodes of the cluster taken within 86400 s; "
        "by hand: probing-ctl drain n4 --reason WHY"
    )
    assert not now.node_of(_node(state="drained", drained=True), {}, None, denied, None).not_drained
    assert not now.node_of(_node(), {}, None, denied, DOWN).not_drained


def test_a_node_that_may_refuse_jobs_is_said_to_be_in_service(world: web_world.World) -> None:
    """Also where no drain was denied; not once the fault is over, or the node is out."""
    service, at = world.site.service, datetime.now(UTC)
    fault = records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n4", at=at, observed_at=at, kind="xid", code="79",
        severity=records.Severity.HIGH, source="kernel", message="fell off the bus", device="gpu0",
    )  # fmt: skip
    given = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n4", at=at, action="refuse", reason="probing: xid 79 gpu0", owner="probing",
        state="done", event_ids=(fault.event_id,),
    )  # fmt: skip
    service.store.save_drain(given)
    words = "still in service; its Prolog may refuse jobs for xid 79 gpu0; by hand: probing-ctl drain n4 --reason WHY"
    fakes.deliver(service.store, "n4", fault)
    assert [n.not_drained for n in now.gather(world.site).nodes if n.node == "n4"] == [words]
    fakes.deliver(service.store, "n4")
    assert not any(n.not_drained for n in now.gather(world.site).nodes)
    assert not now.node_of(_node(), {}, None, None, DOWN, given).not_drained


def test_a_drain_of_anothers_names_whom_to_ask_and_what_lifts_it() -> None:
    """set-healthy lifts none but ours; also while Slurm does not answer."""
    row = _node(state="drained", drained=True, drain_reason="nvme swap, bob")
    theirs = view.Node(name="n4", states=frozenset({"IDLE", "DRAIN"}), reason="nvme swap, bob")
    for slurm in (theirs, None):
        assert now.node_of(row, {}, None, None, slurm).next_step == (
            "Its drain is another's (nvme swap, bob): ask them; scontrol update NodeName=n4 State=RESUME lifts it."
        )
    slurms = dataclasses.replace(theirs, reason="Kill task failed")
    assert now.node_of(row, {}, None, None, slurms).next_step.startswith(
        "Slurm drained it by itself (Kill task"
    )
    for ours in (dataclasses.replace(theirs, reason="probing: xid 79"), None):
        found = now.node_of(row | {"drain_reason": "probing: xid 79"}, {}, None, None, ours)
        assert found.next_step.endswith("probing-ctl set-healthy n4.")


def test_the_worst_nodes_are_within_the_limit(store: db_store.Store) -> None:
    """Of a cluster where hundreds of nodes are drained, the one with a fault is listed, whatever its name."""
    for name in ("a1", "a2"):
        fakes.deliver(store, name)
        drain = records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node=name, at=fakes.NOW, action="drain", reason="probing: fan (ada)",
            owner="ada", state="done",
        )  # fmt: skip
        store.save_drain(drain)
    fakes.deliver(
        store,
        "z9",
        records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node="z9", at=fakes.NOW, observed_at=fakes.NOW, kind="xid", code="79",
            severity=records.Severity.HIGH, source="kernel", message="fell off the bus", device="gpu3",
        ),
    )  # fmt: skip
    found = store.rows(site.statement("now_nodes"), {"cluster": "c"})
    assert [(row["node"], row["state"]) for row in found] == [
        ("z9", "faulty"),
        ("a1", "drained"),
        ("a2", "drained"),
    ]


def test_a_card_has_the_name_of_what_exactly_happened() -> None:
    """Not that of its cause in general."""
    jobs = [
        _job(1, cause="system_services", domain="unknown", component="licences"),
        _job(2, cause="system_services", domain="system_software", component="services"),
        _job(3, cause="unknown", domain="unknown", component="policy"),
    ]
    template = render.environment().get_template("now_body.html.j2")
    page = template.render(picture=_picture(jobs), prefix="")
    for name in ("licences in use", "system services", "requeued by the policy"):
        assert page.count(f"<strong>{name}</strong>") == 1


def test_of_the_jobs_that_died_those_of_their_own_programs_are_counted() -> None:
    """Most of a day's deaths are no concern of who looks after the nodes."""
    template = render.environment().get_template("now_body.html.j2")
    lost = _job(90, cause="gpu_lost", domain="hardware", node="n2")
    page = template.render(picture=_picture([_job(1), _job(2), _job(3, name="fit"), lost]), prefix="")
    assert "<dd>4 <small>3 by their programs</small></dd>" in page
    many = [_job(n, name=f"run{n}") for n in range(now.SHOWN + 5)]
    page = template.render(picture=_picture(many), prefix="")
    assert f"<dd>{now.SHOWN + 5} <small>{now.SHOWN + 5} by their programs</small></dd>" in page
    assert "by their programs" not in template.render(picture=_picture([lost]), prefix="")
