"""Which faults stand on this node now, from events and present readings, and on which device."""
