"""What commands print on a terminal: tables, progress, nodes, gangs, the fleet."""
