"""Schema `gpu`: the GPUs of the node."""
