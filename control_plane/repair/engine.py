"""The workflow of one drained node, as a state machine whose every step is a row first, then done, then read back.

    queued → reserving → opening → testing → returning → returned
                            ↑         ↓
                          acting ← closing → ticketing → ticket

Each state's work can be done again from its beginning: after a kill at any line the next pass reads Slurm and goes on. A
node leaves our reservation undrained in one place only, `_returning`, which needs a round of tests that passed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol

from probing_cluster.control_plane.policy import actions, budget, confirm, resume_policy, view
from probing_cluster.control_plane.repair import campaign, rounds, steps
from probing_cluster.core import clock, errors, hostlist, records, sanitize, settings, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins import topology
from probing_cluster.slurm_plugins.acts import job_steps, reservations

TRANSITIONS = 12
"""Most transitions of one node in one pass."""
_BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_AWAY = frozenset(
    {
        "DOWN",
        "NOT_RESPONDING",
        "UNKNOWN",
        "REBOOT",
        "REBOOT_REQUESTED",
        "REBOOT_ISSUED",
        "POWERING_UP",
        "POWER_DOWN",
        "POWERED_DOWN",
        "POWERING_DOWN",
    }
)
_LOOK_S = 120.0
"""How long an agent may take to look again."""
_MOST_ISSUES = 2
"""A reboot of which Slurm shows nothing is asked for so often."""
_ISSUE_AGAIN = timedelta(seconds=120)


class Bookings(Protocol):
    """Slurm's reservations; slurm_plugins.acts.reservations is the real one."""

    def all(self) -> list[reservations.Reservation]: ...

    def create(self, name: str, nodes: Sequence[str]) -> None: ...

    def delete(self, name: str) -> None: ...


class Running(Protocol):
    """Rounds of tests under way; rounds.Rounds is the real one."""

    def start(
        self, wanted: job_steps.Wanted, asked: Callable[[int], campaign.Asked], round_id: uuid.UUID
    ) -> None: ...

    def state(self, round_id: uuid.UUID) -> rounds.Ended | None: ...

    def stop(self, name: str, round_id: uuid.UUID | None) -> None: ...


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything the workflow touches."""

    config: settings.Settings
    store: db_store.Store
    hands: actions.Hands
    bookings: Bookings
    running: Running
    clock: clock.Clock
    green: Mapping[str, resume_policy.Green]
    """Nodes whose agents show no fault, and since when."""
    power: Callable[[str], str]
    """Runs the site's power command for a node; why it failed, empty when it did not."""
    ticket: Callable[[records.RepairIncident], Mapping[str, Any]]
    """Writes the bundle and opens the ticket, once per incident however often it is called; what it wrote."""


@dataclass(kw_only=True)
class Pass:
    """One pass over every open repair."""

    world: World
    nodes: Mapping[str, view.Node]
    beats: Mapping[str, records.AgentHeartbeat]
    ages: Mapping[str, float]
    notes: Mapping[str, records.OperatorNote]
    """By node what a person said last: hold, release or done."""
    fleet_view: view.View

    def one(self, incident: records.RepairIncident) -> str:
        """Takes a repair as far as it goes now; what became of it, empty when nothing changed."""
        before = (incident.state, incident.why)
        for _ in range(TRANSITIONS):
            state = incident.state
            after = self._heard(incident)
            if after.closed_at is None:
                after = self._STATES[after.state](self, after)
            incident = after
            if incident.closed_at is not None or incident.state == state:
                break
        now = (incident.state, incident.why)
        return (
            ""
            if now == before
            else f"{incident.node} {incident.state}{f': {incident.why}' if incident.why else ''}"
        )

    # What people say

    def _heard(self, incident: records.RepairIncident) -> records.RepairIncident:
        note = self.notes.get(incident.node)
        if note is None or note.at < incident.opened_at or str(note.note_id) == incident.detail.get("note"):
            return incident
        heard = {**incident.detail, "note": str(note.note_id)}
        if note.action == "hold":
            return self._save(incident, held_by=note.author, why=f"taken over by {note.author}", detail=heard)
        if note.action == "release":
            again = (
                {"state": "queued", "steps_done": 0, "n_rounds": 0}
                if incident.state in {"queued", "ticket"}
                else {}
            )
            return self._save(
                incident,
                held_by="",
                why=f"given back by {note.author}",
                detail=heard | {"asked": True, "look_again": True},
                **again,
            )
        if incident.state not in {"queued", "ticket"}:
            # First out of the reservation, drained; then it is over.
            return self._save(
                incident,
                held_by=note.author,
                why=f"to be ended by {note.author}",
                detail=heard | {"end": note.author},
            )
        return self._close(incident, "closed", f"ended by {note.author}", detail=heard)

    # States

    def _queued(self, incident: records.RepairIncident) -> records.RepairIncident:
        if incident.held_by:
            if ender := incident.detail.get("end"):
                return self._close(incident, "closed", f"ended by {ender}")
            return incident
        node = self._now(incident.node)
        over = view.drain_over(node)
        if over:
            return self._close(incident, "lifted", over)
        why = self._not_yet(incident, node)
        if why:
            return self._waits(incident, why)
        return self._save(
            incident,
            state="reserving",
            reservation=f"{vocabulary.RESERVATION_PREFIX}{incident.node}-{incident.incident_id.hex[:8]}",
            reference_nodes=self._references(incident),
            why="",
        )

    def _not_yet(self, incident: records.RepairIncident, node: view.Node | None) -> str:
        """Why its tests cannot begin now."""
        if node is None or not node.ours:
            return "Slurm put a reason of its own on our drain"
        if self.world.config.policy.observe_only:
            return f"observe-only: it would be reserved, tested, {self._plan(incident)}"
        if node.states & _BUSY:
            return "its jobs are finishing"
        if node.hands_off or node.states & (vocabulary.UNTOUCHABLE_STATES - vocabulary.DRAINED_STATES):
            return f"Slurm shows it {'+'.join(sorted(node.states))}"
        if self._refused_lately(incident.node):
            return "a permission to refuse jobs at its Prolog has not run out"
        if incident.detail.get("asked"):
            return ""
        config = self.world.config
        beat = self.beats.get(incident.node)
        if beat is None or not confirm.is_current(beat, self.ages.get(incident.node)):
            return "its agent is silent"
        green = self.world.green.get(incident.node)
        if green is None:
            left = self._steps(incident)[incident.steps_done :]
            shown = ", ".join(sorted(beat.faults)) or "a fault"
            return (
                ""
                if left
                else f"its agent still confirms {shown}, and no repair step is left that could end it"
            )
        quiet_s = (self.world.clock.now() - green.since).total_seconds()
        if quiet_s < config.repair.quiet_s:
            return f"no fault for {quiet_s:.0f} of {config.repair.quiet_s:g} s"
        return ""

    def _plan(self, incident: records.RepairIncident) -> str:
        left = self._steps(incident)
        return f"then {', '.join(left)}, tested again after each" if left else "and resumed or ticketed"

    def _reserving(self, incident: records.RepairIncident) -> records.RepairIncident:
        if incident.held_by:
            return self._save(incident, state="closing", detail={**incident.detail, "next": "queued"})
        wanted = [incident.node, *incident.reference_nodes]
        try:
            self.world.bookings.create(incident.reservation, wanted)
        except errors.NotPermitted as exc:
            return self._save(incident, state="queued", reservation="", reference_nodes=(), why=str(exc))
        # A job may have started on a reference between our look and the reservation: busy ones are let go, while the node is drained.
        busy = [r for r in incident.reference_nodes if not self._idle(self._now(r))]
        if busy:
            kept = tuple(r for r in incident.reference_nodes if r not in busy)
            return self._reserving(self._save(incident, reference_nodes=kept))
        return self._save(incident, state="opening", why="")

    def _opening(self, incident: records.RepairIncident) -> records.RepairIncident:
        if incident.held_by:
            return self._save(incident, state="closing", detail={**incident.detail, "next": "queued"})
        node = self._now(incident.node)
        if node is None or self._anothers(node):
            return self._abandon(incident, node)
        if not self._covered(incident):
            if node.ours:
                return self._save(incident, state="reserving", why="its reservation is gone")
            return self._unprotected(incident)
        if node.states & _AWAY:
            return self._waits(incident, f"Slurm shows it {'+'.join(sorted(node.states))}")
        if node.states & vocabulary.DRAINED_STATES:
            outcome = self.world.hands.resume(incident.node, incident.reservation)
            if outcome.state != "done":
                return self._waits(incident, outcome.why)
            node = self._now(incident.node)
            if node is None or node.states & vocabulary.DRAINED_STATES:
                return self._waits(incident, "Slurm accepted the resume, yet it is drained")
        return self._save(
            incident, state="testing", round_id=uuid.uuid4(), n_rounds=incident.n_rounds + 1, why=""
        )

    def _testing(self, incident: records.RepairIncident) -> records.RepairIncident:
        if incident.held_by:
            return self._save(incident, state="closing", detail={**incident.detail, "next": "queued"})
        node = self._now(incident.node)
        if node is None or self._anothers(node):
            return self._abandon(incident, node)
        if not self._covered(incident):
            return self._unprotected(incident)
        assert incident.round_id is not None
        try:
            ended = self.world.running.state(incident.round_id)
        except errors.NotFound:
            return self._begin(incident, node)
        if ended is None:
            return incident
        return self._judge(incident, ended)

    def _begin(self, incident: records.RepairIncident, node: view.Node) -> records.RepairIncident:
        """A round under a new id: of one that another service had begun nothing is used."""
        self.world.running.stop(incident.reservation, incident.round_id)
        fresh = self._save(incident, round_id=uuid.uuid4(), why="under test")
        assert fresh.round_id is not None
        config, together = self.world.config, (fresh.node, *fresh.reference_nodes)
        partitions = set.intersection(*(set(n.partitions) for n in map(self._now, together) if n is not None))
        wanted = job_steps.Wanted(
            name=fresh.reservation,
            reservation=fresh.reservation,
            nodes=together,
            partition=min(partitions) if partitions else "",
            account=config.diagnostics.account,
            gpus=node.n_gpus or 0,
            limit_s=config.diagnostics.round_s + 120,
        )
        places, hosts = topology.leaves(self.world.hands.places()), {n: self._address(n) for n in together}
        step = fresh.detail.get("step", "")

        def asked(job_id: int) -> campaign.Asked:
            assert fresh.round_id is not None
            return campaign.Asked(
                round_id=fresh.round_id,
                job_id=job_id,
                nodes=(fresh.node,),
                references=fresh.reference_nodes,
                hosts=hosts,
                places=places,
                command=_command(step, config.repair),
                incident_id=fresh.incident_id,
            )

        self.world.running.start(wanted, asked, fresh.round_id)
        return fresh

    def _judge(self, incident: records.RepairIncident, ended: rounds.Ended) -> records.RepairIncident:
        if incident.detail.get("look_again"):
            asked = self._look_again(incident)
            if asked is not None:
                return asked
        transient = {"step", "asked", "next", "look_again", "recheck", "recheck_at"}
        detail = {k: v for k, v in incident.detail.items() if k not in transient}
        if incident.detail.get("step"):
            incident = self._save(incident, steps_done=incident.steps_done + 1, detail=detail)
        failing = campaign.against(ended.found, incident.node) if ended.found else []
        failing += self._agents_faults(incident.node)
        missing = campaign.unanswered(ended.found, incident.node) if ended.found else [ended.why]
        slow = dict(ended.found.slow_nodes).get(incident.node) if ended.found else None
        rounds_left = incident.n_rounds < self.world.config.repair.most_rounds
        if not failing and slow and incident.detail.get("slow") != slow and rounds_left:
            # One slow round may be its neighbours' doing; the second one counts.
            return self._save(
                incident,
                state="opening",
                why=f"slow by {slow}, to be confirmed",
                detail=detail | {"slow": slow},
            )
        if not failing and slow:
            failing = [f"{slow}: slower than nodes of its kind, in two rounds"]
        if failing:
            words = [sanitize.clean(w, 300) for w in failing[:8]]
            step = self._next_step(incident)
            return self._after_failing(incident, step, words, detail)
        if missing:
            if rounds_left:
                return self._save(incident, state="opening", why=f"no answer: {missing[0]}", detail=detail)
            words = [sanitize.clean(f"not tested: {w}", 300) for w in missing[:8]]
            return self._save(
                incident,
                state="closing",
                why=words[0],
                detail=detail | {"failing": words, "next": "ticketing"},
            )
        passed = detail | {"passed": str(incident.round_id)}
        return self._save(incident, state="returning", why="every test passed", detail=passed)

    def _after_failing(
        self, incident: records.RepairIncident, step: str, words: list[str], detail: dict[str, Any]
    ) -> records.RepairIncident:
        why = words[0]
        if step in {"reset", "reload"}:
            # In the tests' own job: the node stays reserved and undrained, as it is.
            return self._save(
                incident,
                state="opening",
                why=f"{step} after {why}",
                n_rounds=0,
                detail=detail | {"failing": words, "step": step, "look_again": True},
            )
        following = {"next": "acting", "act": step} if step else {"next": "ticketing"}
        return self._save(incident, state="closing", why=why, detail=detail | {"failing": words} | following)

    def _closing(self, incident: records.RepairIncident) -> records.RepairIncident:
        """Drained again, before it leaves the reservation or is rebooted."""
        self.world.running.stop(incident.reservation, incident.round_id)
        node = self._now(incident.node)
        if node is not None and self._anothers(node):
            return self._abandon(incident, node)
        if node is not None and not node.states & vocabulary.DRAINED_STATES:
            outcome = self.world.hands.drain(incident.node, self._reason(incident), incident.reservation)
            if outcome.state != "done":
                return self._waits(incident, f"it cannot be drained: {outcome.why}")
            node = self._now(incident.node)
            if node is None or not node.ours:
                return self._waits(incident, "Slurm accepted the drain, yet does not show it")
        following = str(incident.detail.get("next", "ticketing"))
        if following != "acting":
            self.world.bookings.delete(incident.reservation)
        if following == "queued":
            return self._save(
                incident, state="queued", reservation="", reference_nodes=(), round_id=None, n_rounds=0
            )
        if following == "ticketing":
            return self._save(incident, state="ticketing", reference_nodes=())
        return self._save(incident, state=following, acted_at=None)

    def _acting(self, incident: records.RepairIncident) -> records.RepairIncident:
        """A reboot or a power cycle of the drained node."""
        if incident.held_by:
            return self._save(incident, state="closing", detail={**incident.detail, "next": "queued"})
        step, now = str(incident.detail.get("act", "")), self.world.clock.now()
        node = self._now(incident.node)
        if node is None or self._anothers(node):
            return self._abandon(incident, node)
        issued = int(incident.detail.get("issued", 0))
        if incident.acted_at is None:
            incident = self._save(
                incident, acted_at=now, detail={**incident.detail, "issued": 1}, why=f"{step} under way"
            )
            return self._issue(incident, step)
        booted = node.boot_at is not None and node.boot_at >= incident.acted_at
        if booted and not node.states & _AWAY:
            detail = {k: v for k, v in incident.detail.items() if k not in {"act", "issued", "next"}}
            return self._save(
                incident,
                state="opening",
                steps_done=incident.steps_done + 1,
                n_rounds=0,
                acted_at=None,
                why=f"tested after {step}",
                detail=detail | {"look_again": True},
            )
        if now - incident.acted_at > timedelta(seconds=self.world.config.repair.reboot_s):
            words = f"{step}: it did not come back within {self.world.config.repair.reboot_s:g} s"
            failing = [*incident.detail.get("failing", []), words]
            return self._save(
                incident,
                state="closing",
                why=words,
                detail={**incident.detail, "failing": failing, "next": "ticketing"},
            )
        quiet = not node.states & _AWAY and now - incident.acted_at > issued * _ISSUE_AGAIN
        if quiet and issued < _MOST_ISSUES:
            incident = self._save(incident, detail={**incident.detail, "issued": issued + 1})
            return self._issue(incident, step)
        return incident

    def _issue(self, incident: records.RepairIncident, step: str) -> records.RepairIncident:
        if step == "power":
            why = self.world.power(incident.node)
        else:
            outcome = self.world.hands.reboot(incident.node)
            why = "" if outcome.state == "done" else outcome.why
        return self._waits(incident, f"{step} failed: {why}") if why else incident

    def _returning(self, incident: records.RepairIncident) -> records.RepairIncident:
        """Back in service: only here, and only with a round that passed."""
        node = self._now(incident.node)
        if incident.held_by or incident.detail.get("passed") != str(incident.round_id):
            return self._save(incident, state="closing", detail={**incident.detail, "next": "queued"})
        if node is None or self._anothers(node):
            return self._abandon(incident, node)
        if node.states & vocabulary.DRAINED_STATES:
            return self._save(
                incident,
                state="closing",
                why="it was drained again",
                detail={**incident.detail, "next": "queued"},
            )
        self._lift_drains(incident, f"tested and well (round {str(incident.round_id)[:8]})")
        self.world.bookings.delete(incident.reservation)
        return self._close(incident, "returned", "every test passed")

    def _ticketing(self, incident: records.RepairIncident) -> records.RepairIncident:
        wrote = self.world.ticket(incident)
        detail = {k: v for k, v in incident.detail.items() if k not in {"next", "act", "issued"}}
        return self._save(
            incident, state="ticket", reservation="", round_id=None, detail=detail | dict(wrote)
        )

    def _ticket(self, incident: records.RepairIncident) -> records.RepairIncident:
        """Out until a person has been there; a boot since then and a clean agent are reason enough to test again."""
        if incident.held_by:
            if ender := incident.detail.get("end"):
                return self._close(incident, "closed", f"ended by {ender}")
            return incident
        node = self._now(incident.node)
        over = view.drain_over(node)
        if over:
            return self._close(incident, "lifted", over)
        booted = node is not None and node.boot_at is not None and node.boot_at > incident.changed_at
        if booted and incident.node in self.world.green:
            return self._save(
                incident,
                state="queued",
                steps_done=0,
                n_rounds=0,
                why="it was rebooted: tested again",
                detail={**incident.detail, "look_again": True},
            )
        return incident

    # What they share

    def _unprotected(self, incident: records.RepairIncident) -> records.RepairIncident:
        """Whoever took the reservation away gave users an untested node: it is drained before anything else."""
        detail = {**incident.detail, "next": "queued"}
        return self._save(incident, state="closing", why="its reservation was taken away", detail=detail)

    def _abandon(self, incident: records.RepairIncident, node: view.Node | None) -> records.RepairIncident:
        """A person drained it with a note of their own: it is theirs, and out of service."""
        self.world.running.stop(incident.reservation, incident.round_id)
        self.world.bookings.delete(incident.reservation)
        why = (
            f"taken over by another: {node.reason}" if node is not None else "Slurm knows the node no longer"
        )
        return self._close(incident, "lifted", why)

    @staticmethod
    def _anothers(node: view.Node) -> bool:
        return bool(node.states & vocabulary.DRAINED_STATES) and not node.ours

    def _lift_drains(self, incident: records.RepairIncident, why: str) -> None:
        now = self.world.clock.now()
        for drain in self.world.store.drains(node=incident.node, open_only=True):
            self.world.store.update_drain(drain.drain_id, state="resumed", ended_at=now, why_state=why)

    def _reason(self, incident: records.RepairIncident) -> str:
        failing = incident.detail.get("failing") or ["untested"]
        return sanitize.clean(f"{vocabulary.OWN_PREFIX}repair: {failing[0]}", 160).strip()

    def _agents_faults(self, node: str) -> list[str]:
        beat = next(iter(self.world.store.heartbeats([node])), None)
        if beat is None or not confirm.is_current(beat, self.world.store.heartbeat_ages_s().get(node)):
            return ["agent: it is silent"]
        acting = {records.Severity.HIGH.value, records.Severity.LOW.value}
        return [
            f"agent: {key}: {fault.get('message') or 'no message'}"
            for key, fault in sorted(beat.faults.items())
            if isinstance(fault, Mapping) and str(fault.get("severity")) in acting
        ]

    def _look_again(self, incident: records.RepairIncident) -> records.RepairIncident | None:
        """After a repair the agent ends what only its memory holds and looks again; None once it has, or will not."""
        asked, now = incident.detail.get("recheck"), self.world.clock.now()
        if asked is None:
            what = {"clear": True, "by": "probing repair"}
            request_id = self.world.store.request(incident.node, "recheck", ttl_s=_LOOK_S, detail=what)
            new = {"recheck": str(request_id), "recheck_at": clock.iso_z(now)}
            return self._save(incident, detail={**incident.detail, **new})
        done = self.world.store.beats_after([uuid.UUID(asked)])
        late = now - datetime.fromisoformat(incident.detail["recheck_at"]) > timedelta(seconds=_LOOK_S)
        return None if done or late else incident

    def _next_step(self, incident: records.RepairIncident) -> str:
        left = self._steps(incident)[incident.steps_done :]
        return left[0] if left else ""

    def _steps(self, incident: records.RepairIncident) -> tuple[str, ...]:
        table = steps.load(self.world.config.repair)
        return steps.possible(steps.named(incident.cause, table), self.world.config.repair)

    def _references(self, incident: records.RepairIncident) -> tuple[str, ...]:
        """Idle nodes, well by their agents, of the node's partition and within the budget."""
        here = self.nodes.get(incident.node)
        if here is None:
            return ()
        ledger = budget.Ledger(self.fleet_view, self.world.config.policy)
        chosen: list[str] = []
        for name, node in sorted(self.nodes.items()):
            if len(chosen) == self.world.config.diagnostics.references:
                break
            usable = name != incident.node and self._idle(node) and name in self.world.green
            if (
                usable
                and name not in self.fleet_view.under_test
                and set(node.partitions) & set(here.partitions)
                and not ledger.refuses(name)
            ):
                ledger.take(name)
                chosen.append(name)
        return tuple(chosen)

    @staticmethod
    def _idle(node: view.Node | None) -> bool:
        return (
            node is not None
            and "IDLE" in node.states
            and not node.states & (_BUSY | _AWAY | vocabulary.DRAINED_STATES | {"FAIL", "FUTURE"})
        )

    def _covered(self, incident: records.RepairIncident) -> bool:
        return any(
            one.name == incident.reservation and incident.node in one.nodes
            for one in self.world.bookings.all()
        )

    def _refused_lately(self, node: str) -> bool:
        since = self.world.clock.now() - timedelta(seconds=self.world.config.policy.refusal_ttl_s)
        return any(
            d.action == "refuse" and d.state == "done" and d.at > since
            for d in self.world.store.drains(node=node, since=since)
        )

    def _address(self, name: str) -> str:
        node = self.nodes.get(name)
        return node.address if node is not None and node.address else name

    def _now(self, name: str) -> view.Node | None:
        return self.world.hands.node(name)

    def _waits(self, incident: records.RepairIncident, why: str) -> records.RepairIncident:
        return incident if incident.why == why else self._save(incident, why=why)

    def _save(self, incident: records.RepairIncident, **changes: Any) -> records.RepairIncident:
        if changes.get("state", incident.state) != incident.state:
            changes["changed_at"] = self.world.clock.now()
        return self.world.store.update_incident(incident.incident_id, **changes)

    def _close(
        self, incident: records.RepairIncident, state: str, why: str, **changes: Any
    ) -> records.RepairIncident:
        now: datetime = self.world.clock.now()
        return self._save(incident, state=state, why=why, closed_at=now, reference_nodes=(), **changes)

    _STATES: ClassVar[Mapping[str, Callable[[Pass, records.RepairIncident], records.RepairIncident]]] = {
        "queued": _queued,
        "reserving": _reserving,
        "opening": _opening,
        "testing": _testing,
        "closing": _closing,
        "acting": _acting,
        "returning": _returning,
        "ticketing": _ticketing,
        "ticket": _ticket,
    }


def _command(step: object, config: settings.RepairSettings) -> str:
    return {"reset": config.reset_command, "reload": config.reload_command}.get(str(step), "")


def orphans(world: World, incidents: Sequence[records.RepairIncident]) -> list[str]:
    """Reservations of ours that no open repair has: their nodes are drained if they are not, then they are freed."""
    known = {incident.reservation for incident in incidents if incident.closed_at is None}
    over = {
        incident.reservation
        for incident in world.store.incidents(since=world.clock.now() - timedelta(days=30))
        if incident.state == "returned"
    }
    done = []
    for found in world.bookings.all():
        if not found.ours or found.name in known:
            continue
        world.running.stop(found.name, None)
        if found.name not in over and not _drained(world, found):
            continue  # the next pass tries again: nobody gets a node of which nobody knows whether it was tested
        world.bookings.delete(found.name)
        done.append(
            f"reservation {found.name} of {hostlist.compress(sorted(found.nodes))} had no repair and is freed"
        )
    return done


def _drained(world: World, found: reservations.Reservation) -> bool:
    reason = f"{vocabulary.OWN_PREFIX}untested: its test was cut off"
    for name in sorted(found.nodes):
        node = world.hands.node(name)
        if node is not None and not node.states & vocabulary.DRAINED_STATES:
            outcome = world.hands.drain(name, reason, found.name)
            if outcome.state != "done":
                return False
            row = records.Drain(
                drain_id=uuid.uuid4(), cluster=world.config.cluster.name, node=name, at=world.clock.now(), action="drain",
                reason=reason, owner="probing", state="done",
            )  # fmt: skip
            world.store.save_drain(row)
    return True
