"""Our rows for notebooks: verdicts, attempts, events, lemon scores and fleet figures as pandas DataFrames or Arrow tables."""

from probing_cluster.frames.rows import Frames, connect

__all__ = ["Frames", "connect"]
