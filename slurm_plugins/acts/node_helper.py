"""The one small process with the right to touch nodes; the service itself is only an operator.

It runs as SlurmUser or root, listens on a Unix socket, knows the caller by the kernel's word, and accepts one JSON
object a line of nine verbs: drain, adopt, resume, reboot, requeue; requeue_held, exclude, depend, release. Every act is one line of audit.

    python -I -m probing_cluster.slurm_plugins.acts.node_helper --socket PATH --allow-user NAME
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import pwd
import select
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from probing_cluster.core import clock, command_line, errors, logs, peer, sanitize, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import helper_client, nodes

LOG = logging.getLogger("probing.helper")
REQUEST_DEADLINE_S = 5.0


class Helper:
    """Answers requests one after the other; two acts never overlap."""

    def __init__(self, actions: nodes.Actions, allowed_uids: frozenset[int]) -> None:
        self._actions = actions
        self._allowed = allowed_uids

    def answer(self, line: bytes, uid: int) -> dict[str, Any]:
        """The reply to one request of the user `uid`."""
        if uid not in self._allowed:
            LOG.warning("refused uid %d", uid)
            return {"v": 1, "ok": False, "error": f"uid {uid} may not ask"}
        try:
            request = json.loads(line)
            outcome = self._do(request)
        except commands.SlurmAway as exc:
            LOG.info("uid %d asked %s: not known, %s", uid, json.dumps(request, sort_keys=True), exc)
            return {"v": 1, "ok": False, "away": True, "error": str(exc)}
        except (ValueError, KeyError, TypeError, RecursionError, errors.ProbingError) as exc:
            return {"v": 1, "ok": False, "error": f"not a request: {type(exc).__name__}: {exc}"}
        LOG.info("uid %d asked %s: %s", uid, json.dumps(request, sort_keys=True), outcome.state)
        return {"v": 1, "ok": True, "state": outcome.state, "why": outcome.why, "alarm": outcome.alarm}

    def _do(self, request: Mapping[str, Any]) -> nodes.Outcome:
        verbs: dict[str, Callable[[], nodes.Outcome]] = {
            "drain": lambda: self._actions.drain(
                _text(request, "node"), _text(request, "reason"), _within(request)
            ),
            "adopt": lambda: self._actions.adopt(_text(request, "node"), _text(request, "reason")),
            "resume": lambda: self._actions.resume_own(_text(request, "node"), _within(request)),
            "reboot": lambda: self._actions.reboot_own(_text(request, "node")),
            "requeue": lambda: self._actions.requeue(
                int(request["job_id"]),
                datetime.fromisoformat(_text(request, "start_at")),
                int(request["restart"]),
                _names(request, "nodes"),
            ),
            "requeue_held": lambda: self._actions.requeue_held(
                int(request["job_id"]),
                datetime.fromisoformat(_text(request, "start_at")),
                int(request["restart"]),
                running=request.get("running") is True,
            ),
            "exclude": lambda: self._actions.exclude(
                int(request["job_id"]),
                int(request["restart"]),
                _names(request, "add"),
                _names(request, "remove"),
            ),
            "depend": lambda: self._actions.depend(int(request["job_id"]), int(request["on"])),
            "release": lambda: self._actions.release(int(request["job_id"]), int(request["restart"])),
        }
        verb = request["verb"]
        if verb not in verbs:
            raise errors.UsageError(f"no verb {verb!r}; there are {', '.join(verbs)}")
        if float(request.get("until_s", math.inf)) < clock.SYSTEM.monotonic_s():
            raise errors.UsageError("its caller no longer waits for it")
        return verbs[verb]()

    def serve(self, listener: socket.socket) -> None:
        """Answers until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self._converse(connection)
                except OSError as exc:
                    LOG.warning("a caller hung up: %s", exc)

    def _converse(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_DEADLINE_S)
        uid = peer.uid_of(connection)
        line = helper_client.read_line(connection)
        if _has_gone(connection):
            # Requests wait while another is answered. Who gave up has recorded that nothing was done, or asks again.
            LOG.info(
                "uid %d gave up before its turn: %s",
                uid,
                sanitize.clean(line.decode("utf-8", "replace"), 300),
            )
            return
        reply = self.answer(line, uid)
        connection.sendall(json.dumps(reply).encode() + b"\n")


def _has_gone(connection: socket.socket) -> bool:
    """Whether the caller has hung up; one that only ended its request still waits for the reply."""
    poll = select.poll()
    poll.register(connection, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def listen(path: Path, allowed_uid: int) -> socket.socket:
    """The helper's socket, mode 0600, owned by the one user who may ask; raises NotPermitted for an open directory."""
    directory = path.parent.stat()
    if directory.st_uid not in {0, os.geteuid()} or directory.st_mode & 0o022:
        raise errors.NotPermitted(
            f"{path.parent} must belong to root or to us and be writable by nobody else"
        )
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    os.chown(path, allowed_uid, -1)
    listener.listen(16)
    return listener


def _within(request: Mapping[str, Any]) -> str:
    """The reservation of ours in which the act is done; empty for none."""
    return _text(request, "reservation") if "reservation" in request else ""


def _text(request: Mapping[str, Any], key: str) -> str:
    value = request[key]
    if not isinstance(value, str):
        raise errors.UsageError(f"{key} must be text")
    return value


def _names(request: Mapping[str, Any], key: str) -> list[str]:
    value = request[key]
    if not isinstance(value, list):
        raise errors.UsageError(f"{key} must be a list")
    return [str(name) for name in value]


def main(argv: list[str] | None = None) -> int:
    """Serves until it is ended; the exit status of the process."""
    parser = argparse.ArgumentParser(prog="probing-node-helper", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--allow-user", required=True, help="the account of probing-ctl serve")
    parser.add_argument("--config", type=Path, default=None)
    command_line.add_version(parser)
    options = parser.parse_args(argv)
    logs.configure()
    try:
        config = settings.load(options.config)
        uid = pwd.getpwnam(options.allow_user).pw_uid
        helper = Helper(nodes.DirectActions(config.slurm), frozenset({0, os.geteuid(), uid}))
        with listen(options.socket, uid) as listener:
            helper.serve(listener)
    except KeyError:
        sys.stderr.write(f"no user {options.allow_user!r}\n")
        return 2
    except errors.ProbingError as exc:
        sys.stderr.write(f"{exc}\n")
        return exc.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
