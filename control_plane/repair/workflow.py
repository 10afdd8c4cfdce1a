"""What the states of a repair share: the pass over all of them, the parts it touches, and how a step is recorded."""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from probing_cluster.control_plane.policy import actions, budget, confirm, resume_policy, view
from probing_cluster.control_plane.repair import campaign, rounds, steps, way_back
from probing_cluster.core import clock, records, sanitize, settings, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins.acts import job_steps, reservations

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""States of a node on which jobs run or end."""
_REPAIR = "repair: "
"""Prefixes of a drain's reason once tests have failed: a repair is under way, or a person must act."""
_TEST_JOB = re.compile(rf"{re.escape(vocabulary.RESERVATION_PREFIX)}(?P<node>.+)-[0-9a-f]{{8}}")
NOT_PROVEN = "not proven well: "
"""How a repair's words begin of a test that did not show its node well, and did not show it bad."""
SILENT = "agent: it is silent"
"""What an agent says against its node that nobody hears: it confirms no fault."""
_LIFTED = "its drain was lifted"
_LOOK_S = 120.0
"""How long an agent may take to look again."""
_ON_ITS_WAY = frozenset({"reserving", "opening"})
"""States from which tests begin at once, unless something is in their way."""
_PATIENCE = timedelta(minutes=10)
"""A repair that is in one of them for longer is stuck, and keeps no other waiting."""


class ReservationOperations(Protocol):
    """Slurm's reservations; slurm_plugins.acts.reservations is the real one."""

    def all(self) -> list[reservations.Reservation]: ...

    def create(self, name: str, nodes: Sequence[str]) -> None: ...

    def delete(self, name: str) -> None: ...


class RunningRounds(Protocol):
    """Rounds of tests under way; rounds.Rounds is the real one."""

    def start(
        self,
        wanted: job_steps.StepWanted,
        request_for: Callable[[int], campaign.RoundRequest],
        round_id: uuid.UUID,
    ) -> None: ...

    def state(self, round_id: uuid.UUID) -> rounds.RoundEnd | None: ...

    def stop(self, name: str, round_id: uuid.UUID | None) -> None: ...

    def forget(self, round_id: uuid.UUID) -> None: ...


@dataclass(frozen=True, kw_only=True)
class RepairContext:
    """Everything the workflow touches."""

    config: settings.Settings
    store: db_store.Store
    slurm: actions.SlurmOperations
    reservations: ReservationOperations
    rounds: RunningRounds
    clock: clock.Clock
    green: Mapping[str, resume_policy.GreenTime]
    """Nodes whose agents show no fault, and since when."""
    power: Callable[[str], str]
    """Runs the site's power command for a node; why it failed, empty when it did not."""
    ticket: Callable[[records.RepairIncident], Mapping[str, Any]]
    """Writes the bundle and opens the ticket, once per incident however often it is called; what it wrote."""


@dataclass(kw_only=True)
class Pass:
    """One pass over every open repair."""

    context: RepairContext
    nodes: Mapping[str, view.Node]
    beats: Mapping[str, records.AgentHeartbeat]
    ages: Mapping[str, float]
    notes: Mapping[str, records.OperatorNote]
    """By node what a person said last: hold, release or done."""
    fleet_view: view.View
    in_tests: dict[uuid.UUID, str] = field(default_factory=dict)
    """By repair the state of those that are tested, or will be at once; kept up to date as the pass goes on."""
    _looked: set[str] = field(default_factory=set)
    """Nodes that were looked at one by one since the pass began: of them the beginning says nothing any more."""

    @property
    def switched_off(self) -> str:
        """The setting by which nodes are not taken out for tests; empty where they are."""
        return switched_off(self.context.config)

    def save(self, incident: records.RepairIncident, **changes: Any) -> records.RepairIncident:
        """The repair with these changes, stored; raises NotFound for one that was ended meanwhile."""
        if changes.get("state", incident.state) != incident.state:
            changes["changed_at"] = self.context.clock.now()
            self.in_tests.pop(incident.incident_id, None)
            if changes["state"] in _ON_ITS_WAY | {"testing"}:
                self.in_tests[incident.incident_id] = changes["state"]
        return self.context.store.update_incident(incident.incident_id, **changes)

    def close(
        self, incident: records.RepairIncident, state: str, why: str, **changes: Any
    ) -> records.RepairIncident:
        """The repair ended, as `returned`, `lifted` or `closed`."""
        now: datetime = self.context.clock.now()
        return self.save(incident, state=state, why=why, closed_at=now, reference_nodes=(), **changes)

    def wait(self, incident: records.RepairIncident, why: str, **changes: Any) -> records.RepairIncident:
        """The repair as it is, with why it does not go on; a row is written only when the words change."""
        return incident if incident.why == why else self.save(incident, why=why, **changes)

    def step_aside(self, incident: records.RepairIncident, **changes: Any) -> records.RepairIncident:
        """Drained again and out of our reservation, then queued: for a person who took it over, or a pass that is void."""
        return self.save(incident, state="closing", detail={**incident.detail, "next": "queued"}, **changes)

    def begin_anew(
        self,
        incident: records.RepairIncident,
        without: Iterable[str],
        *,
        why: str,
        detail: Mapping[str, Any] | None = None,
    ) -> records.RepairIncident:
        """Drained again and out of our reservation, then tested beside further references and those that it had, `without` these; its rounds are counted on."""
        beside = [r for r in incident.reference_nodes if r not in without]
        again = {"next": "again", "beside": beside, "before": why}
        return self.save(incident, state="closing", why=why, detail={**(detail or incident.detail), **again})

    def make_way(self, incident: records.RepairIncident, node: view.Node | None) -> records.RepairIncident:
        """For a person in the middle of it: who holds the repair gets the node drained; who drained the node has it."""
        return self.step_aside(incident) if incident.held_by else self.abandon(incident, node)

    def leave_to_person(
        self, incident: records.RepairIncident, node: view.Node | None
    ) -> records.RepairIncident:
        """Nothing of ours is left to do: a person holds it, ended it, or lifted the drain, of a node that they hold as well."""
        ender, over = incident.detail.get("end"), view.drain_over(node)
        if ender:
            return self.close(incident, "closed", f"ended by {ender}")
        if not over:
            return incident
        node = self.node(incident.node)
        over = view.drain_over(node)
        if not over:
            return incident
        drains = self.context.store.drains(node=incident.node, cluster=self.context.config.cluster.name)
        if by := way_back.resumed_by(d for d in drains if d.drain_id == incident.drain_id):
            return self.close(incident, "lifted", by)
        # A command of ours writes down who resumed the node only after it has resumed it: one pass later it has.
        if node is not None and not node.states & vocabulary.DRAINED_STATES and incident.why != _LIFTED:
            return self.wait(incident, _LIFTED)
        return self.close(incident, "lifted", over)

    def node(self, name: str) -> view.Node | None:
        """What Slurm shows of a node now, not at the pass's beginning: asked for where something is about to be done."""
        self._looked.add(name)
        return self.context.slurm.node(name)

    def at_beginning(self, name: str) -> view.Node | None:
        """What Slurm showed of a node when the pass read all of them; what it shows now where this pass may have changed it."""
        return self.node(name) if name in self._looked else self.nodes.get(name)

    def no_room(self) -> str:
        """Why no further node may be reserved for tests; empty while one may."""
        return self._full(len(self.in_tests))

    def too_many_rounds(self) -> str:
        """Why no further round of tests may begin; empty while one may."""
        return self._full(sum(state == "testing" for state in self.in_tests.values()))

    def _full(self, n_begun: int) -> str:
        most = self.context.config.repair.rounds_at_once
        return f"as many nodes are under test as may be at once ({most})" if n_begun >= most else ""

    def is_covered(self, incident: records.RepairIncident) -> bool:
        """Whether the repair's reservation still lies over its node."""
        return any(
            one.name == incident.reservation and incident.node in one.nodes
            for one in self.context.reservations.all()
        )

    @staticmethod
    def is_anothers(node: view.Node) -> bool:
        """Whether a person drained it with a reason of their own."""
        return bool(node.states & vocabulary.DRAINED_STATES) and not node.ours

    @staticmethod
    def is_idle(node: view.Node | None) -> bool:
        """Whether it is in service and no job is on it."""
        return (
            node is not None
            and "IDLE" in node.states
            and not node.states & (BUSY | way_back.AWAY | vocabulary.DRAINED_STATES | {"FAIL", "FUTURE"})
        )

    @functools.cached_property
    def refused_lately(self) -> frozenset[str]:
        """Nodes whose Prologs may still refuse jobs by a permission of ours."""
        since = self.context.clock.now() - timedelta(seconds=self.context.config.policy.refusal_ttl_s)
        cluster = self.context.config.cluster.name
        rows = self.context.store.drains(since=since, actions=["refuse"], states=["done"], cluster=cluster)
        return frozenset(row.node for row in rows if row.at > since)

    @functools.cached_property
    def _reservations(self) -> Sequence[reservations.Reservation]:
        return self.context.reservations.all()

    def reservations_over(self, incident: records.RepairIncident) -> str:
        """The names of others' reservations that lay over the node when the pass first looked; empty for none."""
        mine = reservation_of(incident)
        return ", ".join(
            sorted(r.name for r in self._reservations if incident.node in r.nodes and r.name != mine)
        )

    def address(self, name: str) -> str:
        """NodeAddr, or the name where Slurm shows none."""
        node = self.nodes.get(name)
        return node.address if node is not None and node.address else name

    def lift_drains(self, incident: records.RepairIncident, why: str) -> None:
        """Ends the rows of every drain of the node that stands."""
        now = self.context.clock.now()
        for drain in self.context.store.drains(
            node=incident.node, open_only=True, cluster=self.context.config.cluster.name
        ):
            self.context.store.update_drain(drain.drain_id, state="resumed", ended_at=now, why_state=why)

    def unprotected(self, incident: records.RepairIncident) -> records.RepairIncident:
        """Drains a node whose reservation somebody deleted: users could get it untested."""
        return self.step_aside(incident, why="its reservation was taken away")

    def abandon(self, incident: records.RepairIncident, node: view.Node | None) -> records.RepairIncident:
        """A person drained it with a note of their own: it is theirs, and out of service."""
        self.context.rounds.stop(incident.reservation, incident.round_id)
        self.context.reservations.delete(incident.reservation)
        why = (
            f"taken over by another: {node.reason}" if node is not None else "Slurm knows the node no longer"
        )
        return self.close(incident, "lifted", why)

    def drain_reason(self, incident: records.RepairIncident) -> str:
        """What Slurm shows as the reason while it waits for a repair step or a person: why it was drained, as before.

        What fails now, in the tests' words, is the incident's (`probing-ctl repair show`); sinfo is read by everybody.
        """
        why = incident.reason.removeprefix(vocabulary.OWN_PREFIX).removeprefix(_REPAIR).strip()
        failing = incident.detail.get("failing") or ["untested"]
        return sanitize.clean(f"{vocabulary.OWN_PREFIX}{_REPAIR}{why or failing[0]}", 160).strip()

    def faults_of_agent(self, node: str) -> list[str]:
        """What the node's agent says against it now, in words; empty when it is current and clean."""
        store, cluster = self.context.store, self.context.config.cluster.name
        beat = next(iter(store.heartbeats([node], cluster=cluster)), None)
        return _faults(beat, store.heartbeat_ages_s(cluster=cluster).get(node))

    def faults_at_beginning(self, node: str) -> list[str]:
        """What the node's agent said against it when the pass began, in words; empty when it was current and clean."""
        return _faults(self.beats.get(node), self.ages.get(node))

    def ask_to_look_again(self, incident: records.RepairIncident) -> records.RepairIncident | None:
        """After a repair the agent ends what only its memory holds and looks again; None once it has, or will not."""
        recheck, now = incident.detail.get("recheck"), self.context.clock.now()
        if recheck is None:
            what = {"clear": True, "by": "probing repair"}
            request_id = self.context.store.request(
                incident.node, "recheck", ttl_s=_LOOK_S, detail=what, cluster=incident.cluster
            )
            new = {"recheck": str(request_id), "recheck_at": clock.iso_z(now)}
            return self.save(incident, detail={**incident.detail, **new})
        done = self.context.store.beats_after([uuid.UUID(recheck)])
        late = now - datetime.fromisoformat(incident.detail["recheck_at"]) > timedelta(seconds=_LOOK_S)
        return None if done or late else incident

    def next_step(self, incident: records.RepairIncident) -> str:
        """The first repair step that was not tried, empty when none is left."""
        left = self.steps_of(incident)[incident.steps_done :]
        return left[0] if left else ""

    def steps_of(self, incident: records.RepairIncident) -> tuple[str, ...]:
        """Every step for its cause that this site can do, in order."""
        table = steps.load(self.context.config.repair)
        return steps.possible(steps.named(incident.cause, table), self.context.config.repair)

    def every_step_of(self, incident: records.RepairIncident) -> tuple[str, ...]:
        """Every step that the table has for its cause, also those that this site has not switched on."""
        return steps.named(incident.cause, steps.load(self.context.config.repair)).steps

    def idle_references(self, incident: records.RepairIncident) -> tuple[str, ...]:
        """Idle nodes, well by their agents, of the node's partition: those of the round before first, and as many more in each further one."""
        here = self.nodes.get(incident.node)
        if here is None:
            return ()
        ledger = budget.Ledger.of_references(self.fleet_view, self.context.config.policy)
        mine = reservation_of(incident)
        chosen: list[str] = []
        before = incident.detail.get("beside", ())
        for name in sorted(self.nodes, key=lambda n: (n not in before, n)):
            if len(chosen) >= self.context.config.diagnostics.references * (incident.n_rounds + 1):
                break
            # Our own job has just ended on those of before: the pass began while it ran.
            node = self.node(name) if name in before else self.nodes[name]
            usable = name != incident.node and self.is_idle(node) and name in self.context.green
            if (
                usable
                and node is not None
                and self.fleet_view.under_test.get(name, mine) == mine
                and set(node.partitions) & set(here.partitions)
                and not ledger.refuses(name, leaves_service=False)
            ):
                ledger.take(name)
                chosen.append(name)
        return tuple(chosen)

    def further_references(self, incident: records.RepairIncident) -> set[str]:
        """Idle nodes that a further round would have beside those of this one."""
        return set(self.idle_references(incident)) - set(incident.reference_nodes)


def in_tests(incidents: Iterable[records.RepairIncident], now: datetime) -> dict[uuid.UUID, str]:
    """By repair the state of those that are tested, or will be at once."""
    return {
        one.incident_id: one.state
        for one in incidents
        if one.state == "testing" or (one.state in _ON_ITS_WAY and now - one.changed_at < _PATIENCE)
    }


def _faults(beat: records.AgentHeartbeat | None, age_s: float | None) -> list[str]:
    if beat is None or not confirm.is_current(beat, age_s):
        return [SILENT]
    acting = {records.Severity.HIGH.value, records.Severity.LOW.value}
    return [
        f"agent: {key}: {fault.get('message') or 'no message'}"
        for key, fault in sorted(beat.faults.items())
        if isinstance(fault, Mapping) and str(fault.get("severity")) in acting
    ]


def switched_off(config: settings.Settings) -> str:
    """The setting by which drained nodes are not tested; empty where they are."""
    if not config.repair.test_before_return:
        return "[repair] test_before_return = false"
    if not config.policy.auto_resume:
        return "[policy] auto_resume = false"
    return "observe-only" if config.policy.observe_only else ""


def is_of_a_test(name: str | None, nodes: Sequence[str]) -> bool:
    """Whether a job's name is one that our tests of these nodes have: of a repair of one of them, or of a round that a person asked for."""
    found = _TEST_JOB.fullmatch(name or "")
    return found is not None and found["node"] in {"diagnose", *nodes}


def reservation_of(incident: records.RepairIncident) -> str:
    """The name of a repair's reservation, and of the jobs that test the node in it."""
    return reservations.name_for(incident.node, incident.incident_id.hex[:8])
