"""Places that nodes share (switches, racks, power feeds, file servers), and which of them explain many faults."""
