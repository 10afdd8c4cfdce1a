"""What may be done to nodes and jobs, over a controller that plays Slurm and the people beside us."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import node_events, nodes
from probing_cluster.slurm_plugins.live import live_records

US = f"{pwd.getpwuid(os.geteuid()).pw_name}({os.geteuid()})"
REASON = "probing: xid 79 gpu3"
START = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Controller:
    """slurmctld and slurmdbd as far as four acts need them; `meanwhile` happens just before our write."""

    state: str = "IDLE"
    flags: set[str] = field(default_factory=set)
    reason: str = ""
    reason_at: datetime | None = None
    reason_by: str = ""
    boot_at: datetime | None = None
    reservations: str = ""
    stays_down: bool = False
    job: live_records.LiveJob | None = None
    meanwhile: Callable[[Controller], None] = lambda _controller: None
    refuses: str = ""
    deaf: bool = False
    without_accounting: bool = False
    same_second: bool = False
    writes: list[tuple[str, ...]] = field(default_factory=list)
    events: list[list[str]] = field(default_factory=list)

    def person(self, reason: str, author: str = "bob(1001)") -> None:
        """Somebody else drains the node."""
        self._drain(reason, author)

    def _drain(self, reason: str, author: str) -> None:
        self.flags.add("DRAIN")
        self.reason = reason
        if self.same_second and self.events:
            self.events[-1][3] = reason
            return
        for event in self.events:
            event[1] = event[1] or "9999999999"
        self.events.append(["9999999999", "", author, reason])

    def __call__(self, program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        if program == "sacctmgr":
            if self.without_accounting:
                raise errors.SlurmUnavailable("slurmdbd is away")
            return "\n".join("|".join([a, b or "Unknown", c, d]) for a, b, c, d in self.events).encode()
        if "reservation" in arguments:
            return self.reservations.encode()
        self.writes.append(arguments)
        if self.refuses:
            raise errors.SlurmUnavailable(self.refuses)
        act, self.meanwhile = self.meanwhile, lambda _controller: None
        act(self)
        given = dict(word.split("=", 1) for word in arguments if "=" in word)
        if self.deaf:
            return b""
        if arguments[0] == "requeue" and self.job is not None:
            self.job = None
        elif given.get("State") == "RESUME":
            self.flags.discard("DRAIN")
            self.reason = ""
            if self.state == "DOWN" and not self.stays_down:
                self.state = "IDLE"
            for event in self.events:
                event[1] = event[1] or "9999999999"
        else:
            self._drain(given["Reason"], US)
        return b""

    def node(self, name: str) -> live_records.LiveNode | None:
        if name != "n1":
            return None
        return live_records.LiveNode(
            name=name, state=self.state, flags=frozenset(self.flags), reason=self.reason,
            reason_at=self.reason_at, reason_by=self.reason_by, boot_at=self.boot_at,
        )  # fmt: skip

    def job_now(self, _job_id: int) -> live_records.LiveJob | None:
        return self.job


class Look:
    """The read side of a Controller."""

    def __init__(self, controller: Controller) -> None:
        self.node = controller.node
        self.job = controller.job_now

    def nodes(self) -> list[live_records.LiveNode]:
        return []

    def jobs(self) -> list[live_records.LiveJob]:
        return []


def actions(controller: Controller) -> nodes.DirectActions:
    return nodes.DirectActions(
        settings.SlurmSettings(), run=controller, look=Look(controller), sleep=lambda _s: None
    )


def test_a_free_node_is_drained() -> None:
    """One write with State=DRAIN and our reason, confirmed by reading back."""
    controller = Controller()
    assert actions(controller).drain("n1", REASON).state == "done"
    assert controller.writes == [("update", "NodeName=n1", "State=DRAIN", f"Reason={REASON}")]


@pytest.mark.parametrize("flag", ["DRAIN", "FAIL", "MAINTENANCE", "REBOOT_REQUESTED", "POWERED_DOWN"])
def test_a_node_somebody_decided_about_is_left_alone(flag: str) -> None:
    """Nothing is written, whatever the reason says."""
    for reason in ("disk -- bob", REASON, ""):
        controller = Controller(flags={flag}, reason=reason)
        assert actions(controller).drain("n1", REASON).state == "skipped"
        assert controller.writes == []


def test_down_nodes_and_notes_without_a_drain_are_left_alone() -> None:
    """A DOWN node and a person's note on an idle one belong to others; what slurmctld left behind does not."""
    assert actions(Controller(state="DOWN", flags={"NOT_RESPONDING"})).drain("n1", REASON).state == "skipped"
    assert actions(Controller(reason="watch this one -- bob")).drain("n1", REASON).state == "skipped"
    assert actions(Controller(reason="reboot complete")).drain("n1", REASON).state == "done"


def test_a_note_overwritten_in_the_gap_is_put_back() -> None:
    """A drain of bob's between our reading and our writing is restored word for word, with an alarm."""
    controller = Controller(meanwhile=lambda c: c.person("disk broken, ticket 7|x"))
    outcome = actions(controller).drain("n1", REASON)
    assert (outcome.state, outcome.alarm) == ("failed", True)
    assert "bob(1001)" in outcome.why
    assert controller.reason == "disk broken, ticket 7|x"


def test_a_note_lost_within_one_second_is_at_least_told() -> None:
    """slurmdbd keeps the author when a note is replaced within its second: the text is gone, the alarm is not."""
    controller = Controller(meanwhile=lambda c: c.person("disk"), same_second=True)
    outcome = actions(controller).drain("n1", REASON)
    assert (outcome.state, outcome.alarm, controller.reason) == ("failed", True, REASON)
    assert "bob(1001)" in outcome.why


def test_a_note_that_accounting_tells_late_is_put_back_later(caplog: pytest.LogCaptureFixture) -> None:
    """When slurmdbd comes back the open question is asked again, at the next act of any kind."""
    controller = Controller(meanwhile=lambda c: c.person("disk, ticket 7"), without_accounting=True)
    acts = actions(controller)
    assert acts.drain("n1", REASON).state == "done"
    assert controller.reason == REASON
    controller.without_accounting = False
    acts.requeue(7, START, 0, ["n1"])
    assert controller.reason == "disk, ticket 7"
    assert "late word on n1" in caplog.text


def test_a_late_word_does_not_undo_what_came_after(caplog: pytest.LogCaptureFixture) -> None:
    """A node that somebody changed meanwhile is only told of, not written to."""
    controller = Controller(meanwhile=lambda c: c.person("disk, ticket 7"), without_accounting=True)
    acts = actions(controller)
    acts.drain("n1", REASON)
    controller.person("replaced, testing -- eve")
    controller.without_accounting = False
    acts.requeue(7, START, 0, ["n1"])
    assert controller.reason == "replaced, testing -- eve"
    assert "somebody has changed the node since" in caplog.text


def test_a_note_written_after_ours_stands() -> None:
    """Reading back another's reason is an alarm, not a fight."""
    controller = Controller()
    run = controller.__call__

    def late(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
        answer = run(program, *arguments, environment=environment)
        if arguments[0] == "update":
            controller.person("mine now -- bob")
        return answer

    acts = nodes.DirectActions(
        settings.SlurmSettings(), run=late, look=Look(controller), sleep=lambda _s: None
    )
    outcome = acts.drain("n1", REASON)
    assert (outcome.state, outcome.alarm, controller.reason) == ("failed", True, "mine now -- bob")


def test_only_our_own_drain_is_lifted() -> None:
    """A drain of ours goes, another's stays, and no drain is nothing to do."""
    controller = Controller(flags={"DRAIN"}, reason=REASON)
    assert actions(controller).resume_own("n1").state == "done"
    for other in (
        Controller(flags={"DRAIN"}, reason="disk -- bob"),
        Controller(flags={"DRAIN"}, reason="Prolog error"),
        Controller(flags={"DRAIN"}, reason=""),
        Controller(flags={"DRAIN", "MAINTENANCE"}, reason=REASON),
        Controller(state="DOWN", flags={"DRAIN"}, reason=REASON),
        Controller(),
    ):
        assert actions(other).resume_own("n1").state == "skipped"
        assert other.writes == []


def test_a_node_that_is_down_is_not_resumed_and_the_way_out_is_said() -> None:
    """Lifting a drain does not help there; the answer names the state, Slurm's reason and what does."""
    controller = Controller(state="DOWN", flags={"NOT_RESPONDING"}, reason="Not responding")
    assert actions(controller).resume_own("n1").why == (
        "n1 is DOWN+NOT_RESPONDING, not drained (Not responding): find out why it is down; "
        "once it answers: scontrol update NodeName=n1 State=RESUME"
    )
    booted = actions(Controller(state="DOWN", reason=UNASKED)).resume_own("n1").why
    assert booted.startswith(f"n1 is DOWN, not drained ({UNASKED}): see why it booted; scontrol update NodeName=n1 State=RESUME")  # fmt: skip


REPAIR = "probing-n1-0123abcd"
COVERS = "ReservationName={} Nodes={} Flags=MAINT,IGNORE_JOBS,SPEC_NODES State=ACTIVE"
UNASKED = "Node unexpectedly rebooted"


def back_from_boot(**changes: object) -> Controller:
    """n1, drained by us, booted by itself after that; its repair's reservation covers it."""
    values: dict[str, object] = {
        "state": "DOWN", "flags": {"DRAIN", "MAINTENANCE"}, "reason": REASON, "reason_at": START,
        "boot_at": START + timedelta(seconds=1), "reservations": COVERS.format(REPAIR, "n[1,3]"),
    }  # fmt: skip
    return Controller(**values | changes)  # type: ignore[arg-type]


UNDRAINED = {"flags": {"MAINTENANCE"}, "reason": UNASKED, "reason_by": "slurm"}


@pytest.mark.parametrize(
    "changes",
    [{}, UNDRAINED, UNDRAINED | {"reason_by": "root"}],
    ids=["drained", "undrained", "by root"],
)
def test_a_node_that_booted_by_itself_comes_up_in_its_repairs_reservation(
    changes: dict[str, object],
) -> None:
    """Slurm holds it DOWN for the boot alone, and starts no job of users there."""
    controller = back_from_boot(**changes)
    assert actions(controller).resume_own("n1", REPAIR).state == "done"
    assert (controller.state, controller.reason) == ("IDLE", "")
    assert controller.writes == [("update", "NodeName=n1", "State=RESUME")]


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_at": START},
        {"boot_at": START - timedelta(hours=1)},
        {"boot_at": None},
        {"reason_at": None},
        {"reason": "psu swap -- bob"},
        {"reason": UNASKED},
        {"reason": ""},
        {"flags": {"DRAIN", "MAINTENANCE", "NOT_RESPONDING"}},
        {"flags": {"DRAIN", "MAINTENANCE", "POWERING_UP"}},
        {"flags": {"DRAIN", "MAINTENANCE", "REBOOT_ISSUED"}},
        {"flags": {"DRAIN", "MAINTENANCE", "FAIL"}},
        {"flags": {"DRAIN", "MAINTENANCE", "INVALID_REG"}},
        UNDRAINED | {"reason": "Node unexpectedly rebooted, bob looks"},
        UNDRAINED | {"reason": "node unexpectedly rebooted"},
        UNDRAINED | {"reason": "Not responding"},
        UNDRAINED | {"reason": REASON},
        UNDRAINED | {"reason": ""},
        UNDRAINED | {"reason_by": "bob"},
        UNDRAINED | {"reason_by": ""},
        UNDRAINED | {"flags": {"MAINTENANCE", "NOT_RESPONDING"}},
        UNDRAINED | {"flags": {"MAINTENANCE", "FAIL"}},
    ],
    ids=lambda changes: ", ".join(
        f"{name}={sorted(value) if isinstance(value, set) else value}" for name, value in changes.items()
    ),
)
def test_a_node_that_is_down_for_more_than_a_boot_stays_down(changes: dict[str, object]) -> None:
    """What a person set, what does not answer, and what has not booted since its drain is not lifted, even in our reservation."""
    controller = back_from_boot(**changes)
    assert actions(controller).resume_own("n1", REPAIR).state == "skipped"
    assert (controller.state, controller.writes) == ("DOWN", [])


@pytest.mark.parametrize("changes", [{}, UNDRAINED], ids=["drained", "undrained"])
@pytest.mark.parametrize(
    ("reservation", "held"),
    [
        ("", COVERS.format(REPAIR, "n1")),
        (REPAIR, ""),
        (REPAIR, COVERS.format(REPAIR, "n[2-9]")),
        (REPAIR, COVERS.format(REPAIR, "n1").replace("ACTIVE", "INACTIVE")),
        (REPAIR, COVERS.format(REPAIR, "n1").replace("MAINT,", "")),
        ("probing-n3-0123abcd", COVERS.format("probing-n3-0123abcd", "n[1,3]")),
        ("probing-n1-2-0123abcd", COVERS.format("probing-n1-2-0123abcd", "n1")),
        ("probing-n1-mine", COVERS.format("probing-n1-mine", "n1")),
        ("bobs", COVERS.format("bobs", "n1")),
        (f"{REPAIR}\n", COVERS.format(REPAIR, "n1")),
    ],
)
def test_a_node_that_booted_by_itself_comes_up_nowhere_else(
    reservation: str, held: str, changes: dict[str, object]
) -> None:
    """Users could get it untested: no reservation, another's, one that does not hold now, or one in which n1 only helps to test n3."""
    controller = back_from_boot(**changes | {"reservations": held})
    assert actions(controller).resume_own("n1", reservation).state == "skipped"
    assert (controller.state, controller.writes) == ("DOWN", [])


def test_a_note_on_a_node_that_booted_is_put_back() -> None:
    """Bob sets it aside between our reading and our writing: his note stands, and it is out of service."""
    controller = back_from_boot(meanwhile=lambda c: c.person("keep it down -- bob"))
    outcome = actions(controller).resume_own("n1", REPAIR)
    assert (outcome.state, outcome.alarm) == ("failed", True)
    assert ("DRAIN" in controller.flags, controller.reason) == (True, "keep it down -- bob")


def test_a_node_that_stays_down_is_told() -> None:
    controller = back_from_boot(stays_down=True)
    outcome = actions(controller).resume_own("n1", REPAIR)
    assert (outcome.state, outcome.why) == ("failed", "Slurm accepted the resume of n1, yet it is DOWN")


def test_a_drain_taken_over_in_the_gap_is_not_lifted() -> None:
    """When bob makes our drain his while we resume it, his is put back."""
    controller = Controller(flags={"DRAIN"}, reason=REASON)
    controller.meanwhile = lambda c: c.person("keep it down -- bob")
    outcome = actions(controller).resume_own("n1")
    assert (outcome.state, outcome.alarm) == ("failed", True)
    assert (controller.flags, controller.reason) == ({"DRAIN"}, "keep it down -- bob")


def test_only_a_failed_prologs_drain_is_adopted() -> None:
    """Our reason goes on Slurm's `Prolog error`, and on nothing else."""
    controller = Controller(flags={"DRAIN"}, reason="Prolog error")
    assert actions(controller).adopt("n1", REASON).state == "done"
    assert controller.writes == [("update", "NodeName=n1", "State=DRAIN", f"Reason={REASON}")]
    for reason, flags in (("Prolog error", set()), ("disk -- bob", {"DRAIN"}), ("", {"DRAIN"})):
        assert actions(Controller(flags=set(flags), reason=reason)).adopt("n1", REASON).state == "skipped"


@pytest.mark.parametrize("name", ["n[1-2]", "n1,n2", "ALL", "", "-h", "n1 State=DOWN", "n1\n"])
def test_one_node_by_its_name(name: str) -> None:
    """Lists, options and words of more than one node never reach Slurm."""
    controller = Controller()
    outcome = actions(controller).drain(name, REASON)
    assert outcome.state == "failed"
    assert controller.writes == []


@pytest.mark.parametrize(
    "reason", ["disk", "probing", "probing:a", "probing: a\nb", "probing: \x1b[1m", "probing: " + "x" * 300]
)
def test_reasons_are_ours_and_clean(reason: str) -> None:
    """A reason without our prefix, with control characters or without end is refused."""
    controller = Controller()
    assert actions(controller).drain("n1", reason).state == "failed"
    assert controller.writes == []


def test_slurms_refusal_and_deafness_are_failures() -> None:
    """No right to act, and an act without effect, are told as such."""
    refused = actions(Controller(refuses="slurm_update error: Invalid user id")).drain("n1", REASON)
    assert (refused.state, "Invalid user id" in refused.why) == ("failed", True)
    assert "yet it is IDLE" in actions(Controller(deaf=True)).drain("n1", REASON).why
    unsure = actions(Controller(without_accounting=True)).drain("n1", REASON)
    # What accounting may say later is asked again by us; in the drain's row it would stand for ever.
    assert (unsure.state, unsure.why) == ("done", "")


def running(**changes: object) -> live_records.LiveJob:
    fields: dict[str, object] = {
        "job_id": 7,
        "state": "RUNNING",
        "start_at": START,
        "restart_count": 1,
        "nodes": ("n1", "n2"),
        "requeue": True,
        "batch": True,
    }
    return live_records.LiveJob(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_very_attempt_is_requeued() -> None:
    """A batch job that allows it, at the expected start, restart and node, goes; a het component by its leader."""
    controller = Controller(job=running())
    assert actions(controller).requeue(7, START, 1, ["n1"]).state == "done"
    assert controller.writes == [("requeue", "7")]
    controller = Controller(job=running(het_job_id=6, het_offset=1))
    actions(controller).requeue(7, START, 1, ["n1"])
    assert controller.writes == [("requeue", "6")]


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (None, "gone"),
        (running(state="PENDING"), "PENDING"),
        (running(state="COMPLETED"), "COMPLETED"),
        (running(flags=frozenset({"COMPLETING"})), "COMPLETING"),
        (running(batch=False), "interactive"),
        (running(requeue=False), "--no-requeue"),
        (running(start_at=datetime(2024, 1, 2, tzinfo=UTC)), "anew"),
        (running(restart_count=2), "restart 2"),
        (running(nodes=("n2", "n3")), "does not run on n1"),
    ],
)
def test_anything_else_is_left_running(job: live_records.LiveJob | None, why: str) -> None:
    """Interactive, protected, restarted, moved and ended jobs are never touched."""
    controller = Controller(job=job)
    outcome = actions(controller).requeue(7, START, 1, ["n1"])
    assert (outcome.state, why in outcome.why) == ("skipped", True)
    assert controller.writes == []


def test_a_requeue_without_effect_is_a_failure() -> None:
    """A job that runs on as it was is told."""
    controller = Controller(job=running(), deaf=True)
    assert actions(controller).requeue(7, START, 1, ["n1"]).state == "failed"


def test_events_are_read_with_delimiters_in_the_reason() -> None:
    """The reason is the last column and may hold anything."""
    assert node_events.parse(b"100|Unknown|bob(1)|a|b\n100|120|root(0)|c\nnoise\n") == [
        node_events.NodeEvent(start_s=100, end_s=None, user="bob(1)", reason="a|b"),
        node_events.NodeEvent(start_s=100, end_s=120, user="root(0)", reason="c"),
    ]


def test_slurmctlds_own_reasons_are_nobodys_note() -> None:
    """A node that stopped responding while we drained it lost no person's words."""
    event = node_events.NodeEvent(start_s=10, end_s=11, user="slurm(64030)", reason="Not responding")
    ours = node_events.NodeEvent(start_s=11, end_s=None, user=US, reason=REASON)
    assert node_events.judge([event, ours], 10, REASON, US) == node_events.NoteHistory(
        settled=True, lost=False
    )


def test_an_act_that_slurm_does_not_answer_has_no_outcome() -> None:
    """Neither done nor failed: what was asked is not known to have been refused."""

    def gone(_controller: Controller) -> None:
        raise commands.SlurmAway("Unable to contact slurm controller")

    with pytest.raises(commands.SlurmAway, match="Slurm does not answer"):
        actions(Controller(meanwhile=gone)).drain("n1", REASON)
