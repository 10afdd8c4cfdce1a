"""What may be done to nodes and jobs: drain, adopt, resume or reboot our own, requeue, and what restarts take. Nothing else, and nobody else's.

Slurm has no compare-and-set: each act reads just before, writes, reads back, and asks accounting whether a
person's note was overwritten in between; such a note is put back and the act reported as failed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol

from probing_cluster.core import errors, sanitize, settings, vocabulary
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import (
    node_events,
    note_guard,
    outcome,
    reservations,
    restarts,
    unasked_boot,
)
from probing_cluster.slurm_plugins.live import live, live_records

LOG = logging.getLogger("probing.nodes")
Outcome = outcome.ActOutcome


class Actions(Protocol):
    """The fixed vocabulary, in this process or through the helper; each act raises SlurmAway when Slurm does not answer."""

    def drain(self, node: str, reason: str, reservation: str = "") -> Outcome:
        """State=DRAIN with a reason of ours, unless anyone has already decided about the node.

        The maintenance flags of `reservation`, when it is ours and covers the node, are no other's decision.
        """
        ...

    def adopt(self, node: str, reason: str) -> Outcome:
        """Our reason on a drain that Slurm made because a Prolog failed."""
        ...

    def resume_own(self, node: str, reservation: str = "") -> Outcome:
        """Lifts a drain that is ours; with `reservation` only while that one, ours, covers the node.

        In the reservation of its own repair a node comes up, too, that Slurm holds DOWN because it booted by itself.
        """
        ...

    def reboot_own(self, node: str) -> Outcome:
        """Asks Slurm to reboot a node that is drained by us, in a way that leaves it drained."""
        ...

    def requeue(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, expect_nodes: Iterable[str]
    ) -> Outcome:
        """Requeues a batch job that allows it, if it is still this very attempt."""
        ...

    def requeue_held(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, *, running: bool = False
    ) -> Outcome:
        """Puts a batch job that has ended, or that is `running`, back into the queue, held."""
        ...

    def exclude(self, job_id: int, expect_restart: int, add: Iterable[str], remove: Iterable[str]) -> Outcome:
        """Leaves nodes out of a job that waits, or gives them back to it."""
        ...

    def depend(self, job_id: int, on: int) -> Outcome:
        """Sets the stuck dependency of a waiting job on `on` again."""
        ...

    def release(self, job_id: int, expect_restart: int) -> Outcome:
        """Releases what `requeue_held` holds."""
        ...


class DirectActions:
    """The acts by this process, which needs Slurm's right to update nodes: SlurmUser, root or an administrator."""

    def __init__(
        self,
        slurm: settings.SlurmSettings,
        *,
        run: commands.Runner | None = None,
        look: live.Live | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run or commands.SlurmCommands(settings=slurm)
        self._look = look or live.CommandLive(self._run)
        self._notes = note_guard.NoteGuard(self._run, self._look, sleep)
        # The accounts whose words may be slurmctld's own. Where Slurm does not say whose they are, they may be a person's.
        self._slurms = frozenset({slurm.user, "root"} - {""})
        self._restarts = restarts.RestartActs(self._run, self._look)

    def drain(self, node: str, reason: str, reservation: str = "") -> Outcome:
        return self._act("drain", node, lambda: self._drain(node, reason, reservation))

    def adopt(self, node: str, reason: str) -> Outcome:
        return self._act("adopt", node, lambda: self._adopt(node, reason))

    def resume_own(self, node: str, reservation: str = "") -> Outcome:
        return self._act("resume", node, lambda: self._resume_own(node, reservation))

    def reboot_own(self, node: str) -> Outcome:
        return self._act("reboot", node, lambda: self._reboot_own(node))

    def requeue(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, expect_nodes: Iterable[str]
    ) -> Outcome:
        expected = frozenset(expect_nodes)
        return self._act(
            "requeue", str(job_id), lambda: self._requeue(job_id, expect_start_at, expect_restart, expected)
        )

    def requeue_held(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, *, running: bool = False
    ) -> Outcome:
        return self._act(
            "requeue_held",
            str(job_id),
            lambda: self._restarts.requeue_held(job_id, expect_start_at, expect_restart, running=running),
        )

    def exclude(self, job_id: int, expect_restart: int, add: Iterable[str], remove: Iterable[str]) -> Outcome:
        more, less = frozenset(add), frozenset(remove)
        return self._act(
            "exclude", str(job_id), lambda: self._restarts.exclude(job_id, expect_restart, more, less)
        )

    def depend(self, job_id: int, on: int) -> Outcome:
        return self._act("depend", str(job_id), lambda: self._restarts.depend(job_id, on))

    def release(self, job_id: int, expect_restart: int) -> Outcome:
        return self._act("release", str(job_id), lambda: self._restarts.release(job_id, expect_restart))

    def _act(self, verb: str, subject: str, work: Callable[[], Outcome]) -> Outcome:
        """Every act ends in an outcome and one line of audit, whatever Slurm did; raises SlurmAway where it does not answer."""
        try:
            self._notes.recheck()
            done = work()
        except commands.SlurmAway as exc:
            # Not an outcome: whether the act was done, and whether it may be, is known once Slurm answers.
            LOG.info("%s %s: not known: %s", verb, sanitize.clean(subject, 80), exc)
            raise
        except errors.ProbingError as exc:
            done = Outcome(state="failed", why=str(exc))
        level = logging.ERROR if done.alarm else logging.INFO
        LOG.log(level, "%s %s: %s %s", verb, sanitize.clean(subject, 80), done.state, done.why)
        return done

    def _drain(self, node: str, reason: str, reservation: str) -> Outcome:
        _require_words(node, reason)
        own = self._own_flags(node, reservation)
        before, since = self._read(node), self._notes.now_s()
        taken = sorted((before.states & vocabulary.UNTOUCHABLE_STATES) - own)
        if taken:
            return outcome.skipped(f"{node} is {'+'.join(taken)} ({before.reason or 'no reason given'})")
        if node_events.is_a_persons(before.reason):
            return outcome.skipped(f"{node} carries another's note: {before.reason}")
        self._run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
        after = self._read(node)
        if "DRAIN" not in after.flags:
            return outcome.failed(
                f"Slurm accepted the drain of {node}, yet it is {'+'.join(sorted(after.states))}"
            )
        if after.reason != reason:
            return outcome.failed(f"{node} was given another's note meanwhile: {after.reason}", alarm=True)
        return self._guarded(node, since, reason)

    def _adopt(self, node: str, reason: str) -> Outcome:
        _require_words(node, reason)
        before, since = self._read(node), self._notes.now_s()
        if "DRAIN" not in before.flags or not before.reason.lower().startswith("prolog error"):
            return outcome.skipped(
                f"{node} is not drained by a failed Prolog ({before.reason or 'no reason'})"
            )
        # With the state, though it is there already: 26.05 tells accounting of a new reason only beside a state.
        self._run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")
        after = self._read(node)
        if after.reason != reason:
            return outcome.failed(f"{node} was given another's note meanwhile: {after.reason}", alarm=True)
        return self._guarded(node, since, reason)

    def _resume_own(self, node: str, reservation: str) -> Outcome:
        _require_name(node)
        own = self._own_flags(node, reservation)
        if reservation and not own:
            return outcome.skipped(f"{node} is not in reservation {sanitize.clean(reservation, 80)}")
        before, since = self._read(node), self._notes.now_s()
        booted = self._is_back_from_boot(before, reservation)
        if "DRAIN" not in before.flags and not booted:
            return outcome.skipped(_not_drained(node, before))
        if "DRAIN" in before.flags and not before.reason.startswith(vocabulary.OWN_PREFIX):
            return outcome.skipped(f"{node} is drained by another: {before.reason or 'no reason given'}")
        free = vocabulary.DRAINED_STATES | own | ({"DOWN"} if booted else set())
        taken = sorted((before.states & vocabulary.UNTOUCHABLE_STATES) - free)
        if taken:
            return outcome.skipped(f"{node} is also {'+'.join(taken)}")
        self._run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        lifted = self._guarded(node, since, None)
        if lifted.state == "done" and (left := self._read(node).states & {"DRAIN", "DOWN"}):
            shown = "+".join(sorted(left))
            return outcome.failed(f"Slurm accepted the resume of {node}, yet it is {shown}")
        return lifted

    def _is_back_from_boot(self, node: live_records.LiveNode, reservation: str) -> bool:
        """Whether Slurm holds the node DOWN for an unasked boot alone, and its own repair's reservation keeps users off it.

        Not in another node's: a reference node is the site's, and so is what becomes of it. A reservation that does not
        hold yet, or no longer, keeps nobody off.
        """
        if not unasked_boot.holds_down(node.states, node.reason, node.reason_at, node.boot_at):
            return False
        if "DRAIN" not in node.flags and node.reason_by not in self._slurms:
            return False  # perhaps a person in Slurm's words
        if not reservations.is_repair_of(reservation, node.name):
            return False
        found = reservations.Reservations(self._run, "").all()
        return any(
            one.name == reservation and node.name in one.nodes and one.keeps_users_off for one in found
        )

    def _reboot_own(self, node: str) -> Outcome:
        _require_name(node)
        before = self._read(node)
        if not before.states & vocabulary.DRAINED_STATES or not before.reason.startswith(
            vocabulary.OWN_PREFIX
        ):
            return outcome.skipped(f"{node} is not drained by us ({before.reason or 'no reason given'})")
        if before.states & {"REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED"}:
            return Outcome(state="done", why="it is rebooting already")
        # Never ASAP: with it Slurm resumes the node after the boot, untested, and erases the reason.
        self._run("scontrol", "reboot", node)
        return Outcome(state="done")

    def _own_flags(self, node: str, reservation: str) -> frozenset[str]:
        """The flags that a reservation of ours puts on the node; none where it is not ours or does not cover it."""
        if not reservation.startswith(vocabulary.RESERVATION_PREFIX):
            return frozenset()
        found = reservations.Reservations(self._run, "").all()
        covered = any(one.name == reservation and node in one.nodes for one in found)
        return frozenset({"MAINT", "MAINTENANCE"}) if covered else frozenset()

    def _guarded(self, node: str, since_s: int, ours: str | None) -> Outcome:
        """Done, unless our write covered a person's note."""
        covered, why = self._notes.check(note_guard.NoteWrite(node=node, since_s=since_s, ours=ours))
        return outcome.failed(why, alarm=True) if covered else Outcome(state="done", why=why)

    def _requeue(self, job_id: int, start_at: datetime, restart: int, nodes: frozenset[str]) -> Outcome:
        job = self._look.job(job_id)
        if job is None:
            return outcome.skipped(f"job {job_id} is gone")
        why = _not_this_attempt(job, start_at, restart, nodes)
        if why:
            return outcome.skipped(f"job {job_id} {why}")
        # Components of a het job are requeued by their leader; an array's last task has the array's own number.
        self._run("scontrol", "requeue", str(job.het_job_id or job.name_for_slurm))
        after = self._look.job(job_id)
        if (
            after is not None
            and after.running
            and (after.start_at, after.restart_count) == (start_at, restart)
        ):
            return outcome.failed(f"Slurm accepted the requeue of job {job_id}, yet it runs on")
        return Outcome(state="done")

    def _read(self, node: str) -> live_records.LiveNode:
        found = self._look.node(node)
        if found is None:
            raise errors.NotFound(f"Slurm knows no node {node}")
        return found


def _not_this_attempt(
    job: live_records.LiveJob, start_at: datetime, restart: int, nodes: frozenset[str]
) -> str:
    """Why this job must not be requeued; empty when it may."""
    reasons = (
        (not job.running or job.completing, f"is {job.state}{''.join(sorted(job.flags))}"),
        (not job.batch, "is interactive"),
        (not job.requeue, "was submitted with --no-requeue"),
        (job.start_at != start_at, f"has started anew ({job.start_at})"),
        (job.restart_count != restart, f"is at restart {job.restart_count}, not {restart}"),
        (
            not nodes or not nodes <= set(job.nodes),
            f"does not run on {', '.join(sorted(nodes)) or 'that node'}",
        ),
    )
    return next((why for applies, why in reasons if applies), "")


def _require_name(node: str) -> None:
    if restarts.NODE_NAME.fullmatch(node) is None:
        raise errors.UsageError(f"{sanitize.clean(node, 60)!r} is not one node's name")


def _not_drained(name: str, node: live_records.LiveNode) -> str:
    if "DOWN" not in node.states:
        return f"{name} is not drained"
    reason = node.reason or "no reason given"
    booted = unasked_boot.holds_down(node.states, node.reason, node.reason_at, node.boot_at)
    way_out = unasked_boot.way_out(name) if booted else node_events.back_from_down(name)
    return f"{name} is {node_events.gone(node.states)}, not drained ({reason}): {way_out}"


def _require_words(node: str, reason: str) -> None:
    _require_name(node)
    if (
        not reason.startswith(vocabulary.OWN_PREFIX)
        or reason != sanitize.clean(reason, 200)
        or reason != reason.strip()
    ):
        raise errors.UsageError(
            f"a reason is one clean line of at most 200 characters that begins with {vocabulary.OWN_PREFIX!r}"
        )
