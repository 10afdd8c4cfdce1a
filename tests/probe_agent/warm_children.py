"""Children that read a job's output, of a process that has the readers already.

Each child of an agent imports them anew, which costs more processor time than all else in a test of what it answers. Here a child is
forked off a process that has imported them, and is else the same: a process of its own with the agent's pipes, which becomes the job's
user, limits itself, and dies with the process that the agent started. What depends on the start itself is tested with the agent's own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from probing_cluster.core import processes
from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.jobs import collect, collect_child

_CLIENT = """
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
socket.send_fds(server, [json.dumps(dict(os.environ)).encode()], [0, 1, 2])
status = server.recv(1)
os._exit(status[0] if status else 1)
"""
"""What the agent starts in place of its child: gives its pipes and variables to the one that is forked, and ends as that does."""


class WarmChildren(children.Children):
    """The agent's children; those that read what a job left are forked off the process behind a socket."""

    socket: Path

    @classmethod
    def of(cls, path: Path) -> WarmChildren:
        """Children of the process that `running` has started."""
        made = cls()
        made.socket = path
        return made

    def start(
        self,
        key: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        discard_stderr: bool = False,
    ) -> processes.Child:
        """As of the agent's own."""
        if tuple(argv) == collect._CHILD:
            argv = command(self.socket)
        return super().start(key, argv, environment=environment, discard_stderr=discard_stderr)


def command(path: Path) -> list[str]:
    """What to run in place of the agent's own child."""
    return [sys.executable, "-I", "-S", "-E", "-c", _CLIENT, str(path)]


@contextlib.contextmanager
def running(path: Path) -> Iterator[Path]:
    """The process that has the readers, behind a socket at `path`; it ends with its standard input."""
    process = subprocess.Popen(
        [sys.executable, "-I", __file__, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        cwd="/",
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield path
    finally:
        process.communicate()


def _serve(path: str) -> None:
    from probing_cluster.probe_agent.jobs import collect_words, find_words, output_growth

    assert collect_words
    assert find_words
    assert output_growth
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if listener not in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _answer(connection)
        connection.close()


def _answer(connection: socket.socket) -> None:
    """Has one child answer on the pipes that come; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    variables, pipes, _, _ = socket.recv_fds(connection, 65536, 3)
    if len(pipes) < 3:  # its client is gone already
        os._exit(1)
    child = os.fork()
    if child == 0:
        connection.close()
        os.setsid()
        os.environ.clear()
        os.environ.update(json.loads(variables))
        time.tzset()
        for at, pipe in enumerate(pipes):
            os.dup2(pipe, at)
            os.close(pipe)
        status = 1
        try:
            status = collect_child.serve(collect_child.answer)
            sys.stdout.flush()
        except BaseException:  # noqa: BLE001  # as an interpreter does that ends of one
            traceback.print_exc()
            status = 1
        finally:
            os._exit(status)
    for pipe in (0, 1, *pipes):
        os.close(pipe)
    ended = os.pidfd_open(child)
    ready, _, _ = select.select([connection, ended], [], [])
    if ended not in ready:  # who asked was killed
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        connection.send(bytes([code if code >= 0 else 1]))
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
