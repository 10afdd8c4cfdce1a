"""What a list of jobs costs the database does not grow with the jobs of others."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import fakes
import pytest
import sqlalchemy as sa
import web_world
from web_world import COORDINATOR, OPERATOR, OWNER, STRANGER, World

from probing_cluster.control_plane.door import web_keys
from probing_cluster.control_plane.service.tasks.jobs import accounting
from probing_cluster.reports import job_ref, query
from probing_cluster.slurm_plugins import commands
from probing_cluster.web import site as web_site
from probing_cluster.web.api import operation, read_jobs

MANY = """
INSERT INTO probing.job_attempt (cluster, job_id, submit_at, attempt, eligible_at, start_at, end_at, suspended_s, state, nodes, n_gpus, "user", account,
    partition, qos, name, reason, run_key, judged_at)
SELECT 'c', 1000 + n, at, 1, at, at, at + interval '1 hour', 0, 'COMPLETED', ARRAY['n1'], 8, 'user' || n % 20, 'acct', 'gpu', '', 'train', '',
    (1000 + n)::text, at
FROM (SELECT n, now() - interval '1 minute' * n AS at FROM generate_series(1, 20000) n) x
"""
FILTERS = (
    "job_id", "user", "account", "partition", "state", "cause", "domain", "on_node", "since", "until", "running", "after_at", "after_job",
    "after_submit", "few",
)  # fmt: skip


def read(node: dict[str, Any]) -> float:
    """The rows that a plan took from tables, kept or not."""
    own = 0.0
    if node["Node Type"].endswith("Scan") and "Relation Name" in node:
        own = node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
    return own + sum(read(below) for below in node.get("Plans", ()))


FEW_KNOWN = 'ALTER TABLE probing.job_attempt ALTER COLUMN "user" SET STATISTICS 1'
"""As of a real cluster's hundreds of users, of most the planner knows no more than that they are users."""


def test_the_list_of_one_user_does_not_read_everybodys(world: World) -> None:
    """Of one of many, of somebody with a job before twenty thousand of others, of somebody without any."""
    with world.store.engine.begin() as connection:
        connection.execute(sa.text(MANY))
        connection.execute(sa.text(FEW_KNOWN))
        connection.execute(sa.text("ANALYZE probing.job_attempt"))
    text = f"explain (analyze, format json) {web_site.statement('jobs')}"
    for user in ("user7", OWNER, STRANGER):
        proof = web_keys.proof_of(world.site.keys.issue(web_keys.Viewer(user=user), "session", 600.0))
        given = dict.fromkeys(FILTERS) | {
            "cluster": "c",
            "everything": False,
            "viewer": user,
            "accounts": [],
            "n": 51,
        }
        (row,) = world.site.reader.rows(proof, text, given)
        plan = row["QUERY PLAN"][0]["Plan"]
        assert read(plan) < 1000, (user, json.dumps(plan))


JUDGED = """
INSERT INTO probing.verdict (cluster, job_id, submit_at, attempt, cause, domain, node, confidence, summary, evidence, ruled_out, next_step, author,
    rules_version, made_at)
SELECT a.cluster, a.job_id, a.submit_at, 1, 'user_error', 'user_program', 'n1', 'likely', '', '{}', '{}', '', 'rules', '1', a.end_at
FROM probing.job_attempt a WHERE a.job_id >= 1000
"""


KINDS: tuple[dict[str, str], ...] = (
    {"account": "none"}, {"account": "lab"}, {"cause": "none"}, {"cause": "gpu_lost"}, {"cause": "user_error"}, {"domain": "hardware"},
    {"domain": "user_program"},
)  # fmt: skip


def test_the_list_of_one_cause_or_account_does_not_read_everything(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that none, two or all of twenty thousand attempts have, asked for by an operator and by a coordinator."""
    monkeypatch.setattr(read_jobs, "FEW", 100)
    with world.store.engine.begin() as connection:
        connection.execute(sa.text(MANY))
        connection.execute(sa.text(JUDGED))
        connection.execute(sa.text("ANALYZE probing.job_attempt"))
        connection.execute(sa.text("ANALYZE probing.verdict"))
    for viewer, filters in itertools.product((OPERATOR, COORDINATOR), KINDS):
        everything = viewer == OPERATOR
        accounts = () if everything else ("lab",)
        may = web_keys.Viewer(user=viewer, operator=everything, accounts=frozenset(accounts))
        proof = web_keys.proof_of(world.site.keys.issue(may, "session", 600.0))
        found = world.site.keys.find(proof)
        ask = operation.Ask(site=world.site, viewer=found, path={}, query=None)
        few = read_jobs.few(ask, filters.get("cause"), filters.get("domain"))
        scope = {"everything": everything, "viewer": viewer, "accounts": list(accounts), "few": few, "n": 51}
        given = dict.fromkeys(FILTERS) | {"cluster": "c"} | filters | scope
        (row,) = world.site.reader.rows(
            proof, f"explain (analyze, format json) {web_site.statement('jobs')}", given
        )
        plan = row["QUERY PLAN"][0]["Plan"]
        assert read(plan) < 1000, (viewer, filters, json.dumps(plan))


def test_a_report_does_not_read_every_attempt(world: World) -> None:
    """Of a job that is no array: nobody is looked for who might be its sibling."""
    with world.store.engine.begin() as connection:
        connection.execute(sa.text(MANY))
        connection.execute(sa.text("ANALYZE probing.job_attempt"))
        raw = connection.connection.driver_connection
        assert raw is not None
        given = query.parameters("c", job_ref.parse("7"))
        (found,) = raw.execute(f"explain (analyze, format json) {query.SQL}", given).fetchone()
    plan = found[0]["Plan"]
    assert read(plan) < 1000, json.dumps(plan)


def test_a_task_of_an_array_has_the_name_that_squeue_gives_it(world: World) -> None:
    """On Now, in the list, in search and in the API, and it is found by it; its raw id is known to nobody."""
    one, two = (web_world.attempt(16 + n, array_job_id=11, array_task_id=n) for n in (1, 2))
    running = web_world.attempt(19, array_job_id=11, array_task_id=3, state="RUNNING", end_at=None)
    world.store.upsert_attempts([one, two, running])
    world.store.save_verdicts([web_world.verdict(one), web_world.verdict(two, device="gpu5")])
    browser = world.as_user(OWNER)
    assert {"11_1", "11_2", "11_3"} <= {j["ref"] for j in browser.get("/api/v1/jobs").json()["items"]}
    for path in ("/", "/jobs"):
        assert ">11_2</a>" in browser.get(path).text, path
    assert ">11_3</a>" in browser.get("/").text
    assert browser.get("/search?q=11_2").headers["location"] == "/jobs/18"
    (found,) = browser.get("/api/v1/search", params={"q": "11_2"}).json()
    assert (found["name"], found["path"]) == ("11_2", "/jobs/18")


def test_a_component_and_the_last_task_of_an_array_are_found_by_their_names(world: World) -> None:
    """Slurm gives an array's own number to its last task; the number alone would show the whole array."""
    tasks = [web_world.attempt(number, array_job_id=26, array_task_id=n) for n, number in ((3, 29), (4, 26))]
    parts = [web_world.attempt(35 + n, het_job_id=35, het_offset=n) for n in (0, 1)]
    world.store.upsert_attempts([*tasks, *parts])
    browser = world.as_user(OWNER)
    for word, path in (
        ("26_4", "/jobs/26_4"),
        ("26_3", "/jobs/29"),
        ("35+1", "/jobs/36"),
        ("35+0", "/jobs/35"),
    ):
        assert browser.get("/search", params={"q": word}).headers["location"] == path, word
    assert "26_4" in browser.get("/jobs/26_4").text


@pytest.mark.parametrize(
    ("user", "may"), [(OWNER, True), (COORDINATOR, True), (OPERATOR, True), (STRANGER, False)]
)
def test_a_job_that_never_started_is_told_to_whom_it_belonged(world: World, user: str, may: bool) -> None:
    """On its page and in the API: what became of it, and by whom; another's is not known."""
    service = world.site.service
    slurm = fakes.Sacct()
    slurm.rows = [fakes.row_never_started(15, User=OWNER)]
    accounting.run(dataclasses.replace(service, run_slurm=slurm))
    words = f"job 15 never started: it was cancelled by its owner {OWNER} at "
    for path in ("/jobs/15", "/api/v1/jobs/15"):
        found = world.as_user(user).get(path)
        assert found.status_code == 404, path
        assert (words in found.text) is may, path


def test_a_job_that_waits_says_so_on_its_page(world: World) -> None:
    """As `probing-report` does; of another's nothing is told."""
    assert isinstance(world.site.service.run_slurm, fakes.Sacct)
    world.site.service.run_slurm.waiting = f"PENDING|{OWNER}|lab|DependencyNeverSatisfied\n"
    for user, is_own in ((OWNER, True), (STRANGER, False)):
        found = world.as_user(user).get("/jobs/15")
        assert found.status_code == 404
        assert ("job 15 will never start" in found.text, "scancel 15" in found.text) == (is_own, is_own)


def test_a_job_that_slurm_cannot_be_asked_about_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> bytes:
        raise commands.SlurmAway("squeue did not end within 4 s")

    monkeypatch.setattr(world.site.service, "run_slurm", away)
    found = world.as_user(OWNER).get("/jobs/15")
    assert found.status_code == 404
    assert "Slurm does not answer, so whether it waits could not be asked" in found.text


def test_a_page_of_an_error_keeps_a_names_spelling(world: World) -> None:
    """The style sheet begins sentences with a capital letter: "n9 is not known" is none that may."""
    page = world.as_user(OPERATOR).get("/nodes/n9").text
    assert "<p>n9 is not known" in page


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/jobs?state=foo", "COMPLETED"),
        ("/jobs?cause=nosuch", "gpu_lost"),
        ("/jobs?domain=Hardware", "hardware"),
        ("/drains?action=drian", "drain"),
        ("/repairs?state=fixed", "returned"),
        ("/diagnostics?outcome=bad", "fail"),
        ("/nodes?state=broken", "failing checks"),
    ],
)
def test_a_filter_that_nothing_can_match_is_refused(world: World, path: str, word: str) -> None:
    """A monitor with a slip of the pen would be told for ever that nothing is wrong."""
    operator = world.as_user(OPERATOR)
    name = path.partition("?")[2].partition("=")[0]
    refused = operator.get(f"/api/v1{path}")
    assert (refused.status_code, refused.json()["title"]) == (400, "the request cannot be understood")
    detail = refused.json()["detail"]
    assert detail.startswith(f"{name} is none of ")
    assert word in detail.removeprefix(f"{name} is none of ").split(", ")
    well = operator.get(f"/api/v1{path.partition('=')[0]}={word.replace(' ', '%20')}")
    assert well.status_code == 200
    if path.startswith("/jobs"):
        assert operator.get(path).status_code == 400
