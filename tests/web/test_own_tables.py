"""What a job's program writes into tables of its own, drawn on the job's page, for its owner alone."""

from __future__ import annotations

import dataclasses
import os
import pwd
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import gang_rows
import page_job
import pytest
import test_pages_in_browser
import web_world
from axe_playwright_python import sync_playwright as axe
from web_world import ACTOR, COORDINATOR, OPERATOR, OWNER, STRANGER, World

from probing_cluster.core import settings
from probing_cluster.db import store as db_store
from probing_cluster.evidence import kept_file
from probing_cluster.sandbox.machine import ports
from probing_cluster.web.live import live_question, table_figures

TRAINS = """
import sys
from _probing_probe import page, tables
page.open_page()
rank = int(sys.argv[1])
page.write_identity(rank=rank, world=2, backend="gloo")
train = tables.table("train", step=int, loss=float, note=str)
for step in range(50):
    page.step_done()
    train.append(step, (rank + 1) / (1 + step), "x")
print("ready", flush=True)
import time; time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[page_job.Job]:
    """Two real ranks of ACTOR's job 7 that have written a table."""
    if os.geteuid() != 0:
        pytest.skip("needs root: ACTOR is root")
    made = page_job.Job(tmp_path)
    made.start(2, code=TRAINS)
    yield made
    made.end()


@pytest.fixture
def on_its_node(store: db_store.Store, job: page_job.Job, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A site on the node of that job; job 8 is OWNER's and elsewhere."""
    monkeypatch.setattr(table_figures, "FIGURES", table_figures.Figures())
    made = web_world.world_on(store)
    where_it_runs(made, job)
    yield made
    made.site.reader.close()


def where_it_runs(made: World, job: page_job.Job) -> None:
    """Lets the site find that job's pages, and its agents by the database."""
    config = made.site.service.config
    agent = dataclasses.replace(config.agent, node="n1", job_directory=str(job.base / "jobs"))
    database = dataclasses.replace(config.database, url=made.store.connection_uri())
    made.site.service.config = dataclasses.replace(config, agent=agent, database=database)
    made.store.upsert_attempts(
        [gang_rows.attempt(7, "n1", user=ACTOR), gang_rows.attempt(8, "n1", user=OWNER)]
    )


def test_the_owner_sees_the_tables_drawn(on_its_node: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named and drawn, on a page of their own and by the API; asked for once however often they are looked at."""
    found = on_its_node.client(ACTOR).tables(7)
    assert found["tables"] == [
        {
            "name": "train",
            "columns": "step int, loss float, note text",
            "n_processes": 2,
            "n_rows": 100,
            "n_dropped": 0,
        }
    ]
    assert [f["title"] for f in found["figures"]] == [
        "seconds per step along step",
        "train: loss along step",
    ]
    assert "between 0.02 and 2" in found["figures"][1]["svg"]
    monkeypatch.setattr(live_question, "LONGEST_S", 0.0)  # a second look would be ended at once
    text = on_its_node.as_user(ACTOR).get("/jobs/7/tables").text
    assert text.count("<svg xmlns") == 2
    assert "SELECT%20%2A%20FROM%20python.train%20LIMIT%20100" in text
    assert 'data-tables="/jobs/7/tables"' in on_its_node.as_user(ACTOR).get("/jobs/7").text


def test_nobody_else_sees_them(on_its_node: World) -> None:
    """Not an operator, who may read the report; not a stranger; neither by the page nor by the API."""
    for user in (OPERATOR, OWNER, STRANGER):
        assert on_its_node.as_user(user).get("/jobs/7/tables").status_code == 403, user
        with pytest.raises(urllib.error.HTTPError, match="403"):
            on_its_node.client(user).tables(7)
    for user in (OPERATOR, COORDINATOR):
        page = on_its_node.as_user(user).get("/jobs/8")
        assert (page.status_code, "data-tables" in page.text) == (200, False), user


def test_a_job_elsewhere_is_asked_through_its_agents(on_its_node: World) -> None:
    """A silent agent is named."""
    text = on_its_node.as_user(OWNER).get("/jobs/8/tables").text
    assert "its agent was never heard" in text
    assert "<svg xmlns" not in text


def kept_job(world: World, directory: Path, user: str) -> None:
    """Job 70 is over; of its tables a node has kept one."""
    rows = kept_file.KeptTable(
        schema="python",
        name="train",
        columns=(
            kept_file.KeptColumn(name="step", kind="int", values=[1, 2, 3]),
            kept_file.KeptColumn(name="loss", kind="float", values=[3.0, 2.0, 1.0]),
        ),
    )
    (directory / "c-70-0").mkdir()
    (directory / "c-70-0" / "n1.kept").write_bytes(kept_file.write([rows], 1 << 20)[0])
    config = world.site.service.config
    world.site.service.config = dataclasses.replace(
        config, kept=settings.KeptSettings(directory=str(directory))
    )
    world.store.upsert_attempts([web_world.attempt(70, user=user)])


def test_what_was_kept_is_drawn_where_the_server_is_its_owners(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are files of the owner's: a server that runs as the owner reads them."""
    monkeypatch.setattr(table_figures, "FIGURES", table_figures.Figures())
    kept_job(world, tmp_path, me := pwd.getpwuid(os.geteuid()).pw_name)
    if me != ACTOR:
        pytest.skip("needs root: ACTOR is root")
    text = world.as_user(me).get("/jobs/70").text
    assert 'data-tables="/jobs/70/tables"' in text
    assert "data-every-s" not in text
    text = world.as_user(me).get("/jobs/70/tables").text
    assert "train: loss along step" in text
    assert world.as_user(OPERATOR).get("/jobs/70/tables").status_code == 403


def test_another_servers_page_says_how_the_owner_sees_them(world: World, tmp_path: Path) -> None:
    """Nothing of theirs is read; the sentence is for the owner, and for nobody where nothing is kept."""
    kept_job(world, tmp_path, OWNER)
    text = world.as_user(OWNER).get("/jobs/70").text
    assert "probing-report 70 --html" in text
    assert "data-tables" not in text
    gone = world.as_user(OWNER).get("/jobs/70/tables")
    assert (gone.status_code, "probing-report 70 --html" in gone.text) == (404, True)
    assert "wrote down itself" not in world.as_user(OPERATOR).get("/jobs/70").text
    world.site.service.config = dataclasses.replace(world.site.service.config, kept=settings.KeptSettings())
    assert "wrote down itself" not in world.as_user(OWNER).get("/jobs/70").text


@pytest.mark.slow
def test_they_appear_on_the_page_in_a_browser(
    store: db_store.Store, job: page_job.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn by themselves when the job's page is opened, without an accessibility fault; without script by a link."""
    monkeypatch.setattr(table_figures, "FIGURES", table_figures.Figures())
    port = ports.choose(1)[0]
    made = web_world.world_on(store, listen=f"127.0.0.1:{port}")
    where_it_runs(made, job)
    with test_pages_in_browser.served(made, port) as url, test_pages_in_browser.browsing() as (browser, _):
        page = test_pages_in_browser.logged_in(browser, made, ACTOR).new_page()
        page.goto(f"{url}/jobs/7")
        page.wait_for_selector("#own-tables svg.chart")
        assert page.locator("#own-tables h3").all_inner_texts() == [
            "seconds per step along step",
            "train: loss along step",
        ]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert [v["id"] for v in axe.Axe().run(page).response["violations"]] == [], scheme
        bare = test_pages_in_browser.logged_in(browser, made, ACTOR, java_script_enabled=False).new_page()
        bare.goto(f"{url}/jobs/7")
        bare.get_by_role("link", name="Draw its tables").click()
        assert bare.locator("#own-tables svg.chart").count() == 2
