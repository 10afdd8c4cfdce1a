"""Memory gives back what was written, and copies as quickly as on equal nodes."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.diagnostics import cpus, gpus, machine, registry
from probing_cluster.healthchecks import findings

_PATTERNS = (0x00, 0xFF, 0x55, 0xAA)


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    made = [_of_host(node, f"host {near}".strip()) for near in cpus.at_each_memory_node(node.root)]
    try:
        version, parts = gpus.ask(node, "memory", TEST.deadline_s, bytes=node.options.bytes_moved)
        made += gpus.judged(
            parts,
            version,
            lambda part: (
                part["bytes_s"],
                "bytes_s",
                f"{part['bytes_s'] / 1e9:.4g} GB/s over {part['bytes'] / 1e9:.3g} GB",
            ),
        )
    except findings.Absent as exc:
        made.append(findings.absent(f"no GPU's memory was tried: {exc}", device="gpu"))
    return made


def _of_host(node: machine.Machine, device: str) -> findings.Finding:
    size, wrong, best = node.options.bytes_moved, 0, float("inf")
    for pattern in _PATTERNS:
        block = bytes([pattern]) * size
        for _ in range(node.options.repeats):
            began = node.wall_s()
            copied = node.copy(block)
            best = min(best, node.wall_s() - began)
            wrong += copied != block
    detail = {"model": cpus.model(), "engine": f"copy of {size} bytes"}
    if wrong:
        return findings.fail(
            f"{wrong} of {len(_PATTERNS) * node.options.repeats} copies differ from what was written",
            device=device,
            detail=detail,
        )
    speed = 2 * size / best
    return findings.ok(
        f"{speed / 1e9:.3g} GB/s", device=device, measured=speed, unit="bytes_s", detail=detail
    )


TEST = registry.Test(
    name="memory",
    proves="Patterns written to memory come back, and a copy is as quick as on equal parts.",
    needs="GPUs: [diagnostics] torch_python",
    fails="what was read differs from what was written",
    next_step="Look at the ECC counters and the machine check log of this node; a part that gives back wrong data is replaced.",
    run=run,
    unit="bytes_s",
    lower_is_better=False,
    deadline_s=120.0,
)
