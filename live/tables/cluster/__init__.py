"""Schema `cluster`: the job: its nodes and ranks."""
