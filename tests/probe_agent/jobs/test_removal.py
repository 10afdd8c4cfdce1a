"""Removing what users made: whatever tree they leave, and while they go on, nothing of it stays and nothing else goes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probing_cluster.probe_agent.jobs import removal

MALLORY = 61001
PYTHON = "/usr/bin/python3"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


@pytest.fixture
def base(tmp_path: Path) -> Iterator[int]:
    """A descriptor of a directory that holds one job's directory, `7`."""
    (tmp_path / "7").mkdir()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def left(tmp_path: Path) -> list[str]:
    """What is there beside our own flat directory, and what that one holds."""
    ours = tmp_path / removal.FLAT
    return [p.name for where in (tmp_path, ours) for p in where.iterdir() if p != ours]


def nested(start: int, depth: int, name: str = "d") -> None:
    """`depth` directories within one another, below the descriptor `start`."""
    here = os.dup(start)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def test_depth_costs_neither_stack_nor_descriptors(base: int, tmp_path: Path) -> None:
    """Ten times deeper than Python's recursion, and longer than any path may be."""
    job = os.open("7", os.O_RDONLY | os.O_DIRECTORY, dir_fd=base)
    nested(job, 10 * sys.getrecursionlimit())
    os.close(job)
    assert removal.remove(base, "7", deadline_s=60)
    assert left(tmp_path) == []


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root moves a directory that nobody may write, as the agent does"
)
def test_every_name_kind_and_mode(base: int, tmp_path: Path) -> None:
    """Newlines, bytes that are no text, options, the longest names; links, pipes, sockets; what may not even be read."""
    job = tmp_path / "7"
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("keep")
    for name in (b"a\nb", b"\xff\xfe", b"-rf", b"x" * 255, b" ", b"...", b"*"):
        made = job / os.fsdecode(name)
        made.mkdir()
        (made / os.fsdecode(b"\xff" + name[:200])).write_text("x")
    (job / "link").symlink_to(precious)
    (job / "out").symlink_to("/")
    os.mkfifo(job / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(job / "s"))
    locked = job / "locked" / "inner"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    for path in (locked / "file", locked, locked.parent, job):
        path.chmod(0)
    assert removal.remove(base, "7")
    assert left(tmp_path) == ["precious"]
    assert (precious / "file").read_text() == "keep"


def test_a_file_or_a_link_in_its_place(base: int, tmp_path: Path) -> None:
    """Not a directory, and no less gone; nothing there is the caller's to know."""
    (tmp_path / "8").write_text("x")
    (tmp_path / "9").symlink_to(tmp_path / "7")
    assert removal.remove(base, "8")
    assert removal.remove(base, "9")
    assert (tmp_path / "7").is_dir()
    with pytest.raises(FileNotFoundError):
        removal.remove(base, "10")


@AS_ROOT
def test_a_user_who_goes_on_writing_delays_only_his_own_end(base: int, tmp_path: Path) -> None:
    """The name is free at once, we are not kept busy, and when he has ended the next call ends it."""
    tmp_path.chmod(0o755)
    for above in tmp_path.parents[:3]:
        above.chmod(above.stat().st_mode | 0o055)  # whatever it is: with --basetemp it may be /tmp itself
    os.chown(tmp_path / "7", MALLORY, MALLORY)
    script = (
        "import os, itertools\n"
        "os.mkdir('in'); os.chdir('in'); print('ready', flush=True)\n"
        "for n in itertools.count():\n"
        "  try:\n"
        "    os.mkdir(f'd{n}'); open(f'f{n}', 'w').close()\n"
        "  except OSError: pass\n"
    )
    writer = subprocess.Popen(
        [PYTHON, "-c", script], cwd=tmp_path / "7", user=MALLORY, group=MALLORY, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    try:
        removal.remove(base, "7", deadline_s=0.5)
        assert not (tmp_path / "7").exists()
    finally:
        writer.kill()
        writer.communicate()
    assert removal.finish(base)
    assert left(tmp_path) == []


def test_what_cannot_go_holds_up_nothing_else(
    base: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is refused stays and is tried again; the others go, and the call ends."""
    (tmp_path / "7" / "stuck").mkdir()
    (tmp_path / "8" / "fine").mkdir(parents=True)
    real = os.unlink

    def unlink(name: str, *, dir_fd: int) -> None:
        if name == "immutable":
            raise PermissionError(1, "Operation not permitted", name)
        real(name, dir_fd=dir_fd)

    (tmp_path / "7" / "immutable").write_text("x")
    with monkeypatch.context() as patched:
        patched.setattr(removal.os, "unlink", unlink)
        patched.setattr(removal, "_move", _refusing(removal._move))
        assert not removal.remove(base, "7", deadline_s=5)
        removal.remove(base, "8", deadline_s=5)
        assert len(left(tmp_path)) == 1
    assert removal.finish(base)
    assert left(tmp_path) == []


def _refusing(move: object) -> object:
    def one(source: int, name: str, flat: int) -> None:
        if name == "immutable":
            raise PermissionError(1, "Operation not permitted", name)
        move(source, name, flat)  # type: ignore[operator]

    return one


TREES = st.recursive(
    st.sampled_from(["file", "link", "pipe"]),
    lambda below: st.dictionaries(st.sampled_from("abcd"), below, max_size=4),
    max_leaves=30,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=st.dictionaries(st.sampled_from("abcd"), TREES, max_size=4))
def test_any_tree_goes(base: int, tmp_path: Path, tree: dict[str, object]) -> None:
    """Whatever is in it."""

    def grow(where: Path, what: object) -> None:
        if isinstance(what, dict):
            where.mkdir(exist_ok=True)
            for name, inner in what.items():
                grow(where / name, inner)
        elif what == "link":
            where.symlink_to(tmp_path)
        elif what == "pipe":
            os.mkfifo(where)
        else:
            where.write_text("x")

    grow(tmp_path / "7", tree)
    assert removal.remove(base, "7")
    assert left(tmp_path) == []
