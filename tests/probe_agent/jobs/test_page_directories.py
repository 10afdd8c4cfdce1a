"""A job that fills the file system of all jobs' pages blinds nobody else, on a real tmpfs and as real other users."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.probe_agent.inject.site._probing_probe import layout
from probing_cluster.probe_agent.jobs import page_directories, removal
from probing_cluster.sandbox.machine import mounts

MALLORY, VICTIM = 61001, 61002
PYTHON = "/usr/bin/python3"
SITE = Path(layout.__file__).parents[1]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount and to become other users")


@pytest.fixture
def base() -> Iterator[Path]:
    """A tmpfs of 16 MiB and 4,000 inodes, where every user may come."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        where = Path(directory) / "jobs"
        where.mkdir()
        try:
            mounts.mount("pages", where, "tmpfs", "size=16m,nr_inodes=4000,mode=0711")
        except PermissionError:
            pytest.skip("may not mount here")
        yield where
        mounts.unmount_below(where)


def as_user(uid: int, script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-c", script], user=uid, group=uid, cwd="/", capture_output=True, text=True, check=False,
        env={"PROBING_PAGE_DIR": str(directory), "PYTHONPATH": str(SITE), "SLURM_JOB_ID": "8"}, timeout=60,
    )  # fmt: skip


FILL = {
    "bytes": """
import os
fd = os.open(os.environ["PROBING_PAGE_DIR"] + "/f", os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(fd, bytes(4096))
except OSError: pass
""",
    "inodes": """
import os, itertools
try:
    for n in itertools.count(): os.mkdir(os.environ["PROBING_PAGE_DIR"] + f"/d{n}")
except OSError: pass
""",
}
PROBE = """
import os
from _probing_probe import page
for n in range(3):
    if os.fork() == 0:
        page.open_page()
        os._exit(0 if page._words is not None else 1)
assert all(os.wait()[1] == 0 for _ in range(3))
"""


@pytest.mark.parametrize("what", FILL)
def test_a_full_file_system_blinds_no_other_job(base: Path, what: str) -> None:
    """Mallory's job takes every byte, or every inode: another user's next job has its directory and its pages all the same."""
    pages = page_directories.PageDirectories(base)
    pages.tidy()
    done = as_user(MALLORY, FILL[what], pages.make(7, MALLORY, MALLORY))
    assert done.returncode == 0, done.stderr
    free = os.statvfs(base)
    assert min(free.f_bfree, free.f_ffree) == 0, "it is full"
    made = pages.make(8, VICTIM, VICTIM)
    done = as_user(VICTIM, PROBE, made)
    assert done.returncode == 0, done.stderr
    assert len(list(made.glob("*.page"))) == 3
    assert {p.stat().st_uid for p in made.iterdir()} == {VICTIM}
    pages.remove(7)
    assert pages.tidy()
    assert len([p for p in (base / page_directories.POOL).iterdir() if p.suffix != ".new"]) >= 2


def test_nobody_reaches_what_lies_ready(base: Path) -> None:
    """Prepared pages and what is being removed are root's alone."""
    pages = page_directories.PageDirectories(base)
    pages.tidy()
    for name in (page_directories.POOL, removal.FLAT):
        assert (base / name).stat().st_mode & 0o7777 == 0o700
        assert (base / name).stat().st_uid == 0


def test_what_lies_ready_is_a_small_part_of_it(base: Path) -> None:
    """An eighth of the file system at most, whatever its size."""
    pages = page_directories.PageDirectories(base)
    pages.tidy()
    status = os.statvfs(base)
    assert 0 < (status.f_blocks - status.f_bfree) * status.f_frsize <= 16 * 2**20 // 8 + 2**20


def test_where_nothing_bounds_them_nothing_lies_ready(tmp_path: Path) -> None:
    """A directory on a disk of the node's own has room, or the node has other worries."""
    pages = page_directories.PageDirectories(tmp_path / "jobs")
    assert pages.tidy()
    assert list(pages.make(7, os.geteuid(), os.getegid()).iterdir()) == []
