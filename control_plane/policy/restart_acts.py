"""Bringing back what ended: a row first, then one act of Slurm after the other, each of which may be repeated.

A row that is begun says all that is needed to go on with it, so that whoever ends the service, at whatever line, leaves a job
that the next pass brings to the same end: back in the queue, away from its culprit, released.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from probing_cluster.control_plane.policy import actions, restart, view
from probing_cluster.core import clock, errors, records
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import outcome
from probing_cluster.slurm_plugins.live import live_records

LOG = logging.getLogger("probing.restarts")
PATIENCE = timedelta(seconds=120)
"""How long a job stays held because its culprit could not be left out, or a dependent not be set again; then it goes all the same."""
NOT_DONE = "the service ended before it was done"
ENDED = "the job has ended"
ENDING = "its ranks are being ended"
COPYING = "its log is being copied"

KeepLog = Callable[[records.Drain], str]
"""Has the log of a restart that was begun kept: what became of it, in words; empty while the copy is being made."""


def row_of(decision: restart.RestartDecision, cluster: str, now: datetime) -> records.Drain:
    """The decision as it is recorded before anything is done."""
    attempt, verdict = decision.case.attempt, decision.case.verdict
    death = decision.case.deaths[-1] if decision.case.deaths else None
    detail: dict[str, Any] = {
        "leader": decision.leader,
        "components": list(decision.components),
        "restart": decision.restart_count,
        "start_at": clock.iso_z(decision.start_at) if decision.start_at else None,
        "exclude": list(decision.exclude),
        "dependents": {str(job): on for job, on in decision.dependents.items()},
        "user": attempt.user,
        "run_key": attempt.run_key,
        "attempt": attempt.attempt,
        "cause": verdict.cause,
        "step": death.step if death else None,
        "loop": decision.loop or None,
    }
    return records.Drain(
        drain_id=uuid.uuid4(),
        cluster=cluster,
        node=verdict.node or (attempt.nodes[0] if attempt.nodes else ""),
        at=now,
        action="restart",
        reason=restart.reason_for(verdict),
        owner="probing",
        state=decision.held or "failed",
        why_state=decision.why if decision.held else view.BEGUN,
        job_id=attempt.job_id,
        submit_at=attempt.submit_at,
        event_ids=verdict.evidence[:16],
        detail={k: v for k, v in detail.items() if v not in (None, [], "", {})},
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Restarter:
    """Carries restarts out, one step after the other; raises SlurmAway where Slurm does not answer, and the row stays begun."""

    slurm: actions.SlurmOperations
    ledger: actions.ActionLedger
    now: datetime
    keep_log: KeepLog | None = None
    """Has the log of a restart copied, which the new start truncates; None keeps no log."""

    def begin(self, row: records.Drain) -> records.Drain:
        """Do a decision whose row is stored; the row as it stands then."""
        detail = row.detail
        start_at = datetime.fromisoformat(str(detail["start_at"]))
        running = row.action == "requeue"  # a hang's job runs; a restart's has ended
        try:
            done = self._act(
                lambda: self.slurm.requeue_held(_leader(row), start_at, _restart(row), running=running)
            )
        except commands.SlurmAway:
            self._note(row, view.OUTCOME_UNKNOWN)
            raise
        if done.state != "done":
            return self._finish(row, done.state, done.why)
        return self._note(row, f"{view.BEGUN}: {ENDING}") if running else self._place(row)

    def go_on(self, row: records.Drain, jobs: Mapping[int, live_records.LiveJob]) -> records.Drain:
        """Bring a row that was begun to its end, by what Slurm shows."""
        job = jobs.get(_leader(row))
        if job is None:
            return self._finish(row, "failed", f"{NOT_DONE}, and Slurm no longer holds the job")
        if row.action == "requeue" and job.completing:
            return row  # it was requeued while it ran: held once its last process has gone
        if job.restart_count <= _restart(row):
            if row.why_state == view.OUTCOME_UNKNOWN and self._may_begin_again(row):
                return self.begin(row)
            return self._finish(row, "failed", NOT_DONE)
        if job.restart_count == _restart(row) + 1 and job.held_by_requeue:
            return self._place(row)
        return self._finish(row, "done", "")

    def _may_begin_again(self, row: records.Drain) -> bool:
        """Whether a decision that Slurm did not answer is still right: a gang that hung then may go on by now."""
        return row.action == "restart" or self.now - row.at < PATIENCE

    def _place(self, row: records.Drain) -> records.Drain:
        """The job is held: have its log kept, leave its culprit out, set its dependents again, release it."""
        row, copying = self._keep(row)
        if copying:
            return self._note(row, f"{view.BEGUN}: {COPYING}")
        troubles = [*self._exclude(row), *self._depend(row)]
        if troubles and self.now - row.at < PATIENCE:
            return self._note(row, f"{view.BEGUN}: {troubles[0]}")
        done = self._act(lambda: self.slurm.release(_leader(row), _restart(row) + 1))
        if done.state == "failed":
            return self._note(row, f"{view.BEGUN}: {done.why}")
        return self._finish(row, "done", "; ".join([*troubles, *([done.why] if done.why else [])]))

    def _keep(self, row: records.Drain) -> tuple[records.Drain, bool]:
        """The row with what became of the job's log, and whether the copy is still being made.

        Only now: Slurm has taken the restart, and truncates the log when the job starts. A job that stays where it is gets no copy.
        """
        if self.keep_log is None or row.action != "restart" or "log" in row.detail:
            return row, False
        words = self.keep_log(row)
        if not words:
            return row, True
        detail = {**row.detail, "log": words}
        self.ledger.update_drain(row.drain_id, detail=detail)
        return dataclasses.replace(row, detail=detail), False

    def _exclude(self, row: records.Drain) -> Iterator[str]:
        for node in row.detail.get("exclude", ()):
            mark = exclusion(row, str(node))
            self.ledger.save_drain(mark)
            for job_id in row.detail.get("components", ()):
                done = self._act(
                    lambda job_id=job_id, node=node: self.slurm.exclude(
                        int(job_id), _restart(row) + 1, [str(node)], []
                    )
                )
                if done.state != "done":
                    yield f"{node} could not be left out: {done.why}"
                    self.ledger.update_drain(mark.drain_id, state="failed", why_state=done.why)
                    break
            else:
                self.ledger.update_drain(mark.drain_id, state="done", why_state="")

    def _depend(self, row: records.Drain) -> Iterator[str]:
        for job_id, on in dict(row.detail.get("dependents", {})).items():
            done = self._act(lambda job_id=job_id, on=on: self.slurm.depend(int(job_id), int(on)))
            if done.state == "failed":
                yield f"job {job_id} could not be set to wait for it again: {done.why}"

    def _act(self, work: Any) -> outcome.ActOutcome:
        try:
            done: outcome.ActOutcome = work()
        except commands.SlurmAway:
            raise
        except errors.SlurmUnavailable as exc:
            return outcome.failed(str(exc))
        return done

    def _note(self, row: records.Drain, why: str) -> records.Drain:
        if why != row.why_state:
            self.ledger.update_drain(row.drain_id, why_state=why)
        return dataclasses.replace(row, why_state=why)

    def _finish(self, row: records.Drain, state: str, why: str) -> records.Drain:
        self.ledger.update_drain(row.drain_id, state=state, why_state=why)
        made = dataclasses.replace(row, state=state, why_state=why)
        log(made)
        return made


def is_begun(row: records.Drain) -> bool:
    """Whether a restart, or the requeue of a hang, was begun and has no outcome."""
    ours = row.action == "restart" or (row.action == "requeue" and "hang" in row.detail)
    return ours and view.is_begun(row)


def exclusion(row: records.Drain, node: str) -> records.Drain:
    """The row of one node that a restart leaves out; the same however often it is made."""
    return records.Drain(
        drain_id=uuid.uuid5(row.drain_id, node),
        cluster=row.cluster,
        node=node,
        at=row.at,
        action="exclude",
        reason=row.reason,
        owner="probing",
        state="failed",
        why_state=view.BEGUN,
        job_id=row.job_id,
        submit_at=row.submit_at,
        event_ids=row.event_ids,
        detail={
            "leader": _leader(row),
            "components": row.detail.get("components", []),
            "restart": _restart(row) + 1,
        },
    )


def lift(
    row: records.Drain, jobs: Mapping[int, live_records.LiveJob], slurm: actions.SlurmOperations
) -> tuple[bool, str]:
    """Give a node back to the job that it was left out of: whether the exclusion is over, and why."""
    over = []
    for job_id in row.detail.get("components", ()):
        job = jobs.get(int(job_id))
        if job is None or job.state in live_records.ENDED_STATES:
            over.append(ENDED)
        elif job.state == "PENDING":
            done = slurm.exclude(int(job_id), job.restart_count, [], [row.node])
            if done.state != "done":
                return False, done.why
            over.append("the node is back")
        else:
            return False, ""  # Slurm changes the list of a waiting job only
    return True, over[-1] if over else ENDED


def log(row: records.Drain) -> None:
    """One line a decision."""
    level = logging.ERROR if row.state in {"denied", "failed"} else logging.WARNING
    fields = {"node": row.node, "action": row.action, "state": row.state, "reason": row.reason}
    LOG.log(level, "decision", extra={"fields": fields | {"why": row.why_state, "job_id": row.job_id}})


def by_id(jobs: Iterable[live_records.LiveJob]) -> dict[int, live_records.LiveJob]:
    """Slurm's jobs by raw id."""
    return {job.job_id: job for job in jobs}


def _leader(row: records.Drain) -> int:
    return int(row.detail["leader"])


def _restart(row: records.Drain) -> int:
    return int(row.detail.get("restart", 0))
