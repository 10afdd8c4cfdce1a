"""Everything that speaks Slurm: hooks, accounting, live state, drains."""
