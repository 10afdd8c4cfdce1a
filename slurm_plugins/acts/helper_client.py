"""The acts through the node helper's socket, where one is configured; see node_helper for the other end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from probing_cluster.core import clock, errors, settings
from probing_cluster.slurm_plugins import commands
from probing_cluster.slurm_plugins.acts import nodes

MAX_REQUEST_BYTES = 65536


def connect(slurm: settings.SlurmSettings, run: commands.Runner | None = None) -> nodes.Actions:
    """The acts through the helper where one is configured, otherwise by this process."""
    if slurm.helper_socket:
        return HelperActions(slurm)
    return nodes.DirectActions(slurm, run=run)


class HelperActions:
    """The acts through the helper's socket; raises SlurmUnavailable when it does not answer, SlurmAway when Slurm does not answer it."""

    def __init__(self, slurm: settings.SlurmSettings) -> None:
        self._path = slurm.helper_socket
        # The helper runs up to four commands and a few short waits for one act, and asks accounting before and after it.
        self._deadline_s = 6 * slurm.command_deadline_s + 5

    def drain(self, node: str, reason: str, reservation: str = "") -> nodes.Outcome:
        within = {"reservation": reservation} if reservation else {}
        return self._ask({"verb": "drain", "node": node, "reason": reason, **within})

    def adopt(self, node: str, reason: str) -> nodes.Outcome:
        return self._ask({"verb": "adopt", "node": node, "reason": reason})

    def resume_own(self, node: str, reservation: str = "") -> nodes.Outcome:
        within = {"reservation": reservation} if reservation else {}
        return self._ask({"verb": "resume", "node": node, **within})

    def reboot_own(self, node: str) -> nodes.Outcome:
        return self._ask({"verb": "reboot", "node": node})

    def requeue(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, expect_nodes: Iterable[str]
    ) -> nodes.Outcome:
        start_at = clock.iso_z(expect_start_at)
        return self._ask(
            {"verb": "requeue", "job_id": job_id, "start_at": start_at, "restart": expect_restart}
            | {"nodes": sorted(expect_nodes)}
        )

    def requeue_held(
        self, job_id: int, expect_start_at: datetime, expect_restart: int, *, running: bool = False
    ) -> nodes.Outcome:
        start_at = clock.iso_z(expect_start_at)
        return self._ask(
            {"verb": "requeue_held", "job_id": job_id, "start_at": start_at, "restart": expect_restart}
            | {"running": running}
        )

    def exclude(
        self, job_id: int, expect_restart: int, add: Iterable[str], remove: Iterable[str]
    ) -> nodes.Outcome:
        lists = {"add": sorted(add), "remove": sorted(remove)}
        return self._ask({"verb": "exclude", "job_id": job_id, "restart": expect_restart, **lists})

    def depend(self, job_id: int, on: int) -> nodes.Outcome:
        return self._ask({"verb": "depend", "job_id": job_id, "on": on})

    def release(self, job_id: int, expect_restart: int) -> nodes.Outcome:
        return self._ask({"verb": "release", "job_id": job_id, "restart": expect_restart})

    def _ask(self, request: Mapping[str, Any]) -> nodes.Outcome:
        # By the monotonic clock, which all processes of a machine share.
        until_s = clock.SYSTEM.monotonic_s() + self._deadline_s
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._deadline_s)
                connection.connect(self._path)
                connection.sendall(json.dumps({"v": 1, "until_s": until_s, **request}).encode() + b"\n")
                reply = json.loads(read_line(connection))
        except TimeoutError as exc:
            # It may be at the act, so what became of it is read from Slurm, as after an act that Slurm did not answer.
            raise commands.SlurmAway(f"the node helper at {self._path} is not done in time") from exc
        except (OSError, ValueError) as exc:
            raise errors.SlurmUnavailable(f"the node helper at {self._path}: {exc}") from exc
        if reply.get("away"):
            raise commands.SlurmAway(str(reply.get("error")))
        if not reply.get("ok"):
            return nodes.Outcome(state="failed", why=str(reply.get("error")))
        return nodes.Outcome(state=reply["state"], why=reply["why"], alarm=reply["alarm"])


def read_line(connection: socket.socket) -> bytes:
    """One line, or what came before the limit or the end."""
    data = b""
    while not data.endswith(b"\n") and len(data) < MAX_REQUEST_BYTES:
        piece = connection.recv(MAX_REQUEST_BYTES)
        if not piece:
            break
        data += piece
    return data
