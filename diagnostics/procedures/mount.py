"""The site's shared directories take a file from this node and give it back."""

from __future__ import annotations

from collections.abc import Sequence

from probing_cluster.diagnostics import machine, registry
from probing_cluster.diagnostics.procedures import disk
from probing_cluster.healthchecks import findings


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    if not node.options.mounts:
        raise findings.Absent("[diagnostics] mounts names no directory")
    return [disk.written_and_read(node, where, "mount") for where in node.options.mounts]


TEST = registry.Test(
    name="mount",
    proves="Every directory of [diagnostics] mounts can be written and read from this node.",
    needs="[diagnostics] mounts",
    fails="a file cannot be written, or comes back changed; a mount that hangs ends the test as an error",
    next_step="Mount it again; when other nodes have the same trouble it is the file server's.",
    run=run,
    deadline_s=60.0,
)
