"""The bundle and its ticket: everything in one place, private, once."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path

import fakes

from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.repair import bundle
from probing_cluster.core import records, settings
from probing_cluster.db import store as db_store


def test_a_ticket_goes_once_and_its_bundle_has_what_failed(store: db_store.Store, tmp_path: Path) -> None:
    incident = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node="n1", drain_id=uuid.UUID(int=1), reason="probing: xid 79 gpu3",
        cause="gpu", state="ticketing", opened_at=fakes.NOW, changed_at=fakes.NOW, detail={"failing": ["gemm: wrong"]},
    )  # fmt: skip
    store.add_results(
        [
            records.DiagnosticResult(
                result_id=uuid.UUID(int=3), cluster="c", round_id=uuid.UUID(int=2), node="n1", test="gemm",
                outcome=records.Outcome.FAIL, message="wrong", incident_id=incident.incident_id, at=fakes.NOW,
            )
        ]
    )  # fmt: skip
    config = settings.Settings(
        repair=settings.RepairSettings(
            bundle_directory=str(tmp_path / "b"), ticket_webhook="https://t", ticket_command="open-ticket"
        ),
        mail=settings.MailSettings(spool_directory=str(tmp_path / "m")),
    )
    ran: list[tuple[str, str]] = []

    def run(command: str, argument: str) -> str:
        ran.append((command, argument))
        return ""

    first = bundle.ticket(config, store, run, incident, fakes.NOW)
    bundle.ticket(config, store, run, incident, fakes.NOW)
    directory = Path(first["bundle"])
    assert ran == [("open-ticket", str(directory))]
    (letter,) = queue.of(config).letters()
    assert json.loads(letter.body)["failing"] == ["gemm: wrong"]
    assert directory.stat().st_mode & 0o077 == 0
    assert json.loads((directory / "tests.jsonl").read_text())["message"] == "wrong"
    assert "probing-ctl repair release n1" in (directory / "ticket.txt").read_text()
    failed = dataclasses.replace(incident, incident_id=uuid.uuid4())
    wrote = bundle.ticket(config, store, lambda *_: "no such program", failed, fakes.NOW)
    assert wrote["ticket_command"] == "no such program"
