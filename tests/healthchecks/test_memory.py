"""What checks remember, on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from probing_cluster.healthchecks import memory


def test_kept_and_forgotten(tmp_path: Path) -> None:
    """The same boot reads it back, another boot does not; the file is private."""
    path = tmp_path / "a/checks.json"
    first = memory.Memory(path, "boot-1")
    first.put("edac", {"seq": 5})
    first.save()
    assert memory.Memory(path, "boot-1").of("edac") == {"seq": 5}
    assert memory.Memory(path, "boot-2").of("edac") == {}
    assert path.stat().st_mode & 0o077 == 0


def test_unchanged_is_not_written(tmp_path: Path) -> None:
    """Saving the same again does not touch the disk."""
    path = tmp_path / "checks.json"
    kept = memory.Memory(path, "b")
    kept.put("a", {"x": 1})
    kept.save()
    before = path.stat().st_mtime_ns, path.stat().st_ino
    kept.put("a", {"x": 1})
    kept.save()
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_a_broken_file_is_started_anew(tmp_path: Path) -> None:
    """Garbage, or JSON of another shape, is a problem to show and an empty memory."""
    path = tmp_path / "checks.json"
    for text in ("not json", "[]", '{"boot_id": "b"}', '{"boot_id": "b", "checks": {"a": 3}}'):
        path.write_text(text)
        kept = memory.Memory(path, "b")
        assert kept.of("a") == {}
        assert kept.problem
        kept.save()
        assert memory.Memory(path, "b").problem is None


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    """Where it cannot be written it is a problem to show, and memory goes on without the disk."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    kept = memory.Memory(blocker / "checks.json", "b")
    kept.put("a", {"x": 1})
    kept.save()
    assert kept.problem
    assert kept.of("a") == {"x": 1}


def test_without_a_file(tmp_path: Path) -> None:
    """No path means memory only."""
    kept = memory.Memory(None, "b")
    kept.put("a", {"x": 1})
    kept.save()
    assert kept.of("a") == {"x": 1}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_neither_read_nor_replaced(device: str) -> None:
    """`--state /dev/zero`: reading it would never end, and root would put a file in its place."""
    kept = memory.Memory(Path(device), "b")
    kept.put("a", {"x": 1})
    kept.save()
    assert "no regular file" in (kept.problem or "")
    assert Path(device).is_char_device()
