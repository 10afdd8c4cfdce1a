"""Faults of hardware and system software, told as the cluster would write them down; a family in each file."""

from benchmarks.campaign.faults import fabric, gpu, host, storage

__all__ = ["fabric", "gpu", "host", "storage"]
