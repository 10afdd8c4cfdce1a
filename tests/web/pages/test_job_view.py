"""What the page of a job says of how it was brought back."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime

import pytest

from probing_cluster.core import records
from probing_cluster.web.pages import job_view

SKIPPED = records.Drain(
    drain_id=uuid.UUID(int=1), cluster="c", node="n2", at=datetime(2026, 11, 21, tzinfo=UTC), action="restart",
    reason="probing: xid 79", owner="probing", state="skipped", job_id=17,
)  # fmt: skip


@pytest.mark.parametrize(("why", "shown"), [("it is PENDING: it has not ended", 0), ("it is interactive", 1)])
def test_a_restart_that_was_not_needed_is_no_news(why: str, shown: int) -> None:
    """Slurm had requeued the job itself: there is nothing under "How it was brought back"."""
    assert len(job_view.restarts([dataclasses.replace(SKIPPED, why_state=why)])) == shown
