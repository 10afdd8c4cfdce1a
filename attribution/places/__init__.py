"""What nodes share that can fail: switches, racks, power feeds, file servers; and which of them many faults point at."""
