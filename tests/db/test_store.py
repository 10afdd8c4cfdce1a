"""The store reads events, states and decisions back by what people ask for."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from probing_cluster.core import errors, records, settings
from probing_cluster.db import delivery, engines
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded

Make = Callable[..., Any]


def test_events_are_found(postgres_url: str, store: store_module.Store, make_event: Make) -> None:
    """By node, span, job, kind, least severity and id, oldest first."""
    at = make_event().at
    events = [
        make_event(at=at - timedelta(days=40), severity="info", kind="thermal"),
        make_event(at=at, job_id=7, severity="low"),
        make_event(at=at + timedelta(seconds=1)),
        make_event(at=at + timedelta(seconds=2), node="n2", kind="ib_link"),
    ]
    for node in ("n1", "n2"):
        delivery.Delivery(postgres_url, "c", node).deliver(events=[e for e in events if e.node == node])

    def found(**query: Any) -> list[int]:
        return [events.index(e) for e in store.events(**query)]

    assert found() == [0, 1, 2, 3]
    assert found(nodes=["n2"]) == found(kinds=["ib_link"]) == [3]
    assert found(since=at, until=at + timedelta(seconds=2)) == [1, 2]
    assert found(job_id=7) == [1]
    assert found(min_severity="high") == [2, 3]
    assert found(min_severity=records.Severity.LOW) == [1, 2, 3]
    assert found(limit=2) == [0, 1]
    assert store.events_by_id([events[0].event_id, events[3].event_id, uuid.uuid4()]) == [
        events[0],
        events[3],
    ]


def test_decisions_are_kept(store: store_module.Store, make_event: Make) -> None:
    """A drain is recorded, changed and found; an unknown one cannot be changed."""
    at = make_event().at
    drain = records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n1", at=at, action="drain", reason="probing: xid 79 gpu3",
        owner="probing", state="done", event_ids=(uuid.uuid4(),),
    )  # fmt: skip
    requeue = dataclasses.replace(drain, drain_id=uuid.uuid4(), action="requeue", job_id=4)
    store.save_drain(drain)
    store.save_drain(requeue)
    assert store.drains(open_only=True) == [drain]
    assert store.drains(job_id=4) == store.drains(actions=["requeue"]) == [requeue]
    store.update_drain(drain.drain_id, state="resumed", ended_at=at)
    assert store.drains(open_only=True) == []
    assert store.drains(states=["resumed"]) == [dataclasses.replace(drain, state="resumed", ended_at=at)]
    with pytest.raises(errors.NotFound):
        store.update_drain(uuid.uuid4(), state="done")


def test_words_scores_and_cursors_are_kept(store: store_module.Store, make_event: Make) -> None:
    """Notes by subject, scores by day and node, and remembered values come back."""
    at = make_event().at
    note = records.OperatorNote(
        note_id=uuid.uuid4(), cluster="c", at=at, author="eve", subject="node:n1", action="repaired"
    )
    store.add_note(note)
    assert store.notes("node:n1") == store.notes(action="repaired") == [note]
    assert store.notes("node:n2") == []
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    scores = [
        records.LemonScore(
            cluster="c", node=node, day=day - timedelta(days=ago), score=score, verdict="ok", made_at=at
        )
        for node, ago, score in (("n1", 0, 0.2), ("n2", 0, 0.9), ("n1", 1, 0.5))
    ]
    store.save_lemon_scores(scores)
    store.save_lemon_scores(scores)
    assert store.lemon_scores() == store.lemon_scores(day=day) == [scores[1], scores[0]]
    assert store.lemon_scores(node="n1") == [scores[2], scores[0]]
    assert store.recall("sacct") is None
    store.remember("sacct", {"until": "x"})
    store.remember("sacct", {"until": "y"})
    assert store.recall("sacct") == {"until": "y"}


def test_only_the_score_that_a_word_answers_is_read_and_of_it_the_models_number(
    store: store_module.Store,
) -> None:
    """A year of a thousand nodes' scores with all their signals was 1.4 GB in the lemon night."""
    day = datetime(2026, 11, 1, tzinfo=UTC)
    scores = [
        records.LemonScore(
            cluster=cluster, node="n1", day=day + timedelta(days=n), score=n / 10, verdict="ok", made_at=day, reasons=("long",),
            signals={"model": n / 100, "failures": ["many"] * 100},
        )
        for cluster in ("c", "d") for n in range(5)
    ]  # fmt: skip
    store.save_lemon_scores(scores)
    calls = [
        ("n1", day + timedelta(days=3)),
        ("n1", day + timedelta(days=3.9)),
        ("n1", day + timedelta(days=0.9)),
        ("n9", day),
    ]
    (found,) = store.scores_answered("c", calls)
    assert (found.cluster, found.day, found.score, found.signals) == (
        "c",
        day + timedelta(days=2),
        0.2,
        {"model": 0.02},
    )
    assert store.scores_answered("c", []) == []


def test_a_session_that_may_not_write_is_not_used_again(postgres_url: str, store: store_module.Store) -> None:
    """It is read-only for its life; what reads goes on meanwhile, and after the outage one session at most is refused."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        for opened in [store.engine.connect() for _ in range(3)]:
            opened.close()
        with pytest.raises(
            errors.DatabaseReadOnly, match="the database is read-only: cannot execute"
        ) as raised:
            store.remember("k", 1)
        with pytest.raises(errors.DatabaseReadOnly):
            store.require_writable()
        assert "cannot be reached" not in str(raised.value)
        assert store.recall("k") is None
        owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    refused = 0
    for number in range(4):
        try:
            store.remember("k", number)
        except errors.DatabaseReadOnly:  # the one that read
            refused += 1
    store.require_writable()
    assert (refused <= 1, store.recall("k")) == (True, 3)


def test_a_session_that_the_server_ended_is_not_used_again(
    postgres_url: str, store: store_module.Store
) -> None:
    """A failover ends all of them (57P01): the one at work fails its block, and the next one is new."""
    with store.engine.connect() as idle:
        idle.execute(sa.text("SELECT 1"))
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'probing' AND datname = current_database()"
    with store.engine.connect() as busy, psycopg.connect(postgres_url, autocommit=True) as owner:
        busy.execute(sa.text("SELECT 1"))
        owner.execute(ended)
        with pytest.raises(errors.DatabaseUnavailable, match="cannot be reached"), engines.translated():
            busy.execute(sa.text("SELECT 1"))
    store.remember("k", 2)
    assert store.recall("k") == 2


def test_requests_are_from_a_fixed_list(store: store_module.Store) -> None:
    """Nothing but the listed verbs can be asked of a node, and a withdrawn request is not handed out."""
    with pytest.raises(errors.UsageError, match="collect, refusal_permission, recheck, keep_log"):
        store.request("n1", "rm -rf /")
    made = store.request("n1", "recheck", cluster="c")
    store.cancel_request(made)
    assert store.request_states([made]) == {made: "expired"}
    assert delivery.Delivery(store.url, "c", "n1").deliver().requests == ()


def test_settings_without_a_url_mean_the_embedded_server(postgres_directory: Path) -> None:
    """The store of default settings starts the server of the configured directory and makes its schema."""
    chosen = settings.Settings(database=settings.DatabaseSettings(directory=str(postgres_directory)))
    with store_module.Store.open(chosen, upgrade=True) as store:
        assert store.connection_uri() == embedded.url(postgres_directory)
        assert store.attempts() == []


@pytest.mark.parametrize("url", ["mysql://x/y", "nonsense"])
def test_a_url_of_another_database_is_a_setting_error(url: str) -> None:
    """Only postgresql:// is spoken, and the message says so."""
    with pytest.raises(errors.SettingsError, match="postgresql://"):
        store_module.Store.open(url)


def test_an_empty_database_says_what_to_run(postgres_directory: Path, postgres_url: str) -> None:
    """A database without our schema is answered with the command that makes it."""
    with (
        store_module.Store.open(embedded.url(postgres_directory, database="postgres")) as store,
        pytest.raises(errors.DatabaseUnavailable, match="probing-ctl db upgrade"),
    ):
        store.attempts()


def test_exclusions_keep_their_first_time_and_are_forgotten(
    store: store_module.Store, make_event: Make
) -> None:
    """A job seen again adds nothing; old exclusions go."""
    at = make_event().at
    first = [
        records.JobExclusion(cluster="c", node=node, job_id=7, at=at, user="eve") for node in ("n1", "n2")
    ]
    assert store.save_exclusions(first) == 2
    later = [dataclasses.replace(first[0], at=at + timedelta(days=1))]
    assert store.save_exclusions(later) == 0
    assert store.save_exclusions([]) == 0
    assert store.forget_exclusions(at) == 0
    assert store.forget_exclusions(at + timedelta(seconds=1)) == 2


def test_a_row_that_cannot_be_read_is_left_out_of_every_reading(
    store: store_module.Store, make_event: Make
) -> None:
    """One node's row of an earlier time must not end a look at a gang, an account or a requeue."""
    now = datetime.now(UTC).replace(microsecond=0)
    events = [
        make_event(event_id=uuid.UUID(int=n), node=f"n{n}", at=now, kind="first_step", job_id=7)
        for n in (1, 2)
    ]
    requests = {}
    for n, event in enumerate(events, 1):
        with delivery.Delivery(store.connection_uri(), event.cluster, event.node) as agent:
            requests[n] = store.request(event.node, "collect", cluster=event.cluster)
            beat = records.AgentHeartbeat(cluster=event.cluster, node=event.node, at=now, boot_id="b")
            agent.deliver(events=[event], heartbeat=beat)
            agent.deliver(heartbeat=beat, acknowledged=[requests[n]])
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE probing.health_event SET detail = 'null' WHERE node = 'n1'"))
        connection.execute(sa.text("UPDATE probing.agent_heartbeat SET faults = '[]' WHERE node = 'n1'"))
    assert [e.node for e in store.events_on({"n1": now, "n2": now})] == ["n2"]
    assert [b.node for b in store.beats_after(requests.values()).values()] == ["n2"]
    assert store.skipped.counts() == {"n1": 2}
