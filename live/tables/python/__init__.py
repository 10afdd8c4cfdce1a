"""Schema `python`: the Python of each rank: stacks, variables, and tables of its own."""
