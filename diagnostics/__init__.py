"""Active tests of nodes that are out of service, and who is at fault by their results; knows nothing of drains."""
