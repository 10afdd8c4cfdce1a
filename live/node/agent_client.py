"""The node's agent as the job's owner asks it: for what the owner's own rights do not reach."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probing_cluster.core import peer
from probing_cluster.live.table import Missing

SOCKET = ".agent.sock"
"""In the directory of the page directories, which every user may enter and only root may write."""
MAX_ANSWER_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class AgentClient:
    """One agent's socket for owners of jobs; made without touching it."""

    path: Path
    job_id: int

    def ask(self, op: str, timeout_s: float, **fields: Any) -> dict[str, Any]:
        """The agent's answer; raises Missing with the reason where there is none."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
                link.settimeout(timeout_s)
                link.connect(str(self.path))
                # Anyone might listen on a path that root does not guard; the kernel knows who does.
                if peer.uid_of(link) not in (0, self.path.parent.stat().st_uid):
                    raise Missing(f"{self.path} is not the agent's")
                link.sendall(json.dumps({"v": 1, "op": op, "job_id": self.job_id, **fields}).encode() + b"\n")
                raw = _read(link)
            answer = json.loads(raw)
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
            raise Missing(f"the node's agent does not answer ({why})") from exc
        if not isinstance(answer, dict) or answer.get("ok") is not True:
            why = str(answer.get("error")) if isinstance(answer, dict) else "its answer is no object"
            raise Missing(f"the node's agent says: {why[:300]}")
        return answer


def _read(link: socket.socket) -> bytes:
    kept = bytearray()
    while chunk := link.recv(1 << 16):
        kept += chunk
        if len(kept) > MAX_ANSWER_BYTES:
            raise ValueError("its answer is too long")
    return bytes(kept)
