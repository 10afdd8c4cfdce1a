"""torch's own all-reduce between nodes: NCCL from the first GPU of each, Gloo where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.core import sanitize
from probing_cluster.diagnostics import gpus, machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    """This node is one rank; the first of the group listens for the others."""
    group = node.group
    if group is None or len(group.members) < 2 or node.node not in group.members:
        raise findings.Absent("there is no other node to test with")
    if not node.answers():
        raise findings.Undetermined("this node's links are dead")
    host, port = group.addresses[group.members[0]]
    version, parts = gpus.ask(
        node,
        "allreduce",
        TEST.deadline_s,
        bytes=node.options.bytes_moved,
        rank=group.members.index(node.node),
        members=len(group.members),
        host=host,
        port=port,
        own_host=group.addresses[node.node][0],
        timeout_s=2 * node.options.connect_s,
    )
    part = parts[0]
    engine = f"torch {version} {part['backend']} n={len(group.members)} bytes={node.options.bytes_moved}"
    if "failed" in part:
        words = sanitize.clean(str(part["failed"]), 200)
        return [findings.fail(f"{part['backend']}: {words}", detail={"engine": engine})]
    return gpus.judged(
        [part],
        version,
        lambda one: (
            one["best_s"],
            "s",
            f"{one['backend']}, {len(group.members)} nodes in {one['best_s'] * 1e3:.3g} ms",
        ),
    )


TEST = registry.Test(
    name="torch-allreduce",
    proves="The library that trainings use adds up right between nodes: NCCL from GPU 0 of each, Gloo where there is none.",
    needs="[diagnostics] torch_python, and two nodes",
    fails="ranks do not find each other in time, or an element of the sum is wrong",
    next_step="When pair and ring pass and this does not, look at NCCL's interface and adapter settings before the nodes.",
    run=run,
    scope="group",
    deadline_s=90.0,
)
