"""What a job's owner learns without asking: Slurm's mail with the verdict in it, and a line in accounting."""
