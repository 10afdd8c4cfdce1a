"""Owners of jobs ask the agent about their own jobs and nobody else's, and cannot make it work without end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections import deque
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.core import errors, records
from probing_cluster.healthchecks.readers import nvml, nvml_snapshot
from probing_cluster.live.node import agent_client
from probing_cluster.live.table import Missing
from probing_cluster.probe_agent import assembly
from probing_cluster.probe_agent.hooks import hook_socket, owner_answers
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import nic_traffic

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
GPUS = ("GPU-a", "GPU-b")


def event(
    kind: str, *, job: int | None = None, gpu: str | None = None, source: str = "kernel", ago_s: float = 5
) -> records.HealthEvent:
    return records.HealthEvent(
        event_id=records.make_event_id("c", "n1", source, f"{kind}{job}{gpu}{ago_s}"),
        cluster="c", node="n1", at=NOW - timedelta(seconds=ago_s), observed_at=NOW, source=source, kind=kind, code="79",
        severity=records.Severity.HIGH, message=kind, job_id=job, gpu_uuid=gpu,
    )  # fmt: skip


class Rig:
    """Answers about job 7 of uid 1000 (this user where sockets are real), and job 8 of another."""

    def __init__(self, uid: int = 1000) -> None:
        book = jobs.JobBook("boot")
        book.start(
            jobs.NodeJob(job_id=7, started_at=NOW - timedelta(minutes=1), uid=uid, gid=1, gpu_uuids=GPUS[:1])
        )
        book.start(jobs.NodeJob(job_id=8, started_at=NOW, uid=2000, gid=1))
        self.events: deque[records.HealthEvent] = deque()
        self.stacks_read = 0
        self.answers = owner_answers.OwnerAnswers(
            book=book,
            stacks=self._stacks,
            recent=lambda: self.events,
            last={},
            nics=nic_traffic.NicTraffic(None),
        )

    async def _stacks(self, job_id: int, pids: Collection[int]) -> dict[int, dict[str, Any]]:
        self.stacks_read += 1
        return {p: {"stack": [{"function": "f", "file": "x.py", "line": job_id}]} for p in pids}

    def ask(self, op: Any, uid: int = 1000, job_id: Any = 7, **more: Any) -> dict[str, Any]:
        return asyncio.run(self.answers.answer({"v": 1, "op": op, "job_id": job_id, "peer_uid": uid, **more}))


@pytest.mark.parametrize(
    ("uid", "job_id"), [(2000, 7), (0, 7), (1000, 8), (1000, 9), (1000, None), (1000, "7")]
)
def test_nobody_but_the_owner_is_answered(uid: int, job_id: Any) -> None:
    """The same words for a job that is not here and one that is another's; root has other ways."""
    for op in ("hello", "stacks", "gpus", "nics", "kernel"):
        with pytest.raises(errors.NotPermitted, match="no such job of yours"):
            Rig().ask(op, uid, job_id)


def test_an_operation_that_is_none_is_refused() -> None:
    for op in ("prolog", "_stacks", None, ["x"], "x" * 10_000):
        with pytest.raises(errors.UsageError):
            Rig().ask(op)


def test_stacks_are_of_the_pids_asked_and_not_read_again_at_once() -> None:
    rig = Rig()

    async def twice() -> list[dict[str, Any]]:
        request = {"v": 1, "op": "stacks", "job_id": 7, "peer_uid": 1000, "pids": [5, "6", 10**9]}
        return [await rig.answers.answer(request) for _ in range(20)]

    found = asyncio.run(twice())
    assert rig.stacks_read == 1
    assert set(found[0]["stacks"]) == {"5", str(10**9)}


def test_kernel_events_are_the_jobs_its_gpus_and_the_nodes() -> None:
    """Not those of other jobs, other GPUs, processes whose job is not known, other sources, or long ago."""
    rig = Rig()
    events = [event("oom", job=7), event("xid", gpu="GPU-a"), event("mce")]
    rig.events.extend([*events, event("oom", job=8), event("xid", gpu="GPU-b"), event("oom"), event("hung_task"),
                       event("mce", source="nvml"), event("mce", ago_s=3600)])  # fmt: skip
    assert [(e["kind"], e["job_id"], e["gpu_uuid"]) for e in rig.ask("kernel")["events"]] == [
        ("oom", 7, None), ("xid", None, "GPU-a"), ("mce", None, None),
    ]  # fmt: skip


def test_gpus_are_the_jobs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    gpus = tuple(
        nvml.NvmlGpu(index=i, uuid=u, processes=(nvml.GpuProcess(pid=40 + i, used_bytes=1),))
        for i, u in enumerate(GPUS)
    )
    monkeypatch.setattr(nvml_snapshot, "snapshot", lambda *_: nvml.NvmlSnapshot(gpus=gpus))
    rig.answers.sampled(
        {"snapshot": {"gpus": [{"uuid": u, "utilization_frac": 0.5, "secret": 1} for u in GPUS]}}
    )
    rig.answers.sampled({"snapshot": {"unavailable": {}}})
    found = rig.ask("gpus")
    assert [g["uuid"] for g in found["gpus"]] == ["GPU-a"]
    assert found["gpus"][0]["processes"] == [{"pid": 40, "used_bytes": 1}]
    assert [(s["uuid"], s["utilization_frac"], "secret" in s) for s in found["samples"]] == [
        ("GPU-a", 0.5, False)
    ]
    monkeypatch.setattr(
        nvml_snapshot,
        "snapshot",
        lambda *_: nvml.NvmlUnavailable(kind=nvml.SnapshotLack.HANG, message="no answer"),
    )
    rig.answers._kept.clear()
    with pytest.raises(errors.NotFound, match="no answer"):
        rig.ask("gpus")


def test_the_socket_takes_every_user_and_knows_each(tmp_path: Path) -> None:
    """Mode 0666; the peer's uid is the kernel's word, whatever the request says; too many connections of one user are turned away."""
    rig = Rig(uid=os.geteuid())
    path = tmp_path / assembly.OWNERS_SOCKET
    assert assembly.OWNERS_SOCKET == agent_client.SOCKET

    async def talk() -> None:
        served = hook_socket.HookSocket(path, rig.answers.answer, everyone=True)
        await served.start()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        mine = agent_client.AgentClient(path=path, job_id=7)
        assert (await asyncio.to_thread(mine.ask, "hello", 5.0))["ok"]
        other = agent_client.AgentClient(path=path, job_id=8)
        with pytest.raises(Missing, match="no such job of yours"):
            await asyncio.to_thread(other.ask, "hello", 5.0, peer_uid=2000)
        held = [socket.socket(socket.AF_UNIX) for _ in range(hook_socket.MAX_PER_USER)]
        for one in held:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, str(path))
        await asyncio.sleep(0.2)
        with pytest.raises(Missing, match=r"connections of uid|reset by peer|Broken pipe"):
            await asyncio.to_thread(mine.ask, "hello", 5.0)
        for one in held:
            one.close()
        await asyncio.sleep(0.5)
        await served.stop()

    asyncio.run(talk())
    with pytest.raises(Missing, match="does not answer"):
        agent_client.AgentClient(path=path, job_id=7).ask("hello", 1.0)
