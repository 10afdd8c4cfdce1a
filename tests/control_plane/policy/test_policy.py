from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.attribution.places import layout, scan
from probing_cluster.attribution.verdict import signatures
from probing_cluster.control_plane.policy import budget, policy, shared_part, simulate, view
from probing_cluster.control_plane.service import picture
from probing_cluster.core import clock, records, settings, vocabulary
from probing_cluster.healthchecks import registry

NOW = datetime(2026, 11, 21, 14, 20, 40, tzinfo=UTC)
START = NOW - timedelta(minutes=20)
GPU = "GPU-3"
ENFORCE = settings.PolicySettings(
    observe_only=False,
    budget_nodes=5,
    budget_frac=1.0,
    budget_partition_frac=1.0,
    drained_frac=1.0,
    drained_partition_frac=1.0,
    common_frac=1.0,
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def event(n: int = 1, node: str = "n2", **changes: object) -> records.HealthEvent:
    values: dict[str, object] = {
        "event_id": uuid.UUID(int=n),
        "cluster": "c",
        "node": node,
        "at": ago(5),
        "observed_at": ago(5),
        "kind": "xid",
        "code": "79",
        "severity": records.Severity.HIGH,
        "device": "gpu3",
        "gpu_uuid": GPU,
        "source": "kernel",
        "message": "fallen off the bus",
    }
    return records.HealthEvent(**(values | changes))


def fault(e: records.HealthEvent) -> dict[str, object]:
    return {
        "severity": str(e.severity),
        "event_id": str(e.event_id),
        "event_ids": [str(e.event_id)],
        "code": e.code,
        "since": clock.iso_z(e.at),
    }


def beat(node: str, *events: records.HealthEvent, **changes: object) -> records.AgentHeartbeat:
    faults = {f"{e.kind}:{e.device or ''}": fault(e) for e in events}
    values: dict[str, object] = {"cluster": "c", "node": node, "at": ago(1), "faults": faults}
    return records.AgentHeartbeat(**(values | changes))


def node(name: str, **changes: object) -> view.Node:
    values: dict[str, object] = {
        "name": name,
        "states": frozenset({"ALLOCATED"}),
        "partitions": ("gpu",),
        "n_gpus": 8,
    }
    return view.Node(**(values | changes))


def job(job_id: int = 4242, **changes: object) -> view.ActiveJob:
    values: dict[str, object] = {"job_id": job_id, "start_at": START, "nodes": ("n1", "n2")}
    return view.ActiveJob(**(values | changes))


def holds(job_id: int = 4242, *uuids: str, at_node: str = "n2", **changes: object) -> records.JobAllocation:
    values: dict[str, object] = {
        "cluster": "c", "node": at_node, "job_id": job_id, "at": START, "gpu_uuids": uuids or (GPU,),
    }  # fmt: skip
    return records.JobAllocation(**(values | changes))


def drain(node_name: str = "n9", at_s: float = 60, **changes: object) -> records.Drain:
    values: dict[str, object] = {
        "drain_id": uuid.uuid4(), "cluster": "c", "node": node_name, "at": ago(at_s), "action": "drain",
        "reason": "probing: xid 79 gpu3", "owner": "probing", "state": "done",
    }  # fmt: skip
    return records.Drain(**(values | changes))


def fleet_view(**changes: object) -> view.View:
    """Case 2 of the spine: Xid 79 on GPU 3 of n2, confirmed, under job 4242 on n1 and n2."""
    first = event()
    values: dict[str, object] = {
        "now": NOW,
        "events": (first,),
        "heartbeats": {"n2": beat("n2", first), "n1": beat("n1")},
        "silent_s": {"n1": 1.0, "n2": 1.0},
        "nodes": {name: node(name) for name in ("n1", "n2", "n3", "n4")},
        "jobs": (job(),),
        "allocations": (holds(),),
    }
    return view.View(**(values | changes))


def acts(state: view.View, config: settings.PolicySettings = ENFORCE) -> list[tuple[str, str | int]]:
    """What is to be done, permissions to refuse left out: (action, node or job)."""
    return [
        (d.action, d.job.job_id if d.job else d.node)
        for d in policy.decide(state, config)
        if not d.held and d.action != "refuse"
    ]


def held(state: view.View, config: settings.PolicySettings = ENFORCE) -> list[tuple[str, str, str]]:
    return [(d.action, d.held, d.why) for d in policy.decide(state, config) if d.held]


BOTH = [("drain", "n2"), ("requeue", 4242)]


def test_a_confirmed_high_fault_drains_its_node_and_requeues_the_job_on_it() -> None:
    """The spine's case: only n2 is drained, the job is requeued, n1 is left alone."""
    made = policy.decide(fleet_view(), ENFORCE)
    assert [d.action for d in made] == ["drain", "requeue"]
    assert acts(fleet_view()) == BOTH
    assert {d.reason for d in made} == {"probing: xid 79 gpu3"}
    assert all(d.event_ids == (uuid.UUID(int=1),) for d in made)


def test_low_severity_drains_and_requeues_nothing() -> None:
    """Low: State=DRAIN now; running jobs finish."""
    low = event(severity=records.Severity.LOW)
    assert acts(fleet_view(events=(low,), heartbeats={"n2": beat("n2", low)})) == [("drain", "n2")]


def test_info_does_nothing() -> None:
    """Info is kept as evidence only."""
    info = event(severity=records.Severity.INFO)
    assert policy.decide(fleet_view(events=(info,), heartbeats={"n2": beat("n2", info)}), ENFORCE) == ()


@pytest.mark.parametrize("age_s", [301, 3600, -301])
def test_an_event_that_is_not_fresh_is_evidence_only(age_s: float) -> None:
    """Older than fresh_s, or further ahead than that, it drains nothing and requeues nothing."""
    stale = event(at=ago(age_s), observed_at=ago(age_s))
    assert acts(fleet_view(events=(stale,), heartbeats={"n2": beat("n2", stale, at=ago(-400))})) == []


def test_freshness_is_a_setting() -> None:
    """fresh_s moves the limit."""
    older = event(at=ago(400), observed_at=ago(400))
    state = fleet_view(events=(older,), heartbeats={"n2": beat("n2", older)})
    assert acts(state, dataclasses.replace(ENFORCE, fresh_s=600)) == BOTH


@pytest.mark.parametrize("source", ["joblog", "probe", "dump", "import", "agent"])
def test_what_a_job_or_a_file_says_never_acts(source: str) -> None:
    """Only what the node's root alone can write may cause an action."""
    assert acts(fleet_view(events=(event(source=source),))) == []


@pytest.mark.parametrize("source", ["kernel", "nvml", "sysfs", "mount", "check", "service", "ipmi"])
def test_every_source_of_the_node_itself_may_act(source: str) -> None:
    """The list of acting sources is whole."""
    assert acts(fleet_view(events=(event(source=source),))) == BOTH


@pytest.mark.parametrize(
    ("beats", "silent"),
    [
        ({}, {}),
        ({"n2": beat("n2")}, {"n2": 1.0}),
        ({"n2": beat("n2", event())}, {}),
        ({"n2": beat("n2", event())}, {"n2": 31.0}),
        ({"n2": beat("n2", event(), at=ago(10))}, {"n2": 1.0}),
        ({"n1": beat("n1", event())}, {"n1": 1.0}),
    ],
    ids=[
        "no beat",
        "fault gone",
        "age unknown",
        "agent silent",
        "beat older than the event",
        "another node's beat",
    ],
)
def test_a_fault_not_confirmed_by_the_present_state_does_nothing(beats: object, silent: object) -> None:
    """The latest heartbeat of that node, heard just now, must still list the fault."""
    assert acts(fleet_view(heartbeats=beats, silent_s=silent)) == []


def link(since_s: float, **changes: object) -> view.View:
    """An InfiniBand link of n2 that has been down for `since_s`, by the latest beat (1 s old)."""
    down = event(
        kind="ib_link",
        code="down",
        device="mlx5_2",
        gpu_uuid=None,
        at=ago(since_s + 1),
        observed_at=ago(since_s + 1),
    )
    row = fault(down) | changes
    return fleet_view(events=(down,), heartbeats={"n2": beat("n2", faults={"ib_link:mlx5_2": row})})


@pytest.mark.parametrize(("since_s", "expected"), [(14.0, []), (15.0, BOTH)])
def test_a_link_that_may_come_back_acts_only_once_it_has_stood(since_s: float, expected: object) -> None:
    """A link retrains, a file server fails over: until hold_s has passed nothing is drained, requeued or refused."""
    assert acts(link(since_s)) == expected
    assert refusals(link(since_s)) == []


def test_a_link_that_flaps_has_not_stalled_since_its_first_flap() -> None:
    """What the kernel said stands since it was last said."""
    flapping = link(60.0, latched=True, confirmed_at=clock.iso_z(ago(3)))
    assert acts(flapping) == []
    still = link(60.0, latched=True, confirmed_at=clock.iso_z(ago(30)))
    assert acts(still) == BOTH


def test_a_held_fault_lets_no_prolog_refuse() -> None:
    """The permission to refuse waits as the drain does."""
    assert refusals(dataclasses.replace(link(5.0), events=())) == []
    assert refusals(dataclasses.replace(link(20.0), events=())) == [("n2", "")]


def test_what_is_held_is_a_setting() -> None:
    """hold_kinds and hold_s move the rule."""
    assert acts(link(5.0), dataclasses.replace(ENFORCE, hold_s=5.0)) == BOTH
    assert acts(link(0.0), dataclasses.replace(ENFORCE, hold_kinds=())) == BOTH
    assert acts(fleet_view(), dataclasses.replace(ENFORCE, hold_kinds=("xid",))) == []


def failing_check(
    code: str, confirmed_s: float | None, severity: records.Severity = records.Severity.HIGH
) -> view.View:
    """A check of n2 that fails for a minute, by a sweep; a second one found the same so many seconds after it."""
    found = event(
        kind="check", code=code, device="part", gpu_uuid=None, source="check", at=ago(61), observed_at=ago(61),
        severity=severity,
    )  # fmt: skip
    again = None if confirmed_s is None else clock.iso_z(ago(61 - confirmed_s))
    row = fault(found) | {"confirmed_at": again}
    return fleet_view(events=(found,), heartbeats={"n2": beat("n2", faults={"check:part": row})})


@pytest.mark.parametrize("code", sorted(vocabulary.KIND_OF_CHECK))
@pytest.mark.parametrize(("confirmed_s", "expected"), [(None, []), (0.0, []), (14.0, []), (15.0, BOTH)])
def test_a_check_of_a_link_or_mount_acts_only_once_a_later_sweep_has_found_the_same(
    code: str, confirmed_s: float | None, expected: object
) -> None:
    """A heartbeat repeats what the last sweep found: a link that was down for two seconds of it is up again."""
    assert acts(failing_check(code, confirmed_s)) == expected
    waits = dataclasses.replace(failing_check(code, confirmed_s), events=(), jobs=())
    assert refusals(waits) == ([("n2", "")] if expected else [])


def test_a_check_of_what_does_not_end_by_itself_acts_at_once() -> None:
    """A GPU that is gone is gone; what is held is a setting for checks, too."""
    assert acts(failing_check("gpu_count", 0.0)) == BOTH
    assert acts(failing_check("ib_link", 0.0), dataclasses.replace(ENFORCE, hold_kinds=())) == BOTH
    low = failing_check("mount_responsive", 0.0, records.Severity.LOW)
    assert acts(low) == []


def test_every_check_that_stands_for_a_kind_is_one_and_each_that_finds_a_link_or_mount_gone_is_held() -> None:
    """The names are those of the register; a check that finds the same as a held kind is held as it is."""
    checks = registry.load()
    assert set(vocabulary.KIND_OF_CHECK) <= set(checks)
    held_causes = {signatures.find(k, None, records.Severity.HIGH).cause for k in ENFORCE.hold_kinds}
    alike = {
        name
        for name in checks
        if (found := signatures.find("check", name, records.Severity.HIGH)).cause in held_causes
        and found.role is signatures.Role.ROOT
    }
    assert alike == set(vocabulary.KIND_OF_CHECK)


def test_a_repeating_fault_is_confirmed_by_part_and_code() -> None:
    """The agent remembers few event ids; kind, device and code name the fault as well, another code does not."""
    other = event(2)
    assert acts(fleet_view(heartbeats={"n2": beat("n2", other)})) == BOTH
    assert acts(fleet_view(heartbeats={"n2": beat("n2", event(2, code="48"))})) == []


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ({"IDLE", "DRAIN"}, "rack move"),
        ({"ALLOCATED", "DRAIN"}, "rack move"),
        ({"DOWN"}, ""),
        ({"IDLE", "MAINT"}, ""),
        ({"IDLE", "MAINTENANCE"}, ""),
        ({"FAIL"}, "x"),
        ({"IDLE", "DRAIN"}, ""),
        ({"DOWN", "DRAIN"}, "probing: xid 79 gpu3"),
        ({"IDLE"}, "watch me: alice"),
        ({"IDLE", "REBOOT_REQUESTED"}, "kernel update"),
        ({"IDLE", "INVALID_REG"}, "gres/gpu count reported lower than configured (7 < 8)"),
        ({"IDLE", "DRAIN"}, "probing:typed by hand"),
    ],
)
def test_what_is_anothers_is_never_touched(states: set[str], reason: str) -> None:
    """A node drained, down, failed, in maintenance or noted by somebody else stays as it was, and so do its jobs."""
    state = fleet_view(nodes={"n1": node("n1"), "n2": node("n2", states=frozenset(states), reason=reason)})
    assert acts(state) == []
    assert [(a, h) for a, h, _ in held(state)] == [("drain", "skipped")]
    assert [d for d in policy.decide(state, ENFORCE) if d.action == "refuse"] == []


def test_a_node_slurm_does_not_know_is_left_alone() -> None:
    """Without the node in Slurm's answer nothing is done."""
    assert acts(fleet_view(nodes={"n1": node("n1")})) == []


def test_a_node_already_drained_by_us_is_not_drained_again_but_its_job_is_requeued() -> None:
    """A hard fault on a node drained for a low one still frees the job."""
    state = fleet_view(
        nodes={"n2": node("n2", states=frozenset({"ALLOCATED", "DRAIN"}), reason="probing: ib_link mlx5_0")}
    )
    assert acts(state) == [("requeue", 4242)]


@pytest.mark.parametrize(
    ("running", "why"),
    [
        (job(batch=False), "it is interactive"),
        (job(requeue=False), "it was submitted with --no-requeue"),
        (job(required_nodes=("n2",)), "it asks for n2 by name (--nodelist) and would wait for it"),
        (job(start_at=ago(3)), "it started after the fault"),
        (job(start_at=None), "it started after the fault"),
        (job(restart_count=1), "which GPUs it holds is not known"),
        (job(restart_count=1, n_gpus=0), "it holds no GPU"),
        (job(restart_count=1, n_gpus=8), "which GPUs it holds is not known"),
        (job(state="COMPLETING"), "it does not run on the node"),
    ],
)
def test_jobs_that_must_not_be_requeued_are_spared_with_the_reason(running: view.ActiveJob, why: str) -> None:
    """--no-requeue, interactive, bound to the node by name, later attempts and other attempts' allocations: the drain stands, the job lives."""
    assert acts(fleet_view(jobs=(running,))) == [("drain", "n2")]
    assert held(fleet_view(jobs=(running,))) == [("requeue", "skipped", why)]


def test_of_two_jobs_on_a_node_only_the_holder_of_the_gpu_is_requeued() -> None:
    """One Xid, one victim: the neighbour's life goes on."""
    state = fleet_view(
        jobs=(job(1, nodes=("n2",)), job(2, nodes=("n2",))), allocations=(holds(1, "GPU-0"), holds(2, GPU))
    )
    assert acts(state) == [("drain", "n2"), ("requeue", 2)]
    assert held(state) == [("requeue", "skipped", "it does not hold the GPU")]


def test_of_two_prologs_of_one_start_the_later_one_names_the_gpus() -> None:
    """The first ran before the node was rebooted for the job, and its GPUs may have had other numbers."""
    first, second = holds(4242, "GPU-0", at=START), holds(4242, GPU, at=START + timedelta(seconds=30))
    for order in ((first, second), (second, first)):
        assert acts(fleet_view(allocations=order)) == BOTH


def test_what_a_drain_has_answered_is_looked_at_now_and_then() -> None:
    """A person may have changed something in Slurm; also where nothing is carried out."""
    done = drain("n2", 600, event_ids=(uuid.UUID(int=1),))
    for config in (ENFORCE, dataclasses.replace(ENFORCE, observe_only=True)):
        assert picture.asks_for_more(fleet_view(drains=(done,)), config, again=False) is False
        assert picture.asks_for_more(fleet_view(drains=(done,)), config, again=True)


def test_a_fault_of_the_node_hits_every_job_on_it() -> None:
    """A lost mount concerns everybody on the node, whatever GPUs they hold."""
    mount = event(
        kind="mount", code=None, device="/scratch", gpu_uuid=None, source="mount", at=ago(40), observed_at=ago(40)
    )  # fmt: skip
    state = fleet_view(
        events=(mount,), heartbeats={"n2": beat("n2", mount)}, allocations=(),
        jobs=(job(1, nodes=("n2",), n_gpus=0), job(2, nodes=("n2", "n3")), job(3, nodes=("n3",))),
    )  # fmt: skip
    assert acts(state) == [("drain", "n2"), ("requeue", 1), ("requeue", 2)]


@pytest.mark.parametrize(
    ("changes", "allocation", "expected"),
    [
        ({"gpu_uuid": None}, holds(), [("drain", "n2")]),
        ({"gpu_uuid": None, "device": None}, holds(), [("drain", "n2")]),
        ({"gpu_uuid": None}, holds(4242, *[f"GPU-{i}" for i in range(8)]), BOTH),
        ({}, holds(gpu_uuids=None), [("drain", "n2")]),
        ({}, holds(at_node="n1"), [("drain", "n2")]),
    ],
    ids=["GPU not named", "nothing named", "job holds all", "allocation unknown", "held on another node"],
)
def test_on_a_guess_no_job_is_requeued(
    changes: dict[str, object], allocation: object, expected: object
) -> None:
    """A GPU fault convicts only a job known to hold that GPU."""
    guess = event(**changes)
    state = fleet_view(events=(guess,), heartbeats={"n2": beat("n2", guess)}, allocations=(allocation,))
    assert acts(state) == expected


def test_requeue_can_be_switched_off() -> None:
    """policy.requeue = false leaves the drain only."""
    assert acts(fleet_view(), dataclasses.replace(ENFORCE, requeue=False)) == [("drain", "n2")]


@pytest.mark.parametrize(
    ("past", "again"),
    [
        ([("requeue", 100, 4242), ("requeue", 200, 4242), ("requeue", 300, 4242)], False),
        ([("restart", 100, 4242), ("requeue", 200, 4242), ("restart", 300, 4242)], False),
        ([("requeue", 100, 4242), ("requeue", 200, 4242), ("requeue", 86401, 4242)], True),
        ([("requeue", 100, 4242), ("requeue", 200, 4242), ("requeue", 300, 7)], True),
        ([("requeue", 100, 4242), ("requeue", 200, 4242), ("drain", 300, 4242)], True),
    ],
    ids=["requeued", "after its ends, too", "a day ago", "another job", "a drain"],
)
def test_a_job_is_requeued_off_drained_nodes_no_more_often_than_a_run_may_be_restarted(
    past: list[tuple[str, float, int]], again: bool
) -> None:
    """The node is drained, the job stays where it is, and why is on record."""
    rows = [drain("n9", at_s, action=action, job_id=job_id) for action, at_s, job_id in past]
    undone = drain("n9", 50, action="requeue", job_id=4242, state="skipped")
    state = fleet_view(drains=(*rows, undone))
    assert acts(state) == (BOTH if again else [("drain", "n2")])
    why = "budget: its run was restarted 3 of 3 times within 24 h"
    assert held(state) == ([] if again else [("requeue", "denied", why)])


def test_a_job_on_two_broken_nodes_is_requeued_once() -> None:
    """Two faults, two drains, one requeue."""
    one, two = event(1, node="n1"), event(2, node="n2")
    state = fleet_view(
        events=(one, two), heartbeats={"n1": beat("n1", one), "n2": beat("n2", two)},
        allocations=(holds(at_node="n1"), holds()),
    )  # fmt: skip
    assert sorted(acts(state), key=str) == [("drain", "n1"), ("drain", "n2"), ("requeue", 4242)]


def failing(count: int, of: int, partition: str = "gpu") -> view.View:
    names = [f"n{i:02d}" for i in range(of)]
    events = [
        event(i + 1, node=name, at=ago(60 - i), observed_at=ago(60 - i))
        for i, name in enumerate(names[:count])
    ]
    return fleet_view(
        events=tuple(events),
        heartbeats={e.node: beat(e.node, e) for e in events},
        silent_s={e.node: 1.0 for e in events},
        nodes={name: node(name, partitions=(partition,)) for name in names},
        jobs=(),
    )


@pytest.mark.parametrize(
    ("config", "expected", "why"),
    [
        (dataclasses.replace(ENFORCE, budget_nodes=5), 5, "5 of 5 nodes of the cluster"),
        (dataclasses.replace(ENFORCE, budget_nodes=99, budget_frac=0.05), 2, "2 of 2 nodes of the cluster"),
        (
            dataclasses.replace(ENFORCE, budget_nodes=99, budget_partition_frac=0.1),
            4,
            "4 of 4 nodes of partition gpu",
        ),
        (dataclasses.replace(ENFORCE, budget_nodes=0), 0, "0 of 0 nodes of the cluster"),
        (dataclasses.replace(ENFORCE, budget_frac=0.0), 0, "0 of 0 nodes of the cluster"),
    ],
    ids=["nodes", "share", "partition", "none", "no share"],
)
def test_half_the_cluster_failing_stops_at_the_budget(
    config: settings.PolicySettings, expected: int, why: str
) -> None:
    """The budget takes the oldest faults first, then denies every further node and says so."""
    state = failing(20, 40)
    assert acts(state, config) == [("drain", f"n{i:02d}") for i in range(expected)]
    denied = [d for d in policy.decide(state, config) if d.held == "denied" and d.action == "drain"]
    assert len(denied) == 20 - expected
    assert all(why in d.why for d in denied)


def test_a_high_fault_is_served_before_an_older_low_one() -> None:
    """When the budget has one place left, the gravest fault gets it."""
    low = event(1, node="n1", severity=records.Severity.LOW, at=ago(100), observed_at=ago(100))
    high = event(2, node="n2")
    state = fleet_view(
        events=(low, high), heartbeats={"n1": beat("n1", low), "n2": beat("n2", high)}, jobs=()
    )
    assert acts(state, dataclasses.replace(ENFORCE, budget_nodes=1)) == [("drain", "n2")]


@pytest.mark.parametrize(
    ("past", "left"),
    [
        ([drain("n8"), drain("n9")], 0),
        ([drain("n9"), drain("n9", 30)], 1),
        ([drain("n8"), drain("n9", 3601)], 1),
        ([drain("n8"), drain("n9", state="denied")], 1),
        ([drain("n8"), drain("n9", state="failed")], 1),
        ([drain("n8"), drain("n9", state="simulated")], 1),
        ([drain("n8"), drain("n9", owner="alice")], 1),
        ([drain("n8"), drain("n9", action="requeue")], 1),
        ([drain("n8"), drain("n9", action="refuse")], 0),
        ([drain("n8"), drain("n9", state="resumed")], 0),
        ([drain("n8"), drain("n9", state="failed", why_state=view.BEGUN)], 0),
        ([drain("n8"), drain("n9", state="failed", why_state=view.OUTCOME_UNKNOWN)], 0),
        ([drain("n8"), drain("n7", action="restart", detail={"exclude": ["n9"]})], 1),
        (
            [
                drain("n8"),
                drain(
                    "n7", action="restart", state="failed", why_state=view.BEGUN, detail={"exclude": ["n9"]}
                ),
            ],
            0,
        ),
    ],
    ids=[
        "full",
        "one node twice",
        "out of window",
        "denied",
        "failed",
        "simulated",
        "another's",
        "requeue",
        "refusal",
        "resumed",
        "begun",
        "begun, Slurm did not answer",
        "a restart whose nodes have rows of their own",
        "a restart that was begun and leaves a node out",
    ],
)
def test_what_counts_against_the_budget(past: list[records.Drain], left: int) -> None:
    """Distinct nodes drained, let refuse or left out within the window count, also while the act is under way; what was not done does not."""
    assert (
        len(acts(fleet_view(drains=tuple(past), jobs=()), dataclasses.replace(ENFORCE, budget_nodes=2)))
        == left
    )


def test_a_drain_that_stands_in_slurm_counts_even_without_its_row() -> None:
    """Rows lost with the database do not widen the budget."""
    ours = node("n3", states=frozenset({"IDLE", "DRAIN"}), reason="probing: ib_link", reason_at=ago(100))
    state = fleet_view(nodes={"n2": node("n2"), "n3": ours}, jobs=())
    assert acts(state, dataclasses.replace(ENFORCE, budget_nodes=1)) == []


@pytest.mark.parametrize(
    ("past", "expected"),
    [((), [("drain", "n2")]), ((drain("n9", 7200),), [("drain", "n2")]), ((drain("n9", 600),), [])],
    ids=["a healthy reference", "drained two hours ago", "drained in the window"],
)
def test_a_node_under_test_counts_where_it_was_taken_in_the_window(
    past: tuple[records.Drain, ...], expected: object
) -> None:
    """The healthy references of tests use up nothing: a node with a lost GPU would stay in service for them."""
    nodes = {"n2": node("n2"), "n9": node("n9", reason="probing: repair: xid 79 gpu3")}
    others = fleet_view(nodes=nodes, under_test={"n9": "probing-x"}, jobs=(), drains=past)
    assert acts(others, dataclasses.replace(ENFORCE, budget_nodes=1)) == expected


def long_drained(n_out: int, of: int, *others: str, **changes: object) -> view.View:
    """Partition gpu of so many nodes, n2 among them, and `others`; so many have been out by drains of ours for days."""
    names = ["n2", *(f"x{i}" for i in range(of - 1))]
    out = {
        "states": frozenset({"IDLE", "DRAIN"}),
        "reason": "probing: check gpu_versions",
        "reason_at": ago(2e5),
    }
    nodes = {name: node(name, **out if i in range(1, n_out + 1) else {}) for i, name in enumerate(names)}
    nodes |= {name: node(name, partitions=("cpu",)) for name in others}
    rows = tuple(drain(name, 2e5) for name in names[1 : n_out + 1])
    return fleet_view(**{"nodes": nodes, "drains": rows, "jobs": ()} | changes)


ALL_OUT = "out of service by drains of ours"
DEFAULT = settings.PolicySettings(observe_only=False)
MANY = [f"c{i}" for i in range(200)]


def drains(state: view.View, config: settings.PolicySettings = DEFAULT) -> list[tuple[str, str]]:
    return [(d.held, d.why) for d in policy.decide(state, config) if d.action == "drain"]


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (long_drained(9, 100), ""),
        (long_drained(10, 100), f"budget: 10 of 10 nodes of the cluster are {ALL_OUT}"),
        (long_drained(3, 8, *MANY), ""),
        (long_drained(4, 8, *MANY), f"budget: 4 of 4 nodes of partition gpu are {ALL_OUT}"),
        (long_drained(0, 4), ""),
    ],
    ids=["room", "cluster", "room in the partition", "partition", "small cluster"],
)
def test_drains_of_ours_that_stand_are_limited_however_old_they_are(state: view.View, why: str) -> None:
    """A fault of the whole fleet takes no more than a tenth of it, and half of a partition, though there is room by the hour."""
    assert drains(state) == [("denied" if why else "", why)]


def test_what_stands_is_by_drains_of_ours() -> None:
    """A person's drain and a healthy reference count for nothing; one of ours under test does, though no drain shows."""
    full = long_drained(10, 100)
    by_eve = tuple(dataclasses.replace(d, owner="eve") for d in full.drains)
    assert drains(dataclasses.replace(full, drains=by_eve)) == [("", "")]
    in_test = {k: dataclasses.replace(n, states=frozenset({"IDLE"})) for k, n in full.nodes.items()}
    tested = dataclasses.replace(full, nodes=in_test, under_test={d.node: "probing-x" for d in full.drains})
    assert drains(tested)[0][0] == "denied"
    assert drains(dataclasses.replace(tested, drains=())) == [("", "")]


def test_a_node_left_out_of_a_job_or_tested_with_others_leaves_no_service() -> None:
    ledger = budget.Ledger(long_drained(10, 100), DEFAULT)
    assert ledger.refuses("n2")
    assert ledger.refuses("n2", leaves_service=False) == ""


def test_by_the_hour_a_fault_of_the_fleet_takes_what_may_stand_and_no_more() -> None:
    """Five days, each hour its budget."""
    nodes = {f"n{i}": node(f"n{i}") for i in range(400)}
    for hour in range(120):
        now = NOW + timedelta(hours=hour, seconds=hour)
        ledger = budget.Ledger(view.View(now=now, nodes=nodes), DEFAULT)
        for name, one in nodes.items():
            if not one.ours and not ledger.refuses(name):
                ledger.take(name)
                nodes[name] = node(name, states=frozenset({"DRAIN"}), reason="probing: x", reason_at=now)
    assert sum(n.ours for n in nodes.values()) == 40


def test_a_drain_that_a_failed_repair_renewed_in_slurm_was_taken_when_it_was_made() -> None:
    """Slurm shows when the reason was written last; the row has the time of the drain."""
    again = node(
        "n3", states=frozenset({"IDLE", "DRAIN"}), reason="probing: repair: xid 79", reason_at=ago(100)
    )
    state = fleet_view(nodes={"n2": node("n2"), "n3": again}, jobs=(), drains=(drain("n3", 7200),))
    assert acts(state, dataclasses.replace(ENFORCE, budget_nodes=1)) == [("drain", "n2")]


def test_references_have_a_limit_of_their_own() -> None:
    """As many idle nodes may be in tests of others as nodes are drained in a window, whatever else was taken."""
    taken = tuple(drain(f"n{i}") for i in range(5))
    nodes = {f"n{i}": node(f"n{i}") for i in range(40)}
    state = fleet_view(nodes=nodes, drains=taken, under_test=dict.fromkeys(("n0", "n10", "n11"), "probing-x"))
    assert budget.Ledger(state, ENFORCE).refuses("n20")
    ledger = budget.Ledger.of_references(state, dataclasses.replace(ENFORCE, budget_nodes=3))
    assert ledger.refuses("n20") == ""
    ledger.take("n20")
    assert ledger.refuses("n21")


def test_a_node_in_a_reservation_of_our_tests_is_the_workflow_s_alone() -> None:
    """Neither drained nor let refuse the job of its tests, whatever its agent says."""
    drained = drain("n2", 7200)
    tested = fleet_view(under_test={"n2": "probing-n2-1"}, jobs=(), drains=(drained,))
    assert acts(tested) == []
    assert held(tested)[0] == ("drain", "skipped", "it is being tested (probing-ctl repair show)")
    assert refusals(fleet_view(events=(), under_test={"n2": "probing-n2-1"}, drains=(drained,))) == []


def test_a_reference_that_breaks_is_drained_in_the_reservation_of_the_test() -> None:
    """It is back in service as soon as the test ends; the test's own job on it is left alone, and so is a drain of another."""
    kept = node("n2", states=frozenset({"ALLOCATED", "MAINT"}))
    state = fleet_view(nodes={"n2": kept}, under_test={"n2": "probing-n9-1"}, jobs=(job(nodes=("n2",)),))
    (made,) = policy.decide(state, ENFORCE)
    assert (made.action, made.node, made.held, made.reservation) == ("drain", "n2", "", "probing-n9-1")
    ours = node("n2", states=frozenset({"ALLOCATED", "DRAIN", "MAINT"}), reason="probing: xid 79 gpu3")
    second = event(2)
    both = {"events": (*state.events, second), "heartbeats": {"n2": beat("n2", *state.events, second)}}
    for past in (drain("n2", 30), drain("n2", 30, state="failed", why_state=view.BEGUN)):
        drained = dataclasses.replace(state, nodes={"n2": ours}, drains=(past,), **both)
        assert policy.decide(drained, ENFORCE) == (), "it is out already, and by us"
    anothers = node("n2", states=frozenset({"DRAIN", "MAINT"}), reason="fan")
    assert held(dataclasses.replace(state, nodes={"n2": anothers}))[0][1] == "skipped"
    assert refusals(dataclasses.replace(state, events=())) == []


def test_without_a_partition_the_budget_fails_safe() -> None:
    """A node of unknown partition is not drained."""
    assert acts(fleet_view(nodes={"n2": node("n2", partitions=())})) == []


def test_a_node_denied_by_the_budget_keeps_its_jobs() -> None:
    """Requeueing onto a node still in service would change nothing: no drain, no requeue."""
    assert acts(fleet_view(), dataclasses.replace(ENFORCE, budget_nodes=0)) == []


def test_a_small_cluster_may_always_drain_one_node() -> None:
    """Five per cent of four nodes is none; one is allowed."""
    assert acts(
        fleet_view(jobs=()), dataclasses.replace(ENFORCE, budget_frac=0.05, budget_partition_frac=0.25)
    ) == [("drain", "n2")]


def test_nothing_is_decided_twice() -> None:
    """What is recorded as done, held back or simulated for this evidence is not decided again."""
    ids = {"event_ids": (uuid.UUID(int=1),)}
    past = (
        drain("n2", 3, **ids),
        drain("n2", 3, action="requeue", job_id=4242, **ids),
        drain("n2", 3, action="refuse"),
    )
    assert policy.decide(fleet_view(drains=past), ENFORCE) == ()
    none = dataclasses.replace(ENFORCE, budget_nodes=0)
    denied = (drain("n2", 3, state="denied", **ids), drain("n2", 3, state="denied", action="refuse"))
    assert policy.decide(fleet_view(drains=denied), none) == ()


def test_a_denied_drain_is_made_when_the_budget_has_room_again() -> None:
    """Denied is not for ever: while fresh and confirmed, the drain follows."""
    denied = drain("n2", 3, state="denied", event_ids=(uuid.UUID(int=1),))
    assert acts(fleet_view(drains=(denied,))) == BOTH


def test_a_fault_that_came_again_is_decided_again_though_the_one_before_it_is_fresh() -> None:
    """The event of the fault that ended does not act for the next one, which would have been decided with it."""
    hung = {"kind": "mount", "code": "hanging", "device": "/scratch", "gpu_uuid": None, "source": "mount"}
    before = event(1, at=ago(200), observed_at=ago(200), **hung)
    again = event(2, at=ago(40), observed_at=ago(40), **hung)
    denied = drain("n2", 180, state="denied", event_ids=(before.event_id,))
    picture = fleet_view(events=(before, again), heartbeats={"n2": beat("n2", again)}, drains=(denied,))
    made = policy.decide(picture, dataclasses.replace(ENFORCE, budget_nodes=0))
    assert [(d.held, d.event_ids) for d in made if d.action == "drain"] == [("denied", (again.event_id,))]


@pytest.mark.parametrize(("before_s", "acts_too"), [(8, True), (12, False)])
def test_a_report_from_just_before_the_fault_began_is_of_the_same_fault(
    before_s: float, acts_too: bool
) -> None:
    """Two sources report it seconds apart, and the heartbeat may have begun it with the later."""
    hung = {"kind": "mount", "code": "hanging", "device": "/scratch", "gpu_uuid": None, "source": "mount"}
    first = event(1, at=ago(40 + before_s), observed_at=ago(40 + before_s), **hung)
    later = event(2, at=ago(40), observed_at=ago(40), **hung)
    picture = fleet_view(events=(first,), heartbeats={"n2": beat("n2", later)}, jobs=())
    assert bool(acts(picture)) is acts_too


@pytest.mark.parametrize(("age_s", "expected"), [(10, []), (31, ["drain"])])
def test_a_failed_command_is_repeated_but_not_at_once(age_s: float, expected: list[str]) -> None:
    """Slurm refusing a drain does not make us hammer it."""
    failed = drain("n2", age_s, state="failed", event_ids=(uuid.UUID(int=1),))
    assert [a for a, _ in acts(fleet_view(drains=(failed,), jobs=()))] == expected


def test_an_administrator_who_resumes_a_node_is_not_overruled() -> None:
    """The same evidence neither drains the node again nor lets its Prolog refuse jobs."""
    done = drain("n2", 100, event_ids=(uuid.UUID(int=1),))
    assert policy.decide(fleet_view(drains=(done,), jobs=()), ENFORCE) == ()
    assert policy.decide(fleet_view(events=(), drains=(done,), jobs=()), ENFORCE) == ()


def test_a_node_that_breaks_again_after_its_repair_is_drained_again() -> None:
    """The old events are still fresh and name the same part: only a fault that began after the drain's end is new."""
    old, new = event(1, at=ago(120), observed_at=ago(120)), event(2, at=ago(10), observed_at=ago(10))
    over = drain("n2", 110, event_ids=(old.event_id,), state="resumed", ended_at=ago(60))
    again = fleet_view(events=(old, new), heartbeats={"n2": beat("n2", new)}, drains=(over,), jobs=())
    assert acts(again) == [("drain", "n2")]
    stands = fleet_view(events=(old, new), heartbeats={"n2": beat("n2", old)}, drains=(over,), jobs=())
    assert acts(stands) == [], "the same fault, which a person chose to live with"
    vague = dataclasses.replace(beat("n2", old), faults={"xid:gpu3": {**fault(old), "since": None}})
    assert acts(fleet_view(events=(old, new), heartbeats={"n2": vague}, drains=(over,), jobs=())) == []


OVER = {"state": "resumed", "ended_at": ago(60)}


@pytest.mark.parametrize("severity", [records.Severity.HIGH, records.Severity.LOW])
def test_a_person_who_resumes_a_node_lives_with_its_fault_however_often_it_is_reported(
    severity: records.Severity,
) -> None:
    """Lines folded into a row of their own, a second source, a link that flaps on: no id of the drain's, but the same fault."""
    first = event(1, at=ago(400), observed_at=ago(400), severity=severity)
    later = event(
        2, at=ago(110 if severity is records.Severity.HIGH else 20), observed_at=ago(20), severity=severity
    )
    known = fault(first) | {"event_ids": [str(first.event_id), str(later.event_id)]}
    beats = {"n2": dataclasses.replace(beat("n2"), faults={"xid:gpu3": known})}
    over = drain("n2", 390, event_ids=(first.event_id,), **OVER)
    assert acts(fleet_view(events=(later,), heartbeats=beats, drains=(over,), jobs=())) == []
    assert acts(fleet_view(events=(later,), heartbeats=beats, jobs=())) == [("drain", "n2")]


@pytest.mark.parametrize("at_s", [30, 65], ids=["later", "before the resume was noticed"])
def test_a_hard_fault_that_strikes_again_after_a_resume_drains_again(at_s: float) -> None:
    """What the kernel said once stands until a reboot: the old fault holds back neither another one nor its own return."""
    first = event(1, at=ago(120), observed_at=ago(120))
    later = event(2, at=ago(at_s), observed_at=ago(at_s))
    known = fault(first) | {"event_ids": [str(first.event_id), str(later.event_id)]}
    beats = {"n2": dataclasses.replace(beat("n2"), faults={"xid:gpu3": known})}
    over = drain("n2", 110, event_ids=(first.event_id,), **OVER)
    state = fleet_view(events=(first, later), heartbeats=beats, drains=(over,), jobs=())
    (made,) = [d for d in policy.decide(state, ENFORCE) if d.action == "drain"]
    assert made.event_ids == (later.event_id,)


def test_who_lifts_a_persons_drain_accepts_the_fault_that_stands() -> None:
    """It names no evidence: neither drained again nor let refuse jobs, until the fault strikes once more or another comes."""
    first = event(1, at=ago(120), observed_at=ago(120))
    over = drain("n2", 110, owner="eve", reason="probing: a look (eve)", **OVER)
    for events in ((first,), ()):
        state = fleet_view(events=events, heartbeats={"n2": beat("n2", first)}, drains=(over,), jobs=())
        assert policy.decide(state, ENFORCE) == ()
        assert not picture.asks_for_more(state, ENFORCE, again=False)
    again, other = event(2, at=ago(20), observed_at=ago(20)), event(3, at=ago(20), device="gpu5")
    known = fault(first) | {"event_ids": [str(first.event_id), str(again.event_id)]}
    struck = {"n2": dataclasses.replace(beat("n2"), faults={"xid:gpu3": known})}
    for event_of, beats in ((again, struck), (other, {"n2": beat("n2", first, other)})):
        state = fleet_view(events=(first, event_of), heartbeats=beats, drains=(over,), jobs=())
        (made,) = [d for d in policy.decide(state, ENFORCE) if d.action == "drain"]
        assert made.event_ids == (event_of.event_id,)
    for stands in (
        drain("n2", 110, owner="eve"),
        drain("n2", 200, **OVER | {"ended_at": ago(150)}, owner="eve"),
    ):
        state = fleet_view(events=(first,), heartbeats={"n2": beat("n2", first)}, drains=(stands,), jobs=())
        assert acts(state) == [("drain", "n2")], "not lifted, or lifted before the fault began"


def test_another_fault_of_the_kind_drains_although_the_old_one_stands() -> None:
    """The drain names the new one alone."""
    first = event(1, at=ago(120), observed_at=ago(120))
    other = event(2, at=ago(80), observed_at=ago(80), device="gpu5")
    over = drain("n2", 110, event_ids=(first.event_id,), **OVER)
    state = fleet_view(
        events=(first, other), heartbeats={"n2": beat("n2", first, other)}, drains=(over,), jobs=()
    )
    (made,) = [d for d in policy.decide(state, ENFORCE) if d.action == "drain"]
    assert (made.event_ids, made.reason) == ((other.event_id,), "probing: xid 79 gpu5")


def refusals(state: view.View, config: settings.PolicySettings = ENFORCE) -> list[tuple[str, str]]:
    return [(d.node, d.held) for d in policy.decide(state, config) if d.action == "refuse"]


def test_a_standing_hard_fault_lets_the_node_refuse_jobs_even_when_its_event_is_old() -> None:
    """A fault confirmed now, on a node still in service, gets a short permission to refuse."""
    assert refusals(fleet_view(events=())) == [("n2", "")]
    assert acts(fleet_view(events=())) == []


def test_no_permission_to_refuse() -> None:
    """Not in observe-only mode, for low faults, for silent agents, drained nodes, or beyond the budget."""
    without_events = fleet_view(events=())
    low = event(severity=records.Severity.LOW)
    assert refusals(without_events, dataclasses.replace(ENFORCE, observe_only=True)) == []
    assert refusals(dataclasses.replace(without_events, heartbeats={"n2": beat("n2", low)})) == []
    assert refusals(dataclasses.replace(without_events, silent_s={"n2": 60.0})) == []
    ours = node("n2", states=frozenset({"DRAIN"}), reason="probing: x")
    assert refusals(dataclasses.replace(without_events, nodes={"n2": ours})) == []
    assert refusals(without_events, dataclasses.replace(ENFORCE, budget_nodes=0)) == [("n2", "denied")]


@pytest.mark.parametrize(("age_s", "expected"), [(10, []), (31, [("n2", "")])])
def test_a_permission_is_renewed_when_half_of_it_is_gone(
    age_s: float, expected: list[tuple[str, str]]
) -> None:
    """Permissions are short-lived and renewed while the fault stands."""
    given = drain("n2", age_s, action="refuse")
    assert refusals(fleet_view(events=(), drains=(given,))) == expected


def test_several_faults_of_a_node_make_one_drain_named_after_the_gravest() -> None:
    """One reason, worst first, with the number of the others."""
    low = event(
        2,
        kind="ib_link",
        code=None,
        device="mlx5_0",
        gpu_uuid=None,
        severity=records.Severity.LOW,
        at=ago(50),
        observed_at=ago(50),
    )
    state = fleet_view(events=(low, event(1)), heartbeats={"n2": beat("n2", low, event(1))}, jobs=())
    (made,) = [d for d in policy.decide(state, ENFORCE) if d.action == "drain"]
    assert made.reason == "probing: xid 79 gpu3 (+1 more)"
    assert made.event_ids == (uuid.UUID(int=1), uuid.UUID(int=2))


def test_a_check_of_the_whole_node_is_named_once() -> None:
    """Such a check reports its own name as the part; one GPU's check names the GPU."""
    count = event(kind="check", code="gpu_count", device="gpu_count", gpu_uuid=None)
    assert policy.reason_for([count]) == "probing: check gpu_count"
    ecc = event(kind="check", code="gpu_ecc", device="gpu3")
    assert policy.reason_for([ecc]) == "probing: check gpu_ecc gpu3"


def test_a_reason_carries_no_control_characters() -> None:
    """What a device calls itself cannot write to an administrator's terminal."""
    hostile = event(device="gpu\x1b[2J3\n\u202eevil")
    assert policy.reason_for([hostile]) == "probing: xid 79 gpu3 evil"


def test_the_order_of_the_input_changes_nothing() -> None:
    """Decisions depend on what is seen, not on the order it was read in."""
    state = failing(10, 12)
    mirrored = dataclasses.replace(
        state, events=state.events[::-1], heartbeats=dict(reversed(list(state.heartbeats.items())))
    )
    assert policy.decide(mirrored, ENFORCE) == policy.decide(state, ENFORCE)


def attempt(end_s: float) -> records.JobAttempt:
    return records.JobAttempt(
        cluster="c", job_id=4242, attempt=1, run_key="4242", submit_at=START, start_at=START,
        end_at=NOW + timedelta(seconds=end_s), state="COMPLETED", nodes=("n2",), n_gpus=8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("back_s", "expected"), [(10.0, []), (16.0, ["drain", "requeue"]), (None, ["drain", "requeue"])]
)
def test_a_simulation_holds_what_the_policy_holds(back_s: float | None, expected: list[str]) -> None:
    """A link of the past that was up again within hold_s would have cost nothing, and the act comes at its end."""
    down = event(1, kind="ib_link", code="down", device="mlx5_2", gpu_uuid=None, at=NOW, observed_at=NOW)
    events = [down]
    if back_s is not None:
        over = NOW + timedelta(seconds=back_s)
        events.append(
            dataclasses.replace(
                down, event_id=uuid.UUID(int=2), severity=records.Severity.INFO, at=over, observed_at=over,
                detail={"recovered": True},
            )
        )  # fmt: skip
    found = simulate.replay(events, [attempt(3600.0)], {"n2": node("n2")}, ENFORCE)
    assert [d.action for _, d in found.decisions] == expected
    assert {at - NOW for at, _ in found.decisions} <= {timedelta(seconds=ENFORCE.hold_s)}


def test_a_simulation_holds_a_check_as_what_it_looks_at() -> None:
    """A check of a link that was well at the next sweep, and one that was not."""
    down = event(1, kind="check", code="ib_link", device="mlx5_2", gpu_uuid=None, source="check", at=NOW)
    over = NOW + timedelta(seconds=10)
    up = dataclasses.replace(
        down, event_id=uuid.UUID(int=2), severity=records.Severity.INFO, at=over, detail={"recovered": True}
    )
    for events, expected in (([down, up], []), ([down], ["drain", "requeue"])):
        found = simulate.replay(events, [attempt(3600.0)], {"n2": node("n2")}, ENFORCE)
        assert [d.action for _, d in found.decisions] == expected


def test_a_simulation_requeues_an_attempt_once() -> None:
    """One fault is told in several events; in truth the job ran on, and each found it: it died once, and was cut once."""
    events = [
        event(n, code=code, at=NOW + timedelta(seconds=n), observed_at=NOW + timedelta(seconds=n))
        for n, code in enumerate(("79", "48", "119"), 1)
    ]
    held = dataclasses.replace(attempt(3600.0), gpus={"n2": (str(events[0].gpu_uuid),)})
    found = simulate.replay(events, [held], {"n2": node("n2")}, ENFORCE)
    assert [(d.action, d.held) for _, d in found.decisions] == [("drain", ""), ("requeue", "")]
    assert (found.n_events, found.n_completed_anyway) == (3, 1)
    assert found.gpu_h_cut == pytest.approx(8 * ((NOW - START).total_seconds() + 1) / 3600)


def test_a_simulation_knows_a_job_without_gpus() -> None:
    """Accounting says so; which GPUs the others held may not be known."""
    for n_gpus, why in ((0, "it holds no GPU"), (8, "which GPUs it holds is not known")):
        alone = dataclasses.replace(attempt(3600.0), n_gpus=n_gpus)
        found = simulate.replay([event(at=NOW, observed_at=NOW)], [alone], {"n2": node("n2")}, ENFORCE)
        assert [(d.action, d.why) for _, d in found.decisions if d.held] == [("requeue", why)]


def link_down(n: int, at_node: str, **changes: object) -> records.HealthEvent:
    return event(
        n, at_node, kind="ib_link", code="down", device="mlx5_0", gpu_uuid=None, source="sysfs", **changes
    )


def under_a_leaf(*events: records.HealthEvent, **changes: object) -> view.View:
    """Forty nodes with a link down, all and only those under leaf l1 of a cluster of four hundred, and what else happened."""
    downs = [link_down(i + 1, f"n{i}") for i in range(40)]
    where = layout.NodeLayout([(f"n{i}", ("leaf", f"l{i // 40 + 1}")) for i in range(400)])
    shared = scan.shared({e.node for e in downs}, where)
    beats = {
        e.node: beat(e.node, *(x for x in (*downs, *events) if x.node == e.node)) for e in (*downs, *events)
    }
    values: dict[str, object] = {
        "now": NOW, "events": (*downs, *events), "heartbeats": beats, "silent_s": dict.fromkeys(beats, 1.0),
        "nodes": {f"n{i}": node(f"n{i}") for i in range(400)}, "shared": shared,
        "shared_nodes": where.members["leaf", "l1"],
    }  # fmt: skip
    return view.View(**(values | changes))


def test_forty_nodes_are_not_drained_for_one_switch() -> None:
    """Each decision is kept, skipped for the place; no node is refused for it either; a lost GPU among them is drained as ever."""
    config = dataclasses.replace(ENFORCE, hold_s=0.0)
    lost = event(100, "n3")
    made = policy.decide(under_a_leaf(lost, event(101, "n300")), config)
    done = {d.node for d in made if not d.held and d.action == "drain"}
    assert done == {"n3", "n300"}
    skipped = [d for d in made if d.held == "skipped"]
    assert len(skipped) == 39
    assert all(
        "leaf l1 is the suspect, not the node: 40 of the 40 nodes of leaf l1" in d.why for d in skipped
    )
    assert {d.node for d in made if d.action == "refuse"} <= {"n3", "n300"}


def test_each_node_counts_in_the_budget_also_under_a_suspect_place() -> None:
    """Four nodes were drained before the switch was recognised; nothing that is decided after it is free of charge."""
    taken = tuple(drain(f"n{i}", event_ids=(uuid.UUID(int=i + 1),)) for i in range(4))
    others = [event(200 + i, f"n{i}" if i < 10 else f"n{300 + i}") for i in range(4, 16)]
    config = dataclasses.replace(ENFORCE, hold_s=0.0)
    assert len(acts(under_a_leaf(*others, drains=taken), config)) == 1


HIGH, LOW = records.Severity.HIGH, records.Severity.LOW
Shown = tuple[str, str, str, records.Severity]
"""Kind, code, part and severity of a fault."""
HANGS: Shown = ("mount", "hanging", "/scratch", HIGH)
SLOW: Shown = ("check", "mount_responsive", "/scratch", LOW)
STUCK: Shown = ("check", "agent_self", "mount /scratch", LOW)
ASLEEP: Shown = ("check", "processes_dstate", "kworker", LOW)
FULL: Shown = ("check", "disk_space", "/", LOW)
STALE: Shown = ("check", "gpu_versions", "gpu_versions", LOW)
LOST: Shown = ("xid", "79", "gpu3", HIGH)


def fleet(shown: dict[str, list[Shown]], of: int = 200, *, leaf: int = 20, **changes: object) -> view.View:
    """So many nodes under leaves of `leaf`, in two halves of a file server each, with jobs of four; what each shows for a minute, twice confirmed."""
    names = [f"n{i}" for i in range(of)]
    places = [(n, ("leaf", f"l{i // leaf}")) for i, n in enumerate(names)]
    places += [(n, ("storage", f"fs{i * 10 // of // 9}")) for i, n in enumerate(names)]
    where = layout.NodeLayout(places)
    events, beats = [], {name: beat(name) for name in names}
    for name, faults in shown.items():
        own = [
            event(
                len(events) + k + 1, name, kind=kind, code=code, device=part, severity=severity, gpu_uuid=None,
                source=kind if kind in {"check", "mount"} else "kernel", at=ago(61), observed_at=ago(61),
            )
            for k, (kind, code, part, severity) in enumerate(faults)
        ]  # fmt: skip
        events += own
        rows = {f"{e.kind}:{e.device}": fault(e) | {"confirmed_at": clock.iso_z(ago(1))} for e in own}
        beats[name] = beat(name, faults=rows)
    failed = {n for n, b in beats.items() if any(map(shared_part.is_of, b.faults, b.faults.values()))}
    place, members = shared_part.suspect(failed, where)
    values: dict[str, object] = {
        "events": tuple(events), "heartbeats": beats, "silent_s": dict.fromkeys(names, 1.0), "shared": place,
        "shared_nodes": members, "nodes": {n: node(n) for n in names}, "allocations": (),
        "jobs": tuple(job(i, nodes=tuple(names[i : i + 4])) for i in range(0, of, 4)),
    }  # fmt: skip
    return fleet_view(**(values | changes))


def showing(n: int, *faults: Shown, **changes: object) -> view.View:
    return fleet({f"n{i}": list(faults) for i in range(n)}, **changes)


def passes(
    state: view.View, n: int = 2, config: settings.PolicySettings = DEFAULT
) -> list[tuple[str, str | int]]:
    """What is to be done in so many passes, each after what the ones before it did."""
    done: list[tuple[str, str | int]] = []
    for _ in range(n):
        made = [d for d in policy.decide(state, config) if not d.held]
        done += [(d.action, d.job.job_id if d.job else d.node) for d in made]
        out = {d.node: d.reason for d in made if d.action == "drain"}
        gone = {d.job.job_id for d in made if d.job}
        nodes = {
            k: dataclasses.replace(v, states=frozenset({"DRAIN"}), reason=out[k], reason_at=NOW)
            if k in out
            else v
            for k, v in state.nodes.items()
        }
        rows = [drain(d.node, 0, action=d.action, event_ids=d.event_ids, reason=d.reason) for d in made]
        state = dataclasses.replace(
            state,
            nodes=nodes,
            drains=(*state.drains, *rows),
            jobs=tuple(j for j in state.jobs if j.job_id not in gone),
        )
    return done


@pytest.mark.parametrize("severity", [HIGH, LOW])
@pytest.mark.parametrize("check", sorted(registry.load()))
def test_no_check_that_fails_for_many_takes_more_than_the_budget_or_requeues(
    check: str, severity: records.Severity
) -> None:
    """All nodes of the fleet, of a file server, of a leaf of a tenth of it: none is drained. Of a smaller leaf the budget's at most."""
    shown: Shown = ("check", check, "part", severity)
    for n in (100, 90, 20):
        assert passes(showing(n, shown, of=100), 1) == []
    few = passes(showing(8, shown, leaf=8), 2)
    drained = {k for a, k in few if a == "drain"}
    assert len(drained) <= DEFAULT.budget_nodes
    assert {k for a, k in few if a == "refuse"} <= drained
    if severity is LOW or shared_part.cause_of("check", check):
        assert not any(a == "requeue" for a, _ in few)
    if shared_part.cause_of("check", check):
        assert few == []


@pytest.mark.parametrize("beside", [(), (STUCK,), (ASLEEP,), (FULL,)])
@pytest.mark.parametrize("n", [200, 180, 20, 8])
def test_a_file_server_that_hangs_drains_no_node_whatever_else_it_makes_them_show(
    n: int, beside: tuple[Shown, ...]
) -> None:
    """A low fault beside it may be its consequence: a process in the kernel, a child of the agent, a log that cannot be written."""
    for faults in ((HANGS, *beside), (SLOW, *beside)):
        assert passes(showing(n, *faults, leaf=8 if n == 8 else 20)) == []
    late = showing(n, HANGS, *beside, leaf=8 if n == 8 else 20)
    rest = tuple(e for e in late.events if e.kind != "mount")
    assert passes(dataclasses.replace(late, events=rest)) == [], "the mount's own event is no longer fresh"


def test_beside_a_hung_mount_a_hard_fault_of_the_nodes_own_drains_it_for_that_alone() -> None:
    """Its jobs are requeued for that one, too; not those of a node that was drained before the server was suspected."""
    state = fleet({f"n{i}": [HANGS, SLOW, *([LOST] if i == 5 else [])] for i in range(20)})
    early = {"n6": node("n6", states=frozenset({"DRAIN"}), reason="probing: mount hanging /scratch")}
    state = dataclasses.replace(
        state, nodes={**state.nodes, **early},
        allocations=(holds(4, *[f"GPU-{i}" for i in range(8)], at_node="n5"),),
    )  # fmt: skip
    made = [d for d in policy.decide(state, DEFAULT) if not d.held]
    assert [(d.action, d.node, d.reason) for d in made] == [
        ("drain", "n5", "probing: xid 79 gpu3"), ("requeue", "n5", "probing: xid 79 gpu3"),
    ]  # fmt: skip


def test_a_drain_under_a_suspect_place_uses_up_the_budget_in_every_pass() -> None:
    """Eight nodes of one leaf with a lost GPU beside the mount: five are drained in an hour, however many passes it has."""
    done = passes(showing(8, HANGS, LOST, leaf=8))
    assert len([k for a, k in done if a == "drain"]) == DEFAULT.budget_nodes


@pytest.mark.parametrize(
    ("n", "of", "drained"), [(10, 200, 5), (11, 200, 0), (3, 8, 1), (4, 8, 0), (4, 60, 0), (1, 1, 1)]
)
def test_a_fault_that_many_nodes_show_at_once_is_no_nodes(n: int, of: int, drained: int) -> None:
    """One kind and code, on more than three nodes and more than a twentieth of those in service: none is drained, and why is said."""
    state = showing(n, LOST, of=of)
    made = policy.decide(state, DEFAULT)
    assert sum(d.action == "drain" and not d.held for d in made) == drained
    if not drained:
        assert {(d.action, d.held, d.why) for d in made} == {
            (
                "drain",
                "skipped",
                f"{n} of {of} nodes in service show the same (xid 79): what they share is the suspect, not the node",
            )
        }
        assert acts(state, dataclasses.replace(ENFORCE, common_frac=1.0))


def test_what_many_show_is_counted_among_nodes_in_service_that_are_heard() -> None:
    """Drained and silent nodes say nothing of the others, and another code is another fault."""
    twelve = showing(12, LOST)
    out = {f"n{i}": node(f"n{i}", states=frozenset({"DRAIN"}), reason="a rack move") for i in (0, 1, 2)}
    assert acts(dataclasses.replace(twelve, nodes={**twelve.nodes, **out}), DEFAULT)
    silent = {**twelve.silent_s, "n0": 600.0, "n1": 600.0, "n2": 600.0}
    assert acts(dataclasses.replace(twelve, silent_s=silent), DEFAULT)
    assert not acts(twelve, DEFAULT)
    two = {f"n{i}": [("xid", "79" if i % 2 else "48", "gpu3", HIGH)] for i in range(12)}
    assert acts(fleet(two), DEFAULT)


def test_a_mount_that_more_than_three_nodes_miss_at_once_is_its_servers() -> None:
    """Its clients may be few of the cluster, and no table says which; other mounts are other servers."""
    four = {f"n{7 + 50 * i}": [HANGS] for i in range(4)}
    assert acts(fleet(four), DEFAULT) == []
    assert acts(fleet(dict(list(four.items())[:3])), DEFAULT)
    apart = {n: [("mount", "hanging", f"/local{i}", HIGH)] for i, n in enumerate(four)}
    assert acts(fleet(apart), DEFAULT)


def test_what_all_show_hides_no_other_fault_of_a_node() -> None:
    """A driver that the site's file does not know yet, on all; one of them has a full disk, one a lost GPU."""
    state = fleet({f"n{i}": [STALE, *{3: [FULL], 4: [LOST]}.get(i, [])] for i in range(200)})
    assert acts(state, DEFAULT) == [("drain", "n4"), ("drain", "n3")]


def test_no_prolog_refuses_for_what_many_show() -> None:
    state = dataclasses.replace(showing(200, LOST), events=())
    assert refusals(state, DEFAULT) == []
    assert refusals(dataclasses.replace(showing(3, LOST), events=()), DEFAULT) == [
        (f"n{i}", "") for i in range(3)
    ]


@pytest.mark.parametrize("n", [0, 3, 4, 8, 200])
def test_a_simulation_knows_what_other_nodes_showed(n: int) -> None:
    """As the service would have: a place of eight, the fleet, and a mount of four nodes are spared, not three of a place."""
    state = showing(n, HANGS, leaf=8) if n != 4 else fleet({f"n{7 + 50 * i}": [HANGS] for i in range(4)})
    rows = [
        records.NodePlace(cluster="c", node=f"n{i}", kind="leaf", place=f"l{i // 8}", since_at=ago(1e6))
        for i in range(200)
    ]
    spread = [
        dataclasses.replace(e, at=ago(61 - k / 100), observed_at=ago(61 - k / 100))
        for k, e in enumerate(state.events)
    ]
    found = simulate.replay(spread, [], dict(state.nodes), DEFAULT, layout.Places(rows))
    assert [d.held for _, d in found.decisions] == ["" if n == 3 else "skipped"] * n
    apart = [
        dataclasses.replace(e, at=ago(1e5 - 400 * k), observed_at=ago(1e5 - 400 * k))
        for k, e in enumerate(spread)
    ]
    alone = simulate.replay(apart, [], dict(state.nodes), DEFAULT, layout.Places(rows))
    assert bool([d for _, d in alone.decisions if not d.held]) is bool(n), (
        "one after the other they are each node's own"
    )


class CountedDrains(tuple[records.Drain, ...]):
    """Decisions that count how often they are gone through."""

    n_passes = 0

    def __iter__(self) -> Iterator[records.Drain]:
        """One more pass over all of them."""
        self.n_passes += 1
        return super().__iter__()


@pytest.mark.parametrize("observe_only", [True, False])
def test_a_storm_goes_through_past_decisions_as_often_as_one_fault_does(observe_only: bool) -> None:
    """Each second of a fabric storm the policy looks at thousands of events, and at the decisions of a week."""

    def passes(n_nodes: int) -> int:
        names = [f"n{i}" for i in range(n_nodes)]
        events = {name: event(i + 1, name) for i, name in enumerate(names)}
        past = [drain(name, at_s=90, state="denied", event_ids=(events[name].event_id,)) for name in names]
        lifted = [drain(name, at_s=3600, state="resumed", ended_at=ago(1800)) for name in names]
        storm = fleet_view(
            events=tuple(events.values()),
            heartbeats={name: beat(name, e) for name, e in events.items()},
            silent_s=dict.fromkeys(names, 1.0),
            nodes={name: node(name) for name in names},
            jobs=(),
            drains=CountedDrains((*past, *lifted)),
        )
        config = dataclasses.replace(ENFORCE, observe_only=observe_only, budget_nodes=0)
        assert picture.asks_for_more(storm, config, again=False)
        assert all(d.held == "denied" or d.action == "refuse" for d in policy.decide(storm, config))
        assert isinstance(storm.drains, CountedDrains)
        return storm.drains.n_passes

    assert passes(40) == passes(1)
