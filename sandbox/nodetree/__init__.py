"""A simulated node: a directory that looks like the root of a GPU server."""
