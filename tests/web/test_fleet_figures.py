"""The fleet's figures come beside: a page shows what is there with its age, and a program waits for one, but not with all threads."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable
from datetime import timedelta

import fakes
import pytest
import web_world
from web_world import OPERATOR, World

from probing_cluster.control_plane import child_process as processes
from probing_cluster.core import errors
from probing_cluster.db import store as db_store
from probing_cluster.web import fleet_figures
from tests.set_clock import SetClock

SCOPE = fleet_figures.FigureScope(days=28)
AGED = re.compile(r'Figures as of <time data-age datetime="([^"]+)"')


def text(world: World, path: str = "/fleet") -> str:
    """A page as an operator gets it."""
    found = world.as_user(OPERATOR).get(path)
    assert found.status_code == 200
    return found.text


def test_nobody_waits_for_figures(world: World) -> None:
    """First that they are computed; then they; a minute later the old ones with their age, and new ones are begun, once."""
    begun: list[Callable[[], object]] = []
    world.site.service.aside = begun.append
    for _ in range(3):
        assert "The figures are being computed" in text(world)
    (work,) = begun
    work()
    page = text(world)
    assert "being computed" not in page
    assert 'id="state-breakdown"' in page
    assert "Nothing is on record before" in page
    assert AGED.findall(page) == [fakes.NOW.isoformat()]
    assert len(begun) == 1
    clock = world.site.service.clock
    assert isinstance(clock, SetClock)
    clock.at += timedelta(seconds=fleet_figures.KEPT_S + 1)
    page = text(world)
    assert AGED.findall(page) == [fakes.NOW.isoformat()]
    assert "newer ones are being computed" in page
    assert 'id="state-breakdown"' in page
    begun[1]()
    later = fakes.NOW + timedelta(seconds=fleet_figures.KEPT_S + 1)
    assert AGED.findall(text(world)) == [later.isoformat()]
    assert len(begun) == 2


def test_more_figures_are_added_to_those_that_are_there(world: World) -> None:
    """Every figure where eight were: the eight are shown, and it is said how many are missing."""
    text(world)
    world.site.service.aside = lambda _work: None
    page = text(world, "/fleet?all=1")
    assert re.search(r"13 of 21 figures are being computed", page)
    assert 'id="state-breakdown"' in page


def test_what_breaks_is_said_and_not_tried_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One failed computation a minute, its reason on the page, and 409 to a program."""
    n_tries = []

    def broken(*_: object) -> dict[str, object]:
        n_tries.append(1)
        raise errors.DatabaseUnavailable("gone away")

    monkeypatch.setattr(fleet_figures, "_figures", broken)
    for _ in range(3):
        assert "could not be computed: gone away" in text(world)
    found = world.as_user(OPERATOR).get("/api/v1/fleet/job-sizes")
    assert (found.status_code, "gone away" in found.text) == (409, True)
    assert len(n_tries) == 1


def test_a_program_waits_for_its_figure_but_not_with_every_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four wait until it is there, the fifth is told to ask again; whose patience ends is told so, too."""
    begun: list[Callable[[], object]] = []
    service, figures = world.site.service, world.site.figures
    service.aside = begun.append
    waiting = [
        threading.Thread(target=lambda: answers.append(figures.wait_for("job-sizes", SCOPE)))
        for _ in range(fleet_figures.MOST_WAITING)
    ]
    answers: list[object] = []
    for thread in waiting:
        thread.start()
    while figures._waiting < fleet_figures.MOST_WAITING:
        pass
    with pytest.raises(fleet_figures.NotComputed, match="others wait"):
        figures.wait_for("job-sizes", SCOPE)
    begun[0]()
    for thread in waiting:
        thread.join()
    assert len(answers) == fleet_figures.MOST_WAITING
    monkeypatch.setattr(fleet_figures, "PATIENCE_S", 0.0)
    with pytest.raises(fleet_figures.NotComputed, match="ask again"):
        figures.wait_for("node-pace", SCOPE)


def test_the_server_computes_in_a_process_of_its_own(
    store: db_store.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `web serve` has it: the engine is no part of the server, and what the child finds is what is shown."""
    made = web_world.world_on(store)
    service = made.site.service
    database = dataclasses.replace(service.config.database, url=store.connection_uri())
    service.config = dataclasses.replace(service.config, database=database)
    service.in_children = True
    store.upsert_attempts([web_world.attempt(7)])
    ran: list[str] = []
    real = processes.run
    monkeypatch.setattr(
        fleet_figures.processes,
        "run",
        lambda name, *given, **more: ran.append(name) or real(name, *given, **more),
    )
    found = made.client(OPERATOR).figure("job-sizes", span="7d")
    assert ran == [fleet_figures.__name__]
    assert len(found["sizes"]) == 1
    made.site.reader.close()
