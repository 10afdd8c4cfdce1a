"""Building the AMD SMI stub: one `libamd_smi.so` per content of its source."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.sandbox.c_libraries import c_build

SOURCE = Path(__file__).resolve().parent / "amdsmi_stub"
LIBRARY = "libamd_smi.so"


def build(directory: Path) -> Path:
    """The library, built below `directory` unless one of the same source lies there already."""
    flags = ("-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
    link = (f"-Wl,-soname,{LIBRARY}", "-Wl,--no-undefined")
    return c_build.shared_library(directory, "amdsmi", LIBRARY, sorted(SOURCE.glob("*.c")), (*flags, *link))
