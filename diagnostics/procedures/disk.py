"""The local disk keeps what is written to it."""

from __future__ import annotations

import hashlib
import os
import random
import tempfile
from collections.abc import Sequence

from probing_cluster.diagnostics import machine, registry
from probing_cluster.healthchecks import findings

_BYTES = 1 << 22


def run(node: machine.Machine) -> Sequence[findings.Finding]:
    where = node.options.disk_directory or tempfile.gettempdir()
    return [written_and_read(node, where, "disk")]


def written_and_read(node: machine.Machine, where: str, word: str) -> findings.Finding:
    """Writes a file, syncs it, drops it from the cache, reads it back and removes it."""
    block = random.Random(node.options.seed).randbytes(_BYTES)
    began = node.wall_s()
    try:
        with tempfile.TemporaryFile(dir=where, prefix="probing-diagnose-") as stream:
            stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stream.seek(0)
            back = stream.read()
    except OSError as exc:
        return findings.fail(f"{where} cannot be written and read: {exc.strerror}", device=where)
    taken = node.wall_s() - began
    if hashlib.sha256(back).digest() != hashlib.sha256(block).digest():
        return findings.fail(f"{where} gave back other data than was written", device=where)
    return findings.ok(
        f"{_BYTES / 1e6:.3g} MB written, synced and read in {taken:.2g} s",
        device=where,
        measured=taken,
        unit="s",
        detail={"model": word, "engine": f"{_BYTES} bytes"},
    )


TEST = registry.Test(
    name="disk",
    proves="The node's own disk takes a file and gives the same back.",
    needs="a directory on it ([diagnostics] disk_directory)",
    fails="the file cannot be written or synced, or comes back changed",
    next_step="Look at the kernel log and at the disk's SMART data; replace the disk.",
    run=run,
    deadline_s=60.0,
)
