"""Many victims of one fault share one incident; neighbours in time alone do not."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probing_cluster.attribution.passes import incidents
from probing_cluster.attribution.places import layout
from probing_cluster.core import records

NEAR = timedelta(minutes=10)


def downs(make, *nodes, before=30, step=1):
    return [
        make.event(before - i * step, node=n, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
        for i, n in enumerate(nodes)
    ]


def ids(events, calls=None) -> set:
    """The incidents of some events (all of them), as their chains tell."""
    chains = incidents.Chains(events)
    return {chains.incident(e.event_id) for e in calls or events}


def test_three_nodes_at_once_are_one_incident(make):
    """The id depends neither on the order of the events nor on a repeated event."""
    events = downs(make, "n1", "n2", "n3")
    (one,) = ids(events)
    assert one == incidents.incident_id("ib_link", events[0])
    assert ids([*reversed(events), events[1]]) == {one}


def test_two_nodes_or_slow_sequences_are_none(make):
    """Coincidence is not an incident."""
    assert ids(downs(make, "n1", "n2")) == {None}
    assert ids(downs(make, "n1", "n2", "n3", before=900, step=300)) == {None}


def test_corrected_and_private_faults_make_none(make):
    """GPUs of three nodes failing together share no part we know; what jobs say of their links is no node's word."""
    assert ids([make.xid(79, 1, node=n) for n in ("n1", "n2", "n3")]) == {None}
    calm = [
        make.event(5, node=n, kind="nfs", code="recovered", severity=records.Severity.INFO)
        for n in ("n1", "n2", "n3")
    ]
    assert ids(calm) == {None}
    down = downs(make, "n1", "n2", "n3")
    assert ids([dataclasses.replace(e, source="joblog") for e in down]) == {None}


def test_attempts_that_died_of_one_event_share_an_incident_whoever_is_judged_with_them(make):
    """A node-wide fault with two victims is named by its event; judged alone, each says the same."""
    ue = make.event(5, kind="edac", code="UE", node="n1")
    verdicts = [make.judge(ue, attempt=make.attempt(job_id=j, nodes=("n1",))) for j in (1, 2)]
    made = incidents.assign(verdicts, {}, {ue.event_id: ue})
    assert [v.incident_id for v in made] == [ue.event_id] * 2
    assert [*incidents.assign(verdicts[:1], {}, {ue.event_id: ue}), *made[1:]] == made


def test_only_what_a_node_showed_can_have_other_victims(make):
    """A program's own failure, and what only a job's log says, are no incident."""
    timeout = make.event(5, kind="nccl_timeout", source="joblog", node="n1")
    for verdict in (make.judge(timeout), make.judge(attempt=make.attempt(exit_code=1))):
        blaming = dataclasses.replace(verdict, domain=records.Domain.HARDWARE, evidence=(timeout.event_id,))
        assert incidents.assign([verdict, blaming], {}, {timeout.event_id: timeout}) == [verdict, blaming]


def test_a_verdict_that_left_its_incident_loses_the_id(make):
    """Judged again without the event, it is in no incident."""
    lone = dataclasses.replace(make.judge(make.xid(79)), incident_id=make.action().drain_id)
    assert incidents.assign([lone], {}, {})[0].incident_id is None


def test_a_chain_is_whole_wherever_one_begins_to_look(make):
    """A switch that goes up and down for three hours is one incident for its first victim and for its last."""
    events = [e for i in range(120) for e in downs(make, f"n{i % 5}", before=i * 90)]
    (one,) = ids(events)

    def read(spans):
        return [e for since, until in spans for e in events if since <= e.at <= until]

    for event in (events[0], events[60], events[-1]):
        assert incidents.around(read, [event.at]).incident(event.event_id) == one


def test_what_is_read_for_others_changes_nothing(make):
    """A link that flaps for three days: its incident depends on the event alone, not on the rest of the batch."""
    events = [e for i in range(3 * 24 * 31) for e in downs(make, f"n{i % 4}", before=i * 116)]

    def read(spans):
        return [e for since, until in spans for e in events if since <= e.at <= until]

    some = events[:: len(events) // 9]
    alone = [incidents.around(read, [e.at]).incident(e.event_id) for e in some]
    together = incidents.around(read, [e.at for e in events])
    assert [together.incident(e.event_id) for e in some] == alone
    assert len(set(alone)) > 3
    assert None not in alone


def test_a_chain_without_an_end_is_followed_for_a_day(make):
    """And no further: an ever flapping link must not read the whole history, nothing is read twice, and few questions are asked."""
    calls, questions = [], []

    def read(spans):
        questions.append(len(spans))
        calls.extend(spans)
        return [dataclasses.replace(e, at=at) for span in spans for at in span for e in downs(make, "n1")]

    incidents.around(read, [make.end])
    reach = incidents.MARGIN + incidents.REACH
    assert (min(a for a, _ in calls), max(b for _, b in calls)) == (make.end - reach, make.end + reach)
    assert sum((b - a for a, b in calls), timedelta()) == 2 * reach
    assert len(questions) < 10


def test_what_makes_no_incident_widens_nothing(make):
    """Recoveries and a program's own errors are everywhere at all times: they are no chain. Near instants are read at once."""
    calls = []

    def read(spans):
        calls.append(spans)
        back = make.event(kind="nfs", code="recovered", severity=records.Severity.INFO)
        return [dataclasses.replace(e, at=at) for span in spans for at in span for e in (back, make.xid(31))]

    far = make.end - timedelta(days=3)
    margin = incidents.MARGIN
    near = make.end - 2 * margin
    lone = incidents.around(read, [make.end, far, near])
    assert calls == [[(far - margin, far + margin), (near - margin, make.end + margin)]]
    assert lone.incident(make.xid(31).event_id) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 4), st.booleans()), max_size=14),
    since=st.integers(-50, 800),
    length=st.integers(0, 900),
)
def test_where_no_incident_can_be_is_known_without_reading(new_maker, events, since, length):
    """A stretch of time never answers less than whole chains do; and not always "maybe"."""
    make = new_maker()
    made = [
        make.event(
            -at, node=f"n{node}", kind="ib_link" if ib else "nfs", code="down" if ib else "not_responding"
        )
        for at, node, ib in events
    ]
    first = make.end + timedelta(seconds=since)
    last = first + timedelta(seconds=length)
    shared = incidents.SharedIncidents(((e.at, e.node) for e in made), first, last)
    chains = incidents.Chains(made)
    for event in made:
        assert shared.at(event.at) or chains.incident(event.event_id) is None


def test_a_lone_fault_far_from_the_borders_needs_no_reading(make):
    """Two nodes at once, and three one after another: no incident, whatever lies beyond."""
    down = [*downs(make, "n1", "n2", before=900), *downs(make, "n1", "n2", "n3", before=500, step=150)]
    far = timedelta(hours=1)
    shared = incidents.SharedIncidents(((e.at, e.node) for e in down), make.end - far, make.end + far)
    assert not any(shared.at(e.at) for e in down)
    three = downs(make, "n1", "n2", "n3")
    shared = incidents.SharedIncidents(
        ((e.at, e.node) for e in (*down, *three)), make.end - far, make.end + far
    )
    assert [shared.at(e.at) for e in (*down, *three)] == [False] * 5 + [True] * 3
    assert shared.at(make.end - 2 * far)
    assert shared.at(make.end + 2 * far)


def test_what_the_nodes_of_an_incident_share(make):
    """Their leaf switch, and for a file system what they name; asked for only when an incident is wide."""
    calls = []

    def places():
        calls.append(1)
        return layout.Places(
            records.NodePlace(cluster="c", node=f"n{i}", kind="leaf", place=f"l{i // 8}", since_at=make.end)
            for i in range(800)
        )

    two = downs(make, "n1", "n2")
    assert incidents.Chains(two, places).place([e.event_id for e in two]) == ""
    assert not calls
    five = downs(make, *(f"n{i}" for i in range(5)))
    chains = incidents.Chains(five, places)
    placed = chains.place([five[2].event_id])
    assert placed.startswith("5 of the 8 nodes of leaf l0 (all that failed; p = ")
    job = [f"n{i}" for i in range(5)]
    assert chains.place([five[2].event_id], job) == f"{placed}; {incidents.JOB_TOO}"
    assert len(calls) == 1
    served = [
        make.event(
            30 - i,
            node=f"n{90 * i}",
            kind="lustre",
            code="evicted",
            device="fs1-OST0001",
            severity=records.Severity.HIGH,
        )
        for i in range(4)
    ]
    assert incidents.Chains(served, places).place([served[0].event_id]) == "all 4 nodes name fs1-OST0001"
    scattered = [dataclasses.replace(e, device=f"fs{i}") for i, e in enumerate(served)]
    assert incidents.Chains(scattered, places).place([scattered[0].event_id]) == ""


def test_a_verdict_gets_what_its_incident_shares(make):
    """The sentence is the verdict's, and goes when the incident does."""
    events = downs(make, "n1", "n2", "n3", "n4", "n5")
    judged = make.judge(*events[:1], attempt=make.attempt(nodes=("n1",)))
    verdict = dataclasses.replace(judged, cause="ib_link", evidence=(events[0].event_id,))
    rows = [
        records.NodePlace(cluster="c", node=f"n{i}", kind="rack", place=f"r{i // 8}", since_at=make.end)
        for i in range(800)
    ]
    chains = {"c": incidents.Chains(events, lambda: layout.Places(rows))}
    (made,) = incidents.assign([verdict], chains, {e.event_id: e for e in events})
    assert made.place.startswith("5 of the 8 nodes of rack r0")
    (again,) = incidents.assign([made], {}, {e.event_id: e for e in events})
    assert again.place is None
