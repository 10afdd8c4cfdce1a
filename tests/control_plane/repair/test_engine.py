"""The repair workflow against a Slurm in memory and a real database, killed at every one of its steps.

Two things are looked at after every single step: no node leaves our reservation undrained unless a round of tests of it
passed, and no node is lost: once the killing stops, every repair ends where it must.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import fakes
import pytest

from probing_cluster.control_plane.cli.nodes import repair_commands
from probing_cluster.control_plane.policy import resume_policy, view
from probing_cluster.control_plane.repair import campaign, engine, round_findings, rounds, workflow
from probing_cluster.core import errors, records, settings, vocabulary
from probing_cluster.db import store as db_store
from probing_cluster.slurm_plugins.acts import nodes as slurm_nodes
from probing_cluster.slurm_plugins.acts import reservations
from tests.set_clock import SetClock

NOW = fakes.NOW
REASON = "probing: mount /scratch"


FATES = ["well", "cured by reset", "cured by reboot", "incurable", "held", "ended"]
STRIDE = 1 if "PROBING_KILL_ROUNDS" in os.environ else 45
"""The gate kills at every forty-fifth step, each fate from another one on; the soak at every single one."""


class Slurm:
    """Nodes, reservations and the hardware behind them; every call may be the one at which the service is killed."""

    def __init__(self) -> None:
        self.nodes = {
            n: view.Node(name=n, states=frozenset({"IDLE"}), partitions=("gpu",), address=n)
            for n in ("n1", "n2", "n3")
        }
        self.held: dict[str, frozenset[str]] = {}
        self.broken: set[str] = set()
        self.tested: set[str] = set()
        """Nodes whose latest round passed since they were drained."""
        self.drained: list[str] = []
        self.calls = 0
        self.kill_at = 0
        self.cured_by: Mapping[str, str] = {}

    def step(self) -> None:
        """Half of the kills come before an act, half after it: each act calls this twice."""
        self.calls += 1
        if self.calls == self.kill_at:
            raise fakes.Killed

    def judge(self) -> None:
        """No user's job may reach a node that is neither drained, reserved nor tested."""
        reserved = frozenset().union(*self.held.values()) if self.held else frozenset()
        for name, node in self.nodes.items():
            drained = "DRAIN" in node.states
            assert drained or name in reserved or name in self.tested, f"{name} is open to users untested"

    def set(self, name: str, **changes: Any) -> None:
        self.nodes[name] = dataclasses.replace(self.nodes[name], **changes)
        self.judge()


class FakeOperations(fakes.FakeSlurm):
    """The acts of the workflow on that Slurm."""

    def __init__(self, slurm: Slurm, clock: SetClock) -> None:
        super().__init__()
        self.slurm, self.clock = slurm, clock

    def nodes(self) -> list[view.Node]:
        return list(self.slurm.nodes.values())

    def node(self, name: str) -> view.Node | None:
        self.slurm.step()
        return self.slurm.nodes.get(name)

    def drain(self, name: str, reason: str, reservation: str = "") -> slurm_nodes.Outcome:
        self.slurm.step()
        self.slurm.tested.discard(name)
        self.slurm.drained.append(name)
        self.slurm.set(name, states=frozenset({"IDLE", "DRAIN"}), reason=reason)
        self.slurm.step()
        return slurm_nodes.Outcome(state="done")

    def resume(self, name: str, reservation: str = "") -> slurm_nodes.Outcome:
        self.slurm.step()
        assert name in self.slurm.held.get(reservation, ()), "resumed outside its reservation"
        self.slurm.set(name, states=frozenset({"IDLE"}), reason="")
        self.slurm.step()
        return slurm_nodes.Outcome(state="done")

    def reboot(self, name: str) -> slurm_nodes.Outcome:
        self.slurm.step()
        assert "DRAIN" in self.slurm.nodes[name].states
        if self.slurm.cured_by.get(name) == "reboot":
            self.slurm.broken.discard(name)
        self.slurm.set(name, boot_at=self.clock.now() + timedelta(seconds=20))
        self.slurm.step()
        return slurm_nodes.Outcome(state="done")


class Bookings:
    """Reservations."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm

    def all(self) -> list[reservations.Reservation]:
        self.slurm.step()
        return [reservations.Reservation(name=n, nodes=covered) for n, covered in self.slurm.held.items()]

    def create(self, name: str, nodes: Sequence[str]) -> None:
        self.slurm.step()
        self.slurm.held[name] = frozenset(nodes)
        self.slurm.step()

    def delete(self, name: str) -> None:
        self.slurm.step()
        self.slurm.held.pop(name, None)
        self.slurm.judge()
        self.slurm.step()


class Running:
    """Rounds: they end at once, and die with the service."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.ended: dict[uuid.UUID, rounds.RoundEnd] = {}
        self.answer: Callable[[campaign.RoundRequest], rounds.RoundEnd] | None = None

    def start(
        self, wanted: Any, requested: Callable[[int], campaign.RoundRequest], round_id: uuid.UUID
    ) -> None:
        self.slurm.step()
        question = requested(7)
        assert set(wanted.nodes) <= self.slurm.held[wanted.reservation]
        if question.command and self.slurm.cured_by.get(question.nodes[0]) == question.command:
            self.slurm.broken.discard(question.nodes[0])
        self.ended[round_id] = self.answer(question) if self.answer else self._found(question)
        self.slurm.step()

    def _found(self, requested: campaign.RoundRequest) -> rounds.RoundEnd:
        (node,) = requested.nodes
        bad = node in self.slurm.broken
        outcome = records.Outcome.FAIL if bad else records.Outcome.OK
        if not bad:
            self.slurm.tested.add(node)
        result = records.DiagnosticResult(
            result_id=uuid.uuid4(), cluster="c", round_id=requested.round_id, node=node, test="gemm",
            outcome=outcome, message="3 wrong results" if bad else "fine", at=NOW,
        )  # fmt: skip
        return rounds.RoundEnd(found=round_findings.Findings(results=(result,)))

    def state(self, round_id: uuid.UUID) -> rounds.RoundEnd | None:
        self.slurm.step()
        if round_id not in self.ended:
            raise errors.NotFound("not run by this service")
        return self.ended[round_id]

    def stop(self, name: str, round_id: uuid.UUID | None) -> None:
        self.slurm.step()

    def forget(self, round_id: uuid.UUID) -> None:
        self.slurm.step()
        del self.ended[round_id]


class KillingStore:
    """The store, with a kill possible before and after every write."""

    def __init__(self, store: db_store.Store, slurm: Slurm) -> None:
        self._store, self._slurm = store, slurm

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in {"update_incident", "update_drain", "request"}:
            return found

        def killing(*args: Any, **changes: Any) -> Any:
            self._slurm.step()
            answer = found(*args, **changes)
            self._slurm.step()
            return answer

        return killing


class Site:
    """One cluster with n1 drained by us, and services that come and go."""

    def __init__(self, store: db_store.Store, **repair: Any) -> None:
        self.store, self.slurm, self.clock = store, Slurm(), SetClock(fakes.NOW)
        self.tickets: list[str] = []
        self.clean = {"n1", "n2", "n3"}
        policy = settings.PolicySettings(observe_only=False, budget_frac=1.0, budget_partition_frac=1.0)
        self.config = settings.Settings(
            cluster=settings.ClusterSettings(name="c"),
            policy=policy,
            repair=settings.RepairSettings(**{"quiet_s": 0.0, **repair}),
        )
        self.slurm.nodes["n1"] = dataclasses.replace(
            self.slurm.nodes["n1"], states=frozenset({"IDLE", "DRAIN"}), reason=REASON
        )
        self.slurm.tested = {"n2", "n3"}
        self.drain = records.Drain(
            drain_id=uuid.uuid4(), cluster="c", node="n1", at=NOW, action="drain", reason=REASON,
            owner="probing", state="done",
        )  # fmt: skip
        store.save_drain(self.drain)
        self.incident = records.RepairIncident(
            incident_id=uuid.uuid4(), cluster="c", node="n1", drain_id=self.drain.drain_id, reason=REASON,
            cause="gpu", state="queued", opened_at=NOW, changed_at=NOW,
        )  # fmt: skip
        assert store.open_incident(self.incident)
        self.running = Running(self.slurm)

    def start(self) -> workflow.RepairContext:
        """A service begins: it knows of no round."""
        answer = self.running.answer
        self.running = Running(self.slurm)
        self.running.answer = answer
        self.context = workflow.RepairContext(
            config=self.config,
            store=KillingStore(self.store, self.slurm),  # type: ignore[arg-type]
            slurm=FakeOperations(self.slurm, self.clock),
            reservations=Bookings(self.slurm),
            rounds=self.running,
            clock=self.clock,
            green={
                n: resume_policy.GreenTime(since=NOW - timedelta(hours=1), beats=99, last_at=NOW)
                for n in self.clean
            },
            power=lambda _: "",
            ticket=self._ticket,
        )
        return self.context

    def _ticket(self, incident: records.RepairIncident) -> Mapping[str, Any]:
        self.slurm.step()
        self.tickets.append(str(incident.incident_id))
        return {"bundle": "/b"}

    def look(
        self, faults: Mapping[str, Any] | None = None, of_others: Mapping[str, Any] | None = None
    ) -> None:
        """One pass; `faults` are n1's, `of_others` by node those of n2 and n3."""
        self.clock.at += timedelta(seconds=30)
        for node in ("n1", "n2", "n3"):
            given = dict((faults if node == "n1" else (of_others or {}).get(node)) or {})
            beat = records.AgentHeartbeat(cluster="c", node=node, at=self.clock.at, boot_id="b", faults=given)
            self._beat(beat)
        incidents = self.store.incidents(open_only=True)
        beats = {b.node: b for b in self.store.heartbeats()}
        notes = {n.subject.removeprefix("node:"): n for n in self.store.notes()}
        fleet_view = view.View(
            now=self.clock.at,
            nodes=self.slurm.nodes,
            heartbeats=beats,
            under_test=self.store.nodes_under_test("c"),
        )
        one = workflow.Pass(
            context=self.context, nodes=self.slurm.nodes, beats=beats, ages=self.store.heartbeat_ages_s(), notes=notes,
            fleet_view=fleet_view, in_tests=workflow.in_tests(incidents, self.clock.at),
        )  # fmt: skip
        engine.orphans(self.context, incidents)
        for incident in incidents:
            engine.advance(one, incident)

    def _beat(self, beat: records.AgentHeartbeat) -> None:
        from probing_cluster.db import delivery

        if not hasattr(self, "doors"):
            self.doors: dict[str, delivery.Delivery] = {}
        door = self.doors.setdefault(
            beat.node, delivery.Delivery(self.store.connection_uri(), "c", beat.node)
        )
        requested = door.deliver(heartbeat=beat).requests
        if requested:
            door.deliver(heartbeat=beat, acknowledged=[r.request_id for r in requested])

    def close(self) -> None:
        """Gives the agents' connections back."""
        for door in self.doors.values():
            door.close()

    def now(self) -> records.RepairIncident:
        mine = self.incident.incident_id
        return next(one for one in self.store.incidents(node="n1") if one.incident_id == mine)

    def until(self, *states: str, passes: int = 30) -> records.RepairIncident:
        for _ in range(passes):
            if self.now().state in states:
                return self.now()
            self.look()
        pytest.fail(f"n1 is still {self.now().state}: {self.now().why}")

    def note(self, action: str) -> None:
        self.clock.at += timedelta(seconds=1)
        self.store.add_note(
            records.OperatorNote(
                note_id=uuid.uuid4(),
                cluster="c",
                at=self.clock.at,
                author="eve",
                subject="node:n1",
                action=action,
            )
        )


def test_a_node_that_passes_returns_and_its_drain_is_over(store: db_store.Store) -> None:
    """Reserved, resumed inside, tested, freed; the drain's row says so."""
    site = Site(store)
    site.start()
    assert site.until("returned").closed_at is not None
    assert site.slurm.nodes["n1"].states == {"IDLE"}
    assert site.slurm.held == {}
    (drain,) = store.drains(node="n1")
    assert (drain.state, drain.ended_at is not None) == ("resumed", True)


def test_a_node_that_fails_for_good_stays_drained_with_a_ticket(store: db_store.Store) -> None:
    site = Site(store, reset_command="reset", reboot=True)
    site.slurm.broken = {"n1"}
    site.start()
    found = site.until("ticket")
    assert found.steps_done == 2
    assert "DRAIN" in site.slurm.nodes["n1"].states
    why = REASON.removeprefix("probing: ")
    assert site.slurm.nodes["n1"].reason == f"probing: repair: {why}", "sinfo shows why, as before"
    assert site.slurm.nodes["n1"].ours
    assert found.detail["failing"] == ["gemm: 3 wrong results"], "the tests' words stay with the incident"
    assert site.slurm.held == {}
    assert site.tickets == [str(found.incident_id)]


@pytest.mark.parametrize("step", ["reset", "reboot"])
def test_the_step_that_cures_it_brings_it_back(store: db_store.Store, step: str) -> None:
    site = Site(store, reset_command="reset", reboot=True)
    site.slurm.broken, site.slurm.cured_by = {"n1"}, {"n1": step}
    site.start()
    found = site.until("returned")
    assert found.steps_done == (1 if step == "reset" else 2)
    shown = repair_commands._text(found, ([], []), [])
    assert "failed before its repair: " in shown
    assert "still failing" not in shown


@pytest.mark.parametrize("states", ["IDLE DRAIN", "DOWN DRAIN", "DOWN DRAIN NOT_RESPONDING"])
def test_a_power_cycle_is_the_site_s_command_and_a_node_that_does_not_boot_gets_a_ticket(
    store: db_store.Store, states: str
) -> None:
    """Drained meanwhile, asked for once, and waited for so long and no longer; DOWN for its boot is back, too."""
    boots = "NOT_RESPONDING" not in states
    site = Site(store, power_command="power", reboot_s=300.0)
    site.slurm.broken = {"n1"}
    requested: list[str] = []

    def power(node: str) -> str:
        assert "DRAIN" in site.slurm.nodes[node].states
        requested.append(node)
        site.slurm.broken.discard(node)
        boot_at = site.clock.now() + timedelta(seconds=20)
        site.slurm.set(
            node,
            states=frozenset(states.split()),
            reason_at=site.clock.now(),
            boot_at=boot_at if boots else None,
        )
        return ""

    site.start()
    site.context = dataclasses.replace(site.context, power=power)
    found = site.until("returned", "ticket")
    assert (found.state, requested) == ("returned" if boots else "ticket", ["n1"])
    assert found.steps_done == boots
    assert boots or "power: it did not come back within 300 s" in found.detail["failing"]


REBOOTED = frozenset({"DOWN", "DRAIN"})


def _reboot(site: Site, states: frozenset[str] = REBOOTED, **changes: Any) -> None:
    """What Slurm shows of a node that booted unasked: down, with the reason that it had."""
    drained_at = site.clock.now()
    site.slurm.set(
        "n1",
        **{"reason_at": drained_at, "boot_at": drained_at + timedelta(seconds=1)} | changes,
        states=states,
    )


@pytest.mark.parametrize("lifts", [True, False])
def test_a_node_of_ours_that_booted_by_itself_is_tested_and_returns(
    store: db_store.Store, monkeypatch: pytest.MonkeyPatch, *, lifts: bool
) -> None:
    """Slurm holds it DOWN: it comes up inside our reservation, by us or by the command that the repair names."""
    site = Site(store)
    refusal = slurm_nodes.Outcome(state="skipped", why="n1 is also DOWN")
    if not lifts:
        monkeypatch.setattr(FakeOperations, "resume", lambda *_: refusal)
    site.start()
    _reboot(site)
    if not lifts:
        site.look()
        site.look()
        assert site.now().state == "opening"
        assert "scontrol update NodeName=n1 State=RESUME" in engine.advice(site.now())
        assert "n1" in frozenset().union(*site.slurm.held.values())
        site.slurm.set("n1", states=frozenset({"IDLE", "MAINTENANCE"}), reason="")
    assert site.until("returned").closed_at is not None
    assert "n1" in site.slurm.tested


@pytest.mark.parametrize(
    ("states", "boot_s", "way"),
    [
        (REBOOTED, -1, "boot it, then it is tested"),
        (REBOOTED | {"NOT_RESPONDING"}, 1, "start its slurmd, or boot it"),
        (REBOOTED | {"FAIL"}, 1, "Slurm shows it DOWN+DRAIN+FAIL"),
    ],
)
def test_a_node_that_is_down_for_another_reason_is_left_down(
    store: db_store.Store, states: frozenset[str], boot_s: int, way: str
) -> None:
    """No boot since its drain, or more than a boot: nothing is lifted, and what to do is said."""
    site = Site(store)
    site.start()
    _reboot(site, states, boot_at=site.clock.now() + timedelta(seconds=boot_s))
    site.look()
    site.look()
    assert site.now().state == "queued"
    assert way in site.now().why
    assert site.slurm.nodes["n1"].states == states


@pytest.mark.parametrize("reason", ["Node unexpectedly rebooted", "smoke (bob)"])
def test_a_node_that_reboots_under_test_is_drained_again(store: db_store.Store, reason: str) -> None:
    """Slurm drains no node that is down: it comes up in our reservation first, unless somebody else set it down."""
    site = Site(store)
    site.start()
    site.running.answer = lambda _: rounds.RoundEnd(why="its job ended: NODE_FAIL")
    while site.now().state != "testing":
        site.look()
    plain, refused = FakeOperations.drain, slurm_nodes.Outcome(state="skipped", why="n1 is DOWN")

    def drain(self: FakeOperations, name: str, reason: str, reservation: str = "") -> slurm_nodes.Outcome:
        down = "DOWN" in self.slurm.nodes[name].states
        return refused if down else plain(self, name, reason, reservation)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FakeOperations, "drain", drain)
        site.slurm.set("n1", states=frozenset({"DOWN", "MAINTENANCE"}), reason=reason)
        site.note("hold")
        for _ in range(4):
            site.look()
    if reason.startswith("Node"):
        assert (site.now().state, "DRAIN" in site.slurm.nodes["n1"].states) == ("queued", True)
    else:
        assert (site.now().state, site.now().why) == ("closing", "it cannot be drained: n1 is DOWN")


def test_a_standing_fault_of_the_agent_keeps_it_out(store: db_store.Store) -> None:
    """Every test passes, and the agent still confirms a hard fault: that is a failing test."""
    site = Site(store)
    site.start()
    site.note("release")
    fault = {"xid:gpu3": {"severity": "high", "message": "fell off the bus"}}
    for _ in range(12):
        site.look(fault)
    assert site.now().state == "ticket"
    assert "agent: xid:gpu3" in site.now().detail["failing"][0]


NO_NVME = {"check:nvme0": {"severity": "high", "message": "nvme0 is gone", "since": NOW.isoformat()}}


@pytest.mark.parametrize("after", ["clean", "released"])
def test_a_fault_that_no_step_ends_gets_a_ticket_and_is_tested_once_it_is_over(
    store: db_store.Store, after: str
) -> None:
    """Nobody would hear of it else; after that a clean agent is enough, and failed tests are a ticket for good."""
    site = Site(store, quiet_s=45.0)
    site.clean.discard("n1")
    site.start()
    site.look(NO_NVME)
    assert site.now().state == "queued", "what ends by itself is waited for a while"
    site.look(NO_NVME)
    found = site.now()
    assert (found.state, found.detail["failing"]) == ("ticket", ["agent: check:nvme0: nvme0 is gone"])
    assert site.tickets == [str(found.incident_id)]
    assert "no repair step is left" in engine.advice(found)
    site.look(NO_NVME)
    assert (site.now().state, len(site.tickets), site.slurm.held) == ("ticket", 1, {})
    if after == "released":
        site.slurm.broken = {"n1"}
        site.note("release")
        assert site.until("ticket", "returned", passes=4).state == "ticket"
        site.look(NO_NVME)
        assert site.until("ticket").detail["failing"] == ["gemm: 3 wrong results"]
        site.clean.add("n1")
        site.start()
        site.look()
        assert site.now().state == "ticket", "its agent sees nothing, and its tests still fail"
        return
    site.clean.add("n1")
    site.start()
    assert site.until("returned").closed_at is not None


def test_what_is_mended_elsewhere_gets_no_ticket(store: db_store.Store) -> None:
    """A file system that is away takes many nodes at once, and each is well when it is back."""
    site = Site(store)
    store.update_incident(site.incident.incident_id, cause="outside")
    site.clean.discard("n1")
    site.start()
    gone = {"mount:/scratch": {"severity": "high", "message": "hangs", "since": NOW.isoformat()}}
    for _ in range(4):
        site.look(gone)
    assert (site.now().state, site.tickets) == ("queued", [])
    assert "tested once that is over. It returns by itself" in engine.advice(site.now())


def test_a_drain_that_slurm_wrote_over_waits_for_a_person_and_says_so(store: db_store.Store) -> None:
    """We lift nothing that carries another's reason; given back, it goes on where it waited."""
    site = Site(store)
    site.start()
    site.slurm.set("n1", reason="Kill task failed")
    site.look()
    found = site.now()
    words = engine.advice(found)
    assert "(Kill task failed): scontrol update NodeName=n1 State=DRAIN" in words
    assert "by itself" not in words
    assert "its tests wait: Slurm put" in repair_commands.recorded("release", found)
    assert "next pass" in repair_commands.recorded("hold", found)
    site.note("release")
    site.look()
    assert site.now().state == "queued"
    assert "DRAIN" in site.slurm.nodes["n1"].states
    site.slurm.set("n1", reason="probing: mended")
    assert site.until("returned").closed_at is not None


def test_slow_once_is_tested_again_and_slow_twice_is_kept(store: db_store.Store) -> None:
    site = Site(store)
    answers = 0

    def slow(requested: campaign.RoundRequest) -> rounds.RoundEnd:
        nonlocal answers
        answers += 1
        found = site.running._found(requested).found
        assert found is not None
        return rounds.RoundEnd(
            found=dataclasses.replace(found, slow_nodes={"n1": "compute"} if answers < 3 else {})
        )

    site.running.answer = slow
    site.start()
    assert site.until("ticket").detail["failing"] == ["compute: slower than nodes of its kind, in two rounds"]
    assert answers == 2


def test_rounds_without_an_answer_end_at_a_person(store: db_store.Store) -> None:
    site = Site(store)
    site.running.answer = lambda _: rounds.RoundEnd(why="the test's job did not start")
    site.start()
    found = site.until("ticket")
    assert found.detail["failing"] == ["not proven well: the test's job did not start"]
    assert "DRAIN" in site.slurm.nodes["n1"].states


def test_a_person_holds_releases_and_ends(store: db_store.Store) -> None:
    """Held in the middle of its tests it is drained and out of the reservation; given back it goes on."""
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    site.note("hold")
    site.look()
    assert (site.now().state, site.now().held_by) == ("queued", "eve")
    assert site.slurm.held == {}
    assert "DRAIN" in site.slurm.nodes["n1"].states
    site.running.answer = None
    site.look()
    assert site.now().state == "queued"
    site.note("release")
    site.until("returned")


def test_done_in_the_middle_leaves_it_drained_and_over(store: db_store.Store) -> None:
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    site.note("done")
    site.until("closed")
    assert site.slurm.held == {}
    assert "DRAIN" in site.slurm.nodes["n1"].states


@pytest.mark.parametrize("reason", ["", "cable (eve)"])
def test_a_held_node_that_its_person_resumes_or_drains_is_no_longer_under_repair(
    store: db_store.Store, reason: str
) -> None:
    """Else it would be listed as held for ever, and its next fault would be tested by nobody."""
    site = Site(store)
    site.start()
    site.note("hold")
    site.look()
    assert (site.now().state, site.now().held_by) == ("queued", "eve")
    site.slurm.tested.add("n1")
    site.slurm.set("n1", states=frozenset({"IDLE", "DRAIN"} if reason else {"IDLE"}), reason=reason)
    site.look()
    site.look()
    assert site.now().state == "lifted"
    assert site.now().why == (f"taken over by another: {reason}" if reason else "lifted by another")


def test_who_lifted_the_drain_is_named(store: db_store.Store) -> None:
    """A command of ours resumes the node and only then writes by whom: a pass between the two does not say "another"."""
    site = Site(store)
    site.start()
    site.note("hold")
    site.look()
    site.slurm.tested.add("n1")
    site.slurm.set("n1", states=frozenset({"IDLE"}), reason="")
    site.look()
    store.update_drain(
        site.drain.drain_id, state="resumed", ended_at=site.clock.now(), why_state="resumed by eve"
    )
    site.look()
    assert (site.now().state, site.now().why) == ("lifted", "resumed by eve")


@pytest.mark.parametrize(("word", "state"), [("hold", "queued"), ("release", "returned")])
def test_the_last_word_of_a_person_counts(store: db_store.Store, word: str, state: str) -> None:
    """To be ended, then held or given back before the end came: it is not ended later by the first word."""
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    site.note("done")
    site.slurm.kill_at = site.slurm.calls + 4
    with pytest.raises(fakes.Killed):
        site.look()
    assert site.now().detail["end"] == "eve"
    site.start()
    site.running.answer = None
    site.note(word)
    for _ in range(6):
        site.look()
    assert site.now().state == state


def test_one_node_s_trouble_is_named_and_goes_when_it_is_mended(store: db_store.Store) -> None:
    """The bundle cannot be written: the pass goes on to the others, a person reads why, and later nothing is left of it."""
    site = Site(store)
    site.slurm.broken = {"n1"}
    site.start()
    full = ["[repair] bundle_directory /b: No space left on device"]

    def ticket(incident: records.RepairIncident) -> Mapping[str, Any]:
        if full:
            raise errors.SettingsError(full[0])
        return site._ticket(incident)

    site.context = dataclasses.replace(site.context, ticket=ticket)
    site.until("ticketing")
    site.look()
    site.look()
    assert site.now().why == f"it cannot go on: {full[0]}"
    full.clear()
    assert site.until("ticket").why == "gemm: 3 wrong results"
    assert "stalled" not in site.now().detail


def test_a_reservation_that_somebody_deleted_drains_the_node_at_once(store: db_store.Store) -> None:
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    site.slurm.held.clear()
    site.slurm.drained.clear()
    site.look()
    assert site.slurm.drained == ["n1"]
    assert site.now().state == "testing"
    assert len(site.slurm.held) == 1


def test_another_s_drain_is_theirs(store: db_store.Store) -> None:
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    site.slurm.set("n1", states=frozenset({"IDLE", "DRAIN"}), reason="cable (eve)")
    site.look()
    assert site.now().state == "lifted"
    assert site.slurm.nodes["n1"].reason == "cable (eve)"


def test_observe_only_plans_and_does_nothing(store: db_store.Store) -> None:
    site = Site(store)
    site.config = dataclasses.replace(
        site.config, policy=dataclasses.replace(site.config.policy, observe_only=True)
    )
    site.start()
    before = dict(site.slurm.nodes)
    site.look()
    assert "observe-only: it would be reserved" in site.now().why
    assert (site.slurm.nodes, site.slurm.held) == (before, {})


@pytest.mark.parametrize(
    ("where", "switch", "words"),
    [
        ("repair", {"test_before_return": False}, "test_before_return = false: it is not tested"),
        ("policy", {"auto_resume": False}, "auto_resume = false: it is not tested"),
        ("policy", {"observe_only": True}, "observe-only: it would be"),
    ],
)
def test_switched_off_in_the_middle_the_node_is_drained_again_and_switched_on_it_goes_on(
    store: db_store.Store, where: str, switch: dict[str, bool], words: str
) -> None:
    """Else it would lie in our reservation for a year, neither drained nor in service."""
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    site.until("testing")
    before = site.config
    section = dataclasses.replace(getattr(before, where), **switch)
    site.config = dataclasses.replace(before, **{where: section})
    site.start()
    site.look()
    assert "DRAIN" in site.slurm.nodes["n1"].states
    assert site.slurm.held == {}
    assert (site.now().state, words in site.now().why) == ("queued", True)
    site.config, site.running.answer = before, None
    site.start()
    site.until("returned")


def test_references_are_idle_nodes(store: db_store.Store) -> None:
    site = Site(store)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.slurm.nodes["n2"] = dataclasses.replace(site.slurm.nodes["n2"], states=frozenset({"ALLOCATED"}))
    site.start()
    site.until("testing")
    assert site.now().reference_nodes == ("n3",)
    reservation = site.now().reservation
    assert store.nodes_under_test("c") == {"n1": reservation, "n3": reservation}


def test_a_node_of_which_nobody_can_tell_is_tested_more_often_beside_further_references(
    store: db_store.Store,
) -> None:
    """Proven well by them it returns; never proven well it ends at a person, and no step is tried on it."""
    for answers, state in (([("n1",), ()], "returned"), ([("n1",)] * 3, "ticket")):
        site = Site(store, reset_command="reset")
        site.config = dataclasses.replace(site.config, diagnostics=settings.DiagnosticsSettings(references=1))
        requests: list[tuple[tuple[str, ...], int]] = []

        def unclear(
            requested: campaign.RoundRequest, site: Site = site, ends: Any = answers, requests: Any = requests
        ) -> rounds.RoundEnd:
            requests.append((requested.references, requested.passes))
            found = site.running._found(requested).found
            assert found is not None
            return rounds.RoundEnd(
                found=dataclasses.replace(
                    found, open_nodes=ends[len(requests) - 1], why="n1-n2 failed 1 of 3 times"
                )
            )

        site.running.answer = unclear
        site.start()
        end = site.until(state)
        assert requests == [(("n2",), 8), (("n2", "n3"), 16), (("n2", "n3"), 24)][: len(answers)]
        if state == "ticket":
            assert "n1-n2 failed 1 of 3 times" in end.detail["failing"][0]
            assert (end.steps_done, "DRAIN" in site.slurm.nodes["n1"].states) == (0, True)
        site.close()


def test_a_node_that_failed_beside_others_is_tested_beside_others_before_it_returns(
    store: db_store.Store,
) -> None:
    """Its own tests pass, and no node is idle: a person who gives it back does not make its links well."""
    site = Site(store)
    requests: list[tuple[str, ...]] = []

    def passing_alone(requested: campaign.RoundRequest) -> rounds.RoundEnd:
        requests.append(requested.references)
        found = site.running._found(requested).found
        assert found is not None
        return rounds.RoundEnd(
            found=dataclasses.replace(found, bad_nodes=("n1",) if len(requests) == 1 else ())
        )

    site.running.answer = passing_alone
    site.start()
    assert site.until("ticket").detail["failing"] == [f"pair: {round_findings.ALONE}"]
    idle = {n: site.slurm.nodes[n] for n in ("n2", "n3")}
    for name, node in idle.items():
        site.slurm.nodes[name] = dataclasses.replace(node, states=frozenset({"ALLOCATED"}))
    site.note("release")
    for _ in range(3):
        site.look()
    assert (site.now().state, len(requests)) == ("queued", 1)
    assert "no idle node" in site.now().why
    site.slurm.nodes |= idle
    site.until("returned")
    assert requests[1] == ("n2", "n3")


LOST = {"gpu_lost:gpu3": {"severity": "high", "message": "GPU 3 is lost", "since": "2026-11-21T14:00:00Z"}}
FULL = {"check:disk": {"severity": "low", "message": "/tmp is full", "since": "2026-11-21T14:00:00Z"}}


def fails_beside_others(site: Site, rounds_: int = 99) -> list[campaign.RoundRequest]:
    """Its own tests pass, and for so many rounds it fails with each reference; what was asked is listed."""
    requests: list[campaign.RoundRequest] = []

    def answer(requested: campaign.RoundRequest) -> rounds.RoundEnd:
        requests.append(requested)
        found = site.running._found(requested).found
        assert found is not None
        bad = ("n1",) if len(requests) <= rounds_ else ()
        return rounds.RoundEnd(found=dataclasses.replace(found, bad_nodes=bad))

    site.running.answer = answer
    return requests


def out_of_service(site: Site, *names: str) -> None:
    """Drained by us, as a reference is that breaks."""
    for name in names:
        drained = {"states": frozenset({"IDLE", "DRAIN"}), "reason": "probing: xid 79"}
        site.slurm.nodes[name] = dataclasses.replace(site.slurm.nodes[name], **drained)


def test_a_round_whose_reference_broke_accuses_nobody_and_is_begun_anew(store: db_store.Store) -> None:
    """Without the reference's fault the same answers would end at a ticket."""
    site = Site(store)
    fails_beside_others(site, 1)
    site.start()
    first = site.until("testing")
    assert set(first.reference_nodes) == {"n2", "n3"}
    out_of_service(site, "n2")
    site.look()
    again = site.now()
    assert (again.state, again.reference_nodes, again.n_rounds) == ("testing", ("n3",), 2)
    assert again.round_id != first.round_id
    assert again.why == "under test; tested anew: reference node n2 broke (it is out of service)"
    assert site.until("returned").steps_done == 0


def test_rounds_begun_anew_are_counted_and_end_at_a_person(store: db_store.Store) -> None:
    """A reference that shows a fault only while it is tested with n1; no repair step is tried for what such rounds found."""
    site = Site(store, reset_command="reset")
    requests = fails_beside_others(site)
    site.start()
    site.until("testing")
    for _ in range(6):
        site.look(of_others={"n2": FULL})
    end = site.now()
    assert (end.state, end.steps_done, len(requests)) == ("ticket", 0, 3)
    assert end.detail["failing"] == [
        "not proven well: reference node n2 broke (agent: check:disk: /tmp is full)",
        f"not proven well: pair: {round_findings.ALONE}",
    ]
    assert site.tickets == [str(end.incident_id)]


@pytest.mark.parametrize("by", ["its agent", "its own test"])
def test_what_the_node_alone_shows_counts_whatever_a_reference_shows(store: db_store.Store, by: str) -> None:
    site = Site(store)
    site.slurm.broken = {"n1"} if by == "its own test" else set()
    site.start()
    site.until("testing")
    for _ in range(2):
        site.look({} if site.slurm.broken else LOST, of_others={"n2": FULL, "n3": FULL})
    words = "gemm: 3 wrong results" if site.slurm.broken else "agent: gpu_lost:gpu3: GPU 3 is lost"
    assert (site.now().state, site.now().detail["failing"]) == ("ticket", [words])
    assert site.slurm.drained.count("n1") == 1


@pytest.mark.parametrize("silent", ["n1", "n1 n2"])
def test_a_node_is_not_accused_of_a_silence_that_others_share(
    store: db_store.Store, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(store)
    site.start()
    site.until("testing")
    silent_nodes = {n: [workflow.SILENT] for n in silent.split()}
    monkeypatch.setattr(workflow.Pass, "faults_of_agent", lambda _, node: [*silent_nodes.get(node, [])])
    site.look()
    assert site.now().state == ("ticket" if silent == "n1" else "testing")
    silent_nodes.clear()
    if silent != "n1":
        site.until("returned")


def test_a_slow_round_beside_a_reference_that_broke_is_not_the_first_of_two(store: db_store.Store) -> None:
    site = Site(store)
    n_rounds: list[int] = []

    def slow(requested: campaign.RoundRequest) -> rounds.RoundEnd:
        n_rounds.append(len(n_rounds))
        found = site.running._found(requested).found
        assert found is not None
        slow_nodes = {"n1": "compute"} if len(n_rounds) < 3 else {}
        return rounds.RoundEnd(found=dataclasses.replace(found, slow_nodes=slow_nodes))

    site.running.answer = slow
    site.start()
    site.until("testing")
    site.look(of_others={"n2": FULL})
    assert site.now().why.startswith("under test; tested anew: reference node n2 broke")
    assert site.until("returned").n_rounds == 3


@pytest.mark.parametrize("fails", [1, 99])
def test_a_step_that_did_not_run_is_still_to_come(store: db_store.Store, fails: int) -> None:
    """Its job did not start: the step runs in the next round, and a person is asked where it never does."""
    site = Site(store, reset_command="reset")
    site.slurm.broken = {"n1"}
    commands: list[str] = []

    def answer(requested: campaign.RoundRequest) -> rounds.RoundEnd:
        commands.append(requested.command)
        if 1 < len(commands) <= 1 + fails:
            return rounds.RoundEnd(why="the test's job did not start within 90 s")
        if requested.command:
            site.slurm.broken.clear()
        return site.running._found(requested)

    site.running.answer = answer
    site.start()
    if fails == 1:
        end = site.until("returned")
        assert (end.steps_done, commands) == (1, ["", "reset", "reset"])
        return
    site.until("testing")
    for _ in range(8):
        site.look(LOST)
    end = site.now()
    assert (end.state, end.steps_done, commands) == ("ticket", 0, ["", "reset", "reset", "reset"])
    words = (
        "the test's job did not start within 90 s",
        "reset was not run",
        "agent: gpu_lost:gpu3: GPU 3 is lost",
    )
    assert end.detail["failing"] == [f"not proven well: {w}" for w in words]
    assert "step" not in end.detail


@pytest.mark.parametrize("is_drained", [True, False], ids=["after a reboot", "between two rounds"])
def test_a_reference_that_is_out_by_the_next_round_is_let_go(store: db_store.Store, is_drained: bool) -> None:
    site = Site(store)
    requests = fails_beside_others(site, 0)
    site.running.answer, wanted = None, site.running.answer
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.start()
    before = site.until("testing")
    assert before.reference_nodes == ("n2", "n3")
    if is_drained:
        site.slurm.set("n1", states=frozenset({"IDLE", "DRAIN"}), reason=REASON)
    store.update_incident(before.incident_id, state="opening")
    out_of_service(site, "n2")
    site.running.answer = wanted
    site.until("returned")
    assert [one.references for one in requests] == [("n3",)]
    assert site.slurm.drained.count("n1") == (0 if is_drained else 1)
    assert site.slurm.held == {}


def test_without_references_left_a_node_that_failed_beside_others_waits_for_one(
    store: db_store.Store,
) -> None:
    """They were taken out while it rebooted: its own tests alone, which pass, would return it."""
    site = Site(store, reboot=True)
    requests = fails_beside_others(site, 1)
    site.start()
    site.until("acting")
    idle = {n: site.slurm.nodes[n] for n in ("n2", "n3")}
    out_of_service(site, *idle)
    for _ in range(4):
        site.look()
    assert (site.now().state, len(requests), "DRAIN" in site.slurm.nodes["n1"].states) == ("queued", 1, True)
    assert "no idle node" in site.now().why
    assert site.slurm.held == {}
    site.slurm.nodes |= idle
    site.until("returned")
    assert requests[-1].references


def test_a_node_resumed_since_the_pass_began_is_not_reserved(store: db_store.Store) -> None:
    """By a person: a job of theirs may run on it by now."""
    site = Site(store)
    site.start()
    resumed = dataclasses.replace(site.slurm.nodes["n1"], states=frozenset({"ALLOCATED"}), reason="")
    site.context.slurm.node = lambda _: resumed  # type: ignore[method-assign]
    site.look()
    assert (site.now().state, site.slurm.held) == ("queued", {})


def test_a_node_in_anothers_reservation_waits_for_its_end(store: db_store.Store) -> None:
    """A maintenance may lie over every node: their reservations are read once a pass, and no node tries in vain."""
    site = Site(store)
    site.slurm.held["maintenance"] = frozenset({"n1"})
    site.start()
    for _ in range(2):
        site.look()
        assert (site.now().state, site.now().why) == ("queued", "reservation maintenance lies over n1")
    assert list(site.slurm.held) == ["maintenance"]
    assert site.now().changed_at == site.incident.changed_at
    del site.slurm.held["maintenance"]
    site.until("returned")


def test_after_a_reboot_a_node_waits_drained_while_enough_others_are_tested(store: db_store.Store) -> None:
    """Many may be booted at the same time; their tests begin no more at once than any others."""
    site = Site(store, reboot=True, rounds_at_once=1)
    site.slurm.broken, site.slurm.cured_by = {"n1"}, {"n1": "reboot"}
    site.start()
    site.until("acting")
    others = dataclasses.replace(
        site.incident, incident_id=uuid.uuid4(), node="n2", state="testing", held_by=""
    )
    site.slurm.held["probing-n2-other"] = frozenset({"n2"})
    others = dataclasses.replace(others, reservation="probing-n2-other", round_id=uuid.uuid4(), n_rounds=1)
    assert store.open_incident(others)
    site.running.answer = lambda _: None  # type: ignore[assignment,return-value]
    site.until("opening")
    for _ in range(3):
        site.look()
        assert (site.now().state, site.now().why) == (
            "opening",
            "as many nodes are under test as may be at once (1)",
        )
        assert "DRAIN" in site.slurm.nodes["n1"].states
    store.update_incident(others.incident_id, state="closed", closed_at=site.clock.at)
    site.running.answer = None
    site.until("returned")


def test_a_repair_that_is_stuck_keeps_no_other_from_its_tests() -> None:
    """One whose node cannot be resumed for minutes; one whose tests run is counted for as long as they do."""
    long_ago = NOW - timedelta(hours=1)
    found = [
        records.RepairIncident(
            incident_id=uuid.uuid4(), cluster="c", node=f"n{i}", drain_id=uuid.uuid4(), reason=REASON, cause="gpu",
            state=state, opened_at=long_ago, changed_at=changed_at,
        )
        for i, (state, changed_at) in enumerate(
            [("opening", long_ago), ("opening", NOW), ("testing", long_ago), ("queued", NOW), ("acting", NOW)]
        )
    ]  # fmt: skip
    assert workflow.in_tests(found, NOW) == {
        found[1].incident_id: "opening",
        found[2].incident_id: "testing",
    }


def test_a_reservation_that_no_repair_knows_has_its_node_drained_first(store: db_store.Store) -> None:
    """The database was lost while a node was under test."""
    site = Site(store)
    site.start()
    site.until("returned")
    site.slurm.held["probing-n2-lost"] = frozenset({"n2"})
    site.slurm.tested.discard("n2")
    site.look()
    assert site.slurm.held == {}
    assert site.slurm.nodes["n2"].reason == "probing: untested: its test was cut off"


@pytest.mark.longer
@pytest.mark.parametrize("fate", FATES)
def test_a_kill_at_any_step_loses_no_node_and_resumes_none_untested(store: db_store.Store, fate: str) -> None:
    """The service dies at its first step, its second …, and another one goes on: every kill of a whole repair, one by one."""
    ends = {"incurable": "ticket", "held": "queued", "ended": "closed"}
    kill_at = 1 - STRIDE + FATES.index(fate) % STRIDE
    while True:
        kill_at += STRIDE
        site = _fresh(store, fate)
        # After the word of the round before.
        site.clock.at += timedelta(hours=kill_at)
        store.update_incident(site.incident.incident_id, opened_at=site.clock.at)
        site.slurm.kill_at = kill_at
        died = _live(site, fate)
        assert site.now().state == ends.get(fate, "returned"), (kill_at, site.now())
        drained = "DRAIN" in site.slurm.nodes["n1"].states
        assert drained == (fate in {"incurable", "held", "ended"}), kill_at
        assert site.slurm.held == {}, kill_at
        site.slurm.judge()
        site.close()
        if not died:
            break
    assert kill_at > 9


def _fresh(store: db_store.Store, fate: str) -> Site:
    for old in store.incidents(open_only=True):
        store.update_incident(old.incident_id, state="closed", closed_at=NOW)
    for drain in store.drains(open_only=True):
        store.update_drain(drain.drain_id, ended_at=NOW)
    site = Site(store, reset_command="reset", reboot=True)
    if fate not in {"well", "held", "ended"}:
        site.slurm.broken = {"n1"}
        site.slurm.cured_by = {"n1": fate.rpartition(" ")[2]}
    return site


def _live(site: Site, fate: str) -> bool:
    """Passes until the end; a killed service is followed by another."""
    died, noted = False, False
    site.start()
    end = {"incurable": "ticket", "ended": "closed"}.get(fate, "returned")
    for _ in range(40):
        try:
            if fate in {"held", "ended"} and not noted and site.now().state == "testing":
                noted = True
                site.note("hold" if fate == "held" else "done")
            site.running.answer = (lambda _: None) if fate in {"held", "ended"} else None  # type: ignore[assignment,return-value]
            site.look()
        except fakes.Killed:
            died = True
            site.start()
            continue
        if site.now().state == end or (noted and site.now().state == "queued" and site.now().held_by):
            break
    return died


@pytest.mark.soak
@pytest.mark.parametrize("word", ["hold", "release", "done"])
@pytest.mark.parametrize("state", engine.STATES)
def test_a_person_takes_over_in_every_state_ten_times(store: db_store.Store, state: str, word: str) -> None:
    """The service dies in that state, at another of its steps each time, the person speaks, another service goes on."""
    fate = "well" if state == "returning" else "incurable"
    steps = _steps_in(store, fate)[state]
    ends = {"hold": "queued ticket", "done": "closed", "release": "returned" if fate == "well" else "ticket"}
    for trial in range(10):
        site = _fresh(store, fate)
        # After the word of the trial before.
        site.clock.at += timedelta(hours=1 + trial)
        store.update_incident(site.incident.incident_id, opened_at=site.clock.at)
        site.slurm.kill_at = steps[trial * len(steps) // 10]
        site.start()
        with pytest.raises(fakes.Killed):
            site.until("nowhere")
        assert site.now().state == state
        site.note(word)
        site.start()
        for _ in range(12):
            site.look()
            found = site.now()
            if found.state in ends[word].split() and (word != "hold" or found.held_by):
                break
        drained = "DRAIN" in site.slurm.nodes["n1"].states
        assert (found.state in ends[word].split(), drained) == (True, (word, fate) != ("release", "well")), (
            found
        )
        assert site.slurm.held == {}
        site.slurm.judge()
        shown = repair_commands._text(found, ([], []), [])
        assert ("held by eve: probing-ctl repair release n1 gives it back" in shown) == (word == "hold")
        assert ("ended by eve" in shown) == (word == "done")
        site.close()


def _steps_in(store: db_store.Store, fate: str) -> dict[str, list[int]]:
    """By state the steps of a whole repair at which a killed service leaves it in that state."""
    site, found = _fresh(store, fate), dict[str, list[int]]()
    site.start()
    step = site.slurm.step

    def recording() -> None:
        step()
        found.setdefault(site.now().state, []).append(site.slurm.calls)

    site.slurm.step = recording  # type: ignore[method-assign]
    site.until("returned", "ticket")
    for _ in range(2):
        site.look()
    site.close()
    return found


def test_every_state_of_the_manual_is_one_of_the_engine() -> None:
    """A state that is added must be documented."""
    from pathlib import Path

    page = (Path(__file__).resolve().parents[3] / "docs/repair.md").read_text()
    assert [s for s in engine.STATES if f"`{s}`" not in page] == []
    assert vocabulary.RESERVATION_PREFIX == "probing-"
