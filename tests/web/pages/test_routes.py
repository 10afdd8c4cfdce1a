"""The pages: all of them render, for whom they are; names are never markup; every address works under a path of its own."""

from __future__ import annotations

import re

from web_world import OPERATOR, OWNER, STRANGER, World

PAGES = ("/", "/jobs", "/jobs/7", "/search?q=7", "/search?q=nothing-there", "/sql")
OPERATORS = ("/nodes", "/nodes/n1", "/fleet", "/lemons", "/repairs")


def test_every_page_renders_for_whom_it_is(world: World) -> None:
    """Operators see all pages; others see theirs, and of others' none."""
    operator, owner = world.as_user(OPERATOR), world.as_user(OWNER)
    for path in (*PAGES, *OPERATORS):
        found = operator.get(path, headers={"accept": "text/html"})
        assert found.status_code in (200, 303), (path, found.text[-800:])
    for path in PAGES:
        assert owner.get(path, headers={"accept": "text/html"}).status_code in (200, 303), path
    for path in OPERATORS:
        assert owner.get(path, headers={"accept": "text/html"}).status_code == 403, path
    assert world.as_user(STRANGER).get("/jobs/7").status_code == 403
    assert "8" not in re.findall(r"/jobs/(\d+)", world.as_user(OWNER).get("/jobs").text)
