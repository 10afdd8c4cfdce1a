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


def test_image_of_another_type_is_another_file_system(table: Any, present: Any) -> None:
    """A node whose root became an image that is read-only has not lost a disk."""
    text = (table.reader.root / "proc/mounts").read_text()
    (row,) = [line for line in text.splitlines() if " / " in line]
    in_fstab(table, " ".join(row.split()[:3]) + " defaults 0 1")
    table.look(2)
    image = f"composefs / overlay {row.split()[3].replace('rw', 'ro', 1)} 0 0"
    change(table, row, image)
    assert present(table.look(3)) == []
    change(table, image, row.replace("rw", "ro", 1))
    assert present(table.look(2)) == [("mount", "read_only", "/", "high")]


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


OF_USER = "carol@lab: /home/carol/lab fuse.sshfs rw,nosuid,nodev,relatime,user_id=4711,group_id=100 0 0"
DEAD = (
    "carol@lab: /home/carol/lab fuse.glusterfs rw,nosuid,nodev,user_id=4711,group_id=100,allow_other 0 0",
    "//nas/carol /home/carol/nas cifs rw,nosuid,nodev,noexec,uid=4711 0 0",
    "desk:/export/x /net/desk/export/x nfs4 rw,nosuid 0 0",
    "stick:/x /mnt/stick nfs rw,nosuid,nodev 0 0",
)
FOR_USERS = "//nas/carol /home/carol/nas cifs noauto,user 0 0\nstick:/x /mnt/stick nfs users 0 0"


def also_mounted(watched: Any, *rows: str) -> None:
    """Appends lines to the mount table; each mount point is a directory that answers."""
    for row in rows:
        (watched.reader.root / row.split()[1].lstrip("/")).mkdir(parents=True, exist_ok=True)
    change(watched, SCRATCH, "\n".join((SCRATCH, *rows)))


def in_fstab(watched: Any, rows: str) -> None:
    """Appends lines to fstab."""
    writing.put(
        watched.reader.root, "etc/fstab", f"{(watched.reader.root / 'etc/fstab').read_text()}\n{rows}\n"
    )


def failing_with(watched: Any, monkeypatch: pytest.MonkeyPatch, word: str, *paths: str) -> None:
    """These paths answer every call with an error."""
    healthy = watched.reader.touch

    async def touch(path: str, *, remote: bool) -> Any:
        return {"error": word} if path in paths else await healthy(path, remote=remote)

    monkeypatch.setattr(watched.reader, "touch", touch)


@pytest.mark.parametrize("row", [OF_USER, *DEAD])
def test_what_a_user_mounts_is_never_the_nodes(
    watch: Any, present: Any, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hang, fail, turn read-only or go; nothing is asked of it, and its server's name is no sign of health."""
    watched = watch(mounts.SOURCE)
    path = row.split()[1]
    failing_with(watched, monkeypatch, "ENOTCONN", path)
    watched.reader.silent.add("/net/desk/export/x")
    in_fstab(watched, FOR_USERS)
    also_mounted(watched, "-hosts /net autofs rw,indirect 0 0", row)
    readings = [watched.look() for _ in range(14)]
    assert [present(r) for r in readings] == [[]] * 14
    assert {path, row.split()[0], row.partition(":")[0]}.isdisjoint(
        set().union(*(r.healthy for r in readings))
    )
    change(watched, row, row.replace(" rw,", " ro,"))
    assert present(watched.look(3)) == []
    change(watched, f"\n{row.replace(' rw,', ' ro,')}", "")
    assert present(watched.look(8)) == []


@pytest.mark.parametrize("word", ["EACCES", "EPERM", "EKEYEXPIRED"])
def test_a_refusal_to_root_is_an_answer(
    table: Any, present: Any, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root is nobody on most servers: what refuses it answers, also after it hung."""
    table.reader.silent.add("/home")
    table.look(8)
    table.reader.silent.clear()
    failing_with(table, monkeypatch, word, "/home")
    assert present(table.look(7)) == []
    assert any("/home" in table.look().healthy for _ in range(6))


def test_an_error_of_a_mount_that_root_made_counts(
    table: Any, present: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of FUSE, and one that nothing names, for as long as it stands."""
    row = "weka /weka fuse.weka rw,user_id=0,group_id=0,allow_other 0 0"
    also_mounted(table, row)
    assert present(table.look(7)) == []
    failing_with(table, monkeypatch, "ENOTCONN", "/weka")
    assert present(table.look(8)) == [("mount", "error", "/weka", "high")]
    change(table, row, row.replace(" rw,", " ro,"))
    assert ("mount", "read_only", "/weka", "high") in present(table.look(2))
    change(table, f"\n{row.replace(' rw,', ' ro,')}", "")
    assert present(table.look(3)) == []


NAMED = {
    "etc/fstab": "gpfs0 /shared gpfs rw,mtime,dev=gpfs0,noauto 0 0\n",
    "etc/systemd/system/shared.mount": "[Unit]\nAfter=x\n[Mount]\nWhat=nas:/shared\nWhere=/shared/\nType=nfs4\n",
    "etc/beegfs/beegfs-mounts.conf": "/shared /etc/beegfs/beegfs-client.conf\n",
}


@pytest.mark.parametrize(("file", "text"), NAMED.items())
def test_what_the_node_names_is_missed(table: Any, present: Any, file: str, text: str) -> None:
    """A unit's or a daemon's own list says as much as fstab, until it no longer does."""
    before = (table.reader.root / "etc/fstab").read_text()
    (table.reader.root / file).parent.mkdir(parents=True, exist_ok=True)
    writing.put(table.reader.root, file, f"{before}\n{text}" if file == "etc/fstab" else text)
    row = "nas:/shared /shared nfs4 rw 0 0"
    also_mounted(table, row)
    assert present(table.look(2)) == []
    change(table, f"\n{row}", "")
    assert present(table.look(2)) == [("mount", "missing", "/shared", "high")]
    table.reader.failing[f"/{file}"] = "EIO"
    assert present(table.look(2)) == [("mount", "missing", "/shared", "high")]
    table.reader.failing.clear()
    writing.put(table.reader.root, file, before if file == "etc/fstab" else "# nothing\n")
    assert present(table.look()) == []


def test_a_user_who_mounts_over_the_sites_mount_blames_no_server(
    table: Any, present: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who owns the top of a mount may mount there: the site's is still there, and not asked through the user's program."""
    in_fstab(table, "nas:/carol /carol nfs4 rw 0 0")
    also_mounted(table, "nas:/carol /carol nfs4 rw 0 0", "nas:/data /carol/data nfs4 rw 0 0")
    table.look(7)
    over = "x /carol fuse.sshfs rw,user_id=4711,group_id=100,allow_other 0 0"
    also_mounted(table, over)
    change(table, f"{over}\n", "")
    change(table, "nas:/data /carol/data nfs4 rw 0 0", f"nas:/data /carol/data nfs4 rw 0 0\n{over}")
    failing_with(table, monkeypatch, "ENOTCONN", "/carol", "/carol/data")
    readings = [table.look() for _ in range(14)]
    assert [present(r) for r in readings] == [[]] * 14
    assert all({"nas", "/carol", "/carol/data"}.isdisjoint(r.healthy) for r in readings)


def test_a_service_of_the_site_may_run_as_a_user(
    watch: Any, present: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the settings or fstab name is the site's, whoever mounted it."""
    watched = watch(mounts.SOURCE)
    row = "bucket /bucket fuse.sshfs rw,user_id=998,group_id=998,allow_other 0 0"
    also_mounted(watched, row)
    assert present(watched.look(7, expect_mounts=("/bucket",))) == []
    failing_with(watched, monkeypatch, "ENOTCONN", "/bucket")
    assert present(watched.look(8, expect_mounts=("/bucket",))) == [("mount", "error", "/bucket", "high")]


def test_an_agent_that_learned_a_users_mount_forgets_it(table: Any, present: Any) -> None:
    """Its memory is of an earlier version; nobody has to clear it."""
    entry = {"type": "fuse.sshfs", "read_only": False, "device": "x"}
    table.memory = {**table.memory, "expected": {**table.memory["expected"], "/home/carol/lab": entry}}
    assert present(table.look(3)) == []


def test_a_table_too_long_to_be_read_misses_nothing(table: Any, present: Any) -> None:
    """A user's mounts may have names of thousands of characters: what stands behind them was not read."""
    rows = "\n".join(f"{'x' * 4000} /home/carol/{n} fuse.x rw,user_id=4711 0 0" for n in range(70))
    change(table, SCRATCH, f"{rows}\n{SCRATCH}")
    judged = table.look(4)
    assert (judged.present, judged.unknown) == ((), {"*"})
    change(table, rows, rows[:4000])
    assert present(table.look(2)) == []
