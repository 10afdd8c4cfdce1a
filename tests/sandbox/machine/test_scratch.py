"""Directories for throwaway sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.sandbox.machine import layout, scratch


def test_a_scratch_directory_can_hold_a_sandbox_and_goes_away() -> None:
    """Short enough for sockets, open to other accounts, ours alone to write, and removed afterwards."""
    with scratch.directory() as directory:
        layout.check(directory / "box", 64, 16)
        layout.require_own(directory)
        assert directory.stat().st_mode & 0o777 == 0o755
        (directory / "something").touch()
    assert not directory.exists()


def test_without_room_in_memory_it_lies_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small /dev/shm, as containers have, is left alone; an error inside the block is not swallowed."""
    monkeypatch.setattr(scratch, "_ROOM_BYTES", 2**80)
    with scratch.directory() as directory:
        assert directory.parent != Path("/dev/shm")
    monkeypatch.setattr(scratch, "_MEMORY", Path("/no/such/place"))
    with pytest.raises(OSError, match="inside"), scratch.directory():
        raise OSError("inside")
