"""Processes of this node exchange all with all."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from itertools import combinations

from probing_cluster.diagnostics import allreduce, machine, registry
from probing_cluster.healthchecks import findings

_PROCESSES = 4


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    """Each of a few processes sends its own block to every other and checks what it got."""
    size = max(node.options.bytes_moved // 8, 4096)
    links = {pair: socket.socketpair() for pair in combinations(range(_PROCESSES), 2)}
    began = node.wall_s()
    pids = [_fork(node, rank, links, size) for rank in range(1, _PROCESSES)]
    wrong = _exchange(node, 0, links, size)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    taken = node.wall_s() - began
    detail = {"engine": f"{_PROCESSES} processes, {size} bytes each"}
    if wrong or any(codes):
        return [
            findings.fail(
                f"{wrong + sum(map(bool, codes))} of {_PROCESSES} processes got other data than was sent",
                detail=detail,
            )
        ]
    return [
        findings.ok(
            f"{_PROCESSES} processes exchanged in {taken:.2g} s", measured=taken, unit="s", detail=detail
        )
    ]


def _fork(
    node: machine.Machine,
    rank: int,
    links: dict[tuple[int, int], tuple[socket.socket, socket.socket]],
    size: int,
) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 1 if _exchange(node, rank, links, size) else 0
        finally:
            os._exit(code)
    return pid


def _exchange(
    node: machine.Machine,
    rank: int,
    links: dict[tuple[int, int], tuple[socket.socket, socket.socket]],
    size: int,
) -> int:
    """1 when what this rank got is not what the others sent."""
    mine = allreduce.block(rank, size)
    wrong = 0
    # Pairs in one order for all: no two wait for each other.
    for pair in sorted(links):
        if rank not in pair:
            continue
        link = links[pair][pair.index(rank)]
        link.settimeout(20)
        peer = pair[1 - pair.index(rank)]
        got = allreduce.swap(node, str(peer), link, node.copy(mine), size)
        wrong = wrong or int(got != allreduce.block(peer, size))
    return wrong


TEST = registry.Test(
    name="intra",
    proves="All-to-all within the node gives every process the others' data. (NVLink: nccl-tests, where it is installed.)",
    needs="nothing",
    fails="a process got other data than was sent",
    next_step="Run probing-check run gpu_nvlink pcie_link on the node; then dcgmi diag -r 3.",
    run=run,
    deadline_s=60.0,
)
