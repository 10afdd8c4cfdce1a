"""What a job prints goes to many readers; a secret that it printed goes to none of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import mail_server
import psycopg
import pytest
import sqlalchemy as sa

from probing_cluster.attribution.passes import attribute
from probing_cluster.control_plane import context
from probing_cluster.control_plane.owners import write_back
from probing_cluster.control_plane.service.tasks.people import owners
from probing_cluster.core import records
from probing_cluster.db import delivery
from probing_cluster.reports import job_ref, json_out, model, page, query, rows, text
from tests.control_plane.owners.test_answers import attempt, box, later, mailing, owe, text_of

__all__ = ["box", "mailing"]

LINES = (
    "export WANDB_API_KEY=hunter2",
    "os.environ['API_KEY'] = 'hunter2'",
    "no access to https://alice:hunter2@host/x",
    "Authorization: token hunter2",
)
RAISED: Mapping[str, Any] = {"exception": "ValueError", "first_cause": True}


def finding(of: records.JobAttempt, kind: str, message: str, **detail: Any) -> records.HealthEvent:
    """As an agent of a release that took no secrets out delivers it."""
    assert of.end_at is not None
    return records.HealthEvent(
        event_id=uuid.uuid4(), cluster="c", node="n1", at=of.end_at, observed_at=of.end_at, kind=kind, severity=records.Severity.INFO,
        job_id=of.job_id, source="joblog", message=message, detail=detail,
    )  # fmt: skip


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "found", ["went on", "another code", "message", "unresolved host", "last line", "time limit"]
)
def test_a_secret_printed_last_reaches_no_reader(
    mailing: context.Context, box: mail_server.Box, line: str, found: str
) -> None:
    """Verdict (which API, frames and dashboards read), advice, report, page, JSON, mail and accounting's comment; also where the agent is of an earlier release."""
    changes = {"another code": {"exit_code": 3}, "time limit": {"state": "TIMEOUT", "exit_code": 0}}.get(
        found, {}
    )
    made = attempt(mailing, nodes=("n1",), **changes)
    assert made.start_at is not None
    events = {
        "went on": [finding(made, "python_exception", "ValueError: bad", **RAISED, behind=1, went_on=line)],
        "another code": [
            finding(made, "python_exception", f"ValueError: {line}", **RAISED, behind=2, last_words=line)
        ],
        "message": [finding(made, "python_exception", f"ValueError: {line}", **RAISED)],
        "unresolved host": [
            finding(made, "program_error", f"could not resolve host: {line}", first_cause=True)
        ],
        "time limit": [
            finding(made, "output_stall", f"nothing was written after: {line}", last_line=f"{line} [y/N]")
        ],
    }.get(found, [])
    allocation = records.JobAllocation(
        cluster="c", node="n1", job_id=7, restart_count=0, at=made.start_at, released_at=made.end_at,
        detail={"logs": [{"stream": "stdout", "path": "/w/out", "tail": ["epoch 1", line]}]},
    )  # fmt: skip
    beat = records.AgentHeartbeat(cluster="c", node="n1", at=mailing.clock.now(), boot_id="b")
    url = mailing.store.connection_uri()
    delivery.Delivery(url, "c", "n1").deliver(events=events, allocations=[allocation], heartbeat=beat)
    later(mailing, 60)
    assert attribute.attribute(mailing.store, at=mailing.clock).n_attempts == 1
    (verdict,) = mailing.store.verdicts(job_ids=[7])
    with mailing.store.engine.connect() as connection:
        view = [
            str(
                connection.execute(
                    sa.text("SELECT jsonb_agg(to_jsonb(v)) FROM ops.attempt_verdicts v")
                ).scalar()
            )
        ]
    with psycopg.connect(url, options="-c TimeZone=UTC") as link:
        shown = rows.from_json(query.fetch(link, "c", job_ref.parse("7")))
    report = model.build(job_ref.parse("7"), shown, now=mailing.clock.now())
    owe(mailing)
    owners.run(mailing)
    read = [
        *view, repr(verdict), text.render(report), page.render(report), json.dumps(json_out.document(report)), *report.advice,
        box.message().as_string(), text_of(box), write_back.line(verdict),
    ]  # fmt: skip
    assert all("hunter2" not in one for one in read)
    if found != "time limit":
        assert "***" in text.render(report)
    assert "***" not in write_back.line(verdict)
