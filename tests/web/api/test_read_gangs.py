"""The ranks of a running job over the API and on its page: mesh, looks, and the picture over time."""

from __future__ import annotations

import urllib.error

import gang_rows
import pytest
import web_world
from web_world import OWNER, STRANGER, World

from probing_cluster.control_plane.gangs import gang_board
from probing_cluster.db import store as db_store
from probing_cluster.web.live import rank_history


def test_who_waits_for_whom_is_told(world: World) -> None:
    """Axes, waits and the rank that all wait for; drawn on the page, with the same in words; not for a stranger."""
    web_world.stuck(world)
    found = world.client(OWNER).mesh(12)
    assert [(a["name"], a["size"], a["named"]) for a in found["axes"]] == [("TP", 2, True), ("DP?", 2, False)]
    assert (found["roots"], found["cycle"]) == ("2", "")
    assert [(w["waiting"], w["awaited"]) for w in found["waits"]] == [("0-1,3", "2")]
    assert found["states"] == {"awaited": "2", "waiting": "0-1,3"}
    text = world.as_user(OWNER).get("/jobs/12").text
    assert "All others finally wait for rank 2." in text
    assert 'class="rank awaited"' in text
    with pytest.raises(urllib.error.HTTPError, match="403"):
        world.client(STRANGER).mesh(12)


def test_a_look_asks_the_nodes_once(world: World) -> None:
    """Nobody looked: 404 and a button; its owner's look asks both nodes, and a second at once asks nobody."""
    store = world.store
    store.upsert_attempts([gang_rows.attempt(12, "n1", "n2", user=OWNER)])
    gang_rows.beat(store, 12, {r: gang_rows.row(r) for r in range(4)})
    client = world.client(OWNER)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        client.mesh(12)
    page = world.as_user(OWNER)
    assert "Ask its nodes now" in page.get("/jobs/12").text
    assert "2 nodes asked" in client.look(12)["outcome"]
    assert "a moment ago" in client.look(12)["outcome"]
    calls = [r["verb"] for r in store.rows("SELECT verb FROM probing.node_request", {})]
    assert calls == ["collect", "collect"]
    fields = {"csrf": page.headers.pop("x-probing-csrf"), "request_key": "a" * 16}
    found = page.post("/act/look/12", data=fields)
    assert (found.status_code, found.headers["location"].partition("?")[0]) == (303, "/jobs/12")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        world.client(STRANGER).look(12)


def test_two_looks_at_once_ask_the_nodes_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first still asks: both asked, and each could fail on what the other changed."""
    world.store.upsert_attempts([gang_rows.attempt(12, "n1", "n2", user=OWNER)])
    gang_rows.beat(world.store, 12, {r: gang_rows.row(r) for r in range(4)})
    client, ask = world.client(OWNER), gang_board.ask
    outcomes: list[str] = []

    def slow(store: db_store.Store, gang: gang_board.BoardGang) -> int:
        if not outcomes:
            outcomes.append("")
            outcomes[0] = client.look(12)["outcome"]
        return ask(store, gang)

    monkeypatch.setattr(gang_board, "ask", slow)
    assert "2 nodes asked" in client.look(12)["outcome"]
    assert outcomes == ["its nodes were asked a moment ago"]


def test_a_look_that_asked_nobody_does_not_count(world: World) -> None:
    """Once its nodes are heard, the next one asks them at once."""
    world.store.upsert_attempts([gang_rows.attempt(12, "n1", "n2", user=OWNER)])
    client = world.client(OWNER)
    for _ in range(2):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            client.look(12)
    gang_rows.beat(world.store, 12, {r: gang_rows.row(r) for r in range(4)})
    assert "2 nodes asked" in client.look(12)["outcome"]


def test_every_figure_over_time_has_its_unit(world: World) -> None:
    """A row a rank; `behind` counts steps, the others seconds."""
    web_world.stuck(world)
    page = world.as_user(OWNER)
    for layer, unit in rank_history.LAYERS.items():
        found = page.get("/api/v1/jobs/12/heat", params={"layer": layer})
        assert (found.headers["x-ranks"], found.headers["x-unit"]) == ("4", unit), layer
    assert found.headers["x-most"] == "3"
    assert list(found.content) == [1, 85, 170, 255]
    assert page.get("/api/v1/jobs/12/heat", params={"layer": "no"}).status_code == 400


def test_a_job_without_ranks_says_what_they_need(world: World) -> None:
    """An empty page says why it is empty."""
    world.store.upsert_attempts([gang_rows.attempt(12, "n1", "n2", user=OWNER)])
    assert "Ranks show where the program runs under the probe" in world.as_user(OWNER).get("/jobs/12").text
