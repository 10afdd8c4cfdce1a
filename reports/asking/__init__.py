"""How a command of a user asks the service: over its door, with a MUNGE credential."""
