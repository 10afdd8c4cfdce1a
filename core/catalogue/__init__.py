"""What vendors' codes and names mean: generated tables with our sentences, read on first use, and Slurm's cgroups."""
