"""The cost of failures: run accounts, ETTR, MTTF and the fleet's figures."""
