"""The pages: all of them render, for whom they are; names are never markup; every address works under a path of its own."""

from __future__ import annotations

import re
from typing import Any

import fakes
from web_world import OPERATOR, OWNER, STRANGER, World

from probing_cluster.core import records
from probing_cluster.db import delivery

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


def test_a_broken_part_is_one_fault_on_the_nodes_page(world: World) -> None:
    """Under its strongest name; of the many checks that a lost GPU fails the first four stand there, and how many more."""
    faults = {f"{kind}:gpu3": {"severity": "high", "device": "gpu3"} for kind in ("xid", "gpu_lost")}
    named: dict[str, Any] = {"cluster": "c", "node": "n3", "at": fakes.NOW}
    delivery.Delivery(world.store.connection_uri(), "c", "n3").deliver(
        heartbeat=records.AgentHeartbeat(**named, boot_id="b", beat_s=10.0, faults=faults),
        checks=[
            records.CheckResult(
                **named, name=f"gpu_check_{n}", outcome=records.Outcome.FAIL, severity=records.Severity.HIGH
            )
            for n in range(7)
        ],
    )
    row = re.search(r'<tr><td><a href="/nodes/n3">.*?</tr>', world.as_user(OPERATOR).get("/nodes").text)
    assert row is not None
    assert "Xid gpu3 (high, 2 signs)" in row[0]
    assert "gpu_check_3 and 3 more" in row[0]
