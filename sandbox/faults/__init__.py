"""Faults to inject: one small function each, registered by its name."""

from __future__ import annotations

from probing_cluster.sandbox.faults import gpu, host, network, registry, services, storage

__all__ = ["gpu", "host", "network", "registry", "services", "storage"]
