"""The probe inside a training process: one mmap page, a few hooks, nothing else."""
