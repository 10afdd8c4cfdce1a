"""Schema `nic`: the network ports of the node."""
