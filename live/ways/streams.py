"""Collectors as child processes: one question to all of them, their frames as they come, a deadline that is ours."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probing_cluster.core import digits, errors, sanitize
from probing_cluster.live.table import Scan

MAX_LINE_BYTES = 1 << 16
MAX_FRAME_CHARS = 512 << 20
_PREFIX = re.compile(r"^(?:[0-9]+: )?(?:srun: |slurmstepd[^ ]*: )?(?:error: )?")
"""Who says it: the label, srun or a node's step daemon."""
NODE_SHARE = 0.8
"""Of the asker's deadline; what a node has not read by then it reports as missing, in time to be heard."""
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

    frames: list[bytes] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class Account:
    """An account to run as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Command:
    """How one child with collectors is started."""

    argv: Sequence[str]
    nodes: tuple[str, ...]
    environment: Mapping[str, str]
    become: Account | None = None
    """Whom to become first; None to stay who we are."""


@dataclass(kw_only=True)
class _Child:
    """One child with the collectors of some nodes."""

    command: Command
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    parts: dict[str, list[bytes]] = field(default_factory=dict)
    """By label, the lines of the frame that is under way."""
    noise: bytes = b""
    """The end of what it wrote to standard error."""
    hello: set[str] = field(default_factory=set)
    steps: set[str] = field(default_factory=set)


class Streams:
    """The collectors of one job, open for questions until `close`."""

    def __init__(
        self, commands: Iterable[Command], *, on_close: Callable[[set[str]], None] | None = None
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._number = 0
        self._on_close = on_close
        self._children = [self._start(command) for command in commands]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All that are asked."""
        return tuple(n for c in self._children for n in c.command.nodes)

    @property
    def steps(self) -> set[str]:
        """Slurm's numbers of the steps that answered so far."""
        return set().union(*(c.steps for c in self._children))

    def ask(self, scans: Sequence[Scan], timeout_s: float) -> Reply:
        """Asks every node; returns when all have answered, ended, or the time is over."""
        self._number += 1
        reply, end_s = Reply(), time.monotonic() + timeout_s
        question = {
            "id": self._number,
            "deadline_s": timeout_s * NODE_SHARE,
            "scans": [s.to_json() for s in scans],
        }
        line = json.dumps(question, separators=(",", ":")).encode() + b"\n"
        open_children = [c for c in self._children if self._send(c, line)]
        while open_children and time.monotonic() < end_s:
            for key, _ in self._selector.select(max(0.0, end_s - time.monotonic())):
                child, is_error = key.data
                self._take(child, is_error=is_error, fileobj=key.fileobj, reply=reply)
            open_children = [
                c for c in open_children if self._reads(c) and not reply.answered.issuperset(c.command.nodes)
            ]
        reply.missing += self._silent(reply.answered, timeout_s)
        return reply

    def close(self) -> None:
        """Ends every child: first by closing its input, then by force; never waits for a hung node."""
        for child in self._children:
            with contextlib.suppress(OSError):
                assert child.process.stdin is not None
                child.process.stdin.close()
        for stop in (None, signal.SIGTERM, signal.SIGKILL):
            left = [c for c in self._children if c.process.poll() is None]
            for child in left:
                if stop is not None:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(child.process.pid, stop)
            end_s = time.monotonic() + END_S
            while left and time.monotonic() < end_s:
                left = [c for c in left if c.process.poll() is None]
                time.sleep(0.005)
        hung = set().union(*(c.steps for c in self._children if c.process.poll() != 0))
        if self._on_close is not None and hung:
            self._on_close(hung)
        for child in self._children:
            for pipe in (child.process.stdout, child.process.stderr):
                if pipe is not None:
                    pipe.close()
        self._selector.close()

    def _start(self, command: Command) -> _Child:
        account = command.become
        switch: dict[str, Any] = {}
        if account is not None:
            switch = {"user": account.uid, "group": account.gid, "extra_groups": list(account.groups)}
        try:
            process = subprocess.Popen(
                list(command.argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(command.environment),
                start_new_session=True,
                cwd="/",
                bufsize=0,
                **switch,
            )
        except OSError as exc:
            raise errors.SlurmUnavailable(f"{command.argv[0]} cannot be started: {exc.strerror}") from exc
        child = _Child(command=command, process=process)
        for pipe, is_error in ((process.stdout, False), (process.stderr, True)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, (child, is_error))
        return child

    def _send(self, child: _Child, line: bytes) -> bool:
        assert child.process.stdin is not None
        try:
            child.process.stdin.write(line)
        except (OSError, ValueError):
            return self._reads(child)  # it has ended; what it wrote before may still be there
        return True

    def _reads(self, child: _Child) -> bool:
        """Whether more can come from it."""
        return any(key.data[0] is child and not key.data[1] for key in self._selector.get_map().values())

    def _take(self, child: _Child, *, is_error: bool, fileobj: object, reply: Reply) -> None:
        pipe = child.process.stderr if is_error else child.process.stdout
        assert pipe is not None
        chunk = pipe.read(1 << 20)
        if chunk is None:
            return
        if not chunk:
            self._selector.unregister(fileobj)  # type: ignore[arg-type]
        elif is_error:
            child.noise = (child.noise + chunk)[-4096:]
        else:
            *lines, child.rest = (child.rest + chunk).split(b"\n")
            for line in lines:
                self._line(child, line, reply)
            if len(child.rest) > MAX_LINE_BYTES:
                child.rest = b""

    def _line(self, child: _Child, line: bytes, reply: Reply) -> None:
        """`[LABEL: ]ID +BASE64`, `ID .` or `ID !NODE STEP`; anything else is noise (a site's profile that prints)."""
        head, colon, tail = line.partition(b": ")
        label, text = (head.strip(), tail) if colon and digits.is_number(head.strip()) else (b"", line)
        number, _, what = text.partition(b" ")
        if not digits.is_number(number) or not what:
            return
        if what[:1] == b"!":
            node, _, step = what[1:].decode("ascii", "replace").partition(" ")
            child.hello.add(node)
            if step.strip():
                child.steps.add(step.strip())
            if int(number) == self._number and node in child.command.nodes:
                reply.answered.add(node)
            return
        parts = child.parts.setdefault(label.decode(), [])
        if what[:1] == b"+":
            parts.append(what[1:])
        elif what == b".":
            whole = b"".join(parts)
            parts.clear()
            # An answer to an earlier question that was given up comes too late.
            if int(number) == self._number and len(whole) <= MAX_FRAME_CHARS:
                reply.frames.append(_decoded(whole))

    def _silent(self, answered: set[str], timeout_s: float) -> list[Missing]:
        found = []
        for child in self._children:
            ended = not self._reads(child)
            why = f"no answer in {timeout_s:g} s"
            if ended:
                noise = child.noise.decode("utf-8", "replace").strip().splitlines()
                words = [_PREFIX.sub("", line) for line in noise]
                why = sanitize.clean(words[0], 200) if words else "its collector ended"
            elif child.command.nodes and not child.hello:
                why = f"the step did not start in {timeout_s:g} s"
            found += [Missing(node=n, reason=why) for n in child.command.nodes if n not in answered]
        return found


def _decoded(lines: bytes) -> bytes:
    try:
        # Every line is whole base64 of its own bytes: none but the last has padding.
        return base64.b64decode(lines, validate=True)
    except binascii.Error:
        return b""
