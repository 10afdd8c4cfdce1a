"""Building the SPANK plugin against this machine's Slurm headers."""

from __future__ import annotations

from pathlib import Path

from probing_cluster import slurm_plugins
from probing_cluster.sandbox.c_libraries import c_build

_HEADERS = Path("/usr/include/slurm/spank.h")


def build(directory: Path) -> Path | None:
    """The plugin, built below `directory`; None without Slurm's headers (Debian: libslurm-dev)."""
    sources = sorted((Path(slurm_plugins.__path__[0]).resolve() / "spank").glob("*.[ch]"))
    if not sources or not _HEADERS.exists():
        return None
    return c_build.shared_library(
        directory, "spank", "probing.so", sources, ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
    )
