"""Pages and answers are of the service's cluster, or of the one that is asked for; a database may hold several."""

from __future__ import annotations

import dataclasses

import pytest
import web_world
from web_world import ACTOR, OPERATOR, STRANGER, World

from probing_cluster.web.live import live_question, now, table_figures
from tests import two_clusters
from tests.two_clusters import NODE, OURS, THEIRS

LISTS = ("jobs", "nodes", "events", "incidents", "drains", "diagnostics", "repairs", "lemons")


@pytest.fixture
def both(world: World) -> World:
    """The site of cluster c on a database that has a cluster zeta, too."""
    two_clusters.fill(world.store)
    world.site.service._seldom.clear()
    return world


def test_a_list_is_of_one_cluster(both: World) -> None:
    """Without a word of the service's own, else of the one that is named."""
    browser = both.as_user(OPERATOR)
    for name in LISTS:
        for cluster, query in ((OURS, ""), (THEIRS, f"&cluster={THEIRS}")):
            items = browser.get(f"/api/v1/{name}?limit=200{query}").json()["items"]
            assert {i["cluster"] for i in items} == {cluster}, (name, cluster)


def test_every_node_is_on_some_page(both: World) -> None:
    """The last name of a page is where the next begins."""
    browser, names, cursor = both.as_user(OPERATOR), [], ""
    while True:
        page = browser.get(f"/api/v1/nodes?limit=1{cursor}").json()
        names += [(i["cluster"], i["node"]) for i in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert len(names) == len(set(names))
    assert names.count((OURS, NODE)) == 1


def test_a_nodes_page_is_of_one_cluster(both: World) -> None:
    """Its state, checks, GPUs, timeline and repair; Slurm and the agent here are of the service's own."""
    browser = both.as_user(OPERATOR)
    for cluster, query in ((OURS, ""), (THEIRS, f"?cluster={THEIRS}")):
        node = browser.get(f"/api/v1/nodes/{NODE}{query}").json()
        checks = {c["message"] for c in node["checks"] if c["name"] == "mounts"}
        gpus = {g["gpu_uuid"] for g in node["gpus"] if g["gpu_uuid"].startswith(("GPU-c", "GPU-z"))}
        assert (node["cluster"], checks, gpus) == (cluster, {f"of {cluster}"}, {f"GPU-{cluster}"})
        words = str(browser.get(f"/api/v1/nodes/{NODE}/timeline{query}").json())
        other = THEIRS if cluster == OURS else OURS
        assert f"of {cluster}" in words
        assert f"of {other}" not in words
        assert browser.get(f"/api/v1/nodes/{NODE}/repair{query}").json()["repair"]["cluster"] == cluster
    assert node["slurm_state"] is None
    text = browser.get(f"/nodes/{NODE}?cluster={THEIRS}").text
    assert "which this service does not watch" in text
    assert 'action="/act/drain' not in text


def test_pages_name_the_other_clusters(both: World) -> None:
    """A database of one cluster says nothing of it."""
    browser = both.as_user(OPERATOR)
    for page in ("/nodes", "/jobs", "/repairs"):
        assert f'href="{page}?cluster={THEIRS}"' in browser.get(page).text
        theirs = browser.get(f"{page}?cluster={THEIRS}").text
        assert f"Of cluster {THEIRS}" in theirs
    assert f'href="/nodes/{NODE}?cluster={THEIRS}"' in browser.get(f"/nodes?cluster={THEIRS}").text


def test_one_cluster_is_not_named(world: World) -> None:
    assert "the database holds others" not in world.as_user(OPERATOR).get("/nodes").text


def test_a_report_is_of_the_cluster_that_is_asked_for(both: World) -> None:
    """Job 7 of both."""
    browser = both.as_user(OPERATOR)
    assert browser.get("/api/v1/jobs/7").json()["cluster"] == OURS
    assert browser.get(f"/api/v1/jobs/7?cluster={THEIRS}").json()["cluster"] == THEIRS
    assert {a["cluster"] for a in browser.get(f"/api/v1/jobs/7/attempts?cluster={THEIRS}").json()} == {THEIRS}


def test_the_now_page_is_of_the_services_cluster(both: World) -> None:
    """A node of the other cluster would bear our Slurm's state and our repair."""
    found = now.gather(both.site)
    assert {n.cluster for n in found.nodes} == {OURS}
    assert {j.cluster for j in found.jobs} == {OURS}
    assert {i.cluster for i in found.incidents} <= {OURS}


def test_a_search_finds_in_every_cluster_and_says_where(both: World) -> None:
    found = both.as_user(OPERATOR).get(f"/api/v1/search?q={NODE}").json()
    assert {f["path"] for f in found if f["kind"] == "node" and f["name"] == NODE} == {
        f"/nodes/{NODE}", f"/nodes/{NODE}?cluster={THEIRS}",
    }  # fmt: skip
    jobs = both.as_user(OPERATOR).get("/api/v1/search?q=7").json()
    assert {f["path"] for f in jobs if f["kind"] == "job"} == {"/jobs/7", f"/jobs/7?cluster={THEIRS}"}


def test_a_verdict_of_the_web_is_on_our_job(both: World) -> None:
    """Job 9 is the other cluster's alone: nobody here judges it."""
    attempt = both.store.of(THEIRS).attempts(job_ids=[7])[0]
    both.store.upsert_attempts([dataclasses.replace(attempt, job_id=9)])
    browser = both.as_user(ACTOR)
    body = {"cause": "gpu_lost", "note": "it was out", "node": NODE}
    answer = browser.post("/api/v1/jobs/9/verdict", json=body, headers={"idempotency-key": "k" * 16})
    assert answer.status_code == 404
    assert both.store.verdicts(job_ids=[9]) == []


@pytest.mark.parametrize("known", [True, False], ids=["accounted", "just started"])
def test_whoever_owns_a_job_elsewhere_asks_no_other_of_its_number(
    both: World, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Job 12 runs on both clusters: STRANGER's on the other one, OWNER's here, where its processes would be asked."""
    running = web_world.attempt(12, end_at=None, state="RUNNING")
    theirs = dataclasses.replace(running, cluster=THEIRS, user=STRANGER)
    both.store.of(None).upsert_attempts([theirs, *([running] if known else [])])
    questions = []
    monkeypatch.setattr(live_question, "ask", lambda _config, job, *_: questions.append(job))
    monkeypatch.setattr(table_figures.FIGURES, "look", lambda _service, gang: questions.append(gang.ref))
    page = both.as_user(STRANGER)
    fields = {
        "csrf": page.headers.pop("x-probing-csrf"),
        "job": "12",
        "sql": "SELECT rank FROM cluster.ranks",
    }
    for cluster in ("", f"?cluster={THEIRS}"):
        answers = [page.post(f"/sql{cluster}", data=fields), page.get(f"/jobs/12/tables{cluster}")]
        assert {a.status_code for a in answers} <= {400, 403, 404}, [a.text for a in answers]
    assert questions == []
    assert f"of cluster {THEIRS}" in answers[0].text
    assert "/jobs/12/tables" not in page.get(f"/jobs/12?cluster={THEIRS}").text
