"""A copy of a log has its name only when it is whole."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.probe_agent.jobs import log_copy

MOST = 1 << 20
LOG = b"step\n" * 200_000


@pytest.fixture
def source(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "out").write_bytes(LOG)
    fd = os.open(tmp_path / "out", os.O_RDONLY)
    yield fd
    os.close(fd)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("call", ["write", "fsync", "link"])
def test_a_killed_child_leaves_no_copy_and_the_next_one_makes_it(
    tmp_path: Path, source: int, call: str
) -> None:
    """At its deadline on a slow file server: half a copy must not pass for the log of that start."""
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from probing_cluster.probe_agent.jobs import log_copy\n"
        "def die(*given, **named):\n"
        "    if sys.argv[1] == 'write': real(given[0], given[1][:1000])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "real = os.write; setattr(os, sys.argv[1], die)\n"
        "log_copy.make(os.open('out', os.O_RDONLY), Path('out.start1').absolute(), 1 << 20)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, call], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert names(tmp_path) == ["out", "out.start1.part"]
    log_copy.make(source, tmp_path / "out.start1", MOST)
    assert (tmp_path / "out.start1").read_bytes() == LOG
    assert names(tmp_path) == ["out", "out.start1"]
    assert (tmp_path / "out.start1").stat().st_nlink == 1


def test_a_child_that_is_killed_once_the_copy_has_its_name_leaves_a_second_one_for_a_while(
    tmp_path: Path, source: int
) -> None:
    """The next request removes it and leaves the copy as it is."""
    copy = tmp_path / "out.start1"
    copy.write_bytes(b"the first start")
    (tmp_path / "out.start1.part").hardlink_to(copy)
    log_copy.make(source, copy, MOST)
    assert copy.read_bytes() == b"the first start"
    assert names(tmp_path) == ["out", "out.start1"]


def test_a_full_disk_leaves_neither_copy_nor_part(tmp_path: Path) -> None:
    """It takes a part of the last block: that the rest is missing must not pass for a copy."""
    (tmp_path / "out").write_bytes(b"x" * 1500)
    code = (
        "import os, resource; from pathlib import Path; from probing_cluster.probe_agent.jobs import log_copy\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    log_copy.make(os.open('out', os.O_RDONLY), Path('out.start1').absolute(), 1 << 20)\n"
        "except OSError:\n    print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "left", [b"", b"the next start\n", b"the next start writes as much again\n" * 40_000]
)
def test_a_log_that_is_truncated_meanwhile_gives_no_copy(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch, left: bytes
) -> None:
    """A restart does not wait for a node that is slow: what is copied from then on is the next start's."""
    real = os.fsync

    def fsync(fd: int) -> None:
        (tmp_path / "out").write_bytes(left)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(log_copy.Changed):
        log_copy.make(source, tmp_path / "out.start1", MOST)
    assert names(tmp_path) == ["out"]


def test_a_log_that_becomes_shorter_gives_no_copy(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes that were there at the beginning are not there to be read."""
    (tmp_path / "out").write_bytes(LOG * 3)
    real = os.write

    def write(fd: int, data: bytes) -> int:
        os.truncate(tmp_path / "out", 100)
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(log_copy.Changed, match="shorter"):
        log_copy.make(source, tmp_path / "out.start1", len(LOG) * 3)
    assert names(tmp_path) == ["out"]


def test_two_nodes_that_copy_at_once_leave_one_whole_copy(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower one's unfinished file is replaced by the other's; it gives its name to neither."""
    real = os.fsync
    copy = tmp_path / "out.start1"

    def fsync(fd: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        log_copy.make(source, copy, MOST)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    log_copy.make(source, copy, 10)
    assert copy.read_bytes() == LOG
    assert names(tmp_path) == ["out", "out.start1"]


def test_a_file_system_without_hard_links_gets_its_copy(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By renaming, which replaces what another node has put there meanwhile."""

    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    log_copy.make(source, tmp_path / "out.start1", MOST)
    assert (tmp_path / "out.start1").read_bytes() == LOG
    assert names(tmp_path) == ["out", "out.start1"]


def test_a_part_that_is_another_file_stays_beside_a_finished_copy(tmp_path: Path, source: int) -> None:
    """It is of a node that still copies, and removes it itself."""
    copy = tmp_path / "out.start1"
    copy.write_bytes(b"the first start")
    (tmp_path / "out.start1.part").write_bytes(b"the fir")
    log_copy.make(source, copy, MOST)
    assert copy.read_bytes() == b"the first start"
    assert (tmp_path / "out.start1.part").read_bytes() == b"the fir"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file to another user")
def test_a_name_that_another_user_took_is_no_copy(tmp_path: Path, source: int) -> None:
    """In a directory where both may write: the next start would truncate the log, and no copy be there."""
    copy = tmp_path / "out.start1"
    copy.write_bytes(b"not the log")
    os.chown(copy, 12345, 12345)
    with pytest.raises(FileExistsError):
        log_copy.make(source, copy, MOST)
    copy.unlink()
    copy.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        log_copy.make(source, copy, MOST)


def test_another_nodes_half_is_neither_named_nor_removed(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node began anew meanwhile, on a file system without hard links."""
    part = tmp_path / "out.start1.part"

    def replaced(*_given: object, **_named: object) -> None:
        part.unlink()
        part.write_bytes(b"half")
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", replaced)
    with pytest.raises(OSError, match="no hard links"):
        log_copy.make(source, tmp_path / "out.start1", MOST)
    assert names(tmp_path) == ["out", "out.start1.part"]
    assert part.read_bytes() == b"half"
