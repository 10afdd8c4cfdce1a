"""Notes that Prolog and Epilog leave beside the agent's socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent.hooks import missed
from probing_cluster.slurm_plugins.hooks import agent_call


def take(socket: Path) -> list[int]:
    heard: list[int] = []

    async def hear(request: Mapping[str, Any], _: datetime) -> None:
        heard.append(request["job_id"])

    asyncio.run(missed.take(socket, hear))
    return heard


def test_a_note_is_read_only_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that looks while the hook still writes leaves the note for its next look."""
    socket = tmp_path / "agent.sock"
    missed.prepare(socket)
    meanwhile: list[list[int]] = []
    write = os.write

    def look_and_write(file: int, raw: bytes) -> int:
        meanwhile.append(take(socket))
        return write(file, raw)

    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setattr(agent_call.posix, "write", look_and_write)
    agent_call._leave_note("epilog", b'{"v":1,"op":"epilog","job_id":77}\n', str(socket))
    assert meanwhile == [[]]
    assert take(socket) == [77]
    assert list(missed._beside(socket).iterdir()) == []
