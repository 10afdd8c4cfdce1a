"""The test of pairs over real links: nodes are network namespaces on one bridge, and one of them has a slower link, or one that drops."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence

import pytest

from probing_cluster.diagnostics import allreduce, isolation, machine, slowness
from tests import links

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

RATE_MBIT = 60.0
"""Of a healthy link: so slow that the time of a transfer is the link's and not that of the processors, however busy they are."""
OPTIONS = machine.Options(bytes_moved=1 << 20, repeats=3, connect_s=30.0)
NODES = ("n1", "n2", "n3", "n4", "n5")
PORT = 5000
_LIBC = ctypes.CDLL(None, use_errno=True)


def timed(made: links.Links, pair: isolation.Pair, port: int) -> float:
    """How long the all-reduce of two nodes takes, each in its namespace."""
    group = machine.Group(
        members=pair,
        addresses={n: (made.address(n), port) for n in pair},
        token=b"t" * 32,
    )
    found: dict[str, float] = {}

    def one(node: str) -> None:
        with open(f"/run/netns/{made.name(node)}") as space:  # noqa: PTH123
            assert _LIBC.setns(space.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        (finding,) = allreduce.test(machine.Machine(node=node, options=OPTIONS, group=group))
        assert finding.measured is not None, finding.message
        found[node] = finding.measured

    threads = [threading.Thread(target=one, args=(node,)) for node in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(found[node] for node in pair)


@pytest.fixture
def bridge() -> Iterator[links.Links]:
    if os.geteuid() != 0 or shutil.which("tc") is None or shutil.which("ip") is None:
        pytest.skip("needs root, ip and tc")
    made = links.Links(NODES)
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as exc:
            pytest.skip(f"this kernel makes no such namespaces: {exc.stderr!r}")
        yield made
    finally:
        made.end()


@links.WORSE_LINKS
def test_the_node_with_the_worse_link_is_named(
    bridge: links.Links, times: float, waits: Sequence[str]
) -> None:
    """It takes so many times as long, or loses packets, which TCP sends again; the others' links are alike."""
    is_worse = times > 1.0 or waits[0] == "limit"
    for node in NODES:
        bridge.shape(node, *((RATE_MBIT / times, waits) if node == "n3" else (RATE_MBIT,)))
    timing, port = slowness.Timing(NODES), PORT
    while pairs := timing.next_pairs():
        for pair in pairs:
            port += 1
            timing.add(pair, timed(bridge, pair, port))
    print(times, waits, {n: round(s, 3) for n, s in timing.of_nodes().items()})
    nodes, bad_links = timing.outcome()
    assert (set(nodes) <= {"n3"}, bad_links) == (True, ())
    found = timing._single()
    assert found is not None
    if found.noisy or 1.0 < times < found.slow_from / found.middle:
        pytest.skip(f"a busy machine: {found.slow_from / found.middle - 1:.0%} is noise here")
    assert nodes == (("n3",) if is_worse else ())
