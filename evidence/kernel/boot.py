"""The kernel's and the NVIDIA driver's first lines: the node restarted, or its GPUs were set up anew.

Only offline logs are read so: on a live node the agent knows the boot by its id.
"""

from __future__ import annotations

import re

from probing_cluster.evidence.kernel.grammar import INFO, SOFTWARE, Facts, KernelFinding, fact, make

TRIGGERS: tuple[str, ...] = ("Linux version ", "NVRM: loading NVIDIA UNIX")
FACTS: Facts = {
    ("node_boot", "kernel"): fact(
        INFO, SOFTWARE, "The node's kernel started.", "Nothing, unless nobody restarted it."
    ),
    ("driver_load", "nvidia"): fact(
        INFO, SOFTWARE, "The NVIDIA driver was loaded and set up the node's GPUs.", "Nothing."
    ),
}
_BOOT = re.compile(r"Linux version \d+\.\d+(?:\.\d+)?\S* \(", re.ASCII)
_LOAD = re.compile(r"NVRM: loading NVIDIA UNIX (?:Open )?\S+ Kernel Module\b", re.ASCII)


def read(message: str) -> KernelFinding | None:
    """The boot or driver load that a kernel message, without its prefixes, begins with."""
    if _BOOT.match(message):
        return make(FACTS, "node_boot", "kernel", message)
    return make(FACTS, "driver_load", "nvidia", message) if _LOAD.match(message) else None
