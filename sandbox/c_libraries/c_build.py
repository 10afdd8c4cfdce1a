"""Shared libraries built from our C sources, one per content; a process compiles the same content once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.sandbox.machine import commands

_COMPILED: dict[str, bytes] = {}
"""What this process has compiled, by digest: who boots many sandboxes builds each library once."""


def shared_library(
    directory: Path, name: str, library: str, sources: Sequence[Path], flags: Sequence[str]
) -> Path:
    """`<directory>/<name>-<digest>/<library>`, built by gcc unless one of the same content lies there."""
    digest = hashlib.blake2b(" ".join(flags).encode(), digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    content = digest.hexdigest()
    built = directory / f"{name}-{content}" / library
    if built.exists():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{library}.{os.getpid()}")
    if content in _COMPILED:
        fresh.write_bytes(_COMPILED[content])
        fresh.chmod(0o755)
    else:
        c_files = [str(path) for path in sources if path.suffix == ".c"]
        commands.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(fresh), *c_files, *flags], env=os.environ)
        _COMPILED[content] = fresh.read_bytes()
    fresh.replace(built)
    return built
