"""A real Slurm cluster on one machine with simulated node hardware; fault injection; the demo."""
