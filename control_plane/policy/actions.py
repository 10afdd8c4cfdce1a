"""Carrying decisions out, each recorded before it is done and again with what became of it.

Slurm, and before a requeue the node's latest heartbeat, is read again just before every act: what has
changed since the decision makes it evidence only.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol

from probing_cluster.control_plane.policy import confirm, policy, view
from probing_cluster.core import clock, errors, records, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes
from probing_cluster.slurm_plugins.live import live_records

LOG = logging.getLogger("probing.actions")


class SlurmOperations(Protocol):
    """What can be asked of and done to Slurm; slurm_actions.py is the real one."""

    def nodes(self) -> Iterable[view.Node]:
        """Every node."""
        ...

    def jobs(self) -> Iterable[view.ActiveJob]:
        """Every running or suspended job."""
        ...

    def node(self, name: str) -> view.Node | None:
        """The node right now."""
        ...

    def job(self, job_id: int) -> view.ActiveJob | None:
        """The job right now, None when it does not run."""
        ...

    def outages(self, since: datetime, until: datetime) -> Iterable[view.Outage]:
        """Every node's stretches out of service that began in the span."""
        ...

    def places(self) -> Iterable[tuple[str, str, str]]:
        """Node, kind and name of every switch and block a node is under; empty where Slurm has no topology."""
        ...

    def drain(self, name: str, reason: str, reservation: str = "") -> slurm_nodes.Outcome:
        """Drain a node that is nobody else's; one in a reservation of ours is ours."""
        ...

    def adopt(self, name: str, reason: str) -> slurm_nodes.Outcome:
        """Give Slurm's own `Prolog error` drain our reason."""
        ...

    def resume(self, name: str, reservation: str = "") -> slurm_nodes.Outcome:
        """Lift a drain of ours, with `reservation` only inside it."""
        ...

    def reboot(self, name: str) -> slurm_nodes.Outcome:
        """Reboot a node that is drained by us and stays so."""
        ...

    def requeue(self, job: view.ActiveJob) -> slurm_nodes.Outcome:
        """Requeue one running job, if it is still this very attempt."""
        ...

    def queue(self) -> Iterable[live_records.LiveJob]:
        """Every job that Slurm holds, those included that wait or have ended."""
        ...

    def requeue_held(
        self, job_id: int, start_at: datetime, restart: int, *, running: bool = False
    ) -> slurm_nodes.Outcome:
        """Put a job that has ended, or that is `running`, back into the queue, held."""
        ...

    def exclude(
        self, job_id: int, restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> slurm_nodes.Outcome:
        """Leave nodes out of a waiting job, or give them back to it."""
        ...

    def depend(self, job_id: int, on: int) -> slurm_nodes.Outcome:
        """Set a waiting job's stuck dependency again."""
        ...

    def release(self, job_id: int, restart: int) -> slurm_nodes.Outcome:
        """Release what `requeue_held` holds."""
        ...


class ActionLedger(Protocol):
    """The part of the store that actions need."""

    def heartbeats(self, nodes: Iterable[str], *, cluster: str) -> list[records.AgentHeartbeat]: ...

    def save_drain(self, drain: records.Drain) -> None: ...

    def update_drain(self, drain_id: uuid.UUID, **changes: Any) -> None: ...

    def request(
        self,
        node: str,
        verb: str,
        job_id: int | None = None,
        ttl_s: float = 60.0,
        detail: Any = None,
        *,
        cluster: str,
    ) -> uuid.UUID: ...


def carry_out(
    decisions: Iterable[policy.Decision],
    slurm: SlurmOperations,
    ledger: ActionLedger,
    config: settings.Settings,
    the_clock: clock.Clock = clock.SYSTEM,
    before_each: Callable[[], None] = lambda: None,
) -> list[records.Drain]:
    """Do what was decided, or record why not; the rows as stored. Raises SlurmAway if Slurm did not answer about one of them.

    `before_each` is called before a decision is recorded; what it raises ends them all.
    """
    done: list[records.Drain] = []
    lost: set[str] = set()
    acts = commands.OneByOne()
    for decision in decisions:
        if decision.action == "requeue" and decision.node in lost:
            decision = dataclasses.replace(decision, held="skipped", why="its node could not be drained")
        row: records.Drain | None = None
        before_each()
        with acts.subject():
            row = _one(decision, slurm, ledger, config, the_clock.now())
            done.append(row)
        if decision.action == "drain" and (row is None or row.state not in {"done", "simulated"}):
            lost.add(decision.node)
    acts.end()
    return done


def _one(
    decision: policy.Decision,
    slurm: SlurmOperations,
    ledger: ActionLedger,
    config: settings.Settings,
    now: datetime,
) -> records.Drain:
    row = _row(decision, config, now)
    if decision.held or config.policy.observe_only:
        state = decision.held or "simulated"
        row = dataclasses.replace(row, state=state, why_state=decision.why or "observe-only")
        ledger.save_drain(row)
        _log(row)
        return row
    # First the row: without a database nothing is done, and nothing is done unrecorded.
    ledger.save_drain(row)
    try:
        outcome = _attempted(decision, slurm, ledger, config)
    except commands.SlurmAway:
        ledger.update_drain(row.drain_id, why_state=view.OUTCOME_UNKNOWN)
        raise
    row = dataclasses.replace(row, state=outcome.state, why_state=outcome.why)
    ledger.update_drain(row.drain_id, state=outcome.state, why_state=outcome.why)
    _log(row, alarm=outcome.alarm)
    return row


def _attempted(
    decision: policy.Decision, slurm: SlurmOperations, ledger: ActionLedger, config: settings.Settings
) -> slurm_nodes.Outcome:
    try:
        return _do(decision, slurm, ledger, config)
    except commands.SlurmAway:
        raise
    except (errors.SlurmUnavailable, errors.MalformedInput) as exc:
        return slurm_nodes.Outcome(state="failed", why=str(exc))


def _do(
    decision: policy.Decision, slurm: SlurmOperations, ledger: ActionLedger, config: settings.Settings
) -> slurm_nodes.Outcome:
    if decision.action == "refuse":
        detail = {"reason": decision.reason, "event_ids": [str(e) for e in decision.event_ids]}
        ledger.request(
            decision.node, "refusal_permission", ttl_s=config.policy.refusal_ttl_s, detail=detail,
            cluster=config.cluster.name,
        )  # fmt: skip
        return slurm_nodes.Outcome(state="done")
    if decision.adopt:
        return slurm.adopt(decision.node, decision.reason)
    return (
        slurm.drain(decision.node, decision.reason, decision.reservation)
        if decision.action == "drain"
        else _requeue(decision, slurm, ledger, config.cluster.name)
    )


def _requeue(
    decision: policy.Decision, slurm: SlurmOperations, ledger: ActionLedger, cluster: str
) -> slurm_nodes.Outcome:
    """Only off a node that is drained by us (elsewhere the job could come straight back) and still broken."""
    assert decision.job is not None
    beats = ledger.heartbeats([decision.node], cluster=cluster)
    if not any(confirm.fault_of(beat, event) for beat in beats for event in decision.events):
        return slurm_nodes.Outcome(state="skipped", why="the agent no longer sees the fault")
    node = slurm.node(decision.node)
    if node is None or not node.ours:
        return slurm_nodes.Outcome(state="skipped", why="its node is not drained by us")
    present = slurm.job(decision.job.job_id)
    if present is None or present.state not in {"RUNNING", "SUSPENDED"}:
        return slurm_nodes.Outcome(state="skipped", why="it has ended by itself")
    same = (present.start_at, present.restart_count) == (decision.job.start_at, decision.job.restart_count)
    if not same or decision.node not in present.nodes:
        return slurm_nodes.Outcome(state="skipped", why="Slurm now shows another attempt of it")
    return slurm.requeue(decision.job)


def _row(decision: policy.Decision, config: settings.Settings, now: datetime) -> records.Drain:
    return records.Drain(
        drain_id=uuid.uuid4(),
        cluster=config.cluster.name,
        node=decision.node,
        at=now,
        action=decision.action,
        reason=decision.reason,
        owner="probing",
        state="failed",
        why_state=view.BEGUN,
        severity=decision.severity,
        job_id=decision.job.job_id if decision.job else None,
        event_ids=decision.event_ids,
    )


def _log(drain: records.Drain, *, alarm: bool = False) -> None:
    level = logging.ERROR if alarm or drain.state in {"denied", "failed"} else logging.WARNING
    fields = {"node": drain.node, "action": drain.action, "state": drain.state, "reason": drain.reason}
    LOG.log(level, "decision", extra={"fields": fields | {"why": drain.why_state, "job_id": drain.job_id}})
