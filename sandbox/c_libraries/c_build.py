"""Shared libraries built from our C sources, one per content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from probing_cluster.sandbox.machine import commands


def shared_library(
    directory: Path, name: str, library: str, sources: Sequence[Path], flags: Sequence[str]
) -> Path:
    """`<directory>/<name>-<digest>/<library>`, built by gcc unless one of the same content lies there."""
    digest = hashlib.blake2b(" ".join(flags).encode(), digest_size=8)
    for path in sources:
        digest.update(path.read_bytes())
    built = directory / f"{name}-{digest.hexdigest()}" / library
    if built.exists():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{library}.{os.getpid()}")
    c_files = [str(path) for path in sources if path.suffix == ".c"]
    commands.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(fresh), *c_files, *flags], env=os.environ)
    fresh.replace(built)
    return built
