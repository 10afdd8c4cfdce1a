"""The node reaches itself through its own network address, from each of its memory nodes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence

from probing_cluster.diagnostics import allreduce, cpus, machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    if node.group is None or node.node not in node.group.addresses:
        raise findings.Absent("Slurm names no address of this node")
    host = node.group.addresses[node.node][0]
    return [_of(node, host, f"{host} {near}".strip()) for near in cpus.at_each_memory_node(node.root)]


def _of(node: machine.Machine, host: str, device: str) -> findings.Finding:
    size = node.options.bytes_moved
    with socket.create_server((host, 0)) as listener:
        listener.settimeout(10)
        sent = allreduce.block(1, size)
        with (
            socket.create_connection(listener.getsockname()[:2], timeout=10) as near,
            _accepted(listener, near.getsockname()) as far,
        ):
            began = node.wall_s()
            writer = threading.Thread(target=node.send, args=(node.node, near, sent), daemon=True)
            writer.start()
            got = allreduce.receive(far, size)
            writer.join()
            taken = node.wall_s() - began
    if got != sent:
        return findings.fail(f"what came back over {host} differs from what was sent", device=device)
    return findings.ok(
        f"{size / taken / 1e9:.3g} GB/s over {host}",
        device=device,
        measured=size / taken,
        unit="bytes_s",
        detail={"engine": f"tcp {size} bytes"},
    )


def _accepted(listener: socket.socket, own: object) -> socket.socket:
    """The link that we made, whoever else has found the port."""
    while True:
        link, peer = listener.accept()
        if peer == own:
            return link
        link.close()


TEST = registry.Test(
    name="loopback",
    proves="What the node sends to its own address comes back, from the processors at each of its memory nodes. (RDMA adapters to GPU memory: ib_write_bw, where it is installed.)",
    needs="an address of the node in Slurm",
    fails="what came back differs",
    next_step="Look at the adapter's counters (probing-check run eth_link ib_link ib_counters).",
    run=run,
    unit="bytes_s",
    lower_is_better=False,
    deadline_s=60.0,
)
