"""One question to all collectors of a job: their frames as they come, a deadline that is ours, and who did not answer.

srun hands a question on only when every node of its step has begun it, so one slurmd that hangs silences its whole step. A step
that shows this gets smaller ones beside it: one for the nodes that have begun, and for the others one each, or a few groups.
What answers first counts, and nobody is counted twice.
"""

from __future__ import annotations

import json
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from probing_cluster.live.table import Scan
from probing_cluster.live.ways import collectors, patience

NODE_SHARE = 0.8
"""Of the asker's deadline; what a node has not read by then it reports as missing, in time to be heard."""
HELLO_SHARE, HELLO_S = 0.2, 1.0
"""Of the deadline, and at most: how long a question may not reach a collector that has started."""
START_SHARE, START_S = 0.5, 5.0
"""Likewise, until the first collector of a step has started."""
GROUPS = 8
"""Into how many steps the silent nodes of one are split."""
MORE_STEPS = 32
"""How many steps may be added for silent nodes until `close`: every one counts towards the job's MaxStepCount."""
LOOK_S = 0.1
END_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Something that did not answer: a row of `cluster.missing`."""

    node: str | None
    reason: str
    rank: int | None = None
    table: str | None = None


@dataclass(kw_only=True)
class Reply:
    """What came of one question."""

    frames: list[tuple[str, bytes]] = field(default_factory=list)
    """Each with the node that sent it."""
    missing: list[Missing] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)


class Streams:
    """The collectors of one job, open for questions until `close`."""

    def __init__(
        self,
        commands: Iterable[collectors.Command],
        *,
        on_close: Callable[[set[str]], None] | None = None,
        may_add: Callable[[set[str], int], bool] | None = None,
    ) -> None:
        """`may_add`: whether, after the steps that have answered, the job may have so many more."""
        self._selector = selectors.DefaultSelector()
        self._number = self._added = 0
        self._on_close, self._may_add = on_close, may_add
        self._children = [self._start(command) for command in commands]
        self._nodes = tuple(dict.fromkeys(n for c in self._children for n in c.nodes))
        self._retired: list[collectors.Collectors] = []
        self._patience = patience.Patience()
        self._answered: set[str] = set()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that are asked."""
        return self._nodes

    @property
    def may_evaluate(self) -> bool:
        """The asker is the job's owner."""
        return all(c.command.may_evaluate for c in self._children)

    @property
    def steps(self) -> set[str]:
        """Slurm's numbers of the steps that answered so far."""
        return set().union(*(c.steps for c in (*self._children, *self._retired)))

    def ask(self, scans: Sequence[Scan], timeout_s: float, *, node_s: float | None = None) -> Reply:
        """Asks every node; returns when all have answered, ended, or the time is over.

        A node that did not answer an earlier question is waited for again once it has, for longer, or where no other is left.
        `node_s`: how long a node may take, from when it gets the question; None for its usual share.
        """
        self._number += 1
        self._answered = set()  # until it is over: a question may be given up
        reply, end_s = Reply(), time.monotonic() + timeout_s
        question = {
            "id": self._number,
            "deadline_s": timeout_s * NODE_SHARE if node_s is None else node_s,
            "scans": [s.to_json() for s in scans],
        }
        line = json.dumps(question, separators=(",", ":")).encode() + b"\n"
        lost = self._lost(timeout_s)
        for child in self._children:
            if lost.issuperset(child.nodes):
                child.expect(self._number)  # it has a question that it has not answered
            else:
                child.ask(self._number, line)
        while (left_s := end_s - time.monotonic()) > 0 and self._is_waiting(reply.answered | lost):
            for node, frames in self._come(min(left_s, self._look_s)):
                if node not in reply.answered:
                    reply.answered.add(node)
                    reply.frames += [(node, frame) for frame in frames]
            self._narrow(line, timeout_s)
        reply.frames += self._partial(reply.answered)
        reply.missing += self._silent(reply.answered, lost, timeout_s)
        self._remember(reply.answered, lost, timeout_s)
        self._answered = reply.answered
        self._retire()
        return reply

    def close(self) -> None:
        """Ends every child: first by closing its input, then by force; never waits for a hung node.

        A step whose nodes have all answered is asked to end, and left to it: on a busy cluster it takes longer than anybody
        should wait for, and killing its srun would leave the step behind.
        """
        every_child = [*self._children, *self._retired]
        for child in every_child:
            child.close_input()
        for stop in (None, signal.SIGTERM, signal.SIGKILL):
            running = [c for c in every_child if c.process.poll() is None]
            if stop is not None:
                for child in running:
                    if stop == signal.SIGTERM or not (child.must_be_left or self._is_done(child)):
                        child.signal(stop)
            waiting = [c for c in running if not (c.must_be_left or (stop and self._is_done(c)))]
            end_s = time.monotonic() + END_S
            while waiting and time.monotonic() < end_s:
                waiting = [c for c in waiting if c.process.poll() is None]
                time.sleep(0.005)
        hung = set().union(*(c.steps for c in every_child if c.process.poll() != 0 and not self._is_done(c)))
        if self._on_close is not None and hung:
            self._on_close(hung)
        for child in every_child:
            child.close_outputs()
            if child.process.poll() is None:
                child.leave()
        self._selector.close()

    def _is_done(self, child: collectors.Collectors) -> bool:
        """A step all of whose nodes have answered: it hangs nowhere, and ends by itself."""
        answered = child not in self._retired and self._answered.issuperset(child.nodes)
        return answered and child.command.ends_itself

    def _start(self, command: collectors.Command) -> collectors.Collectors:
        return collectors.Collectors(command=command, selector=self._selector)

    def _is_waiting(self, over: set[str]) -> bool:
        return bool(self._can_answer - over)

    def _come(self, wait_s: float) -> Iterator[tuple[str, list[bytes]]]:
        """Every node that has answered whole, with its frames; after `wait_s` without any output, nothing."""
        for key, _ in self._selector.select(wait_s):
            _, work = key.data
            yield from work()

    def _lost(self, timeout_s: float) -> set[str]:
        """Nodes that are not waited for this time."""
        if not self._patience:
            return set()
        back = {node for node, _ in self._come(0)}
        back.update(*(child.with_output for child in self._children))
        return self._patience.lost(self._can_answer, back, timeout_s)

    @property
    def _can_answer(self) -> set[str]:
        """Nodes of which more can come."""
        return {node for child in self._children if child.reads for node in child.nodes}

    def _remember(self, answered: set[str], lost: set[str], timeout_s: float) -> None:
        with_output = set().union(*(child.with_output for child in self._children))
        self._patience.remember(self._can_answer - answered - with_output, lost, timeout_s)

    @property
    def _look_s(self) -> float:
        """How long to wait for output before looking whether a step is stuck."""
        may_be = any(
            c.command.narrower is not None and not c.flows and not c.narrowed for c in self._children
        )
        return LOOK_S if may_be else float("inf")

    def _narrow(self, line: bytes, timeout_s: float) -> None:
        """Starts smaller steps beside those that are stuck, and asks them the same."""
        hello_s, start_s = min(HELLO_SHARE * timeout_s, HELLO_S), min(START_SHARE * timeout_s, START_S)
        now_s = time.monotonic()
        for stuck in [c for c in self._children if c.is_stuck(now_s, hello_s, start_s)]:
            parts = list(smaller(stuck.nodes, stuck.hello))
            make = stuck.command.narrower
            if make is None or self._added + len(parts) > MORE_STEPS:
                continue
            if self._may_add is not None and not self._may_add(self.steps, self._added + len(parts)):
                stuck.too_many_steps = True
                continue
            self._added += len(parts)
            stuck.narrowed = [self._start(make(nodes)) for nodes in parts]
            self._children += stuck.narrowed
            for child in stuck.narrowed:
                child.ask(self._number, line)

    def _retire(self) -> None:
        """Retires a step that hung, or the smaller steps in its place once it answers again: no node is asked twice."""
        for child in [c for c in self._children if c.narrowed]:
            over = list(_below(child)) if child.flows else [child]
            for one in over:
                if one in self._children:
                    self._children.remove(one)
                    self._retired.append(one)
                    one.retire()
            child.narrowed = []

    def _partial(self, answered: set[str]) -> list[tuple[str, bytes]]:
        """Tables that came of nodes whose other tables did not."""
        found: list[tuple[str, bytes]] = []
        taken = set(answered)
        for child in self._children:
            for node, frames in child.unanswered():
                if node not in taken:
                    found += [(node, frame) for frame in frames]
                    taken.add(node)
        return found

    def _silent(self, answered: set[str], lost: set[str], timeout_s: float) -> list[Missing]:
        smallest = {node: child for child in self._children for node in child.nodes}
        return [
            Missing(node=node, reason=self._reason(smallest[node], node, lost, timeout_s))
            for node in self._nodes
            if node not in answered
        ]

    def _reason(self, child: collectors.Collectors, node: str, lost: set[str], timeout_s: float) -> str:
        if node not in lost or not child.reads:
            return child.reason(node, timeout_s)
        return child.reason(node, self._patience.waited_s(node)) + patience.NOT_AGAIN


def _below(child: collectors.Collectors) -> Iterator[collectors.Collectors]:
    for one in child.narrowed:
        yield one
        yield from _below(one)


def smaller(nodes: tuple[str, ...], begun: set[str]) -> Iterator[tuple[str, ...]]:
    """The nodes of a stuck step in smaller ones: those that have begun it, and the others in at most GROUPS."""
    there = tuple(n for n in nodes if n in begun)
    silent = [n for n in nodes if n not in begun]
    if there:
        yield there
    width = max(1, -(-len(silent) // GROUPS))
    yield from (tuple(silent[i : i + width]) for i in range(0, len(silent), width))
