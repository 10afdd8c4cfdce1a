"""The test of pairs over real links: nodes are network namespaces on one bridge, and one of them has a slower link, or one that drops or delays."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator

import pytest

from probing_cluster.diagnostics import allreduce, isolation, machine, slowness
from tests import links

pytestmark = [pytest.mark.soak, pytest.mark.alone, pytest.mark.timeout(300)]

RATE_MBIT = 60.0
"""Of a healthy link: so slow that the time of a transfer is the link's and not that of the processors, however busy they are."""
LARGE = machine.Options(bytes_moved=1 << 20, repeats=3, connect_s=30.0)
SMALL = dataclasses.replace(
    LARGE,
    bytes_moved=slowness.small_bytes(LARGE.bytes_moved, [LARGE.bytes_moved / (RATE_MBIT * 1e6 / 8)]),
    repeats=slowness.SMALL_REPEATS,
)
NODES = ("n1", "n2", "n3", "n4", "n5")
PORT = 5000
_LIBC = ctypes.CDLL(None, use_errno=True)


def timed(made: links.Links, pair: isolation.Pair, port: int, options: machine.Options = LARGE) -> float:
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
        (finding,) = allreduce.test(machine.Machine(node=node, options=options, group=group))
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
def test_the_node_with_the_worse_link_is_named(bridge: links.Links, kind: links.Kind) -> None:
    """It takes so many times as long, loses packets, which TCP sends again, or holds each of them; the others' links are alike."""
    for node in NODES:
        bridge.shape(node, RATE_MBIT, kind if node == "n3" else links.HEALTHY)
    named, noise, port = set[str](), [], PORT
    for options in (LARGE, SMALL):
        timing = slowness.Timing(NODES)
        while pairs := timing.next_pairs():
            for pair in pairs:
                port += 1
                timing.add(pair, timed(bridge, pair, port, options))
        print(kind, options.bytes_moved, {n: round(s * 1e3, 2) for n, s in timing.of_nodes().items()})
        nodes, bad_links = timing.outcome()
        assert (set(nodes) <= {"n3"}, bad_links) == (True, ())
        found = timing._single()
        assert found is not None
        named |= set(nodes)
        noise.append(found.slow_from / found.middle - 1)
    print(f"named {named}; noise {[f'{share:.1%}' for share in noise]}")
    if not named and min(noise) > (kind.times - 1 or slowness.TOO_NOISY):
        pytest.skip(f"a busy machine: {min(noise):.0%} is noise here")
    assert named == ({"n3"} if kind.is_worse else set())
