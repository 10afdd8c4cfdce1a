"""Agents of the release before deliver into this release's database and are answered in words they know."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from probing_cluster.core import records
from probing_cluster.db import delivery, roles
from probing_cluster.db import store as store_module
from probing_cluster.db.server import embedded

PROTOCOL = sorted((Path(__file__).parent / "protocol").glob("agent_*.sql"))
"""One recorded call for each wire format that agents in the field may still speak."""
OPTIONAL = [
    item.name
    for item in dataclasses.fields(records.HealthEvent)
    if item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
]


@pytest.fixture
def as_agent(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection as n1's own role."""
    name = roles.add_agent(postgres_url, "c", "n1")
    try:
        with psycopg.connect(postgres_url.replace(f"{embedded.OWNER}@", f"{name}@"), autocommit=True) as made:
            yield made
    finally:
        roles.remove(postgres_url, name)


@pytest.mark.parametrize("call", PROTOCOL, ids=lambda path: path.stem)
def test_a_recorded_delivery_is_taken_and_answered(
    call: Path, as_agent: psycopg.Connection[Any], store: store_module.Store
) -> None:
    """Every row arrives, once; the answer has the counts and requests that agent reads."""
    calls = store.request("n1", "collect", job_id=7, ttl_s=600, detail={"why": "ended"}, cluster="c")
    text = call.read_text(encoding="utf-8")
    found = [as_agent.execute(text).fetchone() for _ in range(2)]
    first, again = [row[0] for row in found if row is not None]
    assert {k: first[k] for k in ("accepted", "duplicates", "rejected")} == {
        "accepted": 2, "duplicates": 0, "rejected": 0,
    }  # fmt: skip
    assert (again["accepted"], again["duplicates"]) == (0, 2)
    request, = first["requests"]  # fmt: skip
    assert {"request_id", "verb", "job_id", "expires_at", "detail"} <= request.keys()
    assert (request["request_id"], request["verb"], request["job_id"]) == (str(calls), "collect", 7)
    assert delivery.ack(first).accepted == 2
    xid, mount = sorted(store.events(), key=lambda e: e.at)
    assert (xid.code, xid.device, xid.gpu_uuid, xid.detail, xid.count) == (
        "79",
        "gpu3",
        "GPU-1",
        {"a": [1, None]},
        1,
    )
    assert (mount.device, mount.count, mount.measured, mount.unit) == ("/scratch", 3, 0.0, "count")
    check, = store.checks()  # fmt: skip
    assert (check.outcome, check.measured) == (records.Outcome.FAIL, 7.0)
    held, = store.allocations(7)  # fmt: skip
    assert (held.gpu_uuids, held.detail) == (("GPU-1",), {"run_key": "r"})
    beat, = store.heartbeats(with_ranks=True)  # fmt: skip
    assert (beat.version, beat.jobs, beat.ranks) == ("0.1.0", (7,), {})


@pytest.mark.parametrize("field", OPTIONAL)
def test_an_event_without_a_field_has_its_default(
    field: str, as_agent: psycopg.Connection[Any], store: store_module.Store, make_event: Callable[..., Any]
) -> None:
    """An agent that does not know an optional field of events leaves its column out, and the row is stored."""
    event = make_event(**{field: _default(field)})
    kinds = dict(delivery.EVENT_FIELDS)
    given = {name: getattr(event, name) for name in kinds if name != field}
    given |= {"detail": Jsonb(event.detail)} if field != "detail" else {}
    names = ", ".join(f"e_{name} => ARRAY[%({name})s::text]::{kinds[name]}[]" for name in given)
    row = as_agent.execute(
        f"SELECT probing.deliver(p_cluster => 'c', p_node => 'n1', {names})",
        given,
    ).fetchone()
    assert row is not None
    assert (row[0]["accepted"], row[0]["rejected"]) == (1, 0)
    assert store.events() == [event]


def _default(field: str) -> Any:
    item = next(item for item in dataclasses.fields(records.HealthEvent) if item.name == field)
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


def test_every_argument_of_the_door_can_be_left_out(postgres_url: str) -> None:
    """A later argument without a default would shut the door to every agent before; two functions of the name would, too."""
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(
            "SELECT pronargs - pronargdefaults FROM pg_proc WHERE pronamespace = 'probing'::regnamespace AND proname = 'deliver'"
        ).fetchall()
    assert found == [(2,)], "p_cluster and p_node, once"


def test_what_the_present_agent_sends_is_on_record(postgres_url: str) -> None:
    """A new argument is a new wire format: record what agents sent until now beside it, as protocol/agent_<release>.sql."""
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(
            "SELECT proargnames FROM pg_proc WHERE pronamespace = 'probing'::regnamespace AND proname = 'deliver'"
        ).fetchone()
    assert row is not None
    latest = PROTOCOL[-1].read_text(encoding="utf-8")
    assert [name for name in row[0] if f"{name} =>" not in latest] == []


def test_an_unknown_answer_is_no_trouble() -> None:
    """An agent reads past what a later database adds to the answer."""
    request = {
        "request_id": str(uuid.UUID(int=1)), "verb": "recheck", "job_id": None, "expires_at": "2026-11-01T10:00:00+00:00",
        "detail": {}, "later": 1,
    }  # fmt: skip
    ack = delivery.ack({"accepted": 1, "duplicates": 0, "rejected": 0, "requests": [request], "later": {}})
    assert (ack.accepted, ack.requests[0].verb) == (1, "recheck")
