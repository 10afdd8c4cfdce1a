"""What may be done to nodes and jobs: drain, adopt, resume our own, requeue."""
