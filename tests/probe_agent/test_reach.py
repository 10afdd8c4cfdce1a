"""Reaching the node through children: files, tools of the node only, and a mount that truly hangs."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing_cluster.probe_agent import children, identity, reach

MNT_DETACH = 2


def test_files_links_errors_and_skipping(who: identity.Identity) -> None:
    """One question, one answer: what was read, what could not be, and where links lead."""
    (who.root / "sys/x").mkdir(parents=True)
    (who.root / "sys/x/a").write_text("1\n")
    (who.root / "sys/x/b").write_text("2\n")
    (who.root / "sys/x/l").symlink_to("../../0000:00:01.0")
    (who.root / "sys/x/broken").symlink_to("nowhere")

    async def work() -> dict[str, dict[str, str]]:
        made = reach.NodeReach(who, children.Children())
        found = await made.files(["/sys/x/[ab]", "/sys/x/broken"], ["/sys/x/l"], ["/sys/x/b"])
        await made.close()
        return dict(found)

    found = asyncio.run(work())
    assert found["files"] == {"/sys/x/a": "1\n"}
    assert found["links"] == {"/sys/x/l": "0000:00:01.0"}
    assert found["errors"] == {"/sys/x/broken": "ENOENT"}


def test_tools_are_the_nodes_own_or_absent(who: identity.Identity) -> None:
    """This machine's ipmitool says nothing about a directory that plays a node."""
    tool = who.root / "usr/bin/ipmitool"
    tool.parent.mkdir(parents=True)

    async def ask() -> children.Finished | None:
        return await reach.NodeReach(who, children.Children()).command("ipmitool", "sel")

    assert asyncio.run(ask()) is None
    tool.write_text("#!/bin/sh\necho told $1\n")
    tool.chmod(0o755)
    told = asyncio.run(ask())
    assert told is not None
    assert told.stdout == b"told sel\n"


@pytest.fixture
def hanging(who: identity.Identity) -> Iterator[subprocess.Popen[bytes]]:
    """A file system below the node's root whose server answers nothing."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    where = who.root / "hung"
    where.mkdir()
    server = subprocess.Popen([sys.executable, "-m", "probing_cluster.sandbox.hanging_mount", str(where)])
    for _ in range(200):
        if f" {where} " in Path("/proc/self/mounts").read_text():
            break
        time.sleep(0.05)
    else:
        server.kill()
        server.wait()
        pytest.skip("this machine does not allow FUSE mounts")
    yield server
    server.terminate()
    server.wait(timeout=30)
    ctypes.CDLL(None).umount2(str(where).encode(), MNT_DETACH)


def test_mount_that_hangs_costs_one_child_and_is_known(
    who: identity.Identity, hanging: subprocess.Popen[bytes]
) -> None:
    """A child in D state cannot be killed: it is counted, no other is started, and all else goes on."""
    started = children.Children()

    async def work() -> None:
        made = reach.NodeReach(who, started, deadline_s=0.5)
        with pytest.raises(children.ChildHung, match="no answer"):
            await made.touch("/hung", remote=True)
        with pytest.raises(children.ChildHung):
            await made.touch("/hung", remote=True)
        made._deadline_s = 10.0
        assert "bytes_total" in await made.touch("/tmp", remote=True)
        assert (await made.files(["/etc/hostname"]))["files"]
        await made.close()

    asyncio.run(work())
    stuck = started.hung
    hanging.terminate()
    for _ in range(200):
        if not started.hung:
            break
        time.sleep(0.05)
    assert stuck in ((), ("mount /hung",))
    assert started.hung == ()
