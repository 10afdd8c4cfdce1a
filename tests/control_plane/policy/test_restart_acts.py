"""What is done of a requeue that was begun, by what Slurm shows of the job meanwhile."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.policy import restart_acts, view
from probing_cluster.core import clock, records
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import outcome

START = fakes.NOW - timedelta(minutes=10)


class Ledger:
    """Rows as the database would keep them."""

    def __init__(self) -> None:
        self.state, self.why, self.exclusions = "", "", 0

    def update_drain(self, drain_id: uuid.UUID, **changes: Any) -> None:
        del drain_id
        self.state = changes.get("state", self.state)
        self.why = changes.get("why_state", self.why)

    def save_drain(self, drain: records.Drain) -> None:
        assert drain.action == "exclude"
        self.exclusions += 1


def hang_row(**detail: Any) -> records.Drain:
    """The requeue of a gang that hangs on n2, begun."""
    given = {"leader": 7, "components": [7], "restart": 0, "hang": "x", "start_at": clock.iso_z(START)}
    return records.Drain(
        drain_id=uuid.uuid4(), cluster="c", node="n2", at=fakes.NOW, action="requeue", reason="probing: hang", owner="probing",
        state="failed", why_state=view.BEGUN, job_id=7, detail=given | detail,
    )  # fmt: skip


def test_a_hang_is_released_once_its_last_process_has_gone(slurm: fakes.FakeSlurm) -> None:
    """Slurm counts the restart at once and holds the job seconds later; only then can a node be left out and the job go."""
    ledger = Ledger()
    made = restart_acts.Restarter(slurm=slurm, ledger=ledger, now=fakes.NOW)  # type: ignore[arg-type]
    slurm.held[7] = fakes.live_job(7, state="RUNNING", start_at=START)
    row = made.begin(hang_row(exclude=["n2"]))
    assert restart_acts.is_begun(row)
    held = slurm.held[7]
    for ending in ({"state": "COMPLETING"}, {"flags": frozenset({"COMPLETING"})}):
        shown = fakes.live_job(7, **({"state": "PENDING", "restart_count": 1} | ending))
        assert made.go_on(row, {7: shown}) is row
    assert [act[0] for act in slurm.acts] == ["requeue_held"]
    assert made.go_on(row, {7: held}).state == ledger.state == "done"
    assert [act[0] for act in slurm.acts] == ["requeue_held", "exclude", "release"]
    assert ledger.exclusions == 1


@pytest.mark.parametrize(
    ("action", "after_s", "state"),
    [("restart", 600, "done"), ("requeue", 60, ""), ("requeue", 600, "failed")],
)
def test_what_slurm_did_not_answer_is_begun_again(
    action: str, after_s: float, state: str, slurm: fakes.FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is recorded as failed meanwhile; a hang of ten minutes ago may have ended, and is not requeued for it."""
    ledger = Ledger()
    shown = "FAILED" if action == "restart" else "RUNNING"
    slurm.held[7] = fakes.live_job(7, state=shown, start_at=START)
    row = dataclasses.replace(hang_row(), action=action)

    def gone(*_given: object, **_named: object) -> outcome.ActOutcome:
        raise commands.SlurmAway("scontrol did not end within 30 s")

    with monkeypatch.context() as away:
        away.setattr(slurm, "requeue_held", gone)
        with pytest.raises(commands.SlurmAway):
            restart_acts.Restarter(slurm=slurm, ledger=ledger, now=fakes.NOW).begin(row)  # type: ignore[arg-type]
    assert (ledger.state, ledger.why) == ("", view.OUTCOME_UNKNOWN)
    later = restart_acts.Restarter(slurm=slurm, ledger=ledger, now=fakes.NOW + timedelta(seconds=after_s))  # type: ignore[arg-type]
    made = later.go_on(dataclasses.replace(row, why_state=ledger.why), dict(slurm.held))
    assert ledger.state == state
    assert restart_acts.is_begun(made) is (state == "")
    assert bool(slurm.acts) is (state != "failed")


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "CANCELLED"])
def test_a_requeue_that_slurm_never_took_is_not_done(slurm: fakes.FakeSlurm, state: str) -> None:
    """It runs on, or ended by another's hand: nothing waits for ever."""
    made = restart_acts.Restarter(slurm=slurm, ledger=Ledger(), now=fakes.NOW)  # type: ignore[arg-type]
    row = made.go_on(hang_row(), {7: fakes.live_job(7, state=state, start_at=START)})
    assert (row.state, row.why_state) == ("failed", restart_acts.NOT_DONE)
    assert made.go_on(hang_row(), {}).state == "failed"


@pytest.mark.parametrize(
    ("action", "known", "n_copies"), [("restart", {}, 1), ("restart", {"log": "n1 was asked to keep it"}, 0), ("requeue", {}, 0)]
)  # fmt: skip
def test_a_log_is_copied_once_and_only_of_a_job_that_had_ended(
    slurm: fakes.FakeSlurm, action: str, known: dict[str, Any], n_copies: int
) -> None:
    """Slurm may refuse the release, and the next pass goes on from there; of a job that hangs its nodes were asked already."""
    copied: list[uuid.UUID] = []

    def keep(row: records.Drain) -> str:
        copied.append(row.drain_id)
        return "n1 was asked to keep it"

    made = restart_acts.Restarter(slurm=slurm, ledger=Ledger(), now=fakes.NOW, keep_log=keep)  # type: ignore[arg-type]
    slurm.held[7] = fakes.live_job(
        7, state="PENDING", restart_count=1, priority=0, description="job_requeued_in_held_state"
    )
    row = dataclasses.replace(hang_row(**known), action=action)
    assert made.go_on(row, {7: slurm.held[7]}).state == "done"
    assert len(copied) == n_copies
