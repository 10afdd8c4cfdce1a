"""Through the service and the nodes' agents: slower than a step, the same rows, tables only.

For operators, whom Slurm lets into nobody's job, and for owners where no step can start. How the question gets to the agents
is the mailbox's business (control_plane): a row per node in Postgres, by the service or by the asker's own database role.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from probing_cluster.core import errors, sanitize
from probing_cluster.live import packing
from probing_cluster.live.table import Scan
from probing_cluster.live.ways import patience, streams

POLL_S = 0.5
"""Between two looks for answers."""
LEAST_EVERY_S = 3.0
"""No sooner is the same asked again: the service takes 40 questions a minute of one asker, and a statement may be two."""
MAX_SCANS = 16
MAX_SCANS_BYTES = 3000
"""Of the tables, columns and conditions: the doors on the way take no more. Conditions only spare the sending of rows."""
MAX_EARLIER = 16
"""Questions with a silent node that are remembered."""
COMES_S = 5.0
"""A living agent has brought its answer to a question that is older, whether it was waited for or not."""
MAX_UNPACKED_BYTES = 64 << 20
"""Of one node's answer."""
OWNER_ALONE = (
    "only the job's owner may evaluate an expression, by a step of Slurm's; operators read tables, and so does "
    "everybody who asks through the agents"
)


@dataclass(frozen=True, kw_only=True)
class PostedQuestion:
    """A question on its way."""

    question: str
    """Its name, for `Mailbox.take`."""
    nodes: tuple[str, ...]
    """All of the job."""
    absent: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are not asked, and why: their agents are silent."""


@dataclass(frozen=True, kw_only=True)
class TakenAnswers:
    """What has come since the last look."""

    answers: Mapping[str, bytes]
    """By node: `F` and a bundle of frames, or `!` and why there are none."""
    mark: str | None
    """What the next look is to say, to be spared what came before."""


class Mailbox(Protocol):
    """How questions about one job get to its nodes' agents."""

    def nodes(self) -> tuple[str, ...]:
        """The nodes of the job; raises NotFound, NotPermitted, DatabaseUnavailable."""
        ...

    def post(self, scans: str, deadline_s: float) -> PostedQuestion:
        """Asks every node: `scans` is a JSON list of Scan.to_json."""
        ...

    def take(self, question: str, mark: str | None) -> TakenAnswers:
        """The answers that have come."""
        ...


class AgentNodes:
    """The nodes of one job by way of their agents."""

    way = "agents"

    def __init__(self, mailbox: Mailbox, unasked: Sequence[streams.Missing] = ()) -> None:
        self._mailbox, self._unasked = mailbox, list(unasked)
        self._nodes = mailbox.nodes()
        self._patience = patience.Patience()
        self._earlier: list[tuple[float, str]] = []
        """When questions were asked that some node has not answered, by the monotonic clock, and their names; the last ones."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that are asked."""
        return self._nodes

    def require_owner(self) -> None:
        """Raises NotPermitted: agents evaluate for nobody."""
        raise errors.NotPermitted(OWNER_ALONE)

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> streams.Reply:
        """See streams.Streams.ask; raises NotPermitted for an expression, UsageError for too many tables."""
        text = written(scans)
        end_s = time.monotonic() + timeout_s
        back = self._back()
        posted = self._mailbox.post(text, timeout_s * streams.NODE_SHARE)
        self._nodes = posted.nodes
        expected = set(posted.nodes) - set(posted.absent)
        lost = self._patience.lost(expected, back, timeout_s)
        reply = self._answers(posted.question, expected, lost, end_s)
        silent = expected - {m.node for m in reply.missing} - reply.answered
        self._patience.remember(silent, lost, timeout_s)
        if silent:
            self._earlier = [*self._earlier[1 - MAX_EARLIER :], (end_s - timeout_s, posted.question)]
        reply.missing += self._unasked
        reply.missing += [streams.Missing(node=n, reason=why) for n, why in sorted(posted.absent.items())]
        reply.missing += [streams.Missing(node=n, reason=self._reason(n, lost)) for n in sorted(silent)]
        return reply

    def _back(self) -> set[str]:
        """Nodes that were silent and have answered an earlier question since."""
        if not self._patience or not self._earlier:
            return set()
        old_s = time.monotonic() - COMES_S
        question = next((q for at_s, q in reversed(self._earlier) if at_s <= old_s), self._earlier[0][1])
        return set(self._mailbox.take(question, None).answers)

    def _answers(self, question: str, expected: set[str], lost: set[str], end_s: float) -> streams.Reply:
        """What has come when all have answered but those lost, or the time is over."""
        reply, waiting, mark = streams.Reply(), set(expected), None
        while waiting - lost and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left_s))
            taken = self._mailbox.take(question, mark)
            mark = taken.mark
            for node, body in taken.answers.items():
                if node in waiting:
                    waiting.discard(node)
                    _add(reply, node, body)
        return reply

    def _reason(self, node: str, lost: set[str]) -> str:
        again = patience.NOT_AGAIN if node in lost else ""
        return f"its agent brought no answer in {self._patience.waited_s(node):g} s{again}"

    def close(self) -> None:
        """Closes nothing: no connection is kept."""


def written(scans: Sequence[Scan]) -> str:
    """The scans as they travel, without conditions where these are too long; raises NotPermitted, UsageError."""
    for scan in scans:
        name = scan.table.partition(".")[2]
        if name != "*" and not name.isidentifier():
            raise errors.NotPermitted(OWNER_ALONE)
    if len(scans) > MAX_SCANS:
        raise errors.UsageError(f"through the agents a statement reads at most {MAX_SCANS} tables")
    whole = list(scans)
    unfiltered = [dataclasses.replace(s, condition=None, limit=None) for s in scans]
    every_column = [dataclasses.replace(s, columns=None) for s in unfiltered]
    for tried in (whole, unfiltered, every_column):
        text = json.dumps([s.to_json() for s in tried], separators=(",", ":"))
        if len(text) <= MAX_SCANS_BYTES:
            return text
    raise errors.UsageError("the statement is too long for the way through the agents")


def _add(reply: streams.Reply, node: str, body: bytes) -> None:
    if body[:1] == b"!":
        reason = sanitize.clean(body[1:].decode("utf-8", "replace"), 300)
        reply.missing.append(streams.Missing(node=node, reason=reason))
        return
    try:
        reply.frames += [(node, frame) for frame in packing.frames_of(body[1:], MAX_UNPACKED_BYTES)]
        reply.answered.add(node)
    except errors.MalformedInput as exc:
        reply.missing.append(streams.Missing(node=node, reason=str(exc)))
