"""What vendors' codes and names mean: generated tables with our sentences, read on first use; Slurm's cgroups and lines, and what secrets look like in text."""
