"""Schema `cpu`: the processors of the node."""
