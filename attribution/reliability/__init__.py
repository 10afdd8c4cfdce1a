"""What failures cost: run accounts, ETTR, MTTF and the fleet's figures."""
