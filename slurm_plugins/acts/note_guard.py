"""Checks after each write to a node whether it overwrote a person's note, and puts that note back.

Accounting is the only witness, and it can be seconds late. What it has not said by then is asked again at later acts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from probing_cluster.core import errors
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import node_events
from probing_cluster.slurm_plugins.live import live

LOG = logging.getLogger("probing.nodes")
WAITS_S = (0.2, 0.3, 0.5, 1.0)
"""slurmdbd hears of a drain within moments on 22.05, after a second or so on 26.05."""
MOST_AT_ONCE = 3
"""Before one act accounting is asked about so many earlier writes."""
GIVE_UP_S = 900
"""After so long an unanswered question is dropped, with a line in the log."""


@dataclass(frozen=True, kw_only=True)
class NoteWrite:
    """One write of ours to a node."""

    node: str
    since_s: int
    """The second in which we read the node, just before."""
    ours: str | None
    """The reason we wrote; None when we resumed."""


class NoteGuard:
    """Looks after notes that our writes may have covered."""

    def __init__(
        self, run: commands.Runner, look: live.Live, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._run = run
        self._look = look
        self._events = node_events.NodeEvents(run)
        self._sleep = sleep
        self._open: list[NoteWrite] = []

    def now_s(self) -> int:
        """The second from which on notes matter."""
        return int(time.time())

    def check(self, write: NoteWrite) -> tuple[bool, str]:
        """Whether a note was covered, and what was done about it; one that accounting hears of later is put back by `recheck`."""
        found = self._ask(write)
        for wait_s in WAITS_S:
            if found is None or found.settled or found.lost:
                break
            self._sleep(wait_s)
            found = self._ask(write)
        if found is None or not (found.lost or found.settled):
            # Said in the log only: in the drain's row it would stand long after accounting has answered.
            LOG.info("accounting has not said yet whether our write to %s covered a note", write.node)
            self._open.append(write)
            return False, ""
        return (True, self._put_back(write, found)) if found.lost else (False, "")

    def recheck(self) -> None:
        """Asks again about writes that accounting had not heard of; a note found now is put back, with an alarm.

        An act waits meanwhile, and its caller with it: few are asked about, and none after the first without an answer.
        """
        for write in self._open[:MOST_AT_ONCE]:
            found = self._ask(write)
            if found is None:
                break
            self._open.remove(write)
            if found.lost:
                LOG.error("late word on %s: %s", write.node, self._put_back(write, found))
            elif not found.settled:
                self._open.append(write)  # behind those that were not asked about
        for write in [w for w in self._open if self.now_s() - w.since_s > GIVE_UP_S]:
            self._open.remove(write)
            LOG.warning("accounting never said whether our write to %s covered a note", write.node)

    def _ask(self, write: NoteWrite) -> node_events.NoteHistory | None:
        return self._events.overwritten(write.node, write.since_s, write.ours)

    def _put_back(self, write: NoteWrite, found: node_events.NoteHistory) -> str:
        if not found.note:
            return f"a note of {found.author} on {write.node} was overwritten and cannot be read again"
        message = f"a note of {found.author} on {write.node} was overwritten"
        try:
            now = self._look.node(write.node)
            if now is None or now.reason != (write.ours or ""):
                return f"{message}; somebody has changed the node since: {found.note}"
            self._run("scontrol", "update", f"NodeName={write.node}", "State=DRAIN", f"Reason={found.note}")
        except errors.ProbingError as exc:
            return f"{message} and could not be put back ({exc}): {found.note}"
        return f"{message} and is put back: {found.note}"
