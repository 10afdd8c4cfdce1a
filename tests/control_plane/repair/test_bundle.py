"""The bundle and its ticket: everything in one place, private, once."""

from __future__ import annotations

import dataclasses
import json
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import fakes

from probing_cluster.control_plane.outbox import queue
from probing_cluster.control_plane.repair import bundle
from probing_cluster.core import clock, records, settings
from probing_cluster.db import bulk
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
    drained_at = fakes.NOW - timedelta(seconds=7)
    store.save_drain(
        records.Drain(
            drain_id=incident.drain_id, cluster="c", node="n1", at=drained_at, action="drain", reason=incident.reason,
            owner="probing", state="done",
        )
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
    (message,) = queue.of(config).messages()
    assert json.loads(message.body)["failing"] == ["gemm: wrong"]
    assert (
        f"drained for: probing: xid 79 gpu3, {clock.iso_z(drained_at)}"
        in (directory / "ticket.txt").read_text()
    )
    assert json.loads(message.body)["drained_at"] == clock.iso_z(drained_at)
    assert directory.stat().st_mode & 0o077 == 0
    assert json.loads((directory / "tests.jsonl").read_text())["message"] == "wrong"
    assert "probing-ctl repair release n1" in (directory / "ticket.txt").read_text()
    failed = dataclasses.replace(incident, incident_id=uuid.uuid4())
    wrote = bundle.ticket(config, store, lambda *_: "no such program", failed, fakes.NOW)
    assert wrote["ticket_command"] == "no such program"


def test_the_ticket_names_serial_numbers_card_moves_the_kernel_s_last_lines_and_the_vendor_s_report(
    store: db_store.Store, tmp_path: Path
) -> None:
    incident = records.RepairIncident(
        incident_id=uuid.uuid4(), cluster="c", node="n1", drain_id=uuid.UUID(int=1), reason="probing: xid 79 gpu3",
        cause="gpu", state="ticketing", opened_at=fakes.NOW, changed_at=fakes.NOW,
    )  # fmt: skip

    def kept(test: str, device: str | None, message: str, detail: dict[str, Any]) -> records.DiagnosticResult:
        return records.DiagnosticResult(
            result_id=uuid.uuid4(), cluster="c", round_id=uuid.UUID(int=2), node="n1", test=test, device=device,
            outcome=records.Outcome.OK, message=message, at=fakes.NOW, detail=detail,
        )  # fmt: skip

    def xid(node: str, hours: float) -> records.HealthEvent:
        at = fakes.NOW - timedelta(hours=hours)
        return records.HealthEvent(
            event_id=uuid.uuid4(), cluster="c", node=node, at=at, observed_at=at, kind="xid", code="79",
            severity=records.Severity.HIGH, device="gpu3", gpu_uuid="GPU-a", source="kernel", message="lost",
        )  # fmt: skip

    bulk.load_events(store.connection_uri(), [xid("n9", 400), xid("n1", 2)])
    store.add_results(
        [
            kept("parts", "gpu3", "serial 165, GPU-a", {"serial": "165", "uuid": "GPU-a"}),
            kept("parts", "board", "board_serial B7", {"board_serial": "B7"}),
            kept("kernel-log", None, "last", {"00": "first line", "01": "last line"}),
            kept("bug-report", None, "/var/tmp/r.gz on n1, 2 MB", {"path": "/var/tmp/r.gz"}),
        ]
    )
    config = settings.Settings(repair=settings.RepairSettings(bundle_directory=str(tmp_path / "b")))
    directory = bundle.write(config, store, incident)
    parts = json.loads((directory / "parts.json").read_text())
    assert parts["serials"]["gpu3"]["serial"] == "165"
    assert parts["serials"]["board"]["board_serial"] == "B7"
    assert [place["node"] for place in parts["cards"]["GPU-a"]] == ["n9", "n1"]
    assert parts["moved_between_nodes"] == ["GPU-a"]
    assert (directory / "kernel_log.txt").read_text() == "first line\nlast line\n"
    ticket = (directory / "ticket.txt").read_text()
    assert "part: gpu3: serial 165, GPU-a" in ticket
    assert "nvidia-bug-report: /var/tmp/r.gz on n1" in ticket
    assert "xid" in (directory / "events.jsonl").read_text()
