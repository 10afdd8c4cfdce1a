"""Scripts that Slurm itself starts, as root or as the user; run as files, never imported by the product."""
