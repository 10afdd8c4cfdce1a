"""Every polled source of the agent; a new one is one file and one line here."""

from __future__ import annotations

from probing_cluster.probe_agent.sources import (
    amdsmi,
    clock,
    disk,
    edac,
    infiniband,
    interfaces,
    ipmi,
    memory,
    mounts,
    nvml,
    pcie,
    polled,
    services,
)

POLLED: tuple[polled.Polled, ...] = (
    nvml.SOURCE,
    amdsmi.SOURCE,
    infiniband.SOURCE,
    interfaces.SOURCE,
    pcie.SOURCE,
    edac.SOURCE,
    mounts.SOURCE,
    services.SOURCE,
    disk.SOURCE,
    memory.SOURCE,
    clock.SOURCE,
    ipmi.SOURCE,
)
