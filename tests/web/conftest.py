"""A site on a real database: owner, stranger, coordinator and operator, each with a session of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.extend(str(Path(__file__).parents[1] / room) for room in ("control_plane", "web"))

import fakes
import web_world

from probing_cluster.db import store as db_store
from probing_cluster.web.live import rank_history


@pytest.fixture
def world(store: db_store.Store) -> Iterator[web_world.World]:
    """Jobs 7 (OWNER's, lab) and 8 (root's, secret), a node with a fault, a drain, an incident's worth of rows."""
    store.remember("accounting.until c", fakes.NOW.isoformat())
    seven, eight = web_world.attempt(7), web_world.attempt(8, user="root", account="secret", nodes=("n3",))
    store.upsert_attempts([seven, eight])
    store.save_verdicts([web_world.verdict(seven), web_world.verdict(eight, node="n3")])
    rank_history.HISTORIES = (
        rank_history.Histories()
    )  # a job of the same number in another test is another job
    made = web_world.world_on(store)
    yield made
    made.site.reader.close()
