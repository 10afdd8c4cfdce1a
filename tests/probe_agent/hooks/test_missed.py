"""Notes that Prolog and Epilog leave beside the agent's socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.probe_agent.hooks import missed
from probing_cluster.slurm_plugins.hooks import agent_call


def take(socket: Path, only: Collection[Path] | None = None) -> list[int]:
    received: list[int] = []

    async def hear(request: Mapping[str, Any], _: datetime) -> None:
        received.append(request["job_id"])

    asyncio.run(missed.take(socket, hear, only=only))
    return received


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
    agent_call._leave_note("epilog", b'{"v":1,"op":"epilog","job_id":77}\n', str(socket), 1.0)
    assert meanwhile == [[]]
    assert take(socket) == [77]
    assert list(missed._beside(socket).iterdir()) == []


def test_a_running_agent_takes_the_notes_of_its_last_look(tmp_path: Path) -> None:
    """A note that came since waits: its hook may still be answered."""
    socket = tmp_path / "agent.sock"
    missed.prepare(socket)
    older, newer = (missed._beside(socket) / f"{n}.1.epilog" for n in (7, 8))
    older.write_text('{"job_id": 7}')
    newer.write_text('{"job_id": 8}')
    assert take(socket, only=[older]) == [7]
    assert take(socket, only=[older]) == []
    assert take(socket, only=[newer]) == [8]
