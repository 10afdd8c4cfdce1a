"""The processor's name, by which equal nodes are compared."""

from __future__ import annotations

from pathlib import Path

from probing_cluster.core import sanitize


def model() -> str:
    """`model name` of /proc/cpuinfo; empty where the kernel gives none."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() == "model name":
                    return sanitize.clean(value.strip(), 80)
    except OSError:
        return ""
    return ""
