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
from typing import Any

import pytest

from probing_cluster.core import processes
from probing_cluster.probe_agent import children, identity
from probing_cluster.probe_agent.sources import node_reader

MNT_DETACH = 2


def test_files_links_errors_and_skipping(node_identity: identity.Identity) -> None:
    """One question, one answer: what was read, what could not be, and where links lead."""
    (node_identity.root / "sys/x").mkdir(parents=True)
    (node_identity.root / "sys/x/a").write_text("1\n")
    (node_identity.root / "sys/x/b").write_text("2\n")
    (node_identity.root / "sys/x/l").symlink_to("../../0000:00:01.0")
    (node_identity.root / "sys/x/broken").symlink_to("nowhere")

    async def work() -> dict[str, dict[str, str]]:
        made = node_reader.ChildReader(node_identity, children.Children())
        found = await made.files(["/sys/x/[ab]", "/sys/x/broken"], ["/sys/x/l"], ["/sys/x/b"])
        await made.close()
        return dict(found)

    found = asyncio.run(work())
    assert found["files"] == {"/sys/x/a": "1\n"}
    assert found["links"] == {"/sys/x/l": "0000:00:01.0"}
    assert found["errors"] == {"/sys/x/broken": "ENOENT"}


def test_tools_are_the_nodes_own_or_absent(node_identity: identity.Identity) -> None:
    """This machine's ipmitool says nothing about a directory that plays a node."""
    tool = node_identity.root / "usr/bin/ipmitool"
    tool.parent.mkdir(parents=True)

    async def ask() -> children.Finished | None:
        return await node_reader.ChildReader(node_identity, children.Children()).command("ipmitool", "sel")

    assert asyncio.run(ask()) is None
    tool.write_text("#!/bin/sh\necho told $1\n")
    tool.chmod(0o755)
    answers = asyncio.run(ask())
    assert answers is not None
    assert answers.stdout == b"told sel\n"


@pytest.fixture
def hanging(node_identity: identity.Identity) -> Iterator[subprocess.Popen[bytes]]:
    """A file system below the node's root whose server answers nothing."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs root and /dev/fuse")
    where = node_identity.root / "hung"
    where.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-m", "probing_cluster.sandbox.machine.hanging_mount", str(where)]
    )
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
    node_identity: identity.Identity, hanging: subprocess.Popen[bytes]
) -> None:
    """A child in D state cannot be killed: it is counted, no other is started, and all else goes on."""
    started = children.Children()

    async def work() -> None:
        made = node_reader.ChildReader(node_identity, started, deadline_s=0.5)
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


ANSWERS_BUT_FOR_HUNG = """
import json, sys, time
for line in sys.stdin:
    if json.loads(line)["path"].startswith("/hung"):
        time.sleep(600)
    print(json.dumps({"bytes_total": 1}), flush=True)
"""


def test_healthy_remote_mounts_share_a_child_and_a_hang_parts_them(
    node_identity: identity.Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process a minute and mount on a healthy node; after one hang the others wait for nobody."""
    monkeypatch.setattr(
        node_reader, "_file_child", lambda: [sys.executable, "-I", "-S", "-c", ANSWERS_BUT_FOR_HUNG]
    )
    started = children.Children()
    keys: list[str] = []
    start = started.start

    def counted(key: str, *args: Any, **kwargs: Any) -> processes.Child:
        keys.append(key)
        return start(key, *args, **kwargs)

    monkeypatch.setattr(started, "start", counted)

    async def touched(made: node_reader.ChildReader, *paths: str) -> list[Any]:
        calls = (made.touch(p, remote=True) for p in paths)
        return await asyncio.gather(*calls, return_exceptions=True)

    async def work() -> None:
        made = node_reader.ChildReader(node_identity, started, deadline_s=10.0)
        for _ in range(3):
            assert await touched(made, "/home", "/scratch") == [{"bytes_total": 1}] * 2
        assert keys == ["mounts"]
        made._deadline_s = 3.0
        first, second, home = await touched(made, "/hung1", "/hung2", "/home")
        assert isinstance(first, children.ChildHung)
        assert isinstance(second, children.ChildHung)
        assert "mount /hung1" in str(first)
        assert home == {"bytes_total": 1}
        assert keys == ["mounts", "mount /hung2", "mount /home"]
        monkeypatch.setattr(node_reader, "TROUBLE_S", 0.0)
        made._trouble_until_s = 0.0
        assert await touched(made, "/home") == [{"bytes_total": 1}]
        assert keys[3:] == ["mounts"]
        await made.close()

    asyncio.run(work())
    assert started.hung == ()
