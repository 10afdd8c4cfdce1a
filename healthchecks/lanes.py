"""Lanes: steps run one after another in a forked child, each under a deadline, none able to stop the rest.

The parent only reads pipes. A step that does not end in time costs its child; the steps behind
it go on in new children. A child that survives SIGKILL is stuck in the kernel: it is reported,
and its family is not started again while it lives. Call from a single-threaded process only.
"""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from probing_cluster.core import processes

MAX_CHILDREN = 8
"""Children alive at once; after a hang the rest of a lane is spread over this many."""

Facts = dict[str, Any]
"""Readings shared by later steps, by step key."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One piece of work done in a child. `work` gets the facts so far and returns JSON-ready values."""

    key: str
    work: Callable[[Facts], Mapping[str, Any]]
    deadline_s: float
    family: str = ""
    """What may have only one stuck child; default the key."""
    fact: bool = False
    """Whether later steps read the value."""


@dataclass(frozen=True, kw_only=True)
class StepAnswer:
    """What became of a step: a value, or why there is none."""

    key: str
    value: Mapping[str, Any] | None = None
    error: str | None = None
    timed_out: bool = False
    duration_s: float = 0.0


@dataclass(kw_only=True)
class _Lane:
    pid: int
    fd: int
    left: deque[Step]
    deadline: float
    buffer: bytearray = field(default_factory=bytearray)
    began: float = 0.0


class Lanes:
    """Runs lanes of steps; remembers stuck children from one call to the next."""

    def __init__(self, edge: processes.Edge = processes.EDGE) -> None:
        self.stuck = processes.StuckChildren(edge)
        self._answers: dict[str, StepAnswer] = {}
        self._facts: Facts = {}

    def run(
        self, lanes: Iterable[Sequence[Step]], *, watchdog_s: float
    ) -> tuple[dict[str, StepAnswer], Facts]:
        """Every step's answer and the facts. Always returns within about `watchdog_s`."""
        self._answers, self._facts = {}, {}
        waiting = deque(deque(lane) for lane in lanes if lane)
        running: dict[int, _Lane] = {}
        end = time.monotonic() + watchdog_s
        with selectors.DefaultSelector() as selector:
            while waiting or running:
                while waiting and len(running) < MAX_CHILDREN and time.monotonic() < end:
                    self._start(waiting.popleft(), running, selector)
                if time.monotonic() >= end:
                    self._give_up(waiting, running, watchdog_s)
                    break
                self._turn(waiting, running, selector, end)
        return self._answers, self._facts

    def _start(self, steps: deque[Step], running: dict[int, _Lane], selector: selectors.BaseSelector) -> None:
        ready: deque[Step] = deque()
        for step in steps:
            held = self.stuck.of(step.family or step.key)
            if held is None:
                ready.append(step)
            else:
                # Of its family only the step that hangs is overdue; of the others nothing is known.
                overdue = not step.family or held.what == _process_of(step)
                text = f"not started: {held.description}"
                self._settle(StepAnswer(key=step.key, error=text, timed_out=overdue), step)
        if not ready:
            return
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _child(ready, self._facts, write_end)
        os.close(write_end)
        lane = _Lane(pid=pid, fd=read_end, left=ready, deadline=time.monotonic() + ready[0].deadline_s)
        running[read_end] = lane
        selector.register(read_end, selectors.EVENT_READ)

    def _turn(
        self,
        waiting: deque[deque[Step]],
        running: dict[int, _Lane],
        selector: selectors.BaseSelector,
        end: float,
    ) -> None:
        if not running:
            return
        until = min(end, *(lane.deadline for lane in running.values()))
        for key, _ in selector.select(max(0.0, until - time.monotonic())):
            lane = running[key.fd]
            if not self._read(lane):
                selector.unregister(key.fd)
                del running[key.fd]
                self._ended(lane, waiting)
        for lane in [lane for lane in running.values() if time.monotonic() > lane.deadline]:
            if self._read(lane) and time.monotonic() <= lane.deadline:
                continue
            selector.unregister(lane.fd)
            del running[lane.fd]
            self._overdue(lane, waiting)

    def _read(self, lane: _Lane) -> bool:
        """Take in what the child wrote; false at its end."""
        while True:
            try:
                chunk = os.read(lane.fd, 1 << 16)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            lane.buffer += chunk
            while (cut := lane.buffer.find(b"\n")) >= 0:
                line = bytes(lane.buffer[:cut])
                del lane.buffer[: cut + 1]
                self._take(lane, json.loads(line))

    def _take(self, lane: _Lane, message: Mapping[str, Any]) -> None:
        step = lane.left.popleft()
        for pid, started in message.get("stuck", ()):
            identity = processes.ProcessIdentity(pid=pid, started=started)
            self._hold(step, identity, "a tool it started")
        self._settle(
            StepAnswer(
                key=step.key,
                value=message.get("value"),
                error=message.get("error"),
                duration_s=message["duration_s"],
                timed_out=bool(message.get("timed_out")),
            ),
            step,
        )
        lane.deadline = time.monotonic() + (lane.left[0].deadline_s if lane.left else 1.0)

    def _ended(self, lane: _Lane, waiting: deque[deque[Step]]) -> None:
        code = processes.exit_code(lane.pid, time.monotonic() + processes.KILL_GRACE_S) if lane.left else 0
        self._bury(lane, lane.left[0] if lane.left else None)
        if lane.left:
            step = lane.left.popleft()
            how = f"signal {-code}" if code is not None and code < 0 else f"exit {code}"
            self._settle(StepAnswer(key=step.key, error=f"its process died ({how})"), step)
        if lane.left:
            waiting.append(lane.left)

    def _overdue(self, lane: _Lane, waiting: deque[deque[Step]]) -> None:
        step = lane.left.popleft() if lane.left else None
        stuck = self._bury(lane, step)
        if step is not None:
            where = f"; it is {stuck.where} and cannot be killed" if stuck else ""
            text = f"no answer in {step.deadline_s:g} s{where}"
            self._settle(
                StepAnswer(key=step.key, error=text, timed_out=True, duration_s=step.deadline_s), step
            )
        # Facts stay in order before their readers; other steps no longer wait for one another.
        if any(s.fact for s in lane.left):
            waiting.append(lane.left)
        else:
            waiting.extend(deque([s]) for s in lane.left)

    def _bury(self, lane: _Lane, step: Step | None) -> processes.StuckChild | None:
        os.close(lane.fd)
        identity = self.stuck.edge.end(lane.pid)
        return self._hold(step, identity, _process_of(step)) if identity is not None else None

    def _hold(
        self, step: Step | None, identity: processes.ProcessIdentity, what: str
    ) -> processes.StuckChild:
        family = (step.family or step.key) if step else f"pid {identity.pid}"
        return self.stuck.hold(family, identity, what)

    def _settle(self, answer: StepAnswer, step: Step) -> None:
        self._answers[step.key] = answer
        if step.fact:
            lack = {"error": answer.error, "timed_out": answer.timed_out}
            self._facts[step.key] = answer.value if answer.value is not None else lack

    def _give_up(self, waiting: deque[deque[Step]], running: dict[int, _Lane], watchdog_s: float) -> None:
        text = f"the sweep's watchdog of {watchdog_s:g} s ended before it had its turn"
        begun = {lane.left[0].key for lane in running.values() if lane.left}
        for lane in running.values():
            self._bury(lane, lane.left[0] if lane.left else None)
            waiting.append(lane.left)
        for steps in waiting:
            for step in steps:
                # A fact that was not begun is unread: what it is about may be well.
                overdue = not step.fact or step.key in begun
                self._settle(StepAnswer(key=step.key, error=text, timed_out=overdue), step)


def _process_of(step: Step | None) -> str:
    """The words for a step's process; a family's other steps and the next sweep tell by them which of it hangs."""
    return f"the process for {step.key}" if step is not None and step.family else "its process"


def _child(steps: Iterable[Step], facts: Facts, out: int) -> None:
    """The child: run the steps, write what they answer, and go without cleaning up after the parent."""
    try:
        os.setsid()
        # A child that cannot be killed must not hold the caller's pipes open: `probing-check run | less` would hang with it.
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for step in steps:
            _write_all(out, _work(step, facts))
    except OSError:
        os._exit(3)  # the parent is gone: nobody to tell
    finally:
        os._exit(0)


def _work(step: Step, facts: Facts) -> bytes:
    """Run one step and encode what it answered; an exception is an answer like any other."""
    began = time.monotonic()
    try:
        value = dict(step.work(facts))
        stuck = value.pop("stuck", [])
        line = _encode({"value": value, "stuck": stuck, "duration_s": time.monotonic() - began})
    except Exception as exc:  # noqa: BLE001  (whatever a check raises is its own result: error)
        value = {"error": _words(exc), "timed_out": False}
        line = _encode({**value, "duration_s": time.monotonic() - began})
    if step.fact:
        facts[step.key] = value
    return line


def _words(exc: BaseException) -> str:
    frames = traceback.extract_tb(exc.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""  # noqa: PTH119
    return f"{type(exc).__name__}: {exc}{where}"


def _encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _write_all(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]
