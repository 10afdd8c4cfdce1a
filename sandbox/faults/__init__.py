"""Faults to inject: one small function each, registered by its name."""

from __future__ import annotations

from probing_cluster.sandbox.faults import diagnosed, gpu, host, network, registry, services, storage

__all__ = ["diagnosed", "gpu", "host", "network", "registry", "services", "storage"]
