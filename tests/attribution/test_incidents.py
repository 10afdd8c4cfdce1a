"""Many victims of one fault share one incident; neighbours in time alone do not."""

from __future__ import annotations

import dataclasses

from probing_cluster.attribution import incidents
from probing_cluster.core import records


def downs(make, *nodes, before=30, step=1):
    return [
        make.event(before - i * step, node=n, kind="ib_link", code="down", device="mlx5_0", source="sysfs")
        for i, n in enumerate(nodes)
    ]


def test_three_nodes_at_once_are_one_incident(make):
    """The id does not depend on the order of the events."""
    events = downs(make, "n1", "n2", "n3")
    (one,) = incidents.find(events)
    assert one.nodes == {"n1", "n2", "n3"}
    assert incidents.find(list(reversed(events)))[0] == one


def test_two_nodes_or_slow_sequences_are_none(make):
    """Coincidence is not an incident."""
    assert incidents.find(downs(make, "n1", "n2")) == []
    assert incidents.find(downs(make, "n1", "n2", "n3", before=900, step=300)) == []


def test_corrected_and_private_faults_make_none(make):
    """GPUs of three nodes failing together share no part we know."""
    assert incidents.find([make.xid(79, 1, node=n) for n in ("n1", "n2", "n3")]) == []
    quiet = [
        make.event(5, node=n, kind="nfs", code="recovered", severity=records.Severity.INFO)
        for n in ("n1", "n2", "n3")
    ]
    assert incidents.find(quiet) == []


def test_two_attempts_that_died_of_one_event_share_an_incident(make):
    """A node-wide fault with two victims; a lone victim has none."""
    ue = make.event(5, kind="edac", code="UE", node="n1")
    verdicts = [make.judge(ue, attempt=make.attempt(job_id=j, nodes=("n1",))) for j in (1, 2)]
    made = incidents.assign(verdicts, [], {ue.event_id: ue})
    assert len({v.incident_id for v in made}) == 1
    assert made[0].incident_id is not None
    assert incidents.assign(verdicts[:1], [], {ue.event_id: ue}) == verdicts[:1]


def test_a_verdict_that_left_its_incident_loses_the_id(make):
    """Judged again without the others, it stands alone."""
    lone = dataclasses.replace(make.judge(make.xid(79)), incident_id=make.action().drain_id)
    assert incidents.assign([lone], [], {})[0].incident_id is None
