"""The spool on a disk that is full, without inodes or read-only: a small one, mounted for the test alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import errors, settings
from probing_cluster.probe_agent import daemon

BEGIN = """
import json, os, subprocess, sys
from pathlib import Path
from probing_cluster.probe_agent.spool import own_directory, spool
disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40", "small", disk], check=True)
directory = disk / "spool"
def item(n):
    return spool.SpoolItem(id=n.to_bytes(16, "big"), lane="event", rank=0, body=b"x" * 200)
def fill():
    with open(disk / "fill", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)
def made():
    return spool.Spool(directory, max_bytes=1 << 20)
"""


def on_a_small_disk(tmp_path: Path, code: str) -> Any:
    """What `code` prints, run where a small file system of its own is mounted."""
    argv = ["unshare", "--mount", sys.executable, "-c", BEGIN + code, str(tmp_path)]
    if (
        os.geteuid() != 0
        or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("needs root, and mounts of its own")
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def test_a_full_disk_holds_in_memory_what_comes_and_takes_it_when_there_is_room(tmp_path: Path) -> None:
    """No signal, no exception: a mapped file of SQLite's on a full tmpfs must not end the agent."""
    code = """
one = made(); one.commit(spool.SpoolWrite(items=[item(1)])); fill()
kept = [one.commit(spool.SpoolWrite(items=[item(n)], states={"cursor": n})) for n in range(2, 900)]
(disk / "fill").unlink(); one._retry_at_s = 0
again = one.commit(spool.SpoolWrite(items=[item(900)])); one.close(); two = made()
print(json.dumps({"all": all(kept), "again": again, "depth": two.depth, "cursor": two.state("cursor")}))
"""
    assert on_a_small_disk(tmp_path, code) == {"all": False, "again": True, "depth": 900, "cursor": 899}


@pytest.mark.parametrize("ended_in_order", [True, False])
def test_an_agent_begins_on_a_read_only_disk_and_knows_its_faults(
    tmp_path: Path, ended_in_order: bool
) -> None:
    """A disk that became read-only is a fault to report, and the faults known before it still stand."""
    code = f"""
if not (child := os.fork()):
    one = made(); one.commit(spool.SpoolWrite(states={{"faults": {{"xid": 1}}}}))
    if {ended_in_order}: one.close()
    os._exit(0)
os.waitpid(child, 0); remount("ro")
lock = own_directory.lock(directory); two = made()
kept = two.commit(spool.SpoolWrite(items=[item(1)]))
row = {{"faults": two.state("faults"), "kept": kept, "waits": len(two.batch(9)), "error": bool(two.error)}}
remount("rw"); two._retry_at_s = 0
row["again"] = two.commit(spool.SpoolWrite(items=[item(2)])); two.close()
row["depth"] = made().depth
print(json.dumps(row))
"""
    assert on_a_small_disk(tmp_path, code) == {
        "faults": {"xid": 1}, "kept": False, "waits": 1, "error": True, "again": True, "depth": 2,
    }  # fmt: skip


@pytest.mark.parametrize("there", [True, False])
def test_only_one_agent_begins_on_a_read_only_disk(tmp_path: Path, there: bool) -> None:
    """The lock holds there too, also where its file was never made."""
    code = f"""
directory.mkdir()
if {there}: os.close(own_directory.lock(directory))
remount("ro")
held = own_directory.lock(directory)
try:
    own_directory.lock(directory)
except BlockingIOError:
    print("true")
"""
    assert on_a_small_disk(tmp_path, code) is True


def test_without_inodes_an_agent_begins(tmp_path: Path) -> None:
    """A directory full of small files leaves room and no inode."""
    code = """
directory.mkdir()
try:
    for n in range(100):
        (disk / str(n)).touch()
except OSError:
    pass
lock = own_directory.lock(directory); one = made()
kept = one.commit(spool.SpoolWrite(items=[item(1)]))
print(json.dumps([kept, len(one.batch(9))]))
"""
    assert on_a_small_disk(tmp_path, code) == [False, 1]


def test_a_corrupt_file_on_a_read_only_disk_leaves_a_working_spool(tmp_path: Path) -> None:
    """It cannot be set aside there."""
    code = """
directory.mkdir(); (directory / "spool.db").write_bytes(b"this is no database" * 1000); remount("ro")
one = made(); print(json.dumps([one.commit(spool.SpoolWrite(items=[item(1)])), len(one.batch(9))]))
"""
    assert on_a_small_disk(tmp_path, code) == [False, 1]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A sentence with the key, not a traceback."""
    (tmp_path / "file").write_text("")
    config = settings.parse(f'[agent]\nspool_directory = "{tmp_path}/file/spool"')
    with pytest.raises(
        errors.SettingsError, match=r"spool_directory .*/file/spool cannot be used: Not a dir"
    ):
        daemon.run(config, once=True, emit=print)
