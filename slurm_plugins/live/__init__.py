"""Jobs and nodes right now: pyslurm, JSON and text as the same records."""
