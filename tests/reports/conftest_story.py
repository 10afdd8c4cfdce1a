"""One story told in rows: a GPU falls off the bus, the job is requeued and completes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from probing_cluster.core import records
from probing_cluster.reports import rows

DAY = datetime(2026, 11, 21, tzinfo=UTC)
XID = uuid.UUID(int=79)
LOST = uuid.UUID(int=80)


def at(clock_time: str) -> datetime:
    hours, minutes, seconds = (int(part) for part in clock_time.split(":"))
    return DAY + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def attempt(number: int, **changes: object) -> records.JobAttempt:
    values: dict[str, object] = {
        "cluster": "c",
        "job_id": 4242,
        "attempt": number,
        "submit_at": at("14:02:11"),
        "eligible_at": at("14:02:11"),
        "user": "alice",
        "account": "lab",
        "partition": "gpu",
        "name": "llama-70b-sft",
        "n_gpus": 16,
        "run_key": "4242",
        "state": "COMPLETED",
    }
    return records.JobAttempt(**(values | changes))


def event(event_id: uuid.UUID, when: datetime, **changes: object) -> records.HealthEvent:
    values: dict[str, object] = {
        "event_id": event_id,
        "cluster": "c",
        "node": "n2",
        "at": when,
        "observed_at": when,
        "kind": "xid",
        "severity": records.Severity.HIGH,
        "source": "kernel",
        "message": "GPU has fallen off the bus.",
    }
    return records.HealthEvent(**(values | changes))


def drain(action: str, when: datetime, **changes: object) -> records.Drain:
    values: dict[str, object] = {
        "drain_id": uuid.uuid5(XID, f"{action}{when}"),
        "cluster": "c",
        "node": "n2",
        "at": when,
        "action": action,
        "reason": "probing: xid 79 gpu3",
        "owner": "probing",
        "state": "done",
        "event_ids": (XID,),
    }
    return records.Drain(**(values | changes))


def story() -> rows.ReportRows:
    """The rows of the README's job 4242."""
    verdict = records.Verdict(
        cluster="c",
        job_id=4242,
        submit_at=at("14:02:11"),
        attempt=1,
        cause="gpu_off_bus",
        domain=records.Domain.HARDWARE,
        component="gpu",
        node="n2",
        device="gpu3",
        confidence=records.Confidence.CERTAIN,
        summary="GPU 3 of n2 fell off the bus (Xid 79) 4 s before the job ended.",
        evidence=(XID, LOST),
        ruled_out=("user program: no error of its own before the fault", "network: all HCAs up"),
        next_step="Reseat or replace GPU 3 of n2 (serial 1650123000042)",
        rules_version="1",
        made_at=at("14:20:50"),
    )
    account = records.RunAccount(
        cluster="c",
        run_key="4242",
        user="alice",
        start_at=at("14:02:11"),
        end_at=at("14:41:09"),
        n_gpus=16,
        n_attempts=2,
        wall_s=2338.0,
        queued_s=67.0,
        productive_s=1671.0,
        lost_to_replay_s=450.0,
        restart_s=150.0,
        ettr_measured=1671 / 2338,
        ettr_expected=0.85,
        made_at=at("14:41:20"),
    )
    first = attempt(
        1, state="REQUEUED", start_at=at("14:02:14"), end_at=at("14:20:36"), nodes=("n1", "n2"), exit_code=0
    )
    second = attempt(
        2,
        submit_at=at("14:20:36"),
        eligible_at=at("14:20:36"),
        start_at=at("14:21:40"),
        end_at=at("14:41:09"),
        nodes=("n1", "n3"),
    )
    return rows.ReportRows(
        attempts=(second, first),
        verdicts=(verdict,),
        evidence=(
            event(
                LOST,
                at("14:20:33"),
                kind="gpu_lost",
                source="nvml",
                device="gpu3",
                message="GPU-5f3c9e10 is lost",
            ),
            event(XID, at("14:20:32"), code="79", device="gpu3", pci_bus_id="0000:5e:00"),
        ),
        drains=(
            drain("drain", at("14:20:34")),
            drain("requeue", at("14:20:35"), job_id=4242),
        ),
        account=account,
        run_jobs=(4242,),
    )
