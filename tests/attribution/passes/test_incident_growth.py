"""An incident that late events make wide, or older, reaches the verdicts already given, once."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from probing_cluster.attribution.passes import attribute, incidents
from probing_cluster.core import records
from probing_cluster.db import bulk
from tests.set_clock import SetClock

NODES = ("n1", "n2", "n3", "n4", "n5")


def hour_later(make):
    """A clock that shows an hour after the usual end."""
    return SetClock(make.end + timedelta(hours=1))


@pytest.fixture
def down(make, store):
    """Delivers a link that went down, so many seconds before the usual end."""

    def send(node, before_s, **over):
        event = make.event(
            before_s, **{"node": node, "kind": "ib_link", "code": "down", "device": "mlx5_0", "source": "sysfs", **over}
        )  # fmt: skip
        bulk.load_events(store.url, [event])
        return event

    return send


@pytest.fixture
def judged(make, store):
    """One pass; the jobs it judged."""

    def run():
        return sorted({v.job_id for v in attribute.attribute(store, at=hour_later(make)).verdicts})

    return run


@pytest.fixture
def site(make, store, down, judged):
    """Five agents; jobs 1 and 2 died of a link on n1 and on n2, told in time: two faults, as far as anybody knows."""
    beats = [
        records.AgentHeartbeat(cluster="c", node=n, at=make.end + timedelta(seconds=30), boot_id="b") for n in NODES
    ]  # fmt: skip
    store._upsert(records.AgentHeartbeat, beats)
    store.upsert_attempts(
        [make.attempt(job_id=1, nodes=("n1", "n5")), make.attempt(job_id=2, nodes=("n2", "n5"))]
    )
    events = down("n1", 30), down("n2", 29)
    assert judged() == [1, 2]
    assert incident(store) == {1: events[0].event_id, 2: events[1].event_id}
    return events


def incident(store):
    return {v.job_id: v.incident_id for v in store.verdicts()}


def test_the_third_node_makes_it_wide_for_all(site, store, down, judged):
    """A third node's word, which no attempt ran on, arrives later: both victims get the incident, and no more passes follow."""
    assert site
    down("n4", 28)
    assert judged() == [1, 2]
    wide = incidents.incident_id("ib_link", site[0])
    assert incident(store) == {1: wide, 2: wide}
    assert judged() == []


def test_an_incident_that_goes_on_opens_nobody_again(site, store, down, judged):
    """Further events at its end change no verdict; an older first event changes all, once."""
    down("n4", 28)
    judged()
    down("n3", -60)
    down("n4", -150)
    assert judged() == []
    older = down("n3", 100)
    assert judged() == [1, 2]
    assert set(incident(store).values()) == {incidents.incident_id("ib_link", older)}
    assert judged() == []


def test_more_nodes_change_what_they_share(site, store, down, judged, make):
    """A wide incident names its leaf; a further node re-opens the verdicts, one that is in it already does not."""
    assert site
    leaf = dict.fromkeys(("n1", "n2", "n3", "n4"), "l1") | {f"m{i}": f"l{i % 99 + 2}" for i in range(400)}
    store.save_places("c", ["leaf"], [(n, "leaf", p) for n, p in leaf.items()], make.end - timedelta(days=9))
    down("n4", 28)
    assert judged() == [1, 2]
    shared = {v.job_id: v.place for v in store.verdicts()}
    assert shared[1].startswith("3 of the 4 nodes of leaf l1 (all that failed; p = ")
    down("n3", 27)
    assert judged() == [1, 2]
    assert all(v.place.startswith("4 of the 4 nodes of leaf l1") for v in store.verdicts())
    down("n4", 20)
    assert judged() == []


def test_two_incidents_that_grow_together_are_one(make, store, site, down, judged):
    """Events between two chains join them: the later chain's victims get the earlier one's id."""
    down("n4", 28)
    for node, before_s in (("n1", -171), ("n2", -170), ("n3", -169)):
        down(node, before_s)
    end = make.end + timedelta(seconds=200)
    store.upsert_attempts([make.attempt(job_id=3, nodes=("n3", "n5"), end_at=end)])
    judged()
    first = incidents.incident_id("ib_link", site[0])
    before = incident(store)
    assert before[1] == before[2] == first != before[3]
    down("n4", -70)
    assert judged() == [3]
    assert set(incident(store).values()) == {first}


@pytest.mark.parametrize(
    "late",
    [
        {"before_s": 160},
        {"before_s": -1000},
        {"kind": "eth_link"},
        {"cluster": "d"},
        {"source": "joblog"},
        {"severity": records.Severity.INFO, "code": "up"},
    ],
)
def test_what_does_not_join_the_chain_opens_nobody(site, down, judged, late):
    """Too far away in time, of another cause or cluster, a recovery, or only a job's word."""
    assert site
    down("n4", late.pop("before_s", 28), **late)
    assert judged() == []


def test_a_persons_word_stays(site, store, down, judged):
    """Their verdict is not opened by any growth."""
    assert site
    mine = next(v for v in store.verdicts() if v.job_id == 1)
    store.save_verdicts([dataclasses.replace(mine, author="bob")])
    down("n4", 28)
    assert judged() == [2]
