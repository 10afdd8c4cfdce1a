"""One child with the collectors of some nodes: its start, a question to it, its lines put together again, its end."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from probing_cluster.core import digits, errors, processes, sanitize

MAX_LINE_BYTES = 1 << 16
MAX_FRAME_CHARS = 512 << 20
"""Of all frames that the nodes of one child send for a question; what comes beyond is not kept."""
_SIGNS = (b"!", b"?", b"+", b".")
_LEAST_FRAME_CHARS = 64
"""What any frame counts for: empty ones take memory, too."""
MAX_UNSENT_BYTES = 4 << 20
"""Of questions that it has not taken; beyond, it gets no more."""
READ_BYTES = 1 << 18
_PREFIX = re.compile(r"^(?:[0-9]+: )?(?:srun: |slurmstepd[^ ]*: )?(?:error: )?")
"""Who says it: the label, srun or a node's step daemon."""
_EXITED = re.compile(r"^(?:\S+: )?tasks? [0-9,-]+: Exited with exit code")
_NO_START = re.compile(r"Permission denied|No such file|No module named|Exited with exit code")
_HINT = " ([live] python names a Python that the job's owner may execute there; --via agents needs none)"


@dataclass(frozen=True, kw_only=True)
class Command:
    """How one child with collectors is started."""

    argv: Sequence[str]
    nodes: tuple[str, ...]
    environment: Mapping[str, str]
    become: processes.Account | None = None
    """Whom to become first; None to stay who we are."""
    narrower: Callable[[tuple[str, ...]], Command] | None = None
    """The same for fewer nodes. None where one node's silence costs the others nothing."""
    may_evaluate: bool = True
    """The owner asks: expressions run in the processes."""
    ends_itself: bool = False
    """It ends by itself soon, where its start was interrupted, and cleans up; killed at that moment it would leave a step behind."""


def last_words(noise: str, node: str) -> str:
    """Why the collector of `node` ended, by what was written to standard error.

    What names the node, else the last line of a collector itself, says more than srun's exit code of it.
    """
    lines = [_PREFIX.sub("", line).strip() for line in noise.splitlines()]
    own = [line for line in lines if line and not _EXITED.match(line)]
    of_node = [line for line in own if re.search(rf"\b{re.escape(node)}\b", line)]
    exits = [line for line in lines if _EXITED.match(line) and re.search(rf"\b{re.escape(node)}\b", line)]
    words = next(iter(of_node or own[-1:] or exits), "its collector ended").removeprefix(f"{node}: ")
    return sanitize.clean(words, 200) + (_HINT if _NO_START.search(words) else "")


_left: list[processes.Child] = []
"""Children that end by themselves after their question is over."""


@dataclass(kw_only=True)
class Collectors:
    """A child that runs, until `end`."""

    command: Command
    selector: selectors.BaseSelector
    """Both outputs are registered here with (these collectors, the work to do); its input while it has not taken all."""
    started_s: float = field(default_factory=time.monotonic)
    flows: bool = False
    """A question has reached one of them: srun hands on its input only when every node's slurmd has begun the step."""
    hello_s: float | None = None
    """When the first of them had started, monotonic."""
    hello: set[str] = field(default_factory=set)
    """Nodes whose collector has started."""
    with_output: set[str] = field(default_factory=set)
    """Nodes whose collector has started or has answered any question since the last one was asked."""
    steps: set[str] = field(default_factory=set)
    frames: dict[str, list[bytes]] = field(default_factory=dict)
    """By label, what has come of the question that was asked last."""
    too_many_steps: bool = False
    """The job has made so many steps that none was added for its silent nodes."""
    narrowed: list[Collectors] = field(default_factory=list)
    """Those that were started for the same nodes because these did not answer."""

    def __post_init__(self) -> None:
        _left[:] = [child for child in _left if child.poll() is None]
        self._number = 0
        self._question_s = self.started_s
        self._unsent = b""
        self._rest = b""
        self._noise = b""
        self._taken = 0
        self._parts: dict[str, list[bytes]] = {}
        self._names: dict[str, str] = {}
        self._labels_of: dict[str, str] = {}
        self._labels: set[str] = set()
        try:
            self.process = processes.start(
                self.command.argv,
                env=self.command.environment,
                stderr=subprocess.PIPE,
                account=self.command.become,
            )
        except OSError as exc:
            raise errors.SlurmUnavailable(
                f"{self.command.argv[0]} cannot be started: {exc.strerror}"
            ) from exc
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._in, self._out, self._err = self.process.stdin, self.process.stdout, self.process.stderr
        for pipe in (self._in, self._out, self._err):
            os.set_blocking(pipe.fileno(), False)
        self.selector.register(self._out, selectors.EVENT_READ, (self, self.take_answers))
        self.selector.register(self._err, selectors.EVENT_READ, (self, self.take_noise))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of these collectors."""
        return self.command.nodes

    @property
    def reads(self) -> bool:
        """More can come from it."""
        return not self._out.closed and self._out in self.selector.get_map()

    def expect(self, number: int) -> None:
        """From now on only an answer to that question is one."""
        self._number, self.frames, self._taken = number, {}, 0
        self._parts.clear()
        self.with_output.clear()

    def ask(self, number: int, line: bytes) -> None:
        """Gives it a question; it takes it when it can."""
        self.expect(number)
        self._question_s = time.monotonic()
        if not self._in.closed and len(self._unsent) + len(line) <= MAX_UNSENT_BYTES:
            self._unsent += line
            self.send()

    def send(self) -> None:
        """Writes what it has not taken, as far as it takes it now."""
        try:
            self._unsent = self._unsent[os.write(self._in.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""  # it has ended; what it wrote before may still be there
        is_waited_for = self._in in self.selector.get_map()
        if self._unsent and not is_waited_for:
            self.selector.register(self._in, selectors.EVENT_WRITE, (self, self._send_more))
        elif not self._unsent and is_waited_for:
            self.selector.unregister(self._in)

    def take_answers(self) -> Iterator[tuple[str, list[bytes]]]:
        """Reads once; every node that has answered whole now, with its frames."""
        chunk = self._read(self._out)
        if chunk is None:
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            node = self._line(line)
            if node is not None:
                yield node
        if len(self._rest) > MAX_LINE_BYTES:
            self._rest = b""

    def take_noise(self) -> Iterator[tuple[str, list[bytes]]]:
        """Reads standard error once; nobody answers there."""
        self._noise = (self._noise + (self._read(self._err) or b""))[-4096:]
        return iter(())

    def unanswered(self) -> Iterator[tuple[str, list[bytes]]]:
        """Frames of those that have not answered whole, with their node; of a label that has named none nothing is taken."""
        for label, frames in self.frames.items():
            if label in self._names:
                yield self._names[label], frames

    def is_stuck(self, now_s: float, hello_s: float, start_s: float) -> bool:
        """Whether its nodes seem to wait for a silent one among them: smaller steps may reach the others.

        So it is where a collector has started and the question has not reached it for `hello_s`, or where none started in `start_s`.
        """
        if self.flows or self.narrowed or self.command.narrower is None or len(self.nodes) < 2:
            return False
        if self.hello_s is None:
            return now_s - self.started_s > start_s
        return not self.hello.issuperset(self.nodes) and now_s - max(self._question_s, self.hello_s) > hello_s

    def reason(self, node: str, timeout_s: float) -> str:
        """Why the node has not answered."""
        if not self.reads:
            return last_words(self._noise.decode("utf-8", "replace"), node)
        late = f"no answer in {timeout_s:g} s"
        if self.flows or node in self.hello:
            return late
        if self.too_many_steps:
            return f"{late}: its step hangs, and the job has made too many steps to ask the node by one of its own"
        return f"{late}: its collector has not started"

    def retire(self) -> None:
        """Asks it to end and does not listen any more."""
        self.close_input()
        self.signal(signal.SIGTERM)
        self.close_outputs()

    def close_input(self) -> None:
        """Closes the collectors' input, which ends them."""
        self._forget(self._in)
        with contextlib.suppress(OSError):
            self._in.close()

    def close_outputs(self) -> None:
        """Reads no more of it."""
        for pipe in (self._out, self._err):
            self._forget(pipe)
            pipe.close()

    def signal(self, number: int) -> None:
        """Sends a signal to the collector's whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    @property
    def must_be_left(self) -> bool:
        """A signal has reached it that it heeds only when its start is over; it is not killed (see `Command.ends_itself`)."""
        return self.command.ends_itself and not self.flows and not self.hello.issuperset(self.nodes)

    def leave(self) -> None:
        """Stops waiting for the collector; the next start of any collector reaps it."""
        _left.append(self.process)

    def _send_more(self) -> Iterator[tuple[str, list[bytes]]]:
        self.send()
        return iter(())

    def _forget(self, pipe: IO[bytes]) -> None:
        """Waits for it no more."""
        if not pipe.closed and pipe in self.selector.get_map():
            self.selector.unregister(pipe)

    def _read(self, pipe: IO[bytes]) -> bytes | None:
        """What is there; None for nothing yet. At its end the pipe is waited for no more."""
        try:
            chunk = os.read(pipe.fileno(), READ_BYTES)
        except BlockingIOError:
            return None
        if not chunk:
            self._forget(pipe)
        return chunk

    def _line(self, line: bytes) -> tuple[str, list[bytes]] | None:
        """`[LABEL: ]ID +BASE64`, `ID .`, `ID ?` or `ID !NODE STEP`; anything else is noise (a site's profile that prints)."""
        head, colon, tail = line.partition(b": ")
        label, text = (head.strip(), tail) if colon and digits.is_number(head.strip()) else (b"", line)
        number, _, what = text.partition(b" ")
        if not digits.is_number(number) or not what:
            return None
        is_answer = int(number) == self._number
        name, sign = label.decode(), what[:1]
        if sign not in _SIGNS:
            return None
        if name not in self._labels and len(self._labels) > len(self.nodes):
            return None  # each node has one, and noise may have none
        self._labels.add(name)
        if sign == b"!":
            return self._named(name, what[1:].decode("ascii", "replace"), is_answer=is_answer)
        if sign == b"?":
            self.flows = True
        elif is_answer and self._has_room(len(what) - 1 if sign == b"+" else _LEAST_FRAME_CHARS):
            # An answer to an earlier question that was given up comes too late.
            if sign == b"+":
                self._parts.setdefault(name, []).append(what[1:])
            elif what == b".":
                self.frames.setdefault(name, []).append(_decoded(b"".join(self._parts.pop(name, ()))))
        return None

    def _has_room(self, chars: int) -> bool:
        """Whether so much more is kept: a child that is somebody else's may write without end."""
        self._taken += chars
        return self._taken <= MAX_FRAME_CHARS

    def _named(self, label: str, words: str, *, is_answer: bool) -> tuple[str, list[bytes]] | None:
        """A collector that has started, or one that has answered."""
        node, _, step = words.partition(" ")
        # A word of the job's owner, and root may be the one whose scancel gets it.
        number = step.strip()
        if digits.is_number(number) and len(self.steps) < len(self.nodes):
            self.steps.add(number)
        # Once a label has named its node it speaks for no other, and no other label for that one.
        if node not in self.nodes or self._labels_of.setdefault(node, label) != label:
            return None
        if self._names.setdefault(label, node) != node:
            return None
        self.hello.add(node)
        self.with_output.add(node)
        self.hello_s = self.hello_s or time.monotonic()
        if not is_answer:
            return None
        self.flows = True
        return node, self.frames.pop(label, [])


def _decoded(lines: bytes) -> bytes:
    try:
        # Every line is whole base64 of its own bytes: none but the last has padding.
        return base64.b64decode(lines, validate=True)
    except binascii.Error:
        return b""
