"""Every route of the API: owner, coordinator, stranger, operator, nobody."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from web_world import COORDINATOR, OPERATOR, OWNER, STRANGER, World

from probing_cluster.control_plane.door import web_keys
from probing_cluster.core import errors
from probing_cluster.web import app
from probing_cluster.web.api import endpoints, openapi, register

DOCUMENT = openapi.document(register.OPERATIONS)
OF_A_JOB = [path for path in DOCUMENT["paths"] if "{job}" in path]
BODIES = {
    "/sql": {"sql": "select 1"},
    "/jobs/{job}/verdict": {"cause": "gpu_lost"},
    "/nodes/{node}/drain": {"reason": "x"},
    "/jobs/{job}/sql": {"sql": "select 1"},
}
FILL = {"{job}": "8", "{node}": "n3", "{figure}": "job-sizes", "{round}": "0" * 32}
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


def test_nobody_gets_anything(world: World) -> None:
    """Without a key every route answers 401, whatever is asked."""
    nobody = world.as_user(None)
    for path, method in ALL:
        found = send(nobody, path, method)
        assert found.status_code == 401, (path, method)
        assert found.headers["content-type"] == "application/problem+json", (path, method)


def test_anothers_job_is_refused_by_every_route(world: World) -> None:
    """403 for a stranger, an owner of another job and a coordinator of another account; the owner and operators see theirs."""
    for path in OF_A_JOB:
        for method in DOCUMENT["paths"][path]:
            for user in (STRANGER, COORDINATOR, OWNER):
                assert send(world.as_user(user), path, method, "8").status_code == 403, (user, path)
            assert send(world.as_user(STRANGER), path, method, "7").status_code == 403, path
            if method == "get":
                for user in (OWNER, COORDINATOR, OPERATOR):
                    assert send(world.as_user(user), path, method, "7").status_code in (200, 404), (
                        user,
                        path,
                    )


def test_what_is_for_operators_is_refused_to_others(world: World) -> None:
    """Every route that is of no one job: 403 for who is no operator, and no action without the right to act."""
    owner, operator = world.as_user(OWNER), world.as_user(OPERATOR)
    for op in register.OPERATIONS:
        if op.operators:
            assert send(owner, op.path, op.method.lower(), "7").status_code == 403, op.name
        if op.acts:
            assert send(operator, op.path, "post", "7").status_code == 403, op.name


def test_who_may_not_act_is_told_what_would() -> None:
    """A token that only reads is not its user's lack of rights."""
    acts = next(op for op in register.OPERATIONS if op.acts)
    for kind, words in (
        ("token", "this token may not act: .*--act"),
        ("session", r"root may not act .*actors"),
    ):
        with pytest.raises(errors.NotPermitted, match=words):
            endpoints.require(acts, web_keys.Viewer(user="root", operator=True, kind=kind))


@pytest.mark.parametrize("status", [404, 405])
def test_an_unknown_address_names_the_document(status: int) -> None:
    request = Request({"type": "http", "path": "/api/v1/frob", "headers": []})
    made = asyncio.run(app._http_error(request, HTTPException(status)))
    assert "/api/v1/openapi.json" in json.loads(bytes(made.body))["detail"]
