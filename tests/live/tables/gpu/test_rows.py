"""The rows of `gpu.*`: a real agent's answers over its socket, NVML played by the sandbox's library."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from probing_cluster.healthchecks.readers import nvml, nvml_snapshot
from probing_cluster.live.node import agent_client
from probing_cluster.probe_agent.hooks import hook_socket, owner_answers
from probing_cluster.probe_agent.jobs import jobs
from probing_cluster.probe_agent.ranks import nic_traffic
from probing_cluster.sandbox.c_libraries import nvml_build, nvml_state
from probing_cluster.sandbox.nodetree import build

MINE, OTHERS = 3, 4
"""Positions of a GPU of the job, and of one that is another's."""


class Agent:
    """What of an agent answers owners, on a node of eight GPUs of which the job has one."""

    def __init__(self, base: Path, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        build.build(base / "n1", "n1")
        self.state = base / "n1" / build.NVML_STATE
        self.library = str(nvml_build.build(base))
        monkeypatch.setenv("PROBING_NVML_STATE", str(self.state))
        self.uuid = nvml_state.read(self.state)[f"gpu.{MINE}.uuid"]
        book = jobs.JobBook("boot")
        book.start(
            jobs.NodeJob(
                job_id=7, started_at=datetime.now(UTC), uid=os.geteuid(), gid=1, gpu_uuids=(self.uuid,)
            )
        )
        self.answers = owner_answers.OwnerAnswers(
            book=book,
            stacks=self._no_stacks,
            recent=list,
            last={},
            nics=nic_traffic.NicTraffic(None),
            nvml_library=self.library,
        )
        self._loop = asyncio.new_event_loop()
        self._socket = hook_socket.HookSocket(
            job.directory.parent / agent_client.SOCKET, self.answers.answer, everyone=True
        )
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._socket.start(), self._loop).result(60)

    def poll(self) -> None:
        """One of the polls whose readings the agent keeps."""
        read = nvml_snapshot.snapshot(self.library, 60.0)
        assert isinstance(read, nvml.NvmlSnapshot)
        self.answers.sampled({"snapshot": nvml.to_json(read)})

    def end(self) -> None:
        """Stops answering."""
        asyncio.run_coroutine_threadsafe(self._socket.stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    @staticmethod
    async def _no_stacks(_: int, __: Any) -> dict[int, Any]:
        return {}


@pytest.fixture
def agent(tmp_path: Path, empty_job: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent of the node that `empty_job` is on."""
    made = Agent(tmp_path / "node", empty_job, monkeypatch)
    yield made
    made.end()


def test_power_temperature_and_use_of_the_jobs_gpus_alone(
    agent: Agent, empty_job: Any, open_session: Callable[..., Any]
) -> None:
    """gpu.devices is NVML now, in watts and shares; gpu.samples what the polls read, oldest first."""
    for watts, percent in ((250, 40), (612, 97)):
        for gpu in (MINE, OTHERS):
            values = {
                "power_mw": watts * 1000,
                "utilization.gpu_percent": percent,
                "temperature_c": percent - 20,
            }
            nvml_state.set_gpu(agent.state, gpu, values)
        agent.poll()
    nvml_state.set_gpu(agent.state, MINE, {"power_mw": 699_500})
    asking = open_session(empty_job)
    (now,) = asking.sql("SELECT * FROM gpu.devices").rows.to_pylist()
    assert (now["node"], now["index"], now["uuid"], now["lost"]) == ("n1", MINE, agent.uuid, None)
    assert (now["power_w"], now["power_limit_w"], now["utilization_frac"]) == (699.5, 700.0, 0.97)
    assert (now["temperature_c"], now["memory_temperature_c"]) == (77.0, 42.0)
    assert (now["memory_total_bytes"], now["memory_used_bytes"]) == (85_520_809_984, 4_718_592)
    assert (now["sm_clock_mhz"], now["sm_clock_max_mhz"], now["pcie_generation"]) == (345.0, 1980.0, 5)
    found = asking.sql("SELECT * FROM gpu.samples ORDER BY at")
    rows = found.rows.to_pylist()
    assert found.missing == ()
    assert [(r["uuid"], r["power_w"], r["utilization_frac"], r["temperature_c"]) for r in rows] == [
        (agent.uuid, 250.0, 0.4, 20.0),
        (agent.uuid, 612.0, 0.97, 77.0),
    ]
    assert rows[0]["at"] < rows[1]["at"]
    most = asking.sql("SELECT max(power_w) AS w FROM gpu.samples WHERE power_w > 300").rows.to_pylist()
    assert most == [{"w": 612.0}]


def test_a_gpu_that_is_lost_keeps_its_row(
    agent: Agent, empty_job: Any, open_session: Callable[..., Any]
) -> None:
    """NVML's word for it stands in `lost`, and nothing is made up for what cannot be read."""
    agent.poll()
    for gpu in (MINE, OTHERS):
        nvml_state.set_gpu(agent.state, gpu, {"lost": 1})
    agent.poll()
    found = open_session(empty_job).sql("SELECT index, uuid, lost, power_w FROM gpu.devices")
    assert found.rows.to_pylist() == [
        {"index": MINE, "uuid": agent.uuid, "lost": "GPU_IS_LOST", "power_w": None}
    ]
