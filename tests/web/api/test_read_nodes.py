"""One node over the API: its timeline names jobs as their owners do."""

from __future__ import annotations

import web_world
from web_world import OPERATOR, World


def test_the_timeline_names_a_task_as_its_owner_does(world: World) -> None:
    """A task of an array is 11_2, by the API and on the page, whose link is by Slurm's own id."""
    world.store.upsert_attempts([web_world.attempt(13, array_job_id=11, array_task_id=2)])
    moments = world.client(OPERATOR).timeline("n1")
    assert {m["job_id"]: m["ref"] for m in moments if m["job_id"]} == {13: "11_2", 7: "7"}
    assert '<a href="/jobs/13">11_2</a>' in world.as_user(OPERATOR).get("/nodes/n1").text
