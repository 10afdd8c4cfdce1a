"""Asks the processes of a live job for the value of an expression, on their own node and as their owner.

Nobody but the owner may: root, operators and other users are refused here, and by the process itself, which asks the kernel
who is at the other end. A process that does not answer within the deadline is reported with what keeps it, as seen from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import errors, peer, sanitize
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.inject.site._probing_probe import responder
from probing_cluster.probe_agent.jobs import guarded_reads, processes
from probing_cluster.probe_agent.ranks import make_live
from probing_cluster.probe_agent.stacks import pyspy

WARNING = "an expression runs inside the training process: while it holds the GIL the rank stands still, and nothing can stop it"
NOT_LIVE = (
    "not live: it answers only in a job started with --probing=live (or PROBING=live in its environment), once it has "
    "imported torch or probing_tables; on Python 3.14 and later --make-live makes it so"
)
MAX_REPLY_BYTES = 8 << 20
_STACK_S = 2.0
_RESPONDER = "_probing_probe/responder.py"

StackOf = Callable[[int], Mapping[str, Any]]
"""The stacks of a process by its number here, as probe_agent.stacks.pyspy.stacks gives them."""


@dataclass(frozen=True, kw_only=True)
class EvaluatedProcess:
    """A process that may be asked."""

    rank: int | None
    pid: int
    """Its number on the node; 0 when it was not found (it has ended)."""
    pid_inside: int
    """Its number in its own PID namespace, by which its socket is named."""
    pid_namespace: int | None


@dataclass(frozen=True, kw_only=True)
class PageAnswer:
    """What one process said: rows of columns, an error that its expression raised, or why there is no answer."""

    rank: int | None
    pid: int
    at_ns: int
    """When the answer came, Unix nanoseconds."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[int | float | bool | str | None]] = ()
    cut: int = 0
    """Rows that were too many."""
    error: str | None = None
    """What the expression raised in the process."""
    missing: str | None = None
    """Why nothing was answered."""


@dataclass(kw_only=True)
class _OpenQuestion:
    process: EvaluatedProcess
    link: socket.socket
    listener_pid: int
    reply: bytes = b""


def evaluate(
    directory: Path,
    uid: int,
    expression: str,
    targets: Sequence[EvaluatedProcess],
    *,
    deadline_s: float = 3.0,
    stack_of: StackOf | None = None,
    may_make_live: bool = False,
) -> list[PageAnswer]:
    """The answers of `targets`, in their order, within about `deadline_s` and two seconds for looking at the silent.

    `may_make_live`: those that were not started live are made so first, where their Python can. `directory` is the job's page directory, `uid` the job's owner. Raises NotPermitted for anybody else than the owner,
    UsageError for an expression that is none.
    """
    if os.geteuid() != uid:
        raise errors.NotPermitted(
            f"uid {os.geteuid()} may not evaluate in a job of uid {uid}: only the job's owner may; "
            "tables can be read by operators, too"
        )
    check(expression)
    question = json.dumps({"expression": expression}).encode() + b"\n"
    end_s = time.monotonic() + deadline_s
    answers: dict[EvaluatedProcess, PageAnswer] = {}
    open_questions = []
    not_made: Mapping[int, str] = {}
    if may_make_live:
        sockets = [(t.pid, _socket_of(directory, t)) for t in targets]
        asleep = [(pid, path) for pid, path in sockets if pid > 0 and not path.exists()]
        not_made = make_live.make_live(asleep, end_s - deadline_s / 2)
    for process in targets:
        found = not_made.get(process.pid) or _connect(directory, uid, process, question)
        if isinstance(found, _OpenQuestion):
            open_questions.append(found)
        else:
            answers[process] = _missing(process, found)
    silent = _collect(open_questions, answers, end_s)
    look = stack_of or _own_look
    for one in silent:
        one.link.close()
        answers[one.process] = _missing(one.process, why_silent(one.listener_pid, deadline_s, look))
    return [answers[process] for process in targets]


def check(expression: str) -> None:
    """Raises UsageError unless the text is an expression, and not a long one."""
    if len(expression.encode("utf-8", "replace")) > responder.MAX_QUESTION_BYTES // 8:
        raise errors.UsageError("the expression is longer than 8 KiB")
    try:
        compile(expression.strip(), "<expression>", "eval")
    except (SyntaxError, ValueError) as exc:
        # By this Python's grammar: the job's may know less, and then says so itself.
        raise errors.UsageError(f"not an expression: {exc}") from exc


def _socket_of(directory: Path, process: EvaluatedProcess) -> Path:
    return directory / responder.name_of(process.pid_inside, process.pid_namespace or 0)


def _connect(directory: Path, uid: int, process: EvaluatedProcess, question: bytes) -> _OpenQuestion | str:
    """A connection with the question on its way; or why there is none."""
    path = _socket_of(directory, process)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        link.connect(str(path))
        if peer.uid_of(link) != uid:
            raise PermissionError("its socket is another user's")
        link.send(question)
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return _OpenQuestion(
            process=process, link=link, listener_pid=int.from_bytes(raw[:4], "little", signed=True)
        )
    except FileNotFoundError:
        reason = NOT_LIVE
    except ConnectionRefusedError:
        reason = "its process has ended"
    except BlockingIOError:
        reason = "too many earlier questions wait for it"
    except OSError as exc:
        reason = f"it cannot be asked: {exc.strerror or exc}"
    link.close()
    return reason


def _collect(
    open_questions: Sequence[_OpenQuestion], answers: dict[EvaluatedProcess, PageAnswer], end_s: float
) -> list[_OpenQuestion]:
    """Reads replies until all are there or the time is over; those that did not answer."""
    waiting = {one.link.fileno(): one for one in open_questions}
    with selectors.DefaultSelector() as selector:
        for one in open_questions:
            selector.register(one.link, selectors.EVENT_READ, one)
        while waiting and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                one = key.data
                with contextlib.suppress(BlockingIOError):
                    answer = _read(one)
                    if answer is not None:
                        answers[one.process] = answer
                        selector.unregister(one.link)
                        del waiting[one.link.fileno()]
                        one.link.close()
    return list(waiting.values())


def _read(one: _OpenQuestion) -> PageAnswer | None:
    """The answer once it is whole; None while it is not."""
    try:
        part = one.link.recv(1 << 18)
    except ConnectionResetError:
        part = b""
    one.reply += part
    if part and len(one.reply) <= MAX_REPLY_BYTES and not one.reply.endswith(b"\n"):
        return None
    if not one.reply:
        return _missing(one.process, "its process ended, or closed the connection, before it answered")
    try:
        return _answer(one.process, json.loads(one.reply))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return _missing(one.process, "its answer is none: something else than the probe sits on its socket")


def _answer(process: EvaluatedProcess, reply: Mapping[str, Any]) -> PageAnswer:
    at_ns = time.time_ns()
    if "error" in reply:
        error = sanitize.clean(str(reply["error"]), responder.MAX_CHARS)
        return PageAnswer(rank=process.rank, pid=process.pid, at_ns=at_ns, error=error)
    columns = [sanitize.clean(str(c), 64) or f"column{n}" for n, c in enumerate(reply["columns"])]
    rows = [[_cell(c) for c in row[: len(columns)]] for row in reply["rows"][: responder.MAX_ROWS]]
    if len(columns) > responder.MAX_COLUMNS or any(len(row) != len(columns) for row in rows):
        raise ValueError("shape")
    return PageAnswer(
        rank=process.rank,
        pid=process.pid,
        at_ns=at_ns,
        columns=tuple(columns),
        rows=tuple(map(tuple, rows)),
        cut=max(0, int(reply["cut"])),
    )


def _cell(value: Any) -> int | float | bool | str | None:
    if isinstance(value, str):
        return sanitize.clean(value, responder.MAX_CHARS)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value
    raise ValueError("cell")


def _missing(process: EvaluatedProcess, reason: str) -> PageAnswer:
    return PageAnswer(rank=process.rank, pid=process.pid, at_ns=time.time_ns(), missing=reason)


def why_silent(pid: int, waited_s: float, look: StackOf) -> str:
    """What keeps a process from answering, as /proc and its stacks show it from outside."""
    try:
        found = processes.facts(pid) if pid > 0 else None
    except guarded_reads.ProcessHangs:
        return f"no answer in {waited_s:g} s: the kernel does not answer about the process, which hangs in an exec"
    if found is None or found.state == "Z":
        return "no answer: its process has ended"
    if found.state == "t":
        return f"no answer in {waited_s:g} s: the process is held by a tracer (a debugger, strace)"
    if found.state == "T":
        return f"no answer in {waited_s:g} s: the process is stopped by a signal"
    if found.state == "D":
        return f"no answer in {waited_s:g} s: its main thread sleeps uninterruptibly in the kernel ({found.wchan or 'unknown'})"
    observed = look(pid)
    if "stack_error" in observed:
        return f"no answer in {waited_s:g} s; its stack could not be seen: {observed['stack_error']}"
    holder = observed.get("gil_stack") or (observed["stack"] if observed.get("holds_gil") else ())
    asking = any(_is_asking(stack) for stack in observed.get("other_stacks") or ())
    if holder and _is_asking(holder):
        return f"no answer: this expression, or one before it, has held the GIL for {waited_s:g} s; the rank stands still until it ends"
    if holder:
        return f"no answer: GIL held for {waited_s:g} s at {holder[0]['file']}:{holder[0]['line']}"
    if asking:
        return f"no answer: this expression, or one before it, has not ended after {waited_s:g} s"
    return f"no answer in {waited_s:g} s, and no thread was seen holding the GIL"


def _is_asking(stack: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a stack is the responder's while it evaluates; it sleeps in `_serve` otherwise."""
    return any(
        str(f["file"]).endswith(_RESPONDER) and f["function"] in ("_reply", "_columns", "_scalar")
        for f in stack
    )


def _own_look(pid: int) -> Mapping[str, Any]:
    """By py-spy with our own rights; under Yama these do not reach, and the node's agent must look."""

    async def look() -> Mapping[str, Any]:
        try:
            return await asyncio.wait_for(pyspy.stacks(children.Children(), pid, os.getuid()), _STACK_S)
        except TimeoutError:
            return {"stack_error": f"py-spy did not end within {_STACK_S:g} s"}

    return asyncio.run(look())
