"""sacct as attempts: text and JSON of Slurm 20.11 to 26.05."""
