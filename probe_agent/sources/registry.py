"""Every polled source of the agent; a new one is one file and one line here."""

from __future__ import annotations

from probing_cluster.probe_agent.sources import nvml, polled

POLLED: tuple[polled.Polled, ...] = (nvml.SOURCE,)
