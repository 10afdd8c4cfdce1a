"""Mounts: missing though once there, read-only, hanging; found without hanging ourselves."""

from __future__ import annotations

from typing import Any

import pytest

from probing_cluster.probe_agent.sources import mounts
from probing_cluster.sandbox.nodetree import writing


def change(watched: Any, old: str, new: str) -> None:
    for name in ("proc/mounts", "proc/self/mounts"):
        text = (watched.reader.root / name).read_text().rstrip("\n")
        assert old in text
        writing.put(watched.reader.root, name, text.replace(old, new))


@pytest.fixture
def table(watch: Any) -> Any:
    watched = watch(mounts.SOURCE)
    watched.look(2)
    return watched


SCRATCH = "10.10.0.1@o2ib:/scratch /scratch lustre rw,flock,user_xattr,lazystatfs,encrypt 0 0"


def test_healthy_mounts_are_no_finding(table: Any) -> None:
    """Everything there, writable and answering."""
    readings = [table.look() for _ in range(7)]
    assert all(r.present == () for r in readings)
    assert {"/scratch", "/home"} <= set().union(*(r.healthy for r in readings))


def test_mount_that_is_gone_is_grave_and_its_return_is_seen(table: Any, present: Any) -> None:
    """Missing means: it was there when all was well."""
    change(table, SCRATCH, "")
    assert present(table.look()) == []
    assert present(table.look()) == [("mount", "missing", "/scratch", "high")]
    change(table, "nfs1:/export/home", f"{SCRATCH}\nnfs1:/export/home")
    assert present(table.look()) == []


def test_mount_that_turns_read_only_is_grave(table: Any, present: Any) -> None:
    """A file system that the kernel protects from further damage cannot be written by anyone."""
    change(table, "/home nfs4 rw,", "/home nfs4 ro,")
    assert present(table.look(2)) == [("mount", "read_only", "/home", "high")]


def test_mount_that_was_always_read_only_is_well(watch: Any, present: Any) -> None:
    """A software tree mounted read-only on purpose is no fault."""
    watched = watch(mounts.SOURCE)
    change(watched, "/home nfs4 rw,", "/home nfs4 ro,")
    assert present(watched.look(4)) == []


def test_mount_that_does_not_answer_is_grave_when_it_stays_so(table: Any, present: Any) -> None:
    """A call that never returns is a finding; the others are still looked at."""
    table.reader.silent.add("/scratch")
    found = [present(table.look()) for _ in range(8)]
    assert found[-1] == [("mount", "hanging", "/scratch", "high")]
    table.reader.silent.clear()
    assert present(table.look(7)) == []


def test_one_silent_answer_is_neither_fault_nor_health(table: Any) -> None:
    """A server that restarts is waited for."""
    table.reader.silent.add("/scratch")
    judged = next(j for j in (table.look() for _ in range(7)) if "/scratch" in j.unknown)
    assert judged.present == ()
    assert "/scratch" not in judged.healthy


def test_automounted_file_systems_may_come_and_go(watch: Any, present: Any) -> None:
    """What autofs takes away again is not missed."""
    watched = watch(mounts.SOURCE)
    change(watched, SCRATCH, f"{SCRATCH}\nauto.data /data autofs rw 0 0\nnfs2:/x /data/x nfs4 rw 0 0")
    watched.look(2)
    change(watched, "\nnfs2:/x /data/x nfs4 rw 0 0", "")
    assert present(watched.look(3)) == []


def test_site_list_is_expected_though_never_seen(watch: Any, present: Any) -> None:
    """What the site names must be there from the first reading on."""
    watched = watch(mounts.SOURCE)
    assert present(watched.look(2, expect_mounts=("/projects", "/home"))) == [
        ("mount", "missing", "/projects", "high")
    ]


def test_after_a_boot_mounts_get_time_to_come(table: Any, present: Any) -> None:
    """Network file systems are mounted late."""
    change(table, SCRATCH, "")
    table.reboot(uptime_s=60.0)
    assert present(table.look(4)) == []
    table.reboot(uptime_s=1000.0)
    assert present(table.look(2)) == [("mount", "missing", "/scratch", "high")]


def test_table_that_cannot_be_read_is_unknown(watch: Any, bare: Any) -> None:
    """Without a table nothing is missing: nothing is known."""
    watched = watch(mounts.SOURCE)
    watched.look(2)
    watched.reader.root = bare.root
    judged = watched.look()
    assert judged.present == ()
    assert judged.unknown == {"*"}


def test_relearning_accepts_what_is_there_now(table: Any, present: Any) -> None:
    """A file system retired for good is forgotten when an operator says so."""
    change(table, SCRATCH, "")
    assert present(table.look(2)) != []
    table.look(relearn=True)
    assert present(table.look(3)) == []
