"""Every process the agent starts, and what becomes of one that will not end.

A call that can hang is made by a child, never a thread. Children are started, killed and, where they survive SIGKILL (D state),
remembered by core/processes.py; here an event loop waits for them. One past its deadline is killed with its whole process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from probing_cluster.core import processes, sanitize

_REAP_S = 2.0
"""How long a killed child is waited for before it counts as stuck."""
_MAX_REPLY_BYTES = 8 * 1024 * 1024
MAX_STUCK, MAX_STUCK_IN_ALL = 4, 16
"""Children of one kind that may be stuck in the kernel (a dead file server) before no more are started: for one user, who may serve
files that never answer, and for all users. Beyond, each user may still have one."""


class ChildHung(processes.ChildFailed):
    """A child process outlived its deadline."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a one-shot command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def ending(self) -> str:
        """Its exit status and the last line that it wrote to standard error, bounded and safe to log."""
        last = self.stderr.decode("utf-8", "replace").rstrip().rpartition("\n")[2]
        return f"exit status {self.returncode}, {sanitize.clean(last, 200) or 'and nothing on stderr'}"


@dataclass(kw_only=True)
class Children:
    """The agent's children by key, and those that cannot be killed."""

    stuck: processes.StuckChildren = field(default_factory=processes.StuckChildren)

    @property
    def hung(self) -> tuple[str, ...]:
        """Keys whose killed child is still there; asking reaps those that have gone."""
        return tuple(key for key, _ in self.stuck.items())

    def may_start(self, kind: str, uid: int) -> bool:
        """Whether another child may be started for a user; the keys of its kind are `<kind> <uid> <number>`."""
        stuck = [key for key in self.hung if key.startswith(f"{kind} ")]
        n_of_user = sum(key.startswith(f"{kind} {uid} ") for key in stuck)
        return n_of_user < (MAX_STUCK if len(stuck) < MAX_STUCK_IN_ALL else 1)

    def start(
        self,
        key: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        discard_stderr: bool = False,
    ) -> processes.Child:
        """A child in a session of its own; raises ChildHung while the last of this key is stuck."""
        if (held := self.stuck.of(key)) is not None:
            raise ChildHung(f"{key}: the previous one is {held.where} (pid {held.identity.pid})")
        try:
            return processes.start(
                argv,
                env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", **(environment or {})},
                stderr=subprocess.DEVNULL if discard_stderr else subprocess.PIPE,
            )
        except OSError as exc:
            raise processes.ChildFailed(f"{key}: {argv[0]}: {exc.strerror}") from exc

    async def run(
        self,
        key: str,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes = b"",
        max_bytes: int = _MAX_REPLY_BYTES,
        environment: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run one command to its end; raises ChildHung past `deadline_s`, processes.ChildFailed when it cannot start.

        `environment`: variables beside PATH, LC_ALL=C and TZ=UTC, or in place of them.
        """
        child = self.start(key, argv, environment=environment)
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            async with asyncio.timeout(deadline_s):
                async with asyncio.TaskGroup() as group:
                    group.create_task(_feed(child.stdin, stdin))
                    out = group.create_task(_drain(child.stdout.fileno(), max_bytes))
                    err = group.create_task(_drain(child.stderr.fileno(), 65536))
                await _ended(child)
        except TimeoutError as exc:
            await self.kill(key, child)
            raise ChildHung(f"{key}: no answer within {deadline_s:g} s") from exc
        except BaseException:
            await self.kill(key, child)
            raise
        finally:
            for pipe in (child.stdin, child.stdout, child.stderr):
                pipe.close()
        return Finished(returncode=child.returncode, stdout=out.result(), stderr=err.result())

    async def kill(self, key: str, child: processes.Child) -> None:
        """SIGKILL the child's whole group; if it does not die, remember it as stuck."""
        identity = processes.identify(child.pid)
        self.stuck.edge.kill_group(child.pid)
        waited_s = 0.0
        try:
            while child.poll() is None and waited_s < _REAP_S:
                await asyncio.sleep(0.01)
                waited_s += 0.01
        finally:
            # Also where the wait is cancelled, as at the agent's end: nobody else would collect the child.
            if child.poll() is None and identity is not None:
                self.stuck.hold(key, identity, "the child")
                child.returncode = -signal.SIGKILL  # from here on the list collects it, not Popen


class Lane:
    """One resident child that answers one JSON line per JSON line; restarted when it fails."""

    def __init__(
        self,
        children: Children,
        key: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._children = children
        self._argv = tuple(argv)
        self._environment = dict(environment or {})
        self._child: processes.Child | None = None
        self._busy = asyncio.Lock()
        self.key = key

    async def ask(self, request: Mapping[str, Any], *, deadline_s: float, key: str = "") -> dict[str, Any]:
        """The child's answer; raises ChildHung past the deadline (the child is killed), processes.ChildFailed when it died.

        A child that answers for many is remembered as stuck under the `key` of the one it hung for.
        """
        key = key or self.key
        async with self._busy:
            child = self._child or self._children.start(
                self.key, self._argv, environment=self._environment, discard_stderr=True
            )
            self._child = child
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                async with asyncio.timeout(deadline_s):
                    await _write(child.stdin.fileno(), json.dumps(request).encode() + b"\n")
                    return answer_of(await _line(child.stdout.fileno()))
            except TimeoutError as exc:
                await self._drop(child, key)
                raise ChildHung(f"{key}: no answer within {deadline_s:g} s") from exc
            except (OSError, ValueError) as exc:
                await self._drop(child, key)
                raise processes.ChildFailed(f"{key}: {exc}") from exc
            except BaseException:
                await self._drop(child, key)
                raise

    async def close(self) -> None:
        """End the child."""
        if self._child is not None:
            await self._drop(self._child, self.key)

    @property
    def pid(self) -> int | None:
        """The child's process id while one runs."""
        return None if self._child is None else self._child.pid

    async def _drop(self, child: processes.Child, key: str) -> None:
        self._child = None
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.close()
        child.stdout.close()
        await self._children.kill(key, child)


async def _ended(child: processes.Child) -> None:
    """Waits until the child is reaped: its pipes are closed, so this takes microseconds."""
    while child.poll() is None:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.002)


def answer_of(line: bytes) -> dict[str, Any]:
    """The answer of a child. It may run as a job's owner, who can make it answer anything: raises ValueError unless it is a JSON object."""
    try:
        answer = json.loads(line)
    except RecursionError as exc:
        raise ValueError("the answer is nested too deeply") from exc
    if not isinstance(answer, dict):
        raise ValueError("the answer is no object")  # noqa: TRY004 - a malformed answer, like any other
    return answer


async def _feed(pipe: IO[bytes], data: bytes) -> None:
    """Write a command's input and close it."""
    with contextlib.suppress(
        BrokenPipeError
    ):  # a command that reads no input; its exit status tells the rest
        await _write(pipe.fileno(), data)
        pipe.close()


async def _write(fd: int, data: bytes) -> None:
    """Write piece by piece, as the other end reads: a pipe holds 64 KiB or less, and a write of more would hold up the event loop."""
    os.set_blocking(fd, False)
    loop, left = asyncio.get_running_loop(), memoryview(data)
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            await _ready(fd, loop.add_writer, loop.remove_writer)


async def readable(fd: int) -> None:
    """Waits until the descriptor has something to read or its other end is closed."""
    loop = asyncio.get_running_loop()
    await _ready(fd, loop.add_reader, loop.remove_reader)


async def _ready(fd: int, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    add(fd, wake)
    try:
        await ready
    finally:
        remove(fd)


async def _drain(fd: int, max_bytes: int) -> bytes:
    """What arrives until the other end closes; beyond `max_bytes` it is read and thrown away."""
    kept = bytearray()
    while True:
        await readable(fd)
        chunk = os.read(fd, 65536)
        if not chunk:
            return bytes(kept)
        kept += chunk[: max(0, max_bytes - len(kept))]


async def _line(fd: int) -> bytes:
    kept = bytearray()
    while True:
        await readable(fd)
        chunk = os.read(fd, 65536)
        if not chunk:
            raise ValueError("it ended without an answer")
        kept += chunk
        if kept.endswith(b"\n"):
            return bytes(kept)
        if len(kept) > _MAX_REPLY_BYTES:
            raise ValueError("its answer is too long")
