"""Tables and Arrow schemas derived from the records; the control plane's store and the agent's one delivery door."""
