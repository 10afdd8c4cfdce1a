"""What changes while one looks: the Now document, its stream, and the ranks of running jobs over time."""
