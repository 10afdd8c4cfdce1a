"""SQL over a running job's processes for its owner, and the database's answers in every form."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import gang_rows
import page_job
import pytest
import web_world
from pyarrow import parquet
from web_world import ACTOR, OPERATOR, OWNER, World

from probing_cluster.db import store as db_store
from probing_cluster.web.live import live_question


@pytest.fixture
def job(tmp_path: Path) -> Iterator[page_job.Job]:
    """Two real ranks of ACTOR's job 7 with pages on this machine."""
    if os.geteuid() != 0:
        pytest.skip("needs root: ACTOR is root")
    made = page_job.Job(tmp_path)
    made.start(2)
    yield made
    made.end()


@pytest.fixture
def world(store: db_store.Store, job: page_job.Job) -> Iterator[World]:
    """A site on the node of that job."""
    made = web_world.world_on(store)
    config = made.site.service.config
    agent = dataclasses.replace(config.agent, node="n1", job_directory=str(job.base / "jobs"))
    made.site.service.config = dataclasses.replace(config, agent=agent)
    store.upsert_attempts([gang_rows.attempt(7, "n1", user=ACTOR), gang_rows.attempt(8, "n1", user=OWNER)])
    yield made
    made.site.reader.close()


def test_the_owner_asks_the_processes(world: World, tmp_path: Path) -> None:
    """Rows of live tables; nobody else's, no operator's, none of a job elsewhere; and no statement that touches a file."""
    client = world.client(ACTOR)
    found = client.live(7, sql="SELECT rank, step, inside FROM cluster.ranks ORDER BY rank")
    assert found["heads"] == ["rank", "step", "inside"]
    assert found["rows"] == [[0, 70, "broadcast"], [1, 70, "broadcast"]]
    assert (found["more"], found["missing"]) == (False, [])
    for user in (OPERATOR, OWNER):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            world.client(user).live(7, sql="SELECT 1")
    with pytest.raises(urllib.error.HTTPError, match="404"):  # its pages are not on this host
        world.client(OWNER).live(8, sql="SELECT 1")
    target = tmp_path / "out.csv"
    for text in (
        f"COPY (SELECT 1) TO '{target}'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
    ):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            client.live(7, sql=text)
    assert not target.exists()


def test_a_job_elsewhere_is_asked_through_its_agents(world: World, store: db_store.Store) -> None:
    """Its owner alone; a silent agent is named, and an expression is refused on that way."""
    service = world.site.service
    database = dataclasses.replace(service.config.database, url=store.connection_uri())
    service.config = dataclasses.replace(service.config, database=database)
    client = world.client(OWNER)
    found = client.live(8, sql="SELECT rank FROM cluster.ranks")
    assert (found["rows"], found["missing"]) == ([], ["n1: its agent was never heard"])
    for user, text in ((OWNER, "SELECT * FROM python.`1 + 1`"), (OPERATOR, "SELECT rank FROM cluster.ranks")):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            world.client(user).live(8, sql=text)


def test_spans_of_time_and_nan_come_to_the_browser(world: World) -> None:
    """JSON has neither: both are text."""
    found = world.client(ACTOR).live(
        7, sql="SELECT now() - now() AS lag, interval '1 day' AS span, CAST('NaN' AS double) AS loss"
    )
    assert found["rows"] == [["00:00:00", "1 day", "nan"]]


def test_a_question_that_takes_too_much_is_refused_in_the_askers_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what a question may take here, and the way without that bound."""
    monkeypatch.setattr(live_question, "LONGEST_S", 0.01)
    answer = world.as_user(ACTOR).post("/api/v1/jobs/7/sql", json={"sql": "SELECT rank FROM cluster.ranks"})
    assert answer.status_code == 400
    assert "may take 0.01 s" in answer.text
    assert "probing-ctl sql 7" in answer.text


def test_the_page_gives_table_chart_csv_and_parquet(world: World) -> None:
    """Of a running job a table and a chart; of the database every form; a job nobody knows is named."""
    page = world.as_user(ACTOR)
    fields = {"csrf": page.headers.pop("x-probing-csrf")}
    live = {"job": "7", "sql": "SELECT rank, step FROM cluster.ranks ORDER BY rank"}
    stored = {"job": "", "sql": "SELECT job_id AS rank, 70 AS step FROM attempt_verdicts ORDER BY 1"}
    for calls in (live, stored):
        text = page.post("/sql", data=fields | calls).text
        assert "<svg" in text
        assert '<td class="number">70</td>' in text
    rows = list(csv.reader(io.StringIO(page.post("/sql", data=fields | stored | {"as": "csv"}).text)))
    assert rows == [["rank", "step"], ["7", "70"], ["8", "70"]]
    table = parquet.read_table(io.BytesIO(page.post("/sql", data=fields | live | {"as": "parquet"}).content))
    assert table["step"].to_pylist() == [70, 70]
    wrong = page.post("/sql", data=fields | {"job": "999", "sql": "SELECT 1"})
    assert wrong.status_code == 400
    assert "not known" in wrong.text
