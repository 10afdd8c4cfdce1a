"""Every route of the API: owner, coordinator, stranger, operator, nobody."""

from __future__ import annotations

import pytest
from web_world import COORDINATOR, OPERATOR, OWNER, STRANGER, World

from probing_cluster.web.api import openapi, register

DOCUMENT = openapi.document(register.OPERATIONS)
OF_A_JOB = [path for path in DOCUMENT["paths"] if "{job}" in path]
BODIES = {
    "/sql": {"sql": "select 1"},
    "/jobs/{job}/verdict": {"cause": "gpu_lost"},
    "/nodes/{node}/drain": {"reason": "x"},
}
FILL = {"{job}": "8", "{node}": "n3", "{figure}": "job-sizes"}
ALL = [(path, method) for path, ops in DOCUMENT["paths"].items() for method in ops]


def filled(path: str, job: str = "8") -> str:
    for name, value in (FILL | {"{job}": job}).items():
        path = path.replace(name, value)
    return openapi.BASE + path


def send(browser, path: str, method: str, job: str = "8"):
    options = {}
    if method == "post":
        options = {"json": BODIES.get(path, {}), "headers": {"idempotency-key": "k" * 16}}
    query = "?q=x" if path == "/search" else ""
    return browser(method.upper(), filled(path, job) + query, **options)


@pytest.mark.parametrize(("path", "method"), ALL)
def test_nobody_gets_anything(world: World, path: str, method: str) -> None:
    """Without a key every route answers 401, whatever is asked."""
    found = send(world.as_user(None), path, method)
    assert found.status_code == 401
    assert found.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("path", OF_A_JOB)
def test_anothers_job_is_refused_by_every_route(world: World, path: str) -> None:
    """403 for a stranger, an owner of another job and a coordinator of another account; the owner and operators see theirs."""
    for method in DOCUMENT["paths"][path]:
        for user in (STRANGER, COORDINATOR, OWNER):
            assert send(world.as_user(user), path, method, "8").status_code == 403, (user, path)
        assert send(world.as_user(STRANGER), path, method, "7").status_code == 403
        if method == "get":
            for user in (OWNER, COORDINATOR, OPERATOR):
                assert send(world.as_user(user), path, method, "7").status_code in (200, 404), (user, path)
