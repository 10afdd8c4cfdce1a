"""Schema `kernel`: the kernel log of the node."""
