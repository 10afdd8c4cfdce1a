"""Building the NVML stub: one `libnvidia-ml.so.1` per content of its source."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.sandbox.c_libraries import c_build

SOURCE = Path(__file__).resolve().parent / "nvml_stub"
LIBRARY = "libnvidia-ml.so.1"


def build(directory: Path) -> Path:
    """The library, built below `directory` unless one of the same source lies there already."""
    flags = ("-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-pthread")
    link = (f"-Wl,-soname,{LIBRARY}", "-Wl,--no-undefined")
    return c_build.shared_library(directory, "nvml", LIBRARY, sorted(SOURCE.glob("*.[ch]")), (*flags, *link))
