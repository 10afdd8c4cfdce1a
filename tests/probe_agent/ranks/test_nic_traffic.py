"""Bytes that the node's adapters moved between two readings of its sysfs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing_cluster.probe_agent import children
from probing_cluster.probe_agent.ranks import nic_traffic, rank_snapshot
from probing_cluster.probe_agent.sources import file_child


class Reach:
    """Reads a directory in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hangs = False

    async def files(self, patterns: Any, links: Any = (), skip: Any = ()) -> Any:
        if self.hangs:
            raise children.ChildHung("files: no answer within 5 s")
        return file_child.read(str(self.root), list(patterns), list(links), list(skip))


class Node:
    """A simulated node whose counters move."""

    def __init__(self, root: Path, clock: Any, **more: Any) -> None:
        self.root, self.clock, self.reader = root, clock, Reach(root)
        self.traffic = nic_traffic.NicTraffic(self.reader, clock=clock, **more)  # type: ignore[arg-type]

    def set(self, path: str, value: int | str) -> None:
        (self.root / path).write_text(f"{value}\n")

    def read(self, after_s: float = 0.0) -> None:
        self.clock.move(after_s)
        asyncio.run(self.traffic.read())

    def rates(self, since_s: float = 0.0) -> dict[str, tuple[int, int]]:
        found = self.traffic.since(since_s)
        return {p["device"]: (p["tx_bytes_per_s"], p["rx_bytes_per_s"]) for p in found.get("ports", ())}


HCA = "sys/class/infiniband/mlx5_0/ports/1/counters"
ETH = "sys/class/net/eno1/statistics"


@pytest.fixture
def node(root: Path, clock: Any) -> Node:
    return Node(root, clock)


def test_words_of_the_port_and_octets_of_the_adapter_are_bytes_a_second(node: Node) -> None:
    """port_xmit_data counts four octets each; the loopback is no adapter."""
    node.read()
    node.set(f"{HCA}/port_xmit_data", 25_000_000)
    node.set(f"{HCA}/port_rcv_data", 5_000)
    node.set(f"{ETH}/tx_bytes", 3_000)
    node.read(10.0)
    rates = node.rates()
    assert rates["mlx5_0"] == (10_000_000, 2_000)
    assert rates["eno1"] == (300, 0)
    assert rates["mlx5_1"] == (0, 0)
    assert "lo" not in rates


def test_only_the_time_since_the_stall_counts(node: Node) -> None:
    """What was moved while the gang still trained is not what is moved now."""
    node.read()
    node.set(f"{HCA}/port_xmit_data", 25_000_000)
    node.read(5.0)
    stalled_s = node.clock.monotonic_s()
    node.read(10.0)
    assert node.traffic.since(stalled_s)["over_s"] == 10.0
    assert node.rates(stalled_s)["mlx5_0"] == (0, 0)
    assert node.rates()["mlx5_0"][0] > 0


def test_too_little_time_or_no_reading_is_no_rate(node: Node) -> None:
    """Not seeing is not silence."""
    assert node.traffic.since(0.0) == {}
    node.read()
    assert node.traffic.since(0.0) == {}
    node.reader.hangs = True
    node.read(10.0)
    assert node.traffic.since(0.0) == {}
    assert nic_traffic.NicTraffic(None).since(0.0) == {}


def test_counters_that_are_cleared_or_not_told_have_no_rate(node: Node) -> None:
    """A port whose driver does not tell is not one that is silent."""
    node.set(f"{HCA}/port_rcv_data", 5_000)
    node.set("sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data", "N/A (no PMA)")
    node.read()
    node.set(f"{HCA}/port_rcv_data", 0)
    node.read(10.0)
    assert {"mlx5_0", "mlx5_1"}.isdisjoint(node.rates())


def test_excluded_devices_are_left_out(root: Path, clock: Any) -> None:
    """The site's own list, the same as for the ports' health."""
    node = Node(root, clock, exclude=("mlx5_[01]",))
    node.read()
    node.read(10.0)
    assert {"mlx5_0", "mlx5_1"}.isdisjoint(node.rates())
    assert "mlx5_2" in node.rates()


@pytest.mark.parametrize("state", ["S", "Z"], ids=["its rank waits", "its rank is gone"])
def test_traffic_of_a_stall_is_that_since_a_living_rank_stopped(node: Node, state: str) -> None:
    """Where no rank lives no stall has a begin: the readings of before the job say nothing."""
    node.read()
    began_s = node.clock.monotonic_s() + 300.0
    for after_s in (300.0, 20.0):
        node.read(after_s)
    job = SimpleNamespace(gpu_uuids=())
    rank = SimpleNamespace(
        page=SimpleNamespace(world_size=2), is_rank=True, alive=state != "Z", progress=SimpleNamespace(since_s=began_s)
    )  # fmt: skip
    watched: Any = SimpleNamespace(job=job, ranks={"p": rank}, refused=0)
    taker = rank_snapshot.SnapshotTaker(
        children=children.Children(), gpus=lambda: None, nics=node.traffic, clock=node.clock
    )
    nics = taker._detail(watched, [], last=False)["nics"]
    assert nics.get("over_s") == (20.0 if state == "S" else None)
    assert taker._detail(watched, [], last=True)["nics"] == {}, (
        "the pages of an ended attempt are of no stall"
    )
