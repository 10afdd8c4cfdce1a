"""Data goes from the host to each GPU and back unchanged, both ways as quickly as elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.diagnostics import gpus, machine, registry
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    version, parts = gpus.ask(node, "pcie", TEST.deadline_s, bytes=max(node.options.bytes_moved, 1 << 28))
    return gpus.judged(
        parts,
        version,
        lambda part: (
            min(part["to_bytes_s"], part["from_bytes_s"]),
            "bytes_s",
            f"{part['to_bytes_s'] / 1e9:.3g} GB/s to the device, {part['from_bytes_s'] / 1e9:.3g} GB/s back",
        ),
    )


TEST = registry.Test(
    name="pcie",
    proves="What is copied to a GPU and back is unchanged, in both directions at the usual speed.",
    needs="GPUs and [diagnostics] torch_python",
    fails="what came back differs from what was sent",
    next_step="Compare the link's width and generation (probing-check run pcie_link); reseat or replace the riser.",
    run=run,
    unit="bytes_s",
    lower_is_better=False,
    deadline_s=120.0,
)
