"""The socket that Slurm's hooks and people talk to, and what the agent answers."""
