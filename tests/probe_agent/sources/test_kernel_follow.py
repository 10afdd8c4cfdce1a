"""Following the kernel log wherever it is: the device itself, a file, journald."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import errors, records
from probing_cluster.probe_agent import children, identity, self_watch
from probing_cluster.probe_agent.faults import faults
from probing_cluster.probe_agent.sources import journal, kernel_follow, kernel_log, kernel_words, kmsg
from probing_cluster.probe_agent.spool import codec, intake, spool

BOOT = "6c7c6013a26343b29e964691ff25d04c"
XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid=1, name=python3, GPU has fallen off the bus."


@pytest.fixture
def follow(node_identity: identity.Identity, queue: spool.Spool) -> Any:
    def make(setting: str, started: children.Children | None = None) -> kernel_follow.KernelFollower:
        log = kernel_log.KernelLog(
            node_identity, kernel_words.classifier(), state=queue.state(kernel_log.STATE)
        )
        return kernel_follow.KernelFollower(
            setting=setting,
            identity=node_identity,
            log=log,
            intake=intake.Intake(identity=node_identity, spool=queue, faults=faults.Faults("b")),
            started=started or children.Children(),
            watch=self_watch.SelfWatch(),
            on_reboot=lambda _: None,
            on_high=lambda: None,
        )

    return make


def events(queue: spool.Spool) -> list[records.HealthEvent]:
    return [codec.decode(i.body, records.HealthEvent) for i in queue.batch(100)]


def until(work: Any, done: Any) -> None:
    """Run until something is so."""

    async def run() -> None:
        task = asyncio.create_task(work)
        for _ in range(400):
            if done():
                break
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def entry(number: int, text: str, **fields: str) -> str:
    values = {
        "__CURSOR": f"s=1;i={number:x};b={BOOT}",
        "_BOOT_ID": BOOT,
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "_SOURCE_MONOTONIC_TIMESTAMP": str(number * 1000),
    } | fields
    return "".join(f"{k}={v}\n" for k, v in values.items()) + f"MESSAGE={text}\n\n"


def test_journald_lines_become_events_and_the_cursor_is_kept(
    follow: Any, queue: spool.Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorded export in, kernel events out; the next start asks for what follows."""
    recorded = tmp_path / "export"
    recorded.write_text(
        entry(1, XID)
        + entry(2, XID, _TRANSPORT="syslog")
        + entry(3, XID, SYSLOG_FACILITY="1")
        + entry(4, "nothing")
    )
    script = f'echo "$@" >> {tmp_path}/asked; cat {recorded}; sleep 60'
    monkeypatch.setattr(journal, "COMMAND", ("/bin/sh", "-c", script, "journalctl"))
    until(follow("journald").run(), lambda: queue.state(kernel_log.STATE) and len(events(queue)) >= 1)
    (event,) = events(queue)
    assert (event.kind, event.code, event.source) == ("xid", "79", "kernel")
    assert queue.state(kernel_log.STATE)["place"] == {"cursor": f"s=1;i=4;b={BOOT}"}
    calls = tmp_path / "asked"
    until(follow("journald").run(), lambda: calls.read_text().count("\n") >= 2)
    assert f"--after-cursor=s=1;i=4;b={BOOT}" in calls.read_text()
    assert len(events(queue)) == 1


def test_journald_that_ends_is_a_failure_that_is_tried_again(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journalctl that dies does not end the agent."""
    monkeypatch.setattr(journal, "COMMAND", ("/bin/true",))
    monkeypatch.setattr(kernel_follow, "RETRY_S", 0.05)
    follower = follow("journald")
    watch = follower._watch.of(kernel_log.NAME)
    until(follower.run(), lambda: watch.failures_total >= 2)
    assert watch.failures_total >= 2
    assert watch.state == "error"


def test_auto_takes_the_nodes_own_file(follow: Any, queue: spool.Spool, root: Path) -> None:
    """A directory that plays a node has a regular file where the device would be."""
    with (root / "dev/kmsg").open("a") as log:
        log.write(f"4,900,1000,-;{XID}\n12,901,1001,-;{XID}\n")
    until(follow("auto").run(), lambda: len(events(queue)) >= 1)
    assert [e.code for e in events(queue) if e.kind == "xid"] == ["79"]


def test_setting_that_is_none_is_said(follow: Any) -> None:
    """A typing error in the configuration does not pass for silence."""
    with pytest.raises(errors.UsageError, match="kernel_log"):
        follow("dmesg").open()


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/kmsg").is_char_device(), reason="needs root and a real /dev/kmsg"
)
def test_real_device_stamps_what_a_program_writes() -> None:
    """What the trust in facility 0 rests on, asked of the real kernel."""
    reader = kmsg.KmsgDevice(Path("/dev/kmsg"))
    while reader.read():
        pass
    text = f"probing-cluster test line {time.monotonic_ns()}"
    with Path("/dev/kmsg").open("w") as device:
        device.write(f"<0>{text}\n")
    found = [line for line in reader.read() if line.text == text]
    reader.close()
    assert [line.facility for line in found] == [1]
