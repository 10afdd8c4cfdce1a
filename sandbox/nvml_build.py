"""Building the NVML stub: one `libnvidia-ml.so.1` per content of its source."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from probing_cluster.sandbox import processes

SOURCE = Path(__file__).resolve().parent / "nvml_stub"
LIBRARY = "libnvidia-ml.so.1"

_FLAGS = (
    "-std=c11",
    "-D_GNU_SOURCE",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-pthread",
)
_LINK = ("-shared", f"-Wl,-soname,{LIBRARY}", "-Wl,--no-undefined")


def build(directory: Path) -> Path:
    """The library, built below `directory` unless one of the same source lies there already."""
    sources = sorted(SOURCE.glob("*.[ch]"))
    digest = hashlib.blake2b(digest_size=8)
    for text in (" ".join(_FLAGS + _LINK).encode(), *(path.read_bytes() for path in sources)):
        digest.update(text)
    library = directory / f"nvml-{digest.hexdigest()}" / LIBRARY
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    fresh = library.with_name(f"{LIBRARY}.{os.getpid()}")
    compiler = shutil.which("gcc") or "gcc"
    c_files = [str(path) for path in sources if path.suffix == ".c"]
    processes.run([compiler, *_FLAGS, *_LINK, "-o", str(fresh), *c_files], env=os.environ)
    fresh.replace(library)
    return library
