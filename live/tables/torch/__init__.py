"""Schema `torch`: torch in each rank: steps, collectives, checkpoints, modules, memory."""
