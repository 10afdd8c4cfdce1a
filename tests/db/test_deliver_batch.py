"""What many nodes deliver through one call is what each would have delivered itself, and each speaks only for itself."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import random
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import psycopg.sql
import pytest

from probing_cluster.core import records, vocabulary
from probing_cluster.db import delivery, door_wire, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.load import DatabaseLoad
from probing_cluster.db.server import embedded

DOOR = "t_door"
NODES = ("n1", "n2", "n3")


@dataclasses.dataclass(frozen=True)
class Site:
    """A database with three nodes' roles and a door's."""

    url: str

    def url_as(self, role: str) -> str:
        return self.url.replace(f"{embedded.OWNER}@", f"{role}@")

    def hand(self, *loads: tuple[str, bytes | DatabaseLoad]) -> list[dict[str, Any]]:
        """The answers to a batch of (node, load), as the door gets them."""
        given = [load if isinstance(load, bytes) else door_wire.encoded(load) for _, load in loads]
        names = [roles.agent_role_name("c", node) for node, _ in loads]
        with psycopg.connect(self.url_as(DOOR), autocommit=True) as connection:
            row = connection.execute(
                "SELECT probing.deliver_batch(%b::text[], %b::text[])", (names, [g.decode() for g in given])
            ).fetchone()
        assert row is not None
        return [json.loads(answer) for answer in row[0]]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def site(postgres_url: str) -> Iterator[Site]:
    made = [roles.add_agent(postgres_url, "c", node) for node in NODES]
    roles.add_login(postgres_url, DOOR, "probing_door")
    try:
        yield Site(url=postgres_url)
    finally:
        for name in (*made, DOOR):
            roles.remove(postgres_url, name)


def _beat(make_event: Callable[..., records.HealthEvent], node: str) -> records.AgentHeartbeat:
    return records.AgentHeartbeat(cluster="c", node=node, at=make_event().at)


COMPARED = (
    ("health_event", "event_id, cluster, node"),
    ("agent_heartbeat", "node, received_at, unwatched"),
    ("check_now", "node"),
    ("check_result", "node"),
    ("job_allocation", "node, received_at, updated_at"),
    ("arrival", "node, arrival_id, received_at"),
    ("intake", "role_name"),
)


@pytest.mark.parametrize("sort", ["beat", "events", "both", "everything"])
def test_a_delivery_leaves_the_same_rows_both_ways(
    site: Site, sort: str, full_record: Callable[[type[Any]], Any], make_event: Callable[..., Any]
) -> None:
    """Whichever way it takes, every column holds the same and the counts agree."""
    full = full_record(records.HealthEvent)
    answers = []
    for node in ("n1", "n2"):
        own = {"cluster": "c", "node": node}
        events = [
            dataclasses.replace(full, **own, event_id=uuid.uuid4()),
            make_event(node=node, measured=float("nan"), message="m" * 9000, kind="k" * 300, count=0),
            make_event(node=node, detail={"long": "x" * 70000}),
        ]
        load = DatabaseLoad(
            events=events if sort != "beat" else (),
            heartbeat=dataclasses.replace(full_record(records.AgentHeartbeat), **own)
            if sort != "events"
            else None,
            checks=[dataclasses.replace(full_record(records.CheckResult), **own)]
            if sort == "everything"
            else (),
            allocations=[dataclasses.replace(full_record(records.JobAllocation), **own)]
            if sort == "everything"
            else (),
        )
        if node == "n1":
            with delivery.Delivery(site.url_as(roles.agent_role_name("c", node)), "c", node) as door:
                ack = door.deliver(
                    events=load.events,
                    heartbeat=load.heartbeat,
                    checks=load.checks,
                    allocations=load.allocations,
                )
            answers.append((ack.accepted, ack.duplicates, ack.rejected))
        else:
            (answer,) = site.hand((node, load))
            answers.append((answer["accepted"], answer["duplicates"], answer["rejected"]))
    assert answers[0] == answers[1]
    for table, apart in COMPARED:
        query = f"SELECT to_jsonb(t) - '{{{apart}}}'::text[] FROM probing.{table} t WHERE %s ORDER BY 1"
        key = "role_name" if table == "intake" else "node"
        one, other = (
            site.rows(query % f"{key} = '{roles.agent_role_name('c', n) if key == 'role_name' else n}'")
            for n in ("n1", "n2")
        )
        assert one == other, table


def test_what_came_already_is_counted_and_not_stored_again(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """In one batch, in a later one, and after the node's own way: once each."""
    first, second = make_event(node="n1"), make_event(node="n1")
    with delivery.Delivery(site.url_as(roles.agent_role_name("c", "n1")), "c", "n1") as door:
        door.deliver(events=[first])
    (answer,) = site.hand(("n1", DatabaseLoad(events=[first, second, second])))
    assert (answer["accepted"], answer["duplicates"]) == (1, 2)
    (answer,) = site.hand(("n1", DatabaseLoad(events=[first, second])))
    assert (answer["accepted"], answer["duplicates"]) == (0, 2)
    other = make_event(node="n1")
    twice = site.hand(("n1", DatabaseLoad(events=[other])), ("n1", DatabaseLoad(events=[other])))
    assert [(a["accepted"], a["duplicates"]) for a in twice] == [(1, 0), (0, 1)]
    assert site.rows("SELECT count(*), count(DISTINCT event_id) FROM probing.health_event") == [(3, 3)]


def test_ordinary_deliveries_are_stored_together(site: Site, make_event: Callable[..., Any]) -> None:
    """Events and beats of several nodes take no way of their own; only what is not ordinary does."""
    ordinary = [
        (
            "n1",
            DatabaseLoad(
                events=[make_event(node="n1"), make_event(node="n1")], heartbeat=_beat(make_event, "n1")
            ),
        ),
        ("n2", DatabaseLoad(heartbeat=_beat(make_event, "n2"))),
        ("n3", DatabaseLoad(events=[make_event(node="n3")])),
    ]
    own_way = ("n3", DatabaseLoad(refused=[{"reason": "x", "n_rows": 1, "sample": ""}]))
    names = [roles.agent_role_name("c", node) for node, _ in (*ordinary, own_way)]
    texts = [door_wire.encoded(load).decode() for _, load in (*ordinary, own_way)]
    ((answers,),) = site.rows(
        psycopg.sql.SQL("SELECT probing.deliver_ordinary({}, {})").format(names, texts).as_string()
    )
    assert [a if a is None else json.loads(a)["accepted"] for a in answers] == [2, 0, 1, None]


def test_a_node_speaks_only_for_itself(site: Site, make_event: Callable[..., Any]) -> None:
    """Another node's events and a beat in its name; a role without a node; and the batch beside them is stored."""
    answers = site.hand(
        ("n1", DatabaseLoad(events=[make_event(node="n2")], heartbeat=_beat(make_event, "n3"))),
        ("stranger", DatabaseLoad(events=[make_event(node="n1")])),
        ("n2", DatabaseLoad(events=[make_event(node="n2")], heartbeat=_beat(make_event, "n2"))),
    )
    assert (answers[0]["accepted"], answers[0]["rejected"]) == (0, 1)
    assert answers[1]["sqlstate"] == "42501"
    assert answers[2]["accepted"] == 1
    assert site.rows("SELECT node FROM probing.health_event") == [("n2",)]
    # A heartbeat is the node's whose certificate it came with, whatever it says.
    assert site.rows("SELECT node FROM probing.agent_heartbeat ORDER BY 1") == [("n1",), ("n2",)]
    assert site.rows("SELECT node, reason, n_rows FROM probing.rejection") == [("n1", "another node", 1)]


def test_one_nodes_bad_delivery_is_answered_alone(site: Site, make_event: Callable[..., Any]) -> None:
    """No JSON, no object, a NUL, a number no column holds: each gets its error, the good ones are stored."""
    event = json.loads(door_wire.encoded(DatabaseLoad(events=[make_event(node="n1")])))["events"][0]
    bad = [
        b"{",
        b"[]",
        b"null",
        b'{"events": 7}',
        b'{"events": [7]}',
        b'{"acks": ["no id"]}',
        json.dumps({"events": [event | {"message": "a\0b"}]}).encode(),
        json.dumps({"events": [event | {"pid": 2**80}]}).encode(),
        json.dumps({"events": [event | {"at": "yesterday, perhaps"}]}).encode(),
    ]
    for load in bad:
        good = make_event(node="n2")
        answers = site.hand(("n1", load), ("n2", DatabaseLoad(events=[good])))
        assert set(answers[0]) == {"sqlstate", "error"}, load
        assert answers[1]["accepted"] == 1
    assert site.rows("SELECT DISTINCT node FROM probing.health_event") == [("n2",)]


def test_a_node_that_keeps_its_rows_locked_holds_up_its_own_delivery_alone(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """Whoever holds n1's certificate delivers by itself and leaves the transaction open, then comes through the door."""
    beat = json.loads(door_wire.encoded(DatabaseLoad(heartbeat=_beat(make_event, "n1"))))["heartbeat"]
    with psycopg.connect(site.url_as(roles.agent_role_name("c", "n1"))) as held:
        held.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => 'n1', p_heartbeat => %s::jsonb)",
            [json.dumps(beat)],
        )
        good = make_event(node="n2")
        answers = site.hand(
            ("n1", DatabaseLoad(heartbeat=_beat(make_event, "n1"))), ("n2", DatabaseLoad(events=[good]))
        )
        held.rollback()
    assert answers[0]["sqlstate"] == "55P03"
    assert answers[1]["accepted"] == 1


def test_a_row_that_does_not_fit_is_refused_and_the_rest_of_its_delivery_stored(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """As in the node's own way."""
    event, wrong = (
        json.loads(door_wire.encoded(DatabaseLoad(events=[make_event(node="n1")])))["events"][0]
        for _ in range(2)
    )
    load = {"events": [event, wrong | {"severity": "mortal"}], "heartbeat": {"beat_s": -1}}
    (answer,) = site.hand(("n1", json.dumps(load).encode()))
    assert (answer["accepted"], answer["rejected"]) == (1, 2)
    assert site.rows("SELECT reason FROM probing.rejection ORDER BY 1") == [
        ("heartbeat: malformed",),
        ("malformed",),
    ]


def test_a_node_beyond_its_quota_is_refused_alone(site: Site, make_event: Callable[..., Any]) -> None:
    """Its neighbours of the same batch are not."""
    roles.add_agent(site.url, "c", "n1", rows_per_hour=2)
    load = DatabaseLoad(events=[make_event(node="n1") for _ in range(3)])
    answers = site.hand(("n1", load), ("n2", DatabaseLoad(events=[make_event(node="n2")])))
    assert answers[0]["sqlstate"] == "53400"
    assert answers[1]["accepted"] == 1
    assert site.rows("SELECT node FROM probing.health_event") == [("n2",)]


def test_a_tenth_of_the_quota_is_kept_for_faults_of_the_node_itself(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """Rows of jobs, whatever their severity, never get it; beyond it nothing does."""
    roles.add_agent(site.url, "c", "n1", rows_per_hour=20)
    used = DatabaseLoad(events=[make_event(node="n1", source="joblog", severity="low") for _ in range(20)])
    assert site.hand(("n1", used))[0]["accepted"] == 20

    def one(**values: Any) -> Any:
        return site.hand(("n1", DatabaseLoad(events=[make_event(node="n1", **values)])))[0]

    assert one(source="joblog", severity="high")["sqlstate"] == "53400"
    assert one(source="kernel", severity="low")["sqlstate"] == "53400"
    assert [one(source="kernel", severity="high").get("accepted") for _ in range(3)] == [1, 1, None]


def test_a_flood_of_heartbeats_counts_as_in_the_nodes_own_way(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """At an agent's pace they are free; faster they use the quota up."""
    roles.add_agent(site.url, "c", "n1", rows_per_hour=5)
    beat = ("n1", DatabaseLoad(heartbeat=_beat(make_event, "n1")))
    for _ in range(3):
        assert "sqlstate" not in site.hand(beat)[0]
        with psycopg.connect(site.url, autocommit=True) as owner:
            owner.execute("UPDATE probing.agent_heartbeat SET received_at = now() - interval '5 s'")
    assert site.rows("SELECT * FROM probing.intake") == []
    answers = [site.hand(beat)[0] for _ in range(20)]
    assert answers[-1]["sqlstate"] == "53400"


def test_answers_to_questions_reach_who_asked(site: Site, store: store_module.Store) -> None:
    """Each under its own request, byte for byte; a node answers nothing that was put to another, and no base64 stores nothing."""
    question = uuid.uuid4()
    detail = {"question": str(question), "by": "ada", "scans": [{"table": "cluster.ranks"}]}
    first, second = (store.request(n, "ask", 7, 600, detail, "c") for n in ("n1", "n2"))
    body = b"F\0" + bytes(range(256))
    (bad,) = site.hand(
        ("n1", json.dumps({"answers": [{"request_id": str(first), "body": "no base64!"}]}).encode())
    )
    assert "sqlstate" in bad
    (answer,) = site.hand(("n1", DatabaseLoad(answers=[(first, body), (second, b"Ftheirs")])))
    assert answer["requests"] == []
    assert [(n, b) for n, b, _ in store.answers(question, "ada", None, 1 << 20)] == [("n1", body)]
    assert store.request_states([first, second]) == {first: "acknowledged", second: "open"}


def test_requests_are_handed_out_and_acknowledged(
    site: Site, store: store_module.Store, make_event: Callable[..., Any]
) -> None:
    """Only to their node, until it has dealt with them."""
    calls = store.request("n1", "collect", job_id=7, ttl_s=600, detail={"why": "ended"}, cluster="c")
    beats = [(n, DatabaseLoad(heartbeat=_beat(make_event, n))) for n in ("n1", "n2")]
    first, other = site.hand(*beats)
    assert [r["request_id"] for r in first["requests"]] == [str(calls)]
    assert other["requests"] == []
    (answer,) = site.hand(("n1", DatabaseLoad(acknowledged=[calls])))
    assert answer["requests"] == []


def test_only_the_door_may_and_it_may_nothing_else(site: Site, make_event: Callable[..., Any]) -> None:
    """An agent hands over no batch, and sets itself no other name; the door reads nothing and calls no other function."""
    mine, theirs = roles.agent_role_name("c", "n1"), roles.agent_role_name("c", "n2")
    with psycopg.connect(site.url_as(mine), autocommit=True) as agent:
        for call in ("deliver_batch('{}', '{}')", "deliver_ordinary('{}', '{}')", "deliver_load('x', '{}')"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                agent.execute(f"SELECT probing.{call}")
        agent.execute("SELECT set_config('probing.speaks_for', %s, false)", [theirs])
        beat = json.dumps({"at": make_event().at.isoformat()})
        agent.execute(
            "SELECT probing.deliver(p_cluster => 'c', p_node => 'n2', p_heartbeat => %s::jsonb)", [beat]
        )
    assert site.rows("SELECT node FROM probing.agent_heartbeat") == [("n1",)]
    with psycopg.connect(site.url_as(DOOR), autocommit=True) as door:
        for query in (
            "SELECT probing.deliver('c', 'n1')",
            "SELECT 1 FROM probing.health_event",
            "SELECT 1 FROM probing.agent_role",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                door.execute(query)


def test_a_beat_does_not_make_its_neighbours_events_wait_for_no_disk(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """Heartbeats alone are not waited for; a batch with one event is, even where a lone beat went by itself last."""
    with psycopg.connect(site.url_as(DOOR)) as connection:
        connection.execute("SET synchronous_commit = 'on'")  # the test's server has it off
        connection.commit()

        def setting_after(*loads: tuple[str, DatabaseLoad]) -> str:
            names = [roles.agent_role_name("c", node) for node, _ in loads]
            texts = [door_wire.encoded(load).decode() for _, load in loads]
            connection.execute("SELECT probing.deliver_batch(%b::text[], %b::text[])", (names, texts))
            row = connection.execute("SHOW synchronous_commit").fetchone()
            connection.commit()
            assert row is not None
            return str(row[0])

        beat = ("n1", DatabaseLoad(heartbeat=_beat(make_event, "n1")))
        event = ("n2", DatabaseLoad(events=[make_event(node="n2")]))
        assert setting_after(beat) == "off"
        assert setting_after(event, beat, beat) == "on"
        assert setting_after(("n3", DatabaseLoad(heartbeat=_beat(make_event, "n3"))), beat, beat) == "on"


def test_whatever_nodes_send_every_delivery_gets_its_answer(
    site: Site, make_event: Callable[..., Any]
) -> None:
    """Mutated deliveries of three nodes: as many answers, no row in another's name, no row twice."""
    rng = random.Random(20)
    for _ in range(60):
        loads = [(node, _hostile(rng, node, make_event)) for node in rng.choices(NODES, k=4)]
        answers = site.hand(*loads)
        assert len(answers) == 4
        assert all(set(a) == {"sqlstate", "error"} or a["accepted"] >= 0 for a in answers)
    assert site.rows("SELECT count(*) FROM probing.health_event WHERE cluster <> 'c' OR message <> node") == [
        (0,)
    ]
    assert site.rows("SELECT count(*) - count(DISTINCT event_id) FROM probing.health_event") == [(0,)]
    stored = site.rows("SELECT count(*) FROM probing.health_event")[0][0]
    assert stored > 20


def _hostile(rng: random.Random, node: str, make_event: Callable[..., Any]) -> bytes:
    """A delivery of `node`, whose events say so in their message, with something wrong in it two times out of three."""
    events = [
        make_event(
            node=node,
            message=node,
            at=make_event().at - timedelta(minutes=rng.randrange(5)),
            event_id=uuid.UUID(int=rng.randrange(400)),
        )
        for _ in range(rng.randrange(4))
    ]
    load = json.loads(door_wire.encoded(DatabaseLoad(events=events, heartbeat=_beat(make_event, node))))
    wrong: list[Any] = [
        None,
        7,
        -1,
        "",
        "x",
        [],
        {},
        [[]],
        1e308,
        "\0",
        "9999-12-31",
        {"a": {"a": [1, 2]}},
        True,
    ]
    for _ in range(rng.choice((0, 0, 1, 3))):
        place: Any = rng.choice(
            [
                load,
                load["heartbeat"] if isinstance(load.get("heartbeat"), dict) else load,
                *(
                    e
                    for e in (load.get("events") if isinstance(load.get("events"), list) else [])
                    if isinstance(e, dict)
                ),
            ]
        )
        name = rng.choice([*place, "checks", "acks", "refused", "answers"])
        if name != "message":
            place[name] = rng.choice(wrong)
    body = json.dumps(load).encode()
    return body[: rng.randrange(len(body))] if rng.random() < 0.1 else body


def test_the_reserve_leaves_out_every_source_of_a_jobs_own() -> None:
    """The function names them in SQL: a new one must be added there."""
    text = importlib.resources.files("probing_cluster.db").joinpath("deliver.sql").read_text("utf-8")
    listed = re.search(r"coalesce\(u\.source, 'joblog'\) IN \(([^)]+)\)", text)
    assert listed is not None
    assert set(re.findall(r"'(\w+)'", listed[1])) == vocabulary.JOB_SIDE_SOURCES
